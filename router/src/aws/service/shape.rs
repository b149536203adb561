//! The types of the service model.

use fancy_regex::Regex;

/// A shape, as its index in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShapeId(pub(super) usize);

/// A type with its constraints.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// The least value, length (in characters) or number of entries.
    pub(super) min: Option<f64>,
    /// The greatest.
    pub(super) max: Option<f64>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Structure(Vec<Member>),
    List(ShapeId),
    Map {
        key: ShapeId,
        value: ShapeId,
    },
    String {
        pattern: Option<Pattern>,
        values: Vec<String>,
    },
    /// 32 bits, signed.
    Integer,
    /// 64 bits, signed.
    Long,
    /// Of either width.
    Float,
    Boolean,
    /// Seconds since 1970, with fraction.
    Timestamp,
}

/// A member of a structure.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) shape: ShapeId,
    pub(super) required: bool,
}

/// A pattern that a whole string has to match.
#[derive(Debug)]
pub(super) struct Pattern {
    /// As the service model has it.
    pub(super) text: String,
    whole: Regex,
}

impl Pattern {
    /// # Errors
    /// When it is no regular expression.
    pub(super) fn new(text: String) -> Result<Self, Box<fancy_regex::Error>> {
        // The service's are Java's, where digits are those of ASCII.
        let ascii = text.replace(r"\d", "[0-9]");
        let whole = Regex::new(&format!(r"\A(?:{ascii})\z"))?;
        Ok(Self { text, whole })
    }

    /// Whether all of the text matches; not if to find out takes too many steps.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.whole.is_match(text).unwrap_or(false)
    }
}

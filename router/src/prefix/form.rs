//! The model in a form: `multipart/form-data` (RFC 7578), in which sound and pictures are sent.

use memchr::memmem;

/// Bytes of a part's header fields that are looked at.
const MAX_FIELDS: usize = 8 << 10;
/// Longest name of a model, in bytes.
const MAX_MODEL: usize = 512;
/// Longest boundary, in characters (RFC 2046 section 5.1.1).
const MAX_BOUNDARY: usize = 70;

/// Looks for the field `model` in a form that comes in pieces. Files are passed over, and not kept.
#[derive(Debug)]
pub struct FormScanner {
    /// What stands before each part, and after the last one.
    delimiter: Vec<u8>,
    state: State,
    /// What was fed and not yet decided on.
    pending: Vec<u8>,
    /// Bytes that may still be looked at.
    left: usize,
    model: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a part that does not matter, or before the first.
    Skip,
    /// In the header fields of a part.
    Fields,
    /// In the model's name.
    Model,
    Done,
}

impl FormScanner {
    /// For a body of this `Content-Type`, of which at most `limit` bytes are looked at. `None` if it is
    /// no form.
    pub fn new(content_type: &[u8], limit: usize) -> Option<Self> {
        let content_type = std::str::from_utf8(content_type).ok()?;
        let (kind, _) = content_type.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
            return None;
        }
        let boundary = parameter(content_type, "boundary")?;
        (1..=MAX_BOUNDARY).contains(&boundary.len()).then(|| Self {
            delimiter: [b"\r\n--", boundary.as_bytes()].concat(),
            state: State::Skip,
            // The first delimiter may stand at the start.
            pending: b"\r\n".to_vec(),
            left: limit,
            model: None,
        })
    }

    /// Takes the next bytes of the payload; `true` means that no more are needed, or of use.
    ///
    /// What is found does not depend on how the body was cut, and more bytes change nothing.
    pub fn feed(&mut self, payload: &[u8]) -> bool {
        let within = &payload[..payload.len().min(self.left)];
        self.left -= within.len();
        if self.state != State::Done {
            self.pending.extend_from_slice(within);
            while self.step() {}
        }
        if within.len() < payload.len() {
            self.state = State::Done;
        }
        self.state == State::Done
    }

    /// The model, if the form has named it.
    pub fn model(&self) -> Option<&[u8]> {
        self.model.as_deref()
    }

    /// Takes one more thing off what is pending; `false` if more has to come first.
    fn step(&mut self) -> bool {
        let (pending, delimiter) = (&self.pending, &self.delimiter);
        let (used, next) = match self.state {
            State::Done => return false,
            State::Skip => match memmem::find(pending, delimiter) {
                Some(at) => (at + delimiter.len(), State::Fields),
                None => {
                    let beyond = pending.len().saturating_sub(delimiter.len() - 1);
                    self.pending.drain(..beyond);
                    return false;
                }
            },
            // The last delimiter.
            State::Fields if pending.starts_with(b"--") => (0, State::Done),
            State::Fields => match memmem::find(pending, b"\r\n\r\n") {
                Some(at) if is_model(&pending[..at]) => (at + 4, State::Model),
                // A part may be empty: its end is the next delimiter's start.
                Some(at) => (at + 4, State::Skip),
                None if pending.len() > MAX_FIELDS => (0, State::Done),
                None => return false,
            },
            State::Model => match memmem::find(pending, delimiter) {
                Some(at) => {
                    self.model = (at <= MAX_MODEL).then(|| pending[..at].to_vec());
                    (0, State::Done)
                }
                None if pending.len() > MAX_MODEL + delimiter.len() => (0, State::Done),
                None => return false,
            },
        };
        self.pending.drain(..used);
        self.state = next;
        true
    }
}

/// Whether these header fields of a part say that it is the model (RFC 7578 section 4.2).
fn is_model(fields: &[u8]) -> bool {
    let fields = String::from_utf8_lossy(fields);
    let mut values = fields.split("\r\n").filter_map(|line| line.split_once(':'));
    values.any(|(name, value)| {
        name.trim().eq_ignore_ascii_case("content-disposition")
            && parameter(value, "name").is_some_and(|name| name == "model")
    })
}

/// A parameter of a field's value, such as `boundary` (RFC 9110 section 5.6.6).
fn parameter(value: &str, wanted: &str) -> Option<String> {
    let mut rest = value.split_once(';')?.1;
    loop {
        let (name, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (found, next) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let (found, next) = after.split_at(after.find(';').unwrap_or(after.len()));
                (found.trim_end().to_owned(), next)
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(found);
        }
        rest = next.split_once(';')?.1;
    }
}

/// The text up to the closing quote, and what comes behind that.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut chars = quoted.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((text, &quoted[at + 1..])),
            (_, '\\') => text.push(chars.next()?.1),
            (_, char) => text.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TYPE: &[u8] = b"multipart/form-data; boundary=xyz";

    fn part(fields: &str, content: &[u8]) -> Vec<u8> {
        let head = format!("--xyz\r\n{fields}\r\n\r\n");
        [head.as_bytes(), content, b"\r\n"].concat()
    }

    fn field(name: &str, content: &[u8]) -> Vec<u8> {
        part(&format!("Content-Disposition: form-data; name=\"{name}\""), content)
    }

    fn file(content: &[u8]) -> Vec<u8> {
        let fields = "Content-Type: audio/wav\r\n\
                      Content-Disposition: form-data; filename=\"a; name=model\"; name=\"file\"";
        part(fields, content)
    }

    fn model(body: &[u8]) -> Option<Vec<u8>> {
        let mut scanner = FormScanner::new(TYPE, 1 << 20).expect("a form");
        scanner.feed(body);
        scanner.model().map(<[u8]>::to_vec)
    }

    const END: &[u8] = b"--xyz--\r\n";

    #[test]
    fn the_model_is_found_before_and_behind_a_file() {
        let name = || field("model", b"whisper-1");
        let file = || file(b"\r\n--xy\r\n--\0\r\nmodel\r\n\r\n--xy");
        for parts in [
            vec![name(), file()],
            vec![file(), name()],
            vec![field("prompt", b""), field("language", b"pt"), file(), name(), name()],
        ] {
            let body = [parts.concat(), END.to_vec()].concat();
            assert_eq!(model(&body).as_deref(), Some(&b"whisper-1"[..]));
            let with_preamble = [b"This is a form.\r\n", &*body].concat();
            assert_eq!(model(&with_preamble).as_deref(), Some(&b"whisper-1"[..]));
        }
        let odd = part("content-DISPOSITION:form-data;NAME=model ; x=\"\\\"\"", b"m");
        assert_eq!(model(&[&odd, END].concat()).as_deref(), Some(&b"m"[..]));
    }

    #[test]
    fn a_form_without_a_model_has_none() {
        for body in [
            [file(b"x"), END.to_vec()].concat(),
            [field("models", b"x"), END.to_vec()].concat(),
            // Behind the end, cut off, too long.
            [END, &*field("model", b"x"), END].concat(),
            field("model", b"x")[..20].to_vec(),
            b"--xyz\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisp".to_vec(),
            [field("model", &[b'x'; MAX_MODEL + 1]), END.to_vec()].concat(),
            [part(&format!("A: {}", "x".repeat(MAX_FIELDS)), b""), field("model", b"x")].concat(),
            b"{\"model\":\"x\"}".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(model(&body), None, "{}", String::from_utf8_lossy(&body));
        }
        let mut short = FormScanner::new(TYPE, 100).expect("a form");
        let body = [file(&[0; 100]), field("model", b"x")].concat();
        assert!(short.feed(&body) && short.model().is_none(), "no further than the limit");
    }

    #[test]
    fn other_bodies_are_no_forms() {
        for kind in [
            "application/json",
            "multipart/form-data",
            "multipart/form-data; charset=utf-8",
            "multipart/mixed; boundary=xyz",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"xyz",
        ] {
            assert!(FormScanner::new(kind.as_bytes(), 100).is_none(), "{kind}");
        }
        for kind in
            ["Multipart/Form-Data;Boundary=\"xyz\"", "multipart/form-data; a=b; boundary=xyz"]
        {
            let scanner = FormScanner::new(kind.as_bytes(), 100).expect("a form");
            assert_eq!(scanner.delimiter, b"\r\n--xyz");
        }
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            content in proptest::collection::vec(prop_oneof![
                Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'x'), Just(b'y'), any::<u8>()
            ], 0..200),
            cuts in proptest::collection::vec(1..40_usize, 1..100),
        ) {
            let body = [file(&content), field("model", b"m"), END.to_vec()].concat();
            let mut scanner = FormScanner::new(TYPE, 1 << 20).expect("a form");
            let (mut rest, mut cuts) = (&*body, cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(cuts.next().unwrap_or(1).min(rest.len()));
                scanner.feed(piece);
                rest = after;
            }
            prop_assert_eq!(scanner.model().map(<[u8]>::to_vec), model(&body));
        }

        #[test]
        fn anything_may_come(body: Vec<u8>) {
            model(&[b"--xyz\r\n", &*body].concat());
        }
    }
}

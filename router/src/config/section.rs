//! Tables of a TOML document, read setting by setting, with the place of each value at hand.

use std::{cell::RefCell, fmt::Display, ops::Range, time::Duration};

use ipnet::IpNet;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    ConfigError, Issue,
    setting::{Kind, Setting},
    value::{duration, duration_text, network, size, size_text},
};

/// A parsed file and what was found wrong in it.
pub(super) struct Document<'t> {
    text: &'t str,
    schema: &'static [&'static [Setting]],
    table: Spanned<DeTable<'t>>,
    issues: RefCell<Vec<(usize, Issue)>>,
}

impl<'t> Document<'t> {
    /// Parses `text`, whose settings are those of the tables in `schema`.
    pub(super) fn parse(text: &'t str, schema: &'static [&'static [Setting]]) -> Self {
        let (table, errors) = DeTable::parse_recoverable(text);
        let document = Self { text, schema, table, issues: RefCell::default() };
        for error in errors {
            document.issue(error.span(), "", error.message());
        }
        document
    }

    pub(super) fn root(&self) -> Section<'_, 't> {
        Section::new(self, Some(self.table.get_ref()), 0..0, "", String::new())
    }

    fn settings(&self) -> impl Iterator<Item = &'static Setting> + use<> {
        self.schema.iter().copied().flatten()
    }

    /// A setting of another section with this name.
    fn elsewhere(&self, name: &str) -> Option<&'static str> {
        self.settings().map(|s| s.path).find(|path| path.rsplit('.').next() == Some(name))
    }

    pub(super) fn issue(
        &self,
        span: Option<Range<usize>>,
        field: impl Into<String>,
        message: impl Into<String>,
    ) {
        let start = span.map(|span| span.start.min(self.text.len()));
        let issue = Issue {
            at: start.map(|at| self.line(at)),
            field: field.into(),
            message: message.into(),
        };
        // What has no place concerns the file as a whole, and comes last.
        self.issues.borrow_mut().push((start.unwrap_or(usize::MAX), issue));
    }

    /// Line and column, from 1, in characters.
    fn line(&self, at: usize) -> (usize, usize) {
        let before = &self.text.as_bytes()[..at];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
        (line, column)
    }

    pub(super) fn finish(self, source_name: &str) -> Result<(), ConfigError> {
        let mut issues = self.issues.into_inner();
        if issues.is_empty() {
            return Ok(());
        }
        issues.sort_by_key(|(at, _)| *at);
        let issues = issues.into_iter().map(|(_, issue)| issue).collect();
        Err(ConfigError { source_name: source_name.into(), issues })
    }
}

/// One table of the document; an absent one reads as empty.
pub(super) struct Section<'d, 't> {
    document: &'d Document<'t>,
    table: Option<&'d DeTable<'t>>,
    span: Range<usize>,
    /// As in [`Setting::path`], with a final dot unless it is the root.
    schema: String,
    /// As people name it, with the indices of lists, and a final dot unless it is the root.
    field: String,
    known: RefCell<Vec<&'static str>>,
}

impl<'d, 't> Section<'d, 't> {
    fn new(
        document: &'d Document<'t>,
        table: Option<&'d DeTable<'t>>,
        span: Range<usize>,
        schema: &str,
        field: String,
    ) -> Self {
        let schema = schema.to_owned();
        Self { document, table, span, schema, field, known: RefCell::default() }
    }

    fn setting(&self, key: &str) -> &'static Setting {
        let path = format!("{}{key}", self.schema);
        let found = self.document.settings().find(|setting| setting.path == path);
        found.unwrap_or_else(|| panic!("no setting {path} in the tables"))
    }

    fn get(&self, key: &'static str) -> Option<&'d Spanned<DeValue<'t>>> {
        self.known.borrow_mut().push(key);
        self.table?.get(key)
    }

    /// Whether the file has this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Reports a value that is wrong; its place is the section's when it is absent.
    pub(super) fn issue(&self, key: &str, message: impl Into<String>) {
        let value = self.table.and_then(|table| table.get(key));
        let span = value.map_or(self.span.clone(), |value| value.span());
        self.document.issue(Some(span), format!("{}{key}", self.field), message);
    }

    /// Reads a value, or takes the default of the table.
    pub(super) fn value<T>(
        &self,
        key: &'static str,
        convert: impl Fn(Value<'_, '_>) -> Result<T, String>,
    ) -> T {
        if let Some(value) = self.get(key) {
            match convert(Value(value.get_ref())) {
                Ok(value) => return value,
                Err(message) => self.issue(key, message),
            }
        }
        let text = self.setting(key).default.expect("a setting without a default is not read here");
        let value = DeValue::parse(text).expect("defaults are written as in TOML");
        convert(Value(value.get_ref())).expect("defaults are within their range")
    }

    /// Reads text that must be there.
    pub(super) fn required<T>(
        &self,
        key: &'static str,
        convert: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let Some(value) = self.get(key) else {
            self.issue(key, format!("is missing: {}", first_sentence(self.setting(key).about)));
            return None;
        };
        match Value(value.get_ref()).text().and_then(convert) {
            Ok(value) => Some(value),
            Err(message) => {
                self.issue(key, message);
                None
            }
        }
    }

    pub(super) fn bool(&self, key: &'static str) -> bool {
        self.value(key, |value| match value.0 {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(value.instead("true or false")),
        })
    }

    pub(super) fn integer<T: TryFrom<u64>>(&self, key: &'static str) -> T {
        let kind = &self.setting(key).kind;
        self.value(key, |value| narrow(kind.integer(value.integer()?)?))
    }

    pub(super) fn optional_integer<T: TryFrom<u64>>(&self, key: &'static str) -> Option<T> {
        let value = Value(self.get(key)?.get_ref());
        let kind = &self.setting(key).kind;
        value
            .integer()
            .and_then(|n| narrow(kind.integer(n)?))
            .map_err(|message| self.issue(key, message))
            .ok()
    }

    pub(super) fn size<T: TryFrom<u64>>(&self, key: &'static str) -> T {
        let kind = &self.setting(key).kind;
        self.value(key, |value| {
            let bytes = match value.0 {
                DeValue::Integer(_) => value.integer()?,
                DeValue::String(text) => size(text)
                    .ok_or_else(|| value.instead("bytes, such as 65536 or \"64KiB\""))?
                    .into(),
                _ => return Err(value.instead("bytes, such as 65536 or \"64KiB\"")),
            };
            narrow(kind.integer(bytes)?)
        })
    }

    pub(super) fn duration(&self, key: &'static str) -> Duration {
        let Kind::Duration { min, max, zero } = self.setting(key).kind else {
            panic!("{key} is no duration in the table")
        };
        self.value(key, |value| {
            let wanted = "a time with its unit, such as \"250ms\", \"3s\", \"5m\" or \"1h\"";
            let DeValue::String(text) = value.0 else { return Err(value.instead(wanted)) };
            let time = duration(text).ok_or_else(|| value.instead(wanted))?;
            if (min..=max).contains(&time) || zero.is_some() && time.is_zero() {
                return Ok(time);
            }
            let or_zero = zero.map_or(String::new(), |what| format!(", or \"0s\" ({what})"));
            Err(format!(
                "{text} is out of range: write \"{}\" to \"{}\"{or_zero}",
                duration_text(min),
                duration_text(max),
            ))
        })
    }

    pub(super) fn choice<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> T {
        self.value(key, |value| {
            let text = value.text()?;
            words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
                let words: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
                format!("`{text}` is not known: write {}", words.join(", "))
            })
        })
    }

    /// Reads an absolute path of a URL.
    pub(super) fn path(&self, key: &'static str) -> String {
        self.value(key, |value| {
            let text = value.text()?;
            let ok =
                text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
            ok.then(|| text.to_owned()).ok_or_else(|| {
                format!("`{text}` is no path: begin with / and percent-encode other characters")
            })
        })
    }

    /// Reads a list of strings.
    pub(super) fn items<T>(
        &self,
        key: &'static str,
        convert: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        self.value(key, |value| list_of(value, &convert))
    }

    /// Reads a list of strings that must be there.
    pub(super) fn required_items<T>(
        &self,
        key: &'static str,
        convert: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let Some(value) = self.get(key) else {
            self.issue(key, format!("is missing: {}", first_sentence(self.setting(key).about)));
            return None;
        };
        list_of(Value(value.get_ref()), &convert).map_err(|message| self.issue(key, message)).ok()
    }

    /// Reads a list of addresses and networks.
    pub(super) fn networks(&self, key: &'static str) -> Vec<IpNet> {
        self.items(key, network)
    }

    /// Reads a list of names of network interfaces.
    pub(super) fn interfaces(&self, key: &'static str) -> Vec<String> {
        self.items(key, |text| {
            // IFNAMSIZ is 16 with the final NUL.
            let ok = !text.is_empty()
                && text.len() < 16
                && !text.bytes().any(|b| b == b'/' || b.is_ascii_whitespace());
            ok.then(|| text.to_owned()).ok_or_else(|| {
                format!("`{text}` is no interface name: write one that `ip link` lists")
            })
        })
    }

    /// Reads the table `key` with `read`.
    pub(super) fn table<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&Section<'_, '_>) -> T,
    ) -> T {
        let (mut table, mut span) = (None, self.span.clone());
        if let Some(value) = self.get(key) {
            span = value.span();
            match value.get_ref() {
                DeValue::Table(found) => table = Some(found),
                _ => {
                    self.issue(key, format!("is no table: write a section [{}{key}]", self.schema))
                }
            }
        }
        let section = Section::new(
            self.document,
            table,
            span,
            &format!("{}{key}.", self.schema),
            format!("{}{key}.", self.field),
        );
        let value = read(&section);
        section.finish();
        value
    }

    /// Reads each table of the list `key` with `read`, and leaves out those that it cannot make
    /// anything of (and has reported).
    pub(super) fn list<T>(
        &self,
        key: &'static str,
        read: impl Fn(&Section<'_, '_>) -> Option<T>,
    ) -> Vec<T> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let DeValue::Array(items) = value.get_ref() else {
            let header = format!("[[{}{key}]]", self.schema);
            self.issue(key, format!("is no list: write it as {header}, with double brackets"));
            return Vec::new();
        };
        let mut list = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let field = format!("{}{key}[{index}]", self.field);
            let DeValue::Table(table) = item.get_ref() else {
                let header = format!("[[{}{key}]]", self.schema);
                let message = format!("is no table: write each as {header}");
                self.document.issue(Some(item.span()), field, message);
                continue;
            };
            let section = Section::new(
                self.document,
                Some(table),
                item.span(),
                &format!("{}{key}.", self.schema),
                format!("{field}."),
            );
            list.extend(read(&section));
            section.finish();
        }
        list
    }

    /// Reports entries of the list `list` whose `key` an earlier one has, in the normal form that
    /// `normal` gives it.
    pub(super) fn unique<N: PartialEq + Display>(
        &self,
        list: &str,
        key: &str,
        normal: impl Fn(&str) -> Option<N>,
    ) {
        let Some(DeValue::Array(items)) =
            self.table.and_then(|table| table.get(list)).map(Spanned::get_ref)
        else {
            return;
        };
        let mut seen: Vec<N> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let Some(value) = item.get_ref().as_table().and_then(|table| table.get(key)) else {
                continue;
            };
            let Some(name) = value.get_ref().as_str().and_then(&normal) else { continue };
            if seen.contains(&name) {
                self.document.issue(
                    Some(value.span()),
                    format!("{}{list}[{index}].{key}", self.field),
                    format!("{name} is there already: each {list} needs its own {key}"),
                );
            }
            seen.push(name);
        }
    }

    /// Reports the keys that nobody has read.
    pub(super) fn finish(&self) {
        let known = self.known.borrow();
        for (key, _) in self.table.into_iter().flat_map(DeTable::iter) {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let nearest = known
                .iter()
                .map(|candidate| (distance(name, candidate), candidate))
                .filter(|(distance, _)| *distance <= 2)
                .min_by_key(|(distance, _)| *distance);
            let advice = match (nearest, self.document.elsewhere(name)) {
                (Some((_, candidate)), _) => format!("did you mean `{candidate}`?"),
                (None, Some(path)) => format!("it belongs elsewhere, as `{path}`"),
                (None, None) => format!("known here: {}", known.join(", ")),
            };
            self.document.issue(
                Some(key.span()),
                format!("{}{name}", self.field),
                format!("is not a setting: {advice}"),
            );
        }
    }
}

fn list_of<T>(
    value: Value<'_, '_>,
    convert: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let DeValue::Array(items) = value.0 else { return Err(value.instead("a list in [ ]")) };
    items.iter().map(|item| convert(Value(item.get_ref()).text()?)).collect()
}

fn first_sentence(text: &str) -> &str {
    text.split_inclusive(". ").next().unwrap_or(text).trim_end()
}

/// Insertions, deletions and substitutions between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn narrow<T: TryFrom<u64>>(n: u64) -> Result<T, String> {
    n.try_into().map_err(|_| format!("{n} is more than this machine can address"))
}

impl Kind {
    /// Checks a whole number against the setting's range.
    pub(super) fn integer(&self, n: i128) -> Result<u64, String> {
        let (min, max, range) = match *self {
            Self::Integer { min, max, unit } | Self::OptionalInteger { min, max, unit } => {
                (min, max, format!("a whole number from {min} to {max} ({unit})"))
            }
            Self::Size { min, max } => {
                (min, max, format!("{} to {}", size_text(min), size_text(max)))
            }
            _ => panic!("no number in the table"),
        };
        u64::try_from(n)
            .ok()
            .filter(|n| (min..=max).contains(n))
            .ok_or_else(|| format!("{n} is out of range: write {range}"))
    }
}

/// A value of the document.
#[derive(Clone, Copy)]
pub(super) struct Value<'a, 't>(&'a DeValue<'t>);

impl<'a> Value<'a, '_> {
    pub(super) fn text(self) -> Result<&'a str, String> {
        self.0.as_str().ok_or_else(|| self.instead("text in quotes"))
    }

    fn integer(self) -> Result<i128, String> {
        let DeValue::Integer(n) = self.0 else { return Err(self.instead("a whole number")) };
        i128::from_str_radix(n.as_str(), n.radix())
            .map_err(|_| format!("{n} is out of range: write a smaller number"))
    }

    pub(super) fn number(self) -> Result<f64, String> {
        match self.0 {
            DeValue::Integer(_) => self.integer().map(|n| n as f64),
            DeValue::Float(f) => f.as_str().parse().map_err(|_| self.instead("a number")),
            _ => Err(self.instead("a number")),
        }
    }

    fn instead(self, wanted: &str) -> String {
        match self.0 {
            DeValue::String(text) => format!("`{text}` will not do: write {wanted}"),
            DeValue::Integer(n) => format!("{n} will not do: write {wanted}"),
            DeValue::Float(n) => format!("{n} will not do: write {wanted}"),
            other => format!("is a {}: write {wanted}", other.type_str()),
        }
    }
}

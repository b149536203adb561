//! The fields of a head that has been checked.

/// The fields of a head as (name, value), in order, values without the white space around them.
///
/// Made only from heads that passed the parser: every line has a colon behind a token.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// `lines` are the field lines, each with its CRLF, without the empty line.
    pub(super) fn new(lines: &'a [u8]) -> Self {
        Self { rest: lines }
    }

    /// The value of the first field of this name.
    pub fn find(self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// The values of all fields of this name, in order.
    pub fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.filter(move |(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| v)
    }

    /// The value of the field of this name, if there is exactly one.
    pub fn only(self, name: &str) -> Option<&'a [u8]> {
        let mut all = self.all(name);
        let first = all.next()?;
        all.next().is_none().then_some(first)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let end = memchr::memchr(b'\r', self.rest)?;
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 2..).unwrap_or_default();
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], trim(&line[colon + 1..])))
    }
}

/// Without optional white space at either end (RFC 9110 section 5.6.3: space and tab only).
pub(super) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma-separated list, without white space, empty ones skipped (RFC 9110
/// section 5.6.1.2).
pub(crate) fn list_tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_order_and_trimmed() {
        let fields = Fields::new(b"A:1\r\nb: \t2 \r\nC:\r\na:x:y\r\n");
        let all: Vec<_> = fields.clone().collect();
        let expected: Vec<(&[u8], &[u8])> =
            vec![(b"A", b"1"), (b"b", b"2"), (b"C", b""), (b"a", b"x:y")];
        assert_eq!(all, expected);
        assert_eq!(fields.clone().find("B"), Some(&b"2"[..]));
        assert_eq!(fields.clone().find("a"), Some(&b"1"[..]));
        assert_eq!(fields.clone().find("d"), None);
        assert_eq!(fields.clone().all("A").collect::<Vec<_>>(), [&b"1"[..], b"x:y"]);
        assert_eq!(fields.clone().only("a"), None);
        assert_eq!(fields.only("B"), Some(&b"2"[..]));
    }

    #[test]
    fn lists_skip_empty_elements() {
        let tokens: Vec<_> = list_tokens(b" close , ,\tkeep-alive,").collect();
        assert_eq!(tokens, [&b"close"[..], b"keep-alive"]);
    }
}

//! Line discipline: a head is lines that end with CRLF, up to an empty one.

/// What is wrong with the lines of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineError {
    /// CR without LF.
    BareCr,
    /// LF without CR. RFC 9112 section 2.2 lets a recipient accept it; a gateway must not, since the
    /// server behind it may not.
    BareLf,
    /// A line that continues the one before (RFC 9112 section 5.2).
    ObsFold,
}

impl LineError {
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::BareCr => "The message head has a CR that no LF follows; lines end with CRLF.",
            Self::BareLf => "The message head has a LF without a CR; lines end with CRLF.",
            Self::ObsFold => {
                "A field of the message head continues on the next line (obsolete line folding); \
                 write each field on one line."
            }
        }
    }

    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::BareCr | Self::BareLf => "line_end",
            Self::ObsFold => "obs_fold",
        }
    }
}

/// Finds the end of the head that starts at `start`: the offset behind its empty line.
///
/// `line` is the start of the first line not yet seen whole, and moves on with what is seen, so that
/// a head that arrives in many pieces is not read from its start each time.
pub(super) fn end_of_head(
    buf: &[u8],
    start: usize,
    line: &mut usize,
) -> Result<Option<usize>, LineError> {
    *line = (*line).max(start);
    loop {
        let rest = buf.get(*line..).unwrap_or_default();
        if *line > start && matches!(rest.first(), Some(b' ' | b'\t')) {
            return Err(LineError::ObsFold);
        }
        let Some(at) = memchr::memchr2(b'\r', b'\n', rest) else { return Ok(None) };
        if rest[at] == b'\n' {
            return Err(LineError::BareLf);
        }
        match rest.get(at + 1) {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) => return Err(LineError::BareCr),
        }
        *line += at + 2;
        if at == 0 {
            return Ok(Some(*line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(buf: &[u8]) -> Result<Option<usize>, LineError> {
        end_of_head(buf, 0, &mut 0)
    }

    #[test]
    fn ends_at_the_empty_line() {
        assert_eq!(end(b"a\r\nb: c\r\n\r\nmore"), Ok(Some(11)));
        assert_eq!(end(b"a\r\nb: c\r\n\r"), Ok(None));
        assert_eq!(end(b"a\r\nb: c\r\n"), Ok(None));
        assert_eq!(end(b""), Ok(None));
    }

    #[test]
    fn faults_are_seen_before_the_end_is() {
        assert_eq!(end(b"a\nb"), Err(LineError::BareLf));
        assert_eq!(end(b"a\r\n\n"), Err(LineError::BareLf));
        assert_eq!(end(b"a\rb"), Err(LineError::BareCr));
        assert_eq!(end(b"a\r\r\n"), Err(LineError::BareCr));
        assert_eq!(end(b"a\r\n b"), Err(LineError::ObsFold));
        assert_eq!(end(b"a\r\n\tb"), Err(LineError::ObsFold));
    }

    #[test]
    fn resuming_gives_the_same_end() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
        let mut line = 0;
        for length in 0..head.len() {
            assert_eq!(end_of_head(&head[..length], 0, &mut line), Ok(None));
        }
        assert_eq!(end_of_head(head, 0, &mut line), Ok(Some(head.len())));
    }
}

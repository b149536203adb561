//! How long the body is, from the fields of the head (RFC 9112 section 6.3), strictly.

use super::{Version, fields::list_tokens};

/// What the fields that matter to the connection say, gathered in one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gathered {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    /// `Connection` names something else than `close` and `keep-alive`.
    pub(super) names_fields: bool,
    /// Options that `Connection` has named.
    options: u32,
}

/// Most options that `Connection` may have: each is looked for in every field when a head is
/// rewritten, and honest senders name a few.
const MAX_OPTIONS: u32 = 32;

/// What is wrong with the fields that frame the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramingFault {
    LengthMalformed,
    LengthRepeated,
    CodingUnknown,
    CodingRepeated,
    BothLengthAndCoding,
    CodingInHttp10,
    LookAlike,
    TooManyOptions,
}

impl FramingFault {
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::LengthMalformed | Self::LengthRepeated => "content_length",
            Self::CodingUnknown | Self::CodingRepeated | Self::CodingInHttp10 => {
                "transfer_encoding"
            }
            Self::BothLengthAndCoding | Self::LookAlike => "ambiguous_framing",
            Self::TooManyOptions => "connection",
        }
    }

    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::LengthMalformed => {
                "Content-Length is not a plain decimal number below 2^63; send digits only."
            }
            Self::LengthRepeated => "Content-Length appears more than once; send it once.",
            Self::CodingUnknown => {
                "Transfer-Encoding is something else than 'chunked'; no other coding is accepted."
            }
            Self::CodingRepeated => "Transfer-Encoding appears more than once; send it once.",
            Self::BothLengthAndCoding => {
                "Both Content-Length and Transfer-Encoding are present; send one of them."
            }
            Self::CodingInHttp10 => "Transfer-Encoding in an HTTP/1.0 message; HTTP/1.0 has none.",
            Self::LookAlike => {
                "A field named like Content-Length or Transfer-Encoding, but with an underscore, \
                 is present; some servers take it for the real one."
            }
            Self::TooManyOptions => "Connection names more than 32 options.",
        }
    }
}

/// The framing that the fields announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announced {
    Nothing,
    Length(u64),
    Chunked,
}

impl Gathered {
    /// Takes one field into account. Names of no concern pass.
    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), FramingFault> {
        // By length first: most fields are none of these.
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in list_tokens(value) {
                    self.options += 1;
                    if self.options > MAX_OPTIONS {
                        return Err(FramingFault::TooManyOptions);
                    }
                    if option.eq_ignore_ascii_case(b"close") {
                        self.close = true;
                    } else if option.eq_ignore_ascii_case(b"keep-alive") {
                        self.keep_alive = true;
                    } else {
                        self.names_fields = true;
                    }
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = decimal(value).ok_or(FramingFault::LengthMalformed)?;
                if self.length.replace(length).is_some() {
                    return Err(FramingFault::LengthRepeated);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(FramingFault::CodingUnknown);
                }
                if std::mem::replace(&mut self.chunked, true) {
                    return Err(FramingFault::CodingRepeated);
                }
            }
            14 if name.eq_ignore_ascii_case(b"content_length") => {
                return Err(FramingFault::LookAlike);
            }
            17 if name.eq_ignore_ascii_case(b"transfer_encoding") => {
                return Err(FramingFault::LookAlike);
            }
            _ => {}
        }
        Ok(())
    }

    /// The framing, once all fields have been seen.
    pub(super) fn announced(&self, version: Version) -> Result<Announced, FramingFault> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(FramingFault::BothLengthAndCoding),
            (true, None) if version == Version::Http10 => Err(FramingFault::CodingInHttp10),
            (true, None) => Ok(Announced::Chunked),
            (false, Some(length)) => Ok(Announced::Length(length)),
            (false, None) => Ok(Announced::Nothing),
        }
    }

    /// What Content-Length says.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Whether the sender keeps the connection open (RFC 9112 section 9.3).
    pub(super) fn persistent(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}

/// `1*DIGIT` (RFC 9110 section 8.6) below 2^63: no sign, no list, no white space, no overflow.
fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit).filter(|&sum| sum >> 63 == 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_plain_digits() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"007"), Some(7));
        assert_eq!(decimal(b"9223372036854775807"), Some(i64::MAX as u64));
        for bad in [
            &b""[..],
            b"+5",
            b"-5",
            b"5 5",
            b"5,5",
            b"0x5",
            b"5.",
            b"5e1",
            b"\xd9\xa5",
            b"9223372036854775808",
            b"18446744073709551616",
            b"99999999999999999999999999",
        ] {
            assert_eq!(decimal(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn persistence_follows_version_and_connection() {
        let case = |version, value: &[u8]| {
            let mut gathered = Gathered::default();
            gathered.field(b"connection", value).unwrap();
            gathered.persistent(version)
        };
        assert!(case(Version::Http11, b""));
        assert!(case(Version::Http11, b"keep-alive"));
        assert!(!case(Version::Http11, b"x, CLOSE"));
        assert!(!case(Version::Http10, b""));
        assert!(case(Version::Http10, b"Keep-Alive"));
        assert!(!case(Version::Http10, b"keep-alive, close"));
    }
}

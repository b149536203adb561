//! What a client shows of who it is, for what the gateway asks instances on its behalf.

use std::rc::Rc;

use super::read::Request;

/// Fields that hold credentials in the APIs that instances speak.
const FIELDS: [&str; 5] = ["authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"];

/// A field's name and value.
type Field = (&'static str, Box<[u8]>);

/// A client's credentials.
#[derive(Clone)]
pub(super) struct Credentials(Rc<[Field]>);

impl Credentials {
    pub(super) fn of(request: &Request) -> Self {
        let fields = FIELDS.iter().filter_map(|name| Some((*name, request.header(name)?.into())));
        Self(fields.collect())
    }

    /// As fields of a request.
    pub(super) fn fields(&self) -> Vec<(&str, &[u8])> {
        self.0.iter().map(|(name, value)| (*name, &**value)).collect()
    }

    /// All of them as bytes, which no other credentials have: values hold no line ends.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let lines = self.0.iter().flat_map(|(name, value)| [name.as_bytes(), value]);
        lines.flat_map(|line| [line, b"\n"].concat()).collect()
    }
}

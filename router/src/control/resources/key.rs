//! Where a resource is kept in the store: its kind and its name.

use std::fmt;

/// `model/example-llm-model`
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    kind: Kind,
    name: String,
}

/// Kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A model.
    Model,
    /// An endpoint configuration.
    Config,
    /// An endpoint.
    Endpoint,
    /// An inference component.
    Component,
}

const KINDS: [(Kind, &str); 4] = [
    (Kind::Model, "model"),
    (Kind::Config, "endpoint-config"),
    (Kind::Endpoint, "endpoint"),
    (Kind::Component, "inference-component"),
];

impl Key {
    fn new(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }

    /// Of a model.
    pub fn model(name: &str) -> Self {
        Self::new(Kind::Model, name)
    }

    /// Of an endpoint configuration.
    pub fn config(name: &str) -> Self {
        Self::new(Kind::Config, name)
    }

    /// Of an endpoint.
    pub fn endpoint(name: &str) -> Self {
        Self::new(Kind::Endpoint, name)
    }

    /// Of an inference component.
    pub fn component(name: &str) -> Self {
        Self::new(Kind::Component, name)
    }

    /// What kind of resource it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its name, unique among its kind.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The inverse of its [`Display`](fmt::Display) form; `None` for what is no key.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once('/')?;
        let (kind, _) = KINDS.iter().find(|(_, word)| *word == kind)?;
        Some(Self::new(*kind, name))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or("", |(_, word)| word);
        write!(f, "{word}/{}", self.name)
    }
}

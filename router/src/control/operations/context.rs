//! What an operation can see, and how it finds resources in it.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    aws::{
        AwsError,
        arn::{Arn, Kind},
    },
    control::{
        Identity,
        resources::{Component, Endpoint, EndpointConfig, Model, Resources},
    },
};

/// Models that there may be.
const MAX_MODELS: usize = 10_000;
/// Endpoint configurations that there may be.
const MAX_CONFIGS: usize = 10_000;
/// Endpoints that there may be.
const MAX_ENDPOINTS: usize = 5_000;
/// Inference components that there may be.
const MAX_COMPONENTS: usize = 20_000;

/// What an operation can see.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The time, in milliseconds since 1970.
    pub now: u64,
    /// Whose resources they are.
    pub identity: &'a Identity,
    /// What exists in the store.
    pub resources: &'a Resources,
    /// What the configuration file defines. Where both have a name, the file's is the one that counts.
    pub file: &'a Resources,
}

type ByName<T> = BTreeMap<String, Arc<T>>;

/// A kind of resource.
pub(super) trait Named: Sized + 'static {
    /// The kind in ARNs and messages.
    const KIND: Kind;
    /// How many there may be.
    const MAX: usize;
    /// What messages call all of them.
    const PLURAL: &'static str;
    /// Those that exist.
    fn of(resources: &Resources) -> &ByName<Self>;
}

impl Named for Model {
    const KIND: Kind = Kind::Model;
    const MAX: usize = MAX_MODELS;
    const PLURAL: &'static str = "models";

    fn of(resources: &Resources) -> &ByName<Self> {
        &resources.models
    }
}

impl Named for EndpointConfig {
    const KIND: Kind = Kind::EndpointConfig;
    const MAX: usize = MAX_CONFIGS;
    const PLURAL: &'static str = "endpoint configurations";

    fn of(resources: &Resources) -> &ByName<Self> {
        &resources.configs
    }
}

impl Named for Endpoint {
    const KIND: Kind = Kind::Endpoint;
    const MAX: usize = MAX_ENDPOINTS;
    const PLURAL: &'static str = "endpoints";

    fn of(resources: &Resources) -> &ByName<Self> {
        &resources.endpoints
    }
}

impl Named for Component {
    const KIND: Kind = Kind::InferenceComponent;
    const MAX: usize = MAX_COMPONENTS;
    const PLURAL: &'static str = "inference components";

    fn of(resources: &Resources) -> &ByName<Self> {
        &resources.components
    }
}

impl<'a> Context<'a> {
    /// The ARN of a resource of this gateway.
    pub(super) fn arn(&self, kind: Kind, name: &str) -> Arn {
        Arn::new(kind, name, &self.identity.region, &self.identity.account)
    }

    /// A resource of the file or of the store.
    pub(super) fn find<T: Named>(&self, name: &str) -> Result<&'a T, AwsError> {
        let found = T::of(self.file).get(name).or_else(|| T::of(self.resources).get(name));
        found.map(|found| &**found).ok_or_else(|| self.arn(T::KIND, name).could_not_find())
    }

    /// A resource that is to be changed or deleted: not one of the file.
    pub(super) fn changeable<T: Named>(&self, name: &str) -> Result<&'a T, AwsError> {
        let found = self.find(name)?;
        if T::of(self.file).contains_key(name) {
            return Err(self.read_only::<T>(name));
        }
        Ok(found)
    }

    fn read_only<T: Named>(&self, name: &str) -> AwsError {
        AwsError::validation(format!(
            "{} \"{}\" comes from the gateway's configuration file: change it there.",
            capitalized(&T::KIND.to_string()),
            self.arn(T::KIND, name)
        ))
    }

    /// Whether a resource of this name may be made. Names that differ in the case of letters alone are the
    /// same name.
    pub(super) fn creatable<T: Named>(&self, name: &str) -> Result<(), AwsError> {
        let names = T::of(self.file).keys().chain(T::of(self.resources).keys());
        if let Some(taken) = names.into_iter().find(|taken| taken.eq_ignore_ascii_case(name)) {
            return Err(self.arn(T::KIND, taken).already_exists());
        }
        if T::of(self.resources).len() >= T::MAX {
            return Err(AwsError::limit(format!(
                "There can be {} {} at most: delete one that is not needed.",
                T::MAX,
                T::PLURAL
            )));
        }
        Ok(())
    }

    /// All of a kind, those of the file first.
    pub(super) fn all<T: Named>(&self) -> impl Iterator<Item = &'a T> {
        let file = T::of(self.file);
        let stored = T::of(self.resources).iter().filter(|(name, _)| !file.contains_key(*name));
        file.values().chain(stored.map(|(_, it)| it)).map(|it| &**it)
    }
}

/// With its first letter in upper case.
fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

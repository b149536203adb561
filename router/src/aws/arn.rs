//! The names of resources across accounts and regions.

use std::fmt;

use super::AwsError;

/// The ARN of a resource of SageMaker:
/// `arn:aws:sagemaker:us-east-1:123456789012:endpoint/example-llm-endpoint`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arn {
    /// As in `us-east-1`; it says the partition, too.
    pub region: String,
    /// Account number, 12 digits.
    pub account: String,
    /// What it names.
    pub kind: Kind,
    /// Its name, unique in region and account among its kind.
    pub name: String,
}

/// Kinds of resources that have an ARN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A model.
    Model,
    /// An endpoint configuration.
    EndpointConfig,
    /// An endpoint.
    Endpoint,
    /// An inference component.
    InferenceComponent,
}

/// Each kind, as in ARNs and as in messages.
const KINDS: [(Kind, &str, &str); 4] = [
    (Kind::Model, "model", "model"),
    (Kind::EndpointConfig, "endpoint-config", "endpoint configuration"),
    (Kind::Endpoint, "endpoint", "endpoint"),
    (Kind::InferenceComponent, "inference-component", "inference component"),
];

/// Regions by the beginning of their names, and their partitions; all others are in `aws`.
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html>
const PARTITIONS: [(&str, &str); 7] = [
    ("cn-", "aws-cn"),
    ("us-gov-", "aws-us-gov"),
    ("us-iso-", "aws-iso"),
    ("us-isob-", "aws-iso-b"),
    ("eu-isoe-", "aws-iso-e"),
    ("us-isof-", "aws-iso-f"),
    ("eusc-", "aws-eusc"),
];

impl Arn {
    /// Of a resource.
    #[must_use]
    pub fn new(kind: Kind, name: &str, region: &str, account: &str) -> Self {
        Self { region: region.to_owned(), account: account.to_owned(), kind, name: name.to_owned() }
    }

    /// Reads an ARN that the tag operations were given, which fits the service model's pattern.
    ///
    /// # Errors
    /// `ValidationException` in the service's words for what names nothing: the kind of resource is another
    /// one, or it is no ARN.
    pub fn parse(text: &str) -> Result<Self, AwsError> {
        Self::read(text).ok_or_else(no_resource)
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(6, ':');
        let mut next = || parts.next();
        let ("arn", partition, "sagemaker") = (next()?, next()?, next()?) else { return None };
        let (region, account, resource) = (next()?, next()?, next()?);
        let (word, name) = resource.split_once('/')?;
        let (kind, ..) = KINDS.iter().find(|(_, known, _)| *known == word)?;
        let arn = Self::new(*kind, name, region, account);
        (arn.partition() == partition && !name.is_empty()).then_some(arn)
    }

    fn partition(&self) -> &'static str {
        let found = PARTITIONS.iter().find(|(start, _)| self.region.starts_with(start));
        found.map_or("aws", |(_, partition)| partition)
    }

    /// What describing, changing or deleting it answers when it is not there.
    #[must_use]
    pub fn could_not_find(&self) -> AwsError {
        AwsError::validation(format!("Could not find {} \"{self}\".", self.kind))
    }

    /// What creating it answers when it is there.
    #[must_use]
    pub fn already_exists(&self) -> AwsError {
        AwsError::validation(format!("Cannot create already existing {} \"{self}\".", self.kind))
    }
}

/// What the tag operations answer about a resource that is not there.
#[must_use]
pub fn no_resource() -> AwsError {
    AwsError::validation("Resource does not exist.")
}

impl Kind {
    fn words(self) -> (&'static str, &'static str) {
        let found = KINDS.iter().find(|(kind, ..)| *kind == self);
        found.map_or(("", ""), |(_, in_arns, in_messages)| (in_arns, in_messages))
    }
}

impl fmt::Display for Arn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, account, kind, name } = self;
        let (partition, (kind, _)) = (self.partition(), kind.words());
        write!(f, "arn:{partition}:sagemaker:{region}:{account}:{kind}/{name}")
    }
}

/// In the words of the service's messages.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words().1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arns_of_all_kinds_are_read_as_they_are_written() {
        for (kind, ..) in KINDS {
            for (region, partition) in [
                ("us-east-1", "aws"),
                ("eu-central-1", "aws"),
                ("cn-north-1", "aws-cn"),
                ("us-gov-west-1", "aws-us-gov"),
                ("us-isob-east-1", "aws-iso-b"),
            ] {
                let arn = Arn::new(kind, "Example-1", region, "123456789012");
                let text = arn.to_string();
                assert!(
                    text.starts_with(&format!("arn:{partition}:sagemaker:{region}:")),
                    "{text}"
                );
                assert_eq!(Arn::parse(&text), Ok(arn));
            }
        }
        let endpoint = Arn::new(Kind::Endpoint, "e", "us-east-1", "123456789012");
        assert_eq!(endpoint.to_string(), "arn:aws:sagemaker:us-east-1:123456789012:endpoint/e");
    }

    #[test]
    fn what_names_no_resource_of_ours_is_refused() {
        for text in [
            "",
            "arn",
            "arn:aws:sagemaker:us-east-1:123456789012",
            "arn:aws:sagemaker:us-east-1:123456789012:endpoint",
            "arn:aws:sagemaker:us-east-1:123456789012:endpoint/",
            "arn:aws:sagemaker:us-east-1:123456789012:training-job/x",
            "arn:aws:s3:us-east-1:123456789012:endpoint/x",
            "arn:aws-cn:sagemaker:us-east-1:123456789012:endpoint/x",
            "urn:aws:sagemaker:us-east-1:123456789012:endpoint/x",
        ] {
            assert_eq!(Arn::parse(text), Err(no_resource()), "{text}");
        }
    }

    #[test]
    fn messages_are_the_services() {
        let arn = Arn::new(Kind::EndpointConfig, "c", "us-west-2", "123456789012");
        assert_eq!(
            arn.could_not_find().message,
            "Could not find endpoint configuration \
             \"arn:aws:sagemaker:us-west-2:123456789012:endpoint-config/c\"."
        );
        assert_eq!(
            arn.already_exists().message,
            "Cannot create already existing endpoint configuration \
             \"arn:aws:sagemaker:us-west-2:123456789012:endpoint-config/c\"."
        );
    }
}

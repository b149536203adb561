//! What an operation answers when it does not do what it was asked.

/// An error of an AWS API.
///
/// Names and statuses are those of SageMaker's control API:
/// <https://docs.aws.amazon.com/sagemaker/latest/APIReference/CommonErrors.html>.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {message}")]
pub struct AwsError {
    /// The error's code, such as `ValidationException`.
    pub name: &'static str,
    /// Status of the HTTP response.
    pub status: u16,
    /// What is wrong, and what to do, for a person.
    pub message: String,
}

impl AwsError {
    fn client(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, status: 400, message: message.into() }
    }

    /// The input breaks a rule, or names a resource that is not there: the service answers to both so.
    pub fn validation(message: impl Into<String>) -> Self {
        Self::client("ValidationException", message)
    }

    /// The input is not what its types say, or not JSON at all.
    pub fn serialization(message: impl Into<String>) -> Self {
        Self::client("SerializationException", message)
    }

    /// Another resource, or a change under way, stands against it.
    pub fn in_use(message: impl Into<String>) -> Self {
        Self::client("ResourceInUse", message)
    }

    /// There is no such resource. Operations on models, configurations, endpoints and components answer
    /// with [`AwsError::validation`] instead.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::client("ResourceNotFound", message)
    }

    /// More than there is to give.
    pub fn limit(message: impl Into<String>) -> Self {
        Self::client("ResourceLimitExceeded", message)
    }

    /// No operation of this name is offered.
    pub fn unknown_operation(message: impl Into<String>) -> Self {
        Self::client("UnknownOperationException", message)
    }

    /// Nothing that the caller could mend.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { name: "InternalFailure", status: 500, message: message.into() }
    }

    /// Not now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { name: "ServiceUnavailable", status: 503, message: message.into() }
    }
}

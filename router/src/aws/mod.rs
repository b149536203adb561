//! AWS's APIs as their clients speak them: facts and formats, no I/O.
//!
//! The authority is the service model that AWS's SDKs are made of; [`service`] holds what it says of the
//! control API of SageMaker, [`runtime`] what it says of the runtime API.

pub mod arn;
pub mod error;
pub mod event_stream;
pub mod json;
pub mod page;
pub mod runtime;
pub mod service;

pub use arn::Arn;
pub use error::AwsError;

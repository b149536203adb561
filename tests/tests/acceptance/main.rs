//! SageMaker's clients as they are, from the making of a model to the change of an endpoint under load.

mod service_model;

mod edges;
mod examples;
mod messages;
mod rules;

use serde_json::json;

use super::{operation, operations};

#[test]
fn operations_are_found_by_name() {
    assert_eq!(operation("CreateEndpoint").expect("it is offered").name(), "CreateEndpoint");
    assert!(operation("CreateTrainingJob").is_none());
    assert_eq!(operations().len(), 23);
}

#[test]
fn outputs_are_checked_more_strictly() {
    let create = operation("CreateModel").expect("it is offered");
    let arn = "arn:aws:sagemaker:us-east-1:123456789012:model/m";
    assert_eq!(create.check_output(&json!({ "ModelArn": arn })), Ok(()));
    for wrong in [
        json!({}),
        json!({ "ModelArn": 1 }),
        json!({ "ModelArn": "m" }),
        json!({ "ModelArn": arn, "ModelName": "m" }),
    ] {
        let error = create.check_output(&wrong).unwrap_err();
        assert_eq!((error.name, error.status), ("InternalFailure", 500), "{wrong}");
    }
    let delete = operation("DeleteModel").expect("it is offered");
    assert_eq!(delete.check_output(&json!({})), Ok(()));
    assert!(delete.check_output(&json!({ "ModelArn": arn })).is_err());
}

use serde_json::json;

use super::operation;

#[test]
fn operations_are_found_by_name() {
    assert_eq!(operation("CreateEndpoint").expect("it is offered").name(), "CreateEndpoint");
    assert!(operation("CreateTrainingJob").is_none());
    let error = operation("DescribeModel").expect("it is offered").check(&json!({})).unwrap_err();
    assert_eq!(
        error.message,
        "1 validation error detected: Value null at 'modelName' failed to satisfy constraint: \
         Member must not be null"
    );
}

//! Messages, as the service's users have met them.

use serde_json::{Value, json};

use super::operation;
use crate::aws::AwsError;

fn check(name: &str, input: &Value) -> AwsError {
    operation(name).expect("it is offered").check(input).expect_err("it is wrong")
}

/// An endpoint configuration with one variant, some of whose members are others.
fn config(changes: &Value) -> Value {
    let mut variant = json!({
        "VariantName": "AllTraffic",
        "ModelName": "m",
        "InitialInstanceCount": 3,
        "InstanceType": "ml.p5.48xlarge",
    });
    for (name, value) in changes.as_object().expect("members") {
        variant[name] = value.clone();
    }
    json!({ "EndpointConfigName": "c", "ProductionVariants": [variant] })
}

#[test]
fn a_pattern_names_the_member_and_quotes_the_value() {
    let error = check("CreateEndpointConfig", &config(&json!({ "ModelName": "ENTER MODEL NAME" })));
    assert_eq!(
        error.to_string(),
        "ValidationException: 1 validation error detected: Value 'ENTER MODEL NAME' at \
         'productionVariants.1.member.modelName' failed to satisfy constraint: Member must satisfy \
         regular expression pattern: [a-zA-Z0-9]([\\-a-zA-Z0-9]*[a-zA-Z0-9])?"
    );
}

#[test]
fn several_errors_are_counted_and_told_in_one_message() {
    let name = "a_".repeat(40);
    let error = check("DescribeModel", &json!({ "ModelName": name }));
    assert_eq!(
        error.message,
        format!(
            "2 validation errors detected: Value '{name}' at 'modelName' failed to satisfy \
             constraint: Member must have length less than or equal to 63; Value '{name}' at \
             'modelName' failed to satisfy constraint: Member must satisfy regular expression \
             pattern: [a-zA-Z0-9]([\\-a-zA-Z0-9]*[a-zA-Z0-9])?"
        )
    );
}

#[test]
fn what_is_missing_is_null() {
    let error = check("CreateEndpoint", &json!({ "EndpointName": "e" }));
    assert_eq!(
        error.message,
        "1 validation error detected: Value null at 'endpointConfigName' failed to satisfy \
         constraint: Member must not be null"
    );
}

#[test]
fn ranges_and_enums_say_what_is_allowed() {
    let routing = json!({
        "RoutingStrategy": "STICKY",
        "PrefixAwareRoutingConfig": { "PrefixLength": 1023, "ConcurrencyThreshold": 1025 },
    });
    let error = check("CreateEndpointConfig", &config(&json!({ "RoutingConfig": routing })));
    let place = "productionVariants.1.member.routingConfig";
    assert_eq!(
        error.message,
        format!(
            "3 validation errors detected: Value '1025' at \
             '{place}.prefixAwareRoutingConfig.concurrencyThreshold' failed to satisfy constraint: \
             Member must have value less than or equal to 1024; Value '1023' at \
             '{place}.prefixAwareRoutingConfig.prefixLength' failed to satisfy constraint: Member \
             must have value greater than or equal to 1024; Value 'STICKY' at \
             '{place}.routingStrategy' failed to satisfy constraint: Member must satisfy enum value \
             set: [LEAST_OUTSTANDING_REQUESTS, RANDOM, PREFIX_AWARE, KV_AWARE]"
        )
    );
}

#[test]
fn simple_elements_are_told_of_at_their_list() {
    let vpc = json!({ "SecurityGroupIds": ["sg-1", "sg 2"], "Subnets": ["subnet-1"] });
    let input = json!({ "ModelName": "m", "PrimaryContainer": { "Image": "i" }, "VpcConfig": vpc });
    assert_eq!(
        check("CreateModel", &input).message,
        "1 validation error detected: Value '[sg-1, sg 2]' at 'vpcConfig.securityGroupIds' failed to \
         satisfy constraint: Member must satisfy constraint: [Member must satisfy regular expression \
         pattern: [-0-9a-zA-Z]+]"
    );
    let container = json!({ "Image": "i", "Environment": { "a-b": "c" } });
    let input = json!({ "ModelName": "m", "PrimaryContainer": container });
    assert_eq!(
        check("CreateModel", &input).message,
        "1 validation error detected: Value '{a-b=c}' at 'primaryContainer.environment' failed to \
         satisfy constraint: Map keys must satisfy constraint: [Member must satisfy regular \
         expression pattern: [a-zA-Z_][a-zA-Z0-9_]*]"
    );
}

#[test]
fn another_type_is_named_with_its_place() {
    let error = check("CreateEndpointConfig", &config(&json!({ "InitialInstanceCount": "3" })));
    assert_eq!(
        error.to_string(),
        "SerializationException: STRING_VALUE can not be converted to an Integer, at \
         'productionVariants.1.member.initialInstanceCount'"
    );
    let error = check("DeleteTags", &json!({ "ResourceArn": "x", "TagKeys": ["a", 1] }));
    assert_eq!(error.message, "NUMBER_VALUE can not be converted to a String, in 'tagKeys'");
    let error = check("DeleteTags", &json!([]));
    assert_eq!(error.message, "LIST_VALUE can not be converted to a structure");
}

#[test]
fn no_message_is_as_long_as_what_it_complains_of() {
    let long = "_".repeat(1 << 20);
    let error = check("DescribeModel", &json!({ "ModelName": long }));
    assert!(error.message.len() < 2000, "{}", error.message.len());
    assert!(error.message.contains("___...' at 'modelName'"), "{}", error.message);

    let tags: Vec<Value> = (0..50).map(|_| json!({ "Key": long, "Value": long })).collect();
    let error = check("AddTags", &json!({ "ResourceArn": "x", "Tags": tags }));
    assert!(error.message.starts_with("101 validation errors detected: "), "{}", error.message);
    assert!(error.message.len() < 10_000, "{}", error.message.len());

    let keys: Vec<&str> = (0..50).map(|_| &*long).collect();
    let error = check("DeleteTags", &json!({ "ResourceArn": "x", "TagKeys": keys }));
    assert!(error.message.len() < 2000, "{}", error.message.len());
}

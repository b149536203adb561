//! Tags, on all kinds of resources.

use serde_json::{Value, json};

use super::{arn, host_variant, new};

fn tags(control: &super::Control, arn: &str) -> Vec<(String, String)> {
    let output = control.ok("ListTags", json!({ "ResourceArn": arn }));
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let all = output["Tags"].as_array().expect("tags").iter();
    all.map(|tag| (text(&tag["Key"]), text(&tag["Value"]))).collect()
}

#[test]
fn tags_are_added_overwritten_and_deleted_on_every_kind_of_resource() {
    let control = new();
    control.serving("E", &[host_variant("one")]);
    control.ok("CreateInferenceComponent", super::components::component("E", "E", 1));
    for kind in ["model", "endpoint-config", "endpoint", "inference-component"] {
        // In lower case, as the service writes ARNs, too.
        for arn in [arn(&format!("{kind}/E")), arn(&format!("{kind}/e"))] {
            assert_eq!(tags(&control, &arn), []);
            let generation = control.endpoint("E").generation;
            let added = json!([{ "Key": "a", "Value": "1" }, { "Key": "b", "Value": "" }]);
            control.ok("AddTags", json!({ "ResourceArn": arn, "Tags": added }));
            let more = json!([{ "Key": "a", "Value": "2" }, { "Key": "c", "Value": "3" }]);
            let output = control.ok("AddTags", json!({ "ResourceArn": arn, "Tags": more }));
            assert_eq!(output["Tags"].as_array().expect("all tags").len(), 3);
            let expected = [("a", "2"), ("b", ""), ("c", "3")];
            assert_eq!(
                tags(&control, &arn),
                expected.map(|(key, value)| (key.into(), value.into()))
            );
            control.ok("DeleteTags", json!({ "ResourceArn": arn, "TagKeys": ["a", "b", "none"] }));
            assert_eq!(tags(&control, &arn), [("c".into(), "3".into())]);
            control.ok("DeleteTags", json!({ "ResourceArn": arn, "TagKeys": ["c"] }));
            assert_eq!(control.endpoint("E").generation, generation, "tags change no endpoint");
        }
    }
}

#[test]
fn there_are_limits() {
    let control = new();
    control.model("m");
    let arn = arn("model/m");
    let many: Vec<Value> =
        (0..50).map(|n| json!({ "Key": format!("k{n}"), "Value": "" })).collect();
    control.ok("AddTags", json!({ "ResourceArn": arn, "Tags": many }));
    let again = json!([{ "Key": "k49", "Value": "new" }]);
    control.ok("AddTags", json!({ "ResourceArn": arn, "Tags": again }));
    let more = json!([{ "Key": "k50", "Value": "" }]);
    let message = control.invalid("AddTags", json!({ "ResourceArn": arn, "Tags": more }));
    assert!(message.contains("50 tags at most"), "{message}");
    assert_eq!(tags(&control, &arn).len(), 50);
    let reserved = json!([{ "Key": "AWS:x", "Value": "" }]);
    control.invalid("AddTags", json!({ "ResourceArn": arn, "Tags": reserved }));
}

#[test]
fn resources_of_others_do_not_exist() {
    let control = new();
    control.model("m");
    for arn in [
        "arn:aws:sagemaker:us-east-1:111122223333:model/none".to_owned(),
        "arn:aws:sagemaker:us-east-1:111122223333:training-job/m".to_owned(),
        "arn:aws:sagemaker:eu-west-1:111122223333:model/m".to_owned(),
        "arn:aws:sagemaker:us-east-1:444455556666:model/m".to_owned(),
    ] {
        for (operation, member, value) in [
            ("ListTags", "MaxResults", json!(50)),
            ("AddTags", "Tags", json!([{ "Key": "a", "Value": "" }])),
            ("DeleteTags", "TagKeys", json!(["a"])),
        ] {
            let message = control.invalid(operation, json!({ "ResourceArn": arn, member: value }));
            assert_eq!(message, "Resource does not exist.");
        }
    }
}

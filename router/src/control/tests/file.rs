//! What the configuration file defines.

use serde_json::{Value, json};

use super::{arn, new, variant};
use crate::config::{Config, parse};

fn config(endpoints: &str) -> Config {
    let text = format!("[control]\nlisten = \"127.0.0.1:9902\"\n{endpoints}");
    parse("atalho.toml", &text).expect("a valid file")
}

const CHAT: &str = r#"
[[endpoint]]
name = "chat"
[[endpoint.variant]]
name = "main"
prefix_length = 2048
[[endpoint.variant.instance]]
url = "http://10.0.0.1:8000"
[[endpoint.variant.instance]]
url = "http://10.0.0.2:8000"
[[endpoint.variant]]
name = "spare"
strategy = "random"
weight = 0.5
"#;

fn names(list: &Value, member: &str, name: &str) -> Vec<String> {
    let all = list[member].as_array().expect("a list").iter();
    all.map(|item| item[name].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn its_endpoints_are_visible_as_resources() {
    let control = new();
    control.set_file(&config(CHAT));
    let endpoint = control.ok("DescribeEndpoint", json!({ "EndpointName": "chat" }));
    assert_eq!(endpoint["EndpointStatus"], "InService");
    assert_eq!(endpoint["EndpointConfigName"], "chat");
    let [main, spare] = &endpoint["ProductionVariants"].as_array().expect("variants")[..] else {
        panic!("{endpoint}");
    };
    assert_eq!(main["CurrentInstanceCount"], 2);
    assert_eq!(main["RoutingConfig"]["PrefixAwareRoutingConfig"]["PrefixLength"], 2048);
    assert_eq!((&spare["CurrentInstanceCount"], &spare["CurrentWeight"]), (&json!(0), &json!(0.5)));
    let config = control.ok("DescribeEndpointConfig", json!({ "EndpointConfigName": "chat" }));
    assert_eq!(config["ProductionVariants"][0]["InitialInstanceCount"], 2);
    assert_eq!(
        config["ProductionVariants"][1]["RoutingConfig"],
        json!({ "RoutingStrategy": "RANDOM" })
    );
    control.ok("DescribeModel", json!({ "ModelName": "chat" }));

    control.serving("made", &[variant("one", "made")]);
    let list = control.ok("ListEndpoints", json!({ "SortBy": "Name", "SortOrder": "Ascending" }));
    assert_eq!(names(&list, "Endpoints", "EndpointName"), ["chat", "made"]);
    assert!(control.resources().endpoints.keys().eq(["made"]), "the store has what was made alone");
}

#[test]
fn nothing_of_it_can_be_changed_or_made_again() {
    let control = new();
    control.set_file(&config(CHAT));
    let tag = json!([{ "Key": "a", "Value": "" }]);
    for (operation, input, kind) in [
        ("DeleteModel", json!({ "ModelName": "chat" }), "model"),
        ("DeleteEndpointConfig", json!({ "EndpointConfigName": "chat" }), "endpoint-config"),
        ("DeleteEndpoint", json!({ "EndpointName": "chat" }), "endpoint"),
        (
            "UpdateEndpoint",
            json!({ "EndpointName": "chat", "EndpointConfigName": "chat" }),
            "endpoint",
        ),
        (
            "UpdateEndpointWeightsAndCapacities",
            json!({
                "EndpointName": "chat",
                "DesiredWeightsAndCapacities": [{ "VariantName": "main", "DesiredWeight": 2.0 }],
            }),
            "endpoint",
        ),
        ("AddTags", json!({ "ResourceArn": arn("endpoint/chat"), "Tags": tag }), "endpoint"),
        ("CreateInferenceComponent", super::components::component("c", "chat", 1), "endpoint"),
    ] {
        let message = control.invalid(operation, input);
        assert!(message.contains(&arn(&format!("{kind}/chat"))), "{message}");
        assert!(message.contains("comes from the gateway's configuration file"), "{message}");
    }
    let output = control.ok("ListTags", json!({ "ResourceArn": arn("endpoint/chat") }));
    assert_eq!(output["Tags"], json!([]));
    let again = json!({ "EndpointName": "CHAT", "EndpointConfigName": "chat" });
    assert!(control.invalid("CreateEndpoint", again).contains("already existing"));
    // Its configuration has no instance type, which hosts are found by.
    let other = json!({ "EndpointName": "other", "EndpointConfigName": "chat" });
    assert!(control.invalid("CreateEndpoint", other).contains("names no InstanceType"));
    assert_eq!(control.resources().revision, 0);
}

#[test]
fn times_tell_what_a_reload_changed() {
    let control = new();
    control.set_file(&config(CHAT));
    let before = control.file();
    control.set_file(&config(&format!("{CHAT}\n{}", CHAT.replace("chat", "second"))));
    let after = control.file();
    assert_eq!(before.resources().endpoints["chat"], after.resources().endpoints["chat"]);
    assert!(after.resources().endpoints.contains_key("second"));
    control.set_file(&config(""));
    control.invalid("DescribeEndpoint", json!({ "EndpointName": "chat" }));
}

#[test]
fn where_the_store_has_the_name_too_the_file_counts() {
    let control = new();
    control.serving("chat", &[variant("one", "chat")]);
    control.set_file(&config(CHAT));
    let endpoint = control.ok("DescribeEndpoint", json!({ "EndpointName": "chat" }));
    assert_eq!(endpoint["ProductionVariants"][0]["VariantName"], "main");
    let list = control.ok("ListEndpoints", json!({}));
    assert_eq!(names(&list, "Endpoints", "EndpointName"), ["chat"]);
    control.set_file(&config(""));
    let endpoint = control.ok("DescribeEndpoint", json!({ "EndpointName": "chat" }));
    assert_eq!(endpoint["ProductionVariants"][0]["VariantName"], "one");
}

//! Lists: filters, order, and pages while things come and go.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Control, new, variant};

fn names(output: &Value) -> Vec<String> {
    let all = output["Models"].as_array().expect("a list").iter();
    all.map(|model| model["ModelName"].as_str().expect("a name").to_owned()).collect()
}

fn list(control: &Control, filter: Value) -> Vec<String> {
    names(&control.ok("ListModels", filter))
}

#[test]
fn items_are_filtered_and_sorted() {
    let control = new();
    for name in ["chat-b", "chat-a", "other"] {
        control.model(name);
    }
    let by_name = json!({ "SortBy": "Name", "SortOrder": "Ascending" });
    assert_eq!(list(&control, by_name), ["chat-a", "chat-b", "other"]);
    assert_eq!(list(&control, json!({ "SortBy": "Name" })), ["other", "chat-b", "chat-a"]);
    let part = json!({ "SortBy": "Name", "SortOrder": "Ascending", "NameContains": "chat" });
    assert_eq!(list(&control, part), ["chat-a", "chat-b"]);

    let created = |name: &str| control.resources().models[name].created as f64 / 1000.0;
    let (first, last) = (created("chat-b"), created("other"));
    assert_eq!(list(&control, json!({ "CreationTimeAfter": last })), [""; 0]);
    assert_eq!(list(&control, json!({ "CreationTimeBefore": first })), [""; 0]);
    let all = json!({ "CreationTimeAfter": first - 1.0, "CreationTimeBefore": last + 1.0 });
    assert_eq!(list(&control, all).len(), 3);
}

#[test]
fn endpoints_are_listed_by_status_and_time_of_change() {
    let control = new();
    control.serving("a", &[variant("one", "a")]);
    control.ok("CreateEndpoint", json!({ "EndpointName": "b", "EndpointConfigName": "a" }));
    let names = |filter: Value| -> Vec<String> {
        let output = control.ok("ListEndpoints", filter);
        let all = output["Endpoints"].as_array().expect("a list").iter();
        all.map(|it| it["EndpointName"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(json!({ "StatusEquals": "InService" })), ["a"]);
    assert_eq!(names(json!({ "StatusEquals": "Creating" })), ["b"]);
    assert_eq!(names(json!({ "SortBy": "Status", "SortOrder": "Ascending" })), ["b", "a"]);
    let modified = control.endpoint("b").modified as f64 / 1000.0;
    assert!(!names(json!({ "LastModifiedTimeAfter": modified })).contains(&"b".to_owned()));
    assert_eq!(names(json!({ "LastModifiedTimeAfter": modified - 60.0 })).len(), 2);
    assert!(names(json!({ "LastModifiedTimeBefore": modified - 60.0 })).is_empty());
}

#[test]
fn a_page_has_ten_items_unless_it_is_asked_for_more() {
    let control = new();
    for number in 0..12 {
        control.model(&format!("m{number}"));
    }
    let page = control.ok("ListModels", json!({}));
    assert_eq!(names(&page).len(), 10);
    let rest = control.ok("ListModels", json!({ "NextToken": page["NextToken"] }));
    assert_eq!(names(&rest).len(), 2);
    assert!(rest["NextToken"].is_null());
    assert_eq!(list(&control, json!({ "MaxResults": 100 })).len(), 12);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever is made and deleted between two pages: what was there all the time is listed once, and
    /// nothing is listed twice.
    #[test]
    fn pages_are_complete_and_without_doubles(
        kept in prop::collection::btree_set(0_u32..60, 1..20),
        comings in prop::collection::vec((60_u32..90, any::<bool>()), 0..20),
        size in 1_u32..6,
        by_name in any::<bool>(),
        ascending in any::<bool>(),
    ) {
        let control = new();
        let name = |number: u32| format!("m{number:02}");
        for number in &kept {
            control.model(&name(*number));
        }
        let mut input = json!({
            "MaxResults": size,
            "SortBy": if by_name { "Name" } else { "CreationTime" },
            "SortOrder": if ascending { "Ascending" } else { "Descending" },
        });
        let mut comings = comings.into_iter();
        let mut seen = Vec::new();
        loop {
            let page = control.ok("ListModels", input.clone());
            seen.extend(names(&page));
            if page["NextToken"].is_null() {
                break;
            }
            input["NextToken"] = page["NextToken"].clone();
            for (number, comes) in comings.by_ref().take(2) {
                let there = control.resources().models.contains_key(&name(number));
                match (comes, there) {
                    (true, false) => control.model(&name(number)),
                    (false, true) => {
                        drop(control.ok("DeleteModel", json!({ "ModelName": name(number) })));
                    }
                    _ => {}
                }
            }
        }
        let unique: BTreeSet<&String> = seen.iter().collect();
        // One that was deleted and made again is another one.
        let kept_names: Vec<String> = kept.iter().map(|number| name(*number)).collect();
        for kept in &kept_names {
            prop_assert_eq!(seen.iter().filter(|it| *it == kept).count(), 1, "{}", kept);
        }
        if by_name {
            prop_assert_eq!(unique.len(), seen.len());
        }
    }
}

//! Two gateways on one store, as an external store will have them.

use serde_json::json;

use super::{Shared, control, variant};

#[test]
fn each_sees_what_the_other_wrote_and_neither_overwrites_it() {
    let store = Shared::default();
    let (one, other) = (control(&store), control(&store));
    one.model("m");
    // Worked out from what the other one has written meanwhile.
    other.config("c", &[variant("v", "m")]);
    one.ok("CreateEndpoint", json!({ "EndpointName": "e", "EndpointConfigName": "c" }));
    let again = json!({ "EndpointName": "e", "EndpointConfigName": "c" });
    assert!(other.invalid("CreateEndpoint", again).contains("already existing"));
    other.settled("e");
    assert_eq!(one.status("e"), "InService");
    assert_eq!(one.resources(), other.resources());
}

/// Both make and delete at once: each change that was acknowledged is there, and only one of two of the same
/// name was.
#[test]
fn at_the_same_time_too() {
    let store = Shared::default();
    let made: Vec<Vec<String>> = std::thread::scope(|scope| {
        let gateways: Vec<_> = (0..3)
            .map(|_| {
                let control = control(&store);
                scope.spawn(move || {
                    let mut made = Vec::new();
                    for number in 0..40 {
                        let name = format!("m{number}");
                        let container = json!({ "Image": "x" });
                        let input = json!({ "ModelName": name, "PrimaryContainer": container });
                        if control.try_call("CreateModel", input).is_ok() {
                            made.push(name);
                        }
                    }
                    made
                })
            })
            .collect();
        gateways.into_iter().map(|gateway| gateway.join().expect("it ends")).collect()
    });
    let mut made: Vec<String> = made.into_iter().flatten().collect();
    made.sort();
    let there = control(&store).resources();
    let mut names: Vec<String> = there.models.keys().cloned().collect();
    names.sort();
    assert_eq!(made, names);
    assert_eq!(there.revision, 40);
}

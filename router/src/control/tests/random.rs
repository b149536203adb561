//! Random sequences of operations: what was acknowledged is there, and refers to what is there.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    Control, Shared,
    components::{adapter, component},
    control, host_variant, variant,
};
use crate::control::{EndpointStatus, resources::Resources};

/// One call, of a few names, so that they meet.
#[derive(Clone, Debug)]
enum Call {
    CreateModel(u8),
    DeleteModel(u8),
    CreateConfig(u8, u8, bool),
    DeleteConfig(u8),
    CreateEndpoint(u8, u8),
    DeleteEndpoint(u8),
    UpdateEndpoint(u8, u8),
    Weights(u8, u8),
    CreateComponent(u8, u8),
    CreateAdapter(u8, u8, u8),
    Copies(u8, u8),
    DeleteComponent(u8),
    Tag(u8, u8),
    Settle(u8),
    SettleComponent(u8),
    Restart,
}

fn call() -> impl Strategy<Value = Call> {
    let name = || 0_u8..3;
    prop_oneof![
        3 => name().prop_map(Call::CreateModel),
        1 => name().prop_map(Call::DeleteModel),
        4 => (name(), name(), any::<bool>()).prop_map(|(a, b, c)| Call::CreateConfig(a, b, c)),
        1 => name().prop_map(Call::DeleteConfig),
        4 => (name(), name()).prop_map(|(a, b)| Call::CreateEndpoint(a, b)),
        1 => name().prop_map(Call::DeleteEndpoint),
        2 => (name(), name()).prop_map(|(a, b)| Call::UpdateEndpoint(a, b)),
        2 => (name(), 0_u8..5).prop_map(|(a, b)| Call::Weights(a, b)),
        3 => (name(), name()).prop_map(|(a, b)| Call::CreateComponent(a, b)),
        2 => (3_u8..6, name(), name()).prop_map(|(a, b, c)| Call::CreateAdapter(a, b, c)),
        2 => (0_u8..6, 0_u8..5).prop_map(|(a, b)| Call::Copies(a, b)),
        2 => (0_u8..6).prop_map(Call::DeleteComponent),
        2 => (name(), name()).prop_map(|(a, b)| Call::Tag(a, b)),
        6 => name().prop_map(Call::Settle),
        4 => (0_u8..6).prop_map(Call::SettleComponent),
        1 => Just(Call::Restart),
    ]
}

/// What has to be there because it was acknowledged: names by kind, and the tags of models.
#[derive(Default, Debug, PartialEq)]
struct Acknowledged {
    names: BTreeSet<(&'static str, String)>,
    tags: BTreeMap<String, Vec<String>>,
}

impl Acknowledged {
    fn of(resources: &Resources) -> Self {
        let mut found = Self::default();
        let mut add = |kind, name: &String| {
            found.names.insert((kind, name.clone()));
        };
        resources.models.keys().for_each(|name| add("model", name));
        resources.configs.keys().for_each(|name| add("config", name));
        resources.endpoints.keys().for_each(|name| add("endpoint", name));
        resources.components.keys().for_each(|name| add("component", name));
        for (name, model) in resources.models.iter().filter(|(_, model)| !model.tags.is_empty()) {
            let keys = model.tags.iter().map(|tag| tag.key.clone()).collect();
            found.tags.insert(name.clone(), keys);
        }
        found
    }

    /// Makes the call, and notes what was acknowledged of it.
    fn make(&mut self, control: &Control, call: &Call) {
        let n = |number: u8| format!("n{number}");
        let done = |operation: &str, input: Value| control.try_call(operation, input).is_ok();
        match *call {
            Call::CreateModel(m) => {
                let container = json!({ "Image": "x" });
                let input = json!({ "ModelName": n(m), "PrimaryContainer": container });
                if done("CreateModel", input) {
                    self.names.insert(("model", n(m)));
                }
            }
            Call::DeleteModel(m) => {
                if done("DeleteModel", json!({ "ModelName": n(m) })) {
                    self.names.remove(&("model", n(m)));
                    self.tags.remove(&n(m));
                }
            }
            Call::CreateConfig(c, m, hosts_components) => {
                let one =
                    if hosts_components { host_variant("one") } else { variant("one", &n(m)) };
                let input = json!({ "EndpointConfigName": n(c), "ProductionVariants": [one] });
                if done("CreateEndpointConfig", input) {
                    self.names.insert(("config", n(c)));
                }
            }
            Call::DeleteConfig(c) => {
                if done("DeleteEndpointConfig", json!({ "EndpointConfigName": n(c) })) {
                    self.names.remove(&("config", n(c)));
                }
            }
            Call::CreateEndpoint(e, c) => {
                let input = json!({ "EndpointName": n(e), "EndpointConfigName": n(c) });
                if done("CreateEndpoint", input) {
                    self.names.insert(("endpoint", n(e)));
                }
            }
            Call::DeleteEndpoint(e) => {
                done("DeleteEndpoint", json!({ "EndpointName": n(e) }));
            }
            Call::UpdateEndpoint(e, c) => {
                done("UpdateEndpoint", json!({ "EndpointName": n(e), "EndpointConfigName": n(c) }));
            }
            Call::Weights(e, count) => {
                let desired = json!([{ "VariantName": "one", "DesiredInstanceCount": count, "DesiredWeight": count }]);
                let input = json!({ "EndpointName": n(e), "DesiredWeightsAndCapacities": desired });
                done("UpdateEndpointWeightsAndCapacities", input);
            }
            Call::CreateComponent(c, e) => {
                if done("CreateInferenceComponent", component(&n(c), &n(e), 2)) {
                    self.names.insert(("component", n(c)));
                }
            }
            Call::CreateAdapter(c, e, base) => {
                if done("CreateInferenceComponent", adapter(&n(c), &n(e), &n(base))) {
                    self.names.insert(("component", n(c)));
                }
            }
            Call::Copies(c, copies) => {
                let runtime = json!({ "CopyCount": copies });
                let input =
                    json!({ "InferenceComponentName": n(c), "DesiredRuntimeConfig": runtime });
                done("UpdateInferenceComponentRuntimeConfig", input);
            }
            Call::DeleteComponent(c) => {
                done("DeleteInferenceComponent", json!({ "InferenceComponentName": n(c) }));
            }
            Call::Tag(m, key) => {
                let tag = json!([{ "Key": n(key), "Value": "" }]);
                let input =
                    json!({ "ResourceArn": super::arn(&format!("model/{}", n(m))), "Tags": tag });
                if done("AddTags", input) {
                    let tags = self.tags.entry(n(m)).or_default();
                    if !tags.contains(&n(key)) {
                        tags.push(n(key));
                    }
                }
            }
            Call::Settle(e) => {
                if let Some(endpoint) = control.resources().endpoints.get(&n(e)) {
                    control.settled(&n(e));
                    if endpoint.status == EndpointStatus::Deleting {
                        self.names.remove(&("endpoint", n(e)));
                    }
                }
            }
            Call::SettleComponent(c) => {
                if control.resources().components.contains_key(&n(c)) {
                    control.component_settled(&n(c));
                    if !control.resources().components.contains_key(&n(c)) {
                        self.names.remove(&("component", n(c)));
                    }
                }
            }
            Call::Restart => {}
        }
    }
}

fn refers_to_what_is_there(resources: &Resources) -> Result<(), TestCaseError> {
    for component in resources.components.values() {
        let endpoint = resources.endpoints.get(&component.endpoint);
        let endpoint = endpoint.unwrap_or_else(|| panic!("{component:?} is on no endpoint"));
        let pending = endpoint.pending.as_ref().map(|pending| &pending.deployment);
        for deployment in pending.into_iter().chain(&endpoint.serving) {
            let mut variants = deployment.variants.iter();
            let hosts =
                variants.any(|it| it.spec.name == component.variant && it.spec.model.is_none());
            prop_assert!(hosts, "{:?} is on no variant of {:?}", component, deployment);
        }
        for base in component.specs.iter().filter_map(|spec| spec.base.as_ref()) {
            let base = resources.components.get(base);
            let base = base.unwrap_or_else(|| panic!("{component:?} has no base"));
            prop_assert_eq!(&base.endpoint, &component.endpoint);
        }
    }
    for endpoint in resources.endpoints.values() {
        let in_service = endpoint.status == EndpointStatus::InService;
        prop_assert!(!in_service || endpoint.serving.is_some() && endpoint.pending.is_none());
        let deployments =
            endpoint.serving.iter().chain(endpoint.pending.iter().map(|it| &it.deployment));
        for placed in deployments.flat_map(|deployment| &deployment.variants) {
            prop_assert_eq!(placed.spec.model.is_some(), placed.model.is_some());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_acknowledged_is_there_and_refers_to_what_is_there(
        calls in prop::collection::vec(call(), 1..80),
    ) {
        let store = Shared::default();
        let mut gateway = control(&store);
        let mut acknowledged = Acknowledged::default();
        for call in &calls {
            acknowledged.make(&gateway, call);
            let resources = gateway.resources();
            prop_assert_eq!(&Acknowledged::of(&resources), &acknowledged, "after {:?}", call);
            refers_to_what_is_there(&resources)?;
            if matches!(call, Call::Restart) {
                gateway = control(&store);
                prop_assert_eq!(gateway.resources(), resources);
            }
        }
        prop_assert_eq!(control(&store).resources(), gateway.resources());
    }
}

//! Copies of inference components find their hosts.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    config::Copies,
    control::{
        Component, ComponentSettled, ComponentStatus,
        resources::{ComponentSpec, CopyPlace, Requirements},
    },
};

/// What a copy needs: cores, accelerators, MiB.
type Needs = (f64, f64, u64);

const SMALL: Needs = (1.0, 1.0, 1024);

fn component(name: &str, copies: u32, (cpus, accelerators, memory_mb): Needs) -> Component {
    let spec = ComponentSpec {
        input: serde_json::json!({}),
        instance_type: None,
        model: Some("m".into()),
        model_input: None,
        artifact: None,
        base: None,
        requires: Requirements { cpus, accelerators, memory_mb },
        ready_within: None,
    };
    Component {
        name: name.into(),
        endpoint: "e".into(),
        variant: "v".into(),
        status: ComponentStatus::Creating,
        failure: None,
        created: 1,
        modified: 1_000,
        generation: 1,
        specs: vec![spec],
        plural: false,
        copies: Wanted { current: 0, desired: copies },
        places: vec![],
        deployment_config: None,
        tags: vec![],
    }
}

impl World {
    /// An endpoint whose hosts have eight cores, four accelerators and 16 GiB each, for components alone.
    fn hosting(hosts: u32) -> Self {
        let mut world = Self::new();
        let pool = &mut world.pools[0];
        (pool.cpus, pool.accelerators, pool.memory_mb) = (Some(8), Some(4), Some(16 * 1024));
        let mut variant = variant("v", hosts);
        variant.spec.model = None;
        world.create("e", deployment("c", vec![variant]));
        world.round();
        world
    }

    fn put(&mut self, component: Component) {
        self.resources.components.insert(component.name.clone(), component.into());
    }

    fn ask_component(&mut self, name: &str, change: impl FnOnce(&mut Component)) {
        let component =
            Arc::make_mut(self.resources.components.get_mut(name).expect("it is there"));
        component.status = ComponentStatus::Updating;
        component.modified = self.now;
        change(component);
    }

    fn component(&self, name: &str) -> &Component {
        &self.resources.components[name]
    }

    /// Last digit of the host and slot of each copy.
    fn places(&self, name: &str) -> String {
        let place =
            |it: &CopyPlace| format!("{}.{}", &it.host["http://10.0.0.".len()..][..1], it.slot);
        self.component(name).places.iter().map(place).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn copies_are_spread_over_the_hosts_and_in_service_at_once() {
    let mut world = World::hosting(3);
    world.put(component("a", 4, SMALL));
    let [Step::Component(name, 1, to)] = &world.round()[..] else { panic!("one step") };
    assert_eq!((&**name, to.status, to.failure.clone()), ("a", ComponentStatus::InService, None));
    assert_eq!(world.places("a"), "1.0 2.0 3.0 1.1");
    assert_eq!(world.component("a").copies, Wanted::settled(4));
    // Another one goes to where there is most room.
    world.put(Component { created: 2, ..component("b", 2, SMALL) });
    world.round();
    assert_eq!(world.places("b"), "2.1 3.1");
    assert_eq!(world.round(), [], "nothing is left to do");
    let [endpoint] = &endpoints(&world.resources, &world.pools)[..] else { panic!("one") };
    assert!(endpoint.needs_component);
    let names: Vec<_> = endpoint.components.iter().map(|it| (&*it.name, it.copies.len())).collect();
    assert_eq!(names, [("a", 4), ("b", 2)]);
}

#[test]
fn as_many_as_fit_and_then_it_is_said_what_is_missing() {
    let mut world = World::hosting(2);
    // Three fit on a host's cores, memory allows two.
    world.put(component("a", 5, (2.0, 1.0, 7 * 1024)));
    world.round();
    assert_eq!(world.places("a"), "1.0 2.0 1.1 2.1");
    let waiting = world.component("a").clone();
    assert_eq!((waiting.status, waiting.copies.current), (ComponentStatus::Creating, 4));
    world.now += u64::try_from(READY_WITHIN.as_millis()).unwrap();
    world.round();
    let given_up = world.component("a");
    assert_eq!(given_up.status, ComponentStatus::InService);
    let why = given_up.failure.as_deref().expect("it says why");
    assert!(why.contains("4 fit") && why.contains("2048 of 7168 MiB of memory"), "{why}");
    // None fits: it has failed, and does not come back by itself.
    world.put(component("big", 1, (1.0, 5.0, 1)));
    world.round();
    let failed = world.component("big");
    assert_eq!(failed.status, ComponentStatus::Failed);
    assert!(
        failed.failure.as_ref().unwrap().contains("2 of 5 accelerators"),
        "{:?}",
        failed.failure
    );
    assert_eq!(world.round(), []);
}

#[test]
fn a_component_is_scaled_to_nothing_and_back() {
    let mut world = World::hosting(2);
    world.put(component("a", 3, SMALL));
    world.round();
    for (copies, places) in [(1, "1.0"), (0, ""), (3, "1.0 2.0 1.1")] {
        world.ask_component("a", |it| it.copies.desired = copies);
        world.round();
        assert_eq!(world.places("a"), places);
        assert_eq!(world.component("a").status, ComponentStatus::InService);
    }
    world.ask_component("a", |it| it.status = ComponentStatus::Deleting);
    let gone = Step::Gone(Key::component("a"), 1);
    assert_eq!(world.round(), [gone]);
    assert!(endpoints(&world.resources, &world.pools)[0].components.is_empty());
}

/// A change that needs more than there is keeps what fits.
#[test]
fn a_changed_component_stays_where_it_still_fits() {
    let mut world = World::hosting(2);
    world.put(component("a", 4, SMALL));
    world.round();
    world.ask_component("a", |it| it.specs[0].requires.accelerators = 3.0);
    world.round();
    assert_eq!(world.places("a"), "1.0 2.0");
    assert_eq!(world.component("a").status, ComponentStatus::Updating, "it waits for more room");
}

#[test]
fn copies_follow_the_hosts_of_their_variant() {
    let mut world = World::hosting(2);
    world.put(component("a", 2, SMALL));
    world.round();
    assert_eq!(world.places("a"), "1.0 2.0");
    // A host leaves its pool: in the same round it is replaced, and its copy is placed anew.
    world.pools[0].hosts.remove(0);
    world.round();
    assert_eq!(world.hosts("e"), of([("v", "23")]));
    assert_eq!(world.places("a"), "2.0 3.0");
    assert_eq!(world.component("a").status, ComponentStatus::InService);
    // Without another host the ones that are left take them, as far as they fit.
    world.pools[0].hosts.truncate(1);
    world.round();
    assert_eq!(world.places("a"), "2.0 2.1");
    world.pools[0].hosts.clear();
    world.round();
    assert_eq!((world.places("a"), world.component("a").copies.current), (String::new(), 0));
    assert_eq!(world.component("a").status, ComponentStatus::InService, "until hosts come back");
}

/// With servers of their own, copies are told apart by ports, and have to answer first.
#[test]
fn copies_with_ports_wait_for_their_servers() {
    let mut world = World::hosting(2);
    world.pools[0].copies = Copies::Port;
    world.looks.clear();
    world.put(component("a", 3, SMALL));
    world.round();
    assert_eq!(world.places("a"), "");
    let url = |host: u8, slot: u16| format!("http://10.0.0.{host}:{}", 8000 + slot);
    let looks: Vec<_> =
        wanted(&world.resources, &world.pools).into_iter().map(|it| it.host).collect();
    assert_eq!(looks, [url(1, 0), url(2, 0)]);
    world.looks.insert(url(1, 0), Ok(()));
    world.looks.insert(url(2, 0), Err("no connection".into()));
    world.looks.insert(url(1, 1), Ok(()));
    world.round();
    assert_eq!(world.places("a"), "1.0 1.1");
    world.looks.insert(url(2, 0), Ok(()));
    world.round();
    assert_eq!(world.places("a"), "1.0 1.1 2.0");
    let [endpoint] = &endpoints(&world.resources, &world.pools)[..] else { panic!("one") };
    let urls: Vec<_> = endpoint.components[0].copies.iter().map(|it| it.url.clone()).collect();
    let expected = [url(1, 0), url(1, 1), url(2, 0)];
    assert_eq!(urls, expected.map(|url| Some(url.parse().expect("a URL"))));
}

#[test]
fn copies_with_paths_have_their_name_in_front() {
    let mut world = World::hosting(1);
    world.pools[0].copies = Copies::Path;
    world.put(component("a", 1, SMALL));
    world.round();
    let [endpoint] = &endpoints(&world.resources, &world.pools)[..] else { panic!("one") };
    let [copy] = &endpoint.components[0].copies[..] else { panic!("one") };
    assert_eq!((copy.path_prefix.as_deref(), copy.url.as_ref()), (Some("/a"), None));
}

fn adapter(name: &str, base: &str, copies: u32) -> Component {
    let mut adapter = component(name, copies, (0.0, 0.0, 0));
    adapter.specs[0].base = Some(base.into());
    adapter.specs[0].artifact = Some("s3://weights/x".into());
    adapter
}

impl World {
    /// With a base that has a copy on each host.
    fn with_base(hosts: u32) -> Self {
        let mut world = Self::hosting(hosts);
        let (load, unload) = ("/load".to_owned(), "/unload".to_owned());
        world.pools[0].adapters = Some(crate::config::AdapterCalls { load, unload });
        world.put(Component { created: 0, ..component("base", hosts, SMALL) });
        world.round();
        world
    }

    fn loaded(&mut self, adapter: &str, count: usize) {
        self.loads.insert(adapter.into(), (count, None));
    }
}

#[test]
fn an_adapter_is_in_service_once_its_whole_set_has_loaded_it() {
    let mut world = World::with_base(4);
    world.put(adapter("x", "base", 2));
    world.round();
    let places = world.places("x");
    assert_eq!((places.len(), world.component("x").status), (7, ComponentStatus::Creating));
    let [endpoint] = &endpoints(&world.resources, &world.pools)[..] else { panic!("one") };
    let [base, x] = &endpoint.components[..] else { panic!("the base first") };
    let config = x.adapter.as_ref().expect("an adapter");
    assert_eq!((&*base.name, &*config.base, &*config.weights), ("base", "base", "s3://weights/x"));
    assert_eq!((&*config.load, &*config.unload), ("/load", "/unload"));
    world.loaded("x", 1);
    assert_eq!(world.round(), [], "one of two");
    world.loaded("x", 2);
    world.round();
    assert_eq!(world.component("x").status, ComponentStatus::InService);
    assert_eq!((world.places("x"), world.component("x").copies.current), (places, 2));
    // A restart of a server changes nothing about where it is to be.
    world.loaded("x", 0);
    assert_eq!(world.round(), []);
}

/// It is loaded where it goes before it leaves where it was.
#[test]
fn an_adapter_moves_once_it_is_loaded_elsewhere() {
    let mut world = World::with_base(2);
    for n in 0..9 {
        let name = format!("x{n}");
        world.put(adapter(&name, "base", 1));
        world.loaded(&name, 1);
    }
    world.round();
    world.round();
    let before: Vec<_> = (0..9).map(|n| world.places(&format!("x{n}"))).collect();
    world.change("e", |it| {
        it.status = EndpointStatus::Updating;
        let serving = it.serving.as_mut().expect("it serves");
        serving.variants[0].count.desired = 3;
    });
    world.ask_component("base", |it| it.copies.desired = 3);
    world.round();
    let during: Vec<_> = (0..9).map(|n| world.places(&format!("x{n}"))).collect();
    let moving: Vec<usize> = (0..9).filter(|n| during[*n] != before[*n]).collect();
    assert!(!moving.is_empty() && moving.len() < 9, "{before:?} {during:?}");
    for n in &moving {
        assert!(during[*n].ends_with(&before[*n]) && during[*n].len() == 7, "both: {}", during[*n]);
        world.loaded(&format!("x{n}"), 2);
    }
    world.round();
    for n in moving {
        let after = world.places(&format!("x{n}"));
        assert!(during[n].starts_with(&after) && after != before[n], "{after}");
    }
}

#[test]
fn an_adapter_that_cannot_be_loaded_says_why() {
    let mut world = World::with_base(2);
    world.put(adapter("x", "base", 1));
    world.round();
    world
        .loads
        .insert("x".into(), (0, Some("http://10.0.0.1:8000: /load answers 400: rank".into())));
    world.now += u64::try_from(READY_WITHIN.as_millis()).unwrap();
    world.round();
    let failed = world.component("x");
    assert_eq!((failed.status, failed.places.len()), (ComponentStatus::Failed, 0));
    assert!(failed.failure.as_ref().unwrap().contains("/load answers 400: rank"));
    // Servers that load none.
    world.pools[0].adapters = None;
    world.put(adapter("y", "base", 1));
    world.round();
    let failed = world.component("y");
    assert_eq!(failed.status, ComponentStatus::Failed);
    assert!(failed.failure.as_ref().unwrap().contains("adapters = true"));
}

proptest! {
    /// Whatever comes and goes: no host has more than it can take, no slot is given twice, copies that can stay
    /// do, and none is left out that would fit.
    #[test]
    fn hosts_are_filled_and_never_overfilled(
        changes in prop::collection::vec((0u8..6, 0u32..8, 1u8..5, 1u64..9), 1..25)
    ) {
        let mut world = World::hosting(3);
        for (n, copies, accelerators, memory) in changes {
            let name = format!("c{n}");
            let needs = (1.0, f64::from(accelerators) / 2.0, memory * 1024);
            let before: Vec<(String, Vec<CopyPlace>)> =
                world.resources.components.values().map(|it| (it.name.clone(), it.places.clone())).collect();
            match world.resources.components.contains_key(&name) {
                true => world.ask_component(&name, |it| it.copies.desired = copies),
                false => world.put(Component { created: n.into(), ..component(&name, copies, needs) }),
            }
            world.round();
            let mut left: BTreeMap<String, (f64, f64, i64)> = BTreeMap::new();
            let mut slots = BTreeSet::new();
            for component in world.resources.components.values() {
                prop_assert!(component.places.len() <= component.copies.desired as usize);
                for place in &component.places {
                    let needs = &component.specs[0].requires;
                    let left = left.entry(place.host.clone()).or_insert((8.0, 4.0, 16 * 1024));
                    left.0 -= needs.cpus;
                    left.1 -= needs.accelerators;
                    left.2 -= needs.memory_mb as i64;
                    prop_assert!(left.0 >= 0.0 && left.1 >= 0.0 && left.2 >= 0, "{left:?}");
                    prop_assert!(slots.insert((place.host.clone(), place.slot)));
                }
            }
            for (other, places) in before.into_iter().filter(|(other, _)| *other != name) {
                prop_assert!(world.component(&other).places.starts_with(&places), "{other} was moved");
            }
            for component in world.resources.components.values() {
                let short = component.places.len() < component.copies.desired as usize;
                let needs = &component.specs[0].requires;
                for host in ["1", "2", "3"].map(|n| format!("http://10.0.0.{n}:8000")) {
                    let left = left.get(&host).copied().unwrap_or((8.0, 4.0, 16 * 1024));
                    let fits = left.0 >= needs.cpus
                        && left.1 >= needs.accelerators
                        && left.2 >= needs.memory_mb as i64;
                    prop_assert!(!(short && fits), "{} would fit on {host}", component.name);
                }
            }
            prop_assert!(world.resources.components.values().all(|it| it.status != ComponentStatus::Failed));
            let settled = ComponentSettled::of(world.component(&name));
            prop_assert_eq!(settled.places.len(), world.component(&name).copies.current as usize);
        }
    }
}

//! The check that `docs/dependencies.md` has a line for every direct dependency, and no other.

use std::{collections::BTreeSet, fs, path::Path};

use crate::command::Cmd;

#[test]
fn each_direct_dependency_is_explained() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let metadata = Cmd::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps"])
        .dir(root)
        .read()
        .expect("cargo metadata");
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("JSON");
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap_or("").to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let used: BTreeSet<String> = packages
        .iter()
        .flat_map(|package| list(&package["dependencies"]))
        .map(|dependency| name(&dependency))
        .filter(|dependency| !ours.contains(dependency))
        .collect();

    let page = fs::read_to_string(root.join("docs/dependencies.md")).expect("the page");
    let explained: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect();
    let missing: Vec<_> = used.difference(&explained).collect();
    let stale: Vec<_> = explained.difference(&used).collect();
    assert!(missing.is_empty(), "docs/dependencies.md says nothing about {missing:?}");
    assert!(stale.is_empty(), "docs/dependencies.md explains what is not used: {stale:?}");
}

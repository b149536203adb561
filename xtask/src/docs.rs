//! Checks of the documents: what they name must be there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{command::Cmd, links};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

#[test]
fn each_direct_dependency_is_explained_and_no_other() {
    let metadata = Cmd::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps"])
        .dir(root())
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

    let page = fs::read_to_string(root().join("docs/dependencies.md")).expect("the page");
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

#[test]
fn links_between_files_lead_somewhere() {
    let mut pages: Vec<PathBuf> =
        ["README.md", "CHANGELOG.md"].map(|file| root().join(file)).into();
    let docs = fs::read_dir(root().join("docs")).expect("the directory");
    pages.extend(docs.map(|entry| entry.expect("an entry").path()));
    let mut dead = Vec::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        dead.extend(links::broken(page, &fs::read_to_string(page).expect("a page")));
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

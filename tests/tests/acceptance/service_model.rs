//! What the gateway believes of SageMaker's API is what AWS's SDK says of it.

use std::{fs, path::Path, process::Command};

use tests::python::{expect_success, python};

#[test]
fn the_facts_are_those_of_the_sdk() {
    let Some(python) = python() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let script = root.join("xtask/service_model.py");
    let output = Command::new(python).arg(script).output().expect("python");
    expect_success(&output);
    let facts = fs::read(root.join("router/src/aws/service/sagemaker.json")).expect("the facts");
    assert!(facts.len() > 40_000, "only {} bytes", facts.len());
    assert!(facts == output.stdout, "they differ: run `cargo xtask service-model`");
}

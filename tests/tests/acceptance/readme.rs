//! The commands of the README, as they stand there.

use std::{path::Path, process::Command};

use tests::{Engine, python};

use super::{gateway, instance};

/// The first block of shell commands below a heading.
fn commands<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, section) = page.split_once(heading).unwrap_or_else(|| panic!("no {heading}"));
    let (_, block) = section.split_once("```sh\n").expect("a block of commands");
    block.split_once("```").expect("its end").0
}

#[test]
fn an_endpoint_is_made_and_called_by_the_commands_of_the_readme() {
    let Some(python) = python::python() else { return };
    let hosts = instance::fleet(3);
    let (gateway, _state) = gateway(Engine::Userspace, &hosts);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let page = |name: &str| std::fs::read_to_string(root.join(name)).expect("a page");
    let (readme, sagemaker) = (page("README.md"), page("docs/sagemaker.md"));
    // The variable that version 1 of the AWS CLI needs, and then the commands.
    let script = format!(
        "set -eu\n{}{}",
        commands(&sagemaker, "### AWS CLI"),
        commands(&readme, "### As on Amazon SageMaker")
            .replace("127.0.0.1:9902", &gateway.control().to_string())
            .replace("127.0.0.1:8080", &gateway.address().to_string())
    );
    let directory = tempfile::tempdir().expect("a directory");
    let bin = python.parent().expect("a folder").canonicalize().expect("it is there");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(directory.path());
    shell.env("PATH", format!("{}:{path}", bin.display()));
    for file in ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"] {
        shell.env(file, "/dev/null");
    }
    let done = shell.output().expect("a shell");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stdout));
    let answer = std::fs::read_to_string(directory.path().join("output.json")).expect("an answer");
    assert!(answer.contains("chat.completion"), "{answer}");
}

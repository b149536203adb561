//! How the source is laid out: folders in the order that docs/architecture.md states, no circles among
//! the files of a crate, no file that is too long.

mod edges;
mod fixtures;
mod rules;
mod source;

use std::{
    fs,
    path::{Path, PathBuf},
};

use rules::Violations;
use source::Source;

/// Lines that a file may have.
const MAX_LINES: usize = 600;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

#[test]
fn modules_keep_the_stated_order_and_form_no_circles() {
    let page = fs::read_to_string(workspace().join("docs/architecture.md")).expect("the page");
    let orders = rules::stated_orders(&page);
    let mut violations = Violations::new();
    for (root, least) in [
        ("router/src/lib.rs", 100),
        ("router-ebpf/src/lib.rs", 10),
        ("router-ebpf/src/main.rs", 15),
    ] {
        let (base, file) = root.rsplit_once('/').expect("a directory");
        let dir = workspace().join(base);
        let source = Source::read(file, &|file| fs::read_to_string(dir.join(file)).ok());
        let order = rules::order_of(&source, &orders)
            .unwrap_or_else(|| panic!("docs/architecture.md states no order of {root}"));
        let count = source.modules.len();
        assert!(count >= least, "only {count} modules found from {root}");
        violations.extend(rules::check(base, &source, order));
    }
    expect_none(&violations);
}

#[test]
fn files_are_not_too_long() {
    let mut files = Vec::new();
    rust_files(workspace(), &mut files);
    assert!(files.len() > 200, "only {} files found", files.len());
    let mut violations = Violations::new();
    for file in files {
        let lines = fs::read_to_string(&file).expect("a source file").lines().count();
        if lines > MAX_LINES {
            let name = file.strip_prefix(workspace()).expect("below it").display().to_string();
            violations.insert(name, format!("{lines} lines: at most {MAX_LINES} are allowed"));
        }
    }
    expect_none(&violations);
}

/// In CI a test that cannot run has failed, which one function in each place takes care of.
#[test]
fn tests_are_skipped_in_no_other_way() {
    let known = [
        "router/src/testing.rs",
        "tests/src/process.rs",
        "xtask/src/command.rs",
        "xtask/src/steps.rs",
    ];
    let mut files = Vec::new();
    rust_files(workspace(), &mut files);
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(workspace()).expect("below it").display().to_string();
        let text = fs::read_to_string(&file).expect("a source file");
        found.extend(skips(&text).map(|line| format!("{name}:{line}")));
    }
    let is_known = |place: &&String| known.iter().any(|name| place.starts_with(name));
    let (known_ones, others): (Vec<_>, Vec<_>) = found.iter().partition(is_known);
    assert!(known_ones.len() >= known.len(), "not even those that are known: {known_ones:?}");
    assert!(others.is_empty(), "{others:#?} decide by themselves what is skipped");
}

/// Lines of code that ask for CI, or say that something is skipped.
fn skips(text: &str) -> impl Iterator<Item = usize> {
    let lines = text.lines().enumerate();
    let suspicious = lines.filter(|(_, line)| {
        let asks = line.contains("var") && line.contains(concat!("(\"C", "I\")"));
        asks || line
            .split_once("println!(\"")
            .is_some_and(|(_, said)| said.to_ascii_lowercase().trim_start().starts_with("skip"))
    });
    suspicious.map(|(index, _)| index + 1)
}

/// What is tested is what ships: no shorter times and no other paths in a build for tests.
#[test]
fn nothing_behaves_otherwise_under_test() {
    let mut files = Vec::new();
    for dir in ["router/src", "router-ebpf/src", "bench/src", "xtask/src"] {
        rust_files(&workspace().join(dir), &mut files);
    }
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        for way in ["cfg!(test)", "cfg(not(test))", "cfg_attr(test"] {
            assert!(!text.contains(way), "{}: {way}", file.display());
        }
    }
}

/// All source files but what is built.
fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry")) {
        let (path, name) = (entry.path(), entry.file_name());
        let hidden = name.to_string_lossy().starts_with('.');
        if entry.file_type().expect("its type").is_dir() {
            if !hidden && name != "target" {
                rust_files(&path, files);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

#[track_caller]
fn expect_none(violations: &Violations) {
    let text: Vec<_> =
        violations.iter().map(|(name, details)| format!("{name}\n  {details}")).collect();
    assert!(text.is_empty(), "{} violations:\n{}", text.len(), text.join("\n"));
}

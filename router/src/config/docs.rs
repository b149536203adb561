//! Keeps `docs/configuration.md` and `docs/example.toml` in step with the table of settings.

use std::{fmt::Write as _, fs, path::PathBuf};

use toml::{Table, Value};

use super::{
    Kind, Setting, load,
    setting::METHODS,
    settings,
    value::{duration_text, size_text},
};

fn docs(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(file)
}

/// Unit and range of a setting.
fn range(kind: &Kind) -> (&str, String) {
    match kind {
        Kind::Bool => ("", "`true`, `false`".into()),
        Kind::Integer { min, max, unit } => (*unit, format!("{min} to {max}")),
        Kind::OptionalInteger { min, max, unit } => (*unit, format!("{min} to {max}, or absent")),
        Kind::Size { min, max } => ("bytes", format!("{} to {}", size_text(*min), size_text(*max))),
        Kind::Duration { min, max, zero } => {
            let mut range = format!("{} to {}", duration_text(*min), duration_text(*max));
            if let Some(meaning) = zero {
                write!(range, "; 0s: {meaning}").expect("strings take all");
            }
            ("time", range)
        }
        Kind::Choice(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            ("", words.join(", "))
        }
        Kind::AddressOrOff => ("address:port", "or `off`".into()),
        Kind::Addresses => ("list of address:port", "at least one".into()),
        Kind::Networks => ("list of networks", "`10.0.0.0/8`, `10.0.0.7`, `fd00::/8`".into()),
        Kind::Interfaces => ("list of interfaces", "as `ip link` shows them".into()),
        Kind::Path => ("path", "begins with `/`".into()),
        Kind::Methods => {
            ("list of methods", METHODS.map(|method| format!("`{}`", method.as_str())).join(", "))
        }
        Kind::Origins => ("list of origins", "`https://app.example`, `*`".into()),
        Kind::BasePaths => ("list of paths", "each begins with `/`, up to 4 segments".into()),
        Kind::Beginnings => ("list of text", "1 to 256 bytes each".into()),
        Kind::Pattern => ("path", "begins with `/`, not with `/endpoints/`".into()),
        Kind::Name => ("", "1 to 63 letters, digits, inner hyphens".into()),
        Kind::Url => ("", "`http://host[:port]`, port 80 if absent".into()),
        Kind::Urls => ("list of URLs", "`http://host[:port]`, port 80 if absent".into()),
        Kind::Names => ("list of names", "1 to 63 letters, digits, inner hyphens".into()),
        Kind::File => ("file", "an absolute path".into()),
        Kind::Region => ("", "lower-case letters, digits, hyphens".into()),
        Kind::Account => ("", "12 digits".into()),
        Kind::InstanceType => ("", "`ml.p5.48xlarge`".into()),
        Kind::Weight => ("share", "0.000001 to 1000000".into()),
        Kind::WeightOrZero => ("share", "0, or 0.000001 to 1000000".into()),
    }
}

fn default(setting: &Setting) -> String {
    match (setting.default, &setting.kind) {
        (Some(text), _) => format!("`{text}`"),
        (None, Kind::OptionalInteger { .. }) => "absent".into(),
        (None, _) => "must be given".into(),
    }
}

/// A heading and a table for each section.
fn tables() -> String {
    let mut text = String::new();
    let mut section = None;
    for setting in settings() {
        let (this, key) = setting.path.rsplit_once('.').unwrap_or(("", setting.path));
        if section != Some(this) {
            section = Some(this);
            let heading = match this {
                "" => "At the top of the file".into(),
                this if this.starts_with("endpoint") || matches!(this, "path" | "host_pool") => {
                    format!("`[[{this}]]`")
                }
                this => format!("`[{this}]`"),
            };
            write!(
                text,
                "\n### {heading}\n\n| setting | unit | default | range | live | what for |\n\
                 | --- | --- | --- | --- | --- | --- |\n"
            )
            .expect("strings take all");
        }
        let (unit, range) = range(&setting.kind);
        let live = if setting.live { "yes" } else { "restart" };
        let (default, about) = (default(setting), setting.about);
        writeln!(text, "| `{key}` | {unit} | {default} | {range} | {live} | {about} |")
            .expect("strings take all");
    }
    text
}

const BEGIN: &str = "<!-- generated from the table of settings: begin -->\n";
const END: &str = "\n<!-- generated from the table of settings: end -->";

/// With `UPDATE_DOCS=1` in the environment, this writes the tables instead of comparing them.
#[test]
fn the_documentation_lists_every_setting_as_it_is() {
    let path = docs("configuration.md");
    let page = fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the tables");
    let (found, after) = rest.split_once(END).expect("the place has an end");
    let tables = tables();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{tables}{END}{after}")).expect("written");
        return;
    }
    assert!(
        found == tables,
        "docs/configuration.md is out of date: UPDATE_DOCS=1 cargo test -p router --lib \
         config::docs writes it"
    );
}

#[test]
fn the_example_is_valid_and_has_every_setting_at_its_default() {
    let path = docs("example.toml");
    let config = load(&path).unwrap_or_else(|error| panic!("{error}"));
    let defaults = super::Config {
        endpoints: config.endpoints.clone(),
        paths: config.paths.clone(),
        host_pools: config.host_pools.clone(),
        ..Default::default()
    };
    assert_eq!(config, defaults);

    let text = fs::read_to_string(&path).expect("just read");
    let mut found = Vec::new();
    collect("", &text.parse().expect("just parsed"), &mut found);
    for setting in settings() {
        assert!(found.iter().any(|path| path == setting.path), "{} is missing", setting.path);
    }
    // A setting without a word of explanation before it helps nobody.
    let mut explained = false;
    for line in text.lines() {
        explained = line.starts_with('#') || explained && !line.is_empty();
        let key = line.contains(" = ") && !line.starts_with('#');
        let speaks_for_itself = ["interval", "timeout", "url", "name", "weight", "deny", "burst"];
        let name = line.split(' ').next().unwrap_or_default();
        assert!(!key || explained || speaks_for_itself.contains(&name), "{line}");
    }
}

fn collect(prefix: &str, table: &Table, found: &mut Vec<String>) {
    for (key, value) in table {
        let path = format!("{prefix}{key}");
        match value {
            Value::Table(inner) => collect(&format!("{path}."), inner, found),
            Value::Array(items) if items.iter().any(Value::is_table) => {
                for item in items.iter().filter_map(Value::as_table) {
                    collect(&format!("{path}."), item, found);
                }
            }
            _ => found.push(path),
        }
    }
}

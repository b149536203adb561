//! Keeps the table of APIs in `docs/prefix.md` in step with [`TABLE`].

use std::fmt::Write as _;

use super::{Prompt, TABLE};
use crate::http::ErrorForm;

fn table() -> String {
    let mut text = String::from(
        "| API | methods | paths | prompt | model | errors | public |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let list = |words: &[&str], between: &str| {
        words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(between)
    };
    for info in TABLE.iter().filter(|info| !info.paths.is_empty()) {
        let (prompt, model) = match &info.prompt {
            Prompt::None => (String::new(), String::new()),
            Prompt::Bytes => ("the body".into(), String::new()),
            Prompt::Json(keys) => {
                let parts =
                    [list(keys.media, ", "), list(keys.lead, " or "), list(keys.main, ", ")];
                let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                (parts.join(", then "), format!("`{}`", keys.model))
            }
        };
        let methods: Vec<_> = info.methods.iter().map(|method| method.as_str()).collect();
        let errors = match info.error_form {
            ErrorForm::OpenAi => "OpenAI",
            ErrorForm::Anthropic => "Anthropic",
            ErrorForm::SageMaker | ErrorForm::SageMakerRuntime => "SageMaker",
        };
        let public = if info.public { "yes" } else { "no" };
        writeln!(
            text,
            "| `{}` | {} | {} | {prompt} | {model} | {errors} | {public} |",
            info.name,
            methods.join(", "),
            list(info.paths, ", "),
        )
        .expect("strings take all");
    }
    text
}

const BEGIN: &str = "<!-- generated from the table of APIs: begin -->\n\n";
const END: &str = "\n<!-- generated from the table of APIs: end -->";

/// With `UPDATE_DOCS=1` in the environment, this writes the table instead of comparing it.
#[test]
fn the_documentation_lists_every_api_as_it_is() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/prefix.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (found, after) = rest.split_once(END).expect("the place has an end");
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).expect("written");
        return;
    }
    assert!(
        found == table,
        "docs/prefix.md is out of date: UPDATE_DOCS=1 cargo test -p router --lib \
         api::docs writes it"
    );
}

//! From TOML text to a [`Config`]: every value is checked, and every error is reported, not only
//! the first.

use std::path::Path;

use super::{
    Config, ConfigError,
    section::Document,
    sections::{SECTIONS, read},
};

/// Reads the configuration file at `path`.
///
/// # Errors
/// When the file cannot be read, or anything in it is wrong.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    parse(&path.display().to_string(), &text(path)?)
}

/// The text of the file at `path`.
pub fn text(path: &Path) -> Result<String, ConfigError> {
    let bytes = std::fs::read(path)
        .map_err(|error| ConfigError::of_file(path, format!("cannot be read: {error}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ConfigError::of_file(path, format!("is not UTF-8 at byte {at}: save it as UTF-8"))
    })
}

/// Reads a configuration from `text`; `source_name` is named in errors.
///
/// # Errors
/// When anything in it is wrong.
pub fn parse(source_name: &str, text: &str) -> Result<Config, ConfigError> {
    let document = Document::parse(text, SECTIONS);
    let config = read(&document);
    if !document.root().has("endpoint") {
        document.issue(
            None,
            "endpoint",
            "there is none: add an [[endpoint]] with an [[endpoint.variant]] and its \
             [[endpoint.variant.instance]] entries",
        );
    }
    document.finish(source_name).map(|()| config)
}

impl Default for Config {
    fn default() -> Self {
        let document = Document::parse("", SECTIONS);
        let config = read(&document);
        document.finish("defaults").expect("the defaults of the table are within its ranges");
        config
    }
}

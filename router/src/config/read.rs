//! From TOML text to a [`Config`]: every value is checked, and every error is reported, not only
//! the first.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

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
///
/// # Errors
/// When it cannot be read, or is no text. Pipes and devices are refused: reading one may wait for
/// ever, and a second time it holds something else.
pub fn text(path: &Path) -> Result<String, ConfigError> {
    let bytes = regular(path)
        .map_err(|error| ConfigError::of_file(path, format!("cannot be read: {error}")))?;
    utf8(path, bytes)
}

/// Reads the text of a configuration from standard input, to its end.
///
/// # Errors
/// When it cannot be read, or is no text.
pub fn standard_input() -> Result<String, ConfigError> {
    let path = Path::new(STANDARD_INPUT);
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|error| ConfigError::of_file(path, format!("cannot be read: {error}")))?;
    utf8(path, bytes)
}

/// What standard input is called in errors.
pub const STANDARD_INPUT: &str = "standard input";

fn regular(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe waits for its writer, unless it is not to.
    let mut file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() { "a directory" } else { "a pipe or device" };
        return Err(io::Error::other(format!("it is {what}, not a file")));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
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
    if !document.root().has("endpoint") && config.control.listen.is_none() {
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

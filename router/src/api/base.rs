//! Paths that may stand in front of an API's own.

use std::{fmt, str::FromStr};

use super::path::is_base;

/// A base of the configuration: one to four segments of letters, digits, `-`, `.`, `_` and `~`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasePath(String);

/// Why a path is no [`BasePath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is no base path: write a path such as \"/openai\", with 1 to 4 segments of letters, digits, \
     `-`, `.`, `_` and `~`, the first not `endpoints`"
)]
pub struct BasePathError;

impl BasePath {
    /// Whether `base`, as it stands in a path, is this one; how many slashes are in it does not matter.
    pub fn is(&self, base: &str) -> bool {
        segments(&self.0).eq(segments(base))
    }
}

impl FromStr for BasePath {
    type Err = BasePathError;

    fn from_str(text: &str) -> Result<Self, BasePathError> {
        let parts: Vec<_> = segments(text).collect();
        let ok = text.starts_with('/') && is_base(&parts);
        ok.then(|| Self(format!("/{}", parts.join("/")))).ok_or(BasePathError)
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases() {
        let base: BasePath = "/llm//v-1/".parse().expect("a base");
        assert_eq!(base.to_string(), "/llm/v-1");
        assert!(base.is("/llm/v-1") && base.is("//llm/v-1") && !base.is("/llm") && !base.is(""));
        assert!(!base.is("/llm/v-1/x") && !base.is("/LLM/v-1"));
        for bad in ["", "/", "llm", "/a/b/c/d/e", "/a b", "/../x", "/a%2fb", "/endpoints/x", "/a?b"]
        {
            assert_eq!(bad.parse::<BasePath>(), Err(BasePathError), "{bad}");
        }
    }
}

//! Which API a path speaks, and what else it names.

use std::str::FromStr;

use super::{Api, TABLE};
use crate::http::Method;

/// Segments of a path that are looked at. Longer paths speak no API.
const MAX_SEGMENTS: usize = 16;
/// Segments that may stand in front of a version.
const MAX_BASE: usize = 4;

/// What a path asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// The API.
    pub api: Api,
    /// The endpoint that the path names.
    pub endpoint: Option<&'a str>,
    /// The inference component (model copy or adapter) that the path names.
    pub component: Option<&'a str>,
    /// The model that the path names.
    pub model: Option<&'a str>,
    /// What stands in front of the API's own path, such as `/openai` in front of `/v1/...`. Servers
    /// are known to take anything under one of their other paths for that path, so a base says
    /// nothing about what the whole path means to an instance.
    pub base: Option<&'a str>,
    /// The path to send on, when it is not the client's.
    pub path: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// The model or adapter that the path names; it goes before the one that the body names.
    pub fn named_model(&self) -> Option<&'a str> {
        self.component.or(self.model)
    }
}

/// The paths that speak an API: those of the table, and those that the configuration adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths(Vec<(Pattern, Api)>);

impl Paths {
    /// The table's paths and these, which go first.
    pub fn new(own: Vec<(Pattern, Api)>) -> Self {
        Self(own)
    }

    /// Reads a path (without query). Nothing of it is decoded, and it is sent on as it is, unless
    /// [`Target::path`] says otherwise.
    ///
    /// These are taken for the same path: with a slash at its end, with several slashes in place of
    /// one, without its version (`/chat/completions`), and with up to four segments before its
    /// version (`/openai/v1/chat/completions`). A path that the configuration adds is taken with
    /// slashes like that only.
    ///
    /// Besides there are the paths of SageMaker's runtime API, which name an endpoint:
    /// `/endpoints/{name}/invocations` and `/endpoints/{name}/openai/v1/...`, both optionally with
    /// `/inference-components/{component}` behind the endpoint. Instances get the part they know:
    /// `/invocations` or `/v1/...`. What else begins with `/endpoints/` speaks no API.
    pub fn target<'a>(&self, method: Method, path: &'a str) -> Target<'a> {
        // Nearly all requests end here.
        if self.0.is_empty()
            && let Some(api) = verbatim(method, path)
        {
            return Target { api, ..Target::default() };
        }
        let Some(segments) = Segments::of(path) else { return Target::default() };
        self.own(method, &segments)
            .or_else(|| named(method, path, &segments))
            .or_else(|| known(method, path, &segments))
            .unwrap_or_default()
    }

    fn own<'a>(&self, method: Method, segments: &Segments<'a>) -> Option<Target<'a>> {
        self.0.iter().find_map(|(pattern, api)| {
            let matched = matched(&pattern.0, segments.as_slice())?;
            let takes = api.info().methods.contains(&method);
            takes.then_some(Target { api: *api, model: matched.model, ..Target::default() })
        })
    }
}

/// What a path asks for where the configuration adds none, see [`Paths::target`].
pub fn target(method: Method, path: &str) -> Target<'_> {
    Paths::default().target(method, path)
}

/// A path of the configuration: segments behind slashes, each as it is or `{name}` for any one; the
/// last may be `{name...}`, for any number of them but none. `{model}` names the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

/// Why a path is no [`Pattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The first byte.
    #[error("does not begin with `/`")]
    Start,
    /// There is nothing behind the slash, or too much.
    #[error("must have 1 to 16 segments")]
    Segments,
    /// A byte that no path has.
    #[error("has a character that no path has: write it percent-encoded, and leave the query out")]
    Character,
    /// Braces elsewhere.
    #[error("has a brace that is no `{{name}}` of a whole segment (or `{{name...}}` of the last)")]
    Brace,
    /// A path of SageMaker's.
    #[error("begins with `/endpoints/`, where paths name an endpoint: it cannot be added to")]
    Endpoints,
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if !text.starts_with('/') {
            return Err(PatternError::Start);
        }
        let segments = Segments::of(text).ok_or(PatternError::Segments)?;
        let [first, ..] = segments.as_slice() else { return Err(PatternError::Segments) };
        if *first == "endpoints" {
            return Err(PatternError::Endpoints);
        }
        let last = segments.len - 1;
        for (at, segment) in segments.as_slice().iter().enumerate() {
            let inner = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            let name = match inner {
                Some(inner) if at == last => inner.strip_suffix("...").unwrap_or(inner),
                Some(inner) => inner,
                None => segment,
            };
            if name.contains(['{', '}']) || name.is_empty() || inner.is_some() && name.contains('.')
            {
                return Err(PatternError::Brace);
            }
            if !name.bytes().all(|b| b.is_ascii_graphic() && b != b'?' && b != b'#') {
                return Err(PatternError::Character);
            }
        }
        Ok(Self(text.to_owned()))
    }
}

/// A path between its slashes.
struct Segments<'a> {
    parts: [&'a str; MAX_SEGMENTS],
    len: usize,
}

impl<'a> Segments<'a> {
    /// `None` when there are too many.
    fn of(path: &'a str) -> Option<Self> {
        let mut segments = Self { parts: [""; MAX_SEGMENTS], len: 0 };
        for part in path.split('/').filter(|part| !part.is_empty()) {
            *segments.parts.get_mut(segments.len)? = part;
            segments.len += 1;
        }
        Some(segments)
    }

    fn as_slice(&self) -> &[&'a str] {
        &self.parts[..self.len]
    }
}

/// Where a segment begins in the path it was cut from.
fn offset(path: &str, segment: &str) -> usize {
    segment.as_ptr() as usize - path.as_ptr() as usize
}

/// The API whose path is written exactly like this.
fn verbatim(method: Method, path: &str) -> Option<Api> {
    let is = |info: &&super::ApiInfo| info.paths.contains(&path) && info.methods.contains(&method);
    TABLE.iter().find(is).filter(|_| !path.contains('{')).map(|info| info.api)
}

fn named<'a>(method: Method, path: &'a str, segments: &Segments<'a>) -> Option<Target<'a>> {
    let ["endpoints", endpoint, rest @ ..] = segments.as_slice() else { return None };
    let (component, rest) = match rest {
        ["inference-components", component, rest @ ..] => (Some(*component), rest),
        rest => (None, rest),
    };
    let (api, path) = match rest {
        [part @ "invocations"] => {
            let start = offset(path, part);
            let api = if method == Method::Post { Api::Invocations } else { Api::Other };
            (api, &path[start - 1..start + part.len()])
        }
        ["openai", version @ "v1", _, ..] => {
            let api = find(method, &rest[1..], Form::Whole).map(|(api, _)| api);
            (api.unwrap_or_default(), &path[offset(path, version) - 1..])
        }
        _ => return None,
    };
    let endpoint = Some(*endpoint);
    Some(Target { api, endpoint, component, path: Some(path), ..Target::default() })
}

fn known<'a>(method: Method, path: &'a str, segments: &Segments<'a>) -> Option<Target<'a>> {
    let all = segments.as_slice();
    let target = |(api, matched): (Api, Matched<'a>)| Target {
        api,
        model: matched.model,
        ..Target::default()
    };
    let plain = find(method, all, Form::Whole).or_else(|| find(method, all, Form::WithoutVersion));
    if plain.is_some() {
        return plain.map(target);
    }
    let at = all.iter().position(|segment| is_version(segment))?;
    let (base, rest) = all.split_at(at);
    if !is_base(base) {
        return None;
    }
    let base = path[..offset(path, rest[0])].trim_end_matches('/');
    find(method, rest, Form::Whole).map(|found| Target { base: Some(base), ..target(found) })
}

fn is_version(segment: &str) -> bool {
    matches!(segment, "v1" | "v2")
}

/// Whether these may stand in front of a version.
fn is_base(segments: &[&str]) -> bool {
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b));
    (1..=MAX_BASE).contains(&segments.len())
        && segments[0] != "endpoints"
        && segments.iter().all(|segment| plain(segment) && !matches!(*segment, "." | ".."))
}

/// How much of a known path is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Whole,
    WithoutVersion,
}

fn find<'a>(method: Method, segments: &[&'a str], form: Form) -> Option<(Api, Matched<'a>)> {
    TABLE.iter().filter(|info| info.methods.contains(&method)).find_map(|info| {
        info.paths.iter().find_map(|path| {
            let path = match form {
                Form::Whole => path,
                Form::WithoutVersion => path.strip_prefix("/v1").or(path.strip_prefix("/v2"))?,
            };
            Some((info.api, matched(path, segments)?))
        })
    })
}

/// What a pattern found.
#[derive(Clone, Copy, Default)]
struct Matched<'a> {
    model: Option<&'a str>,
}

fn matched<'a>(pattern: &str, segments: &[&'a str]) -> Option<Matched<'a>> {
    let mut found = Matched::default();
    let mut segments = segments.iter();
    for expected in pattern.split('/').filter(|part| !part.is_empty()) {
        let segment = *segments.next()?;
        if expected.ends_with("...}") {
            return Some(found);
        }
        match expected {
            "{model}" => found.model = Some(segment),
            _ if expected.starts_with('{') || expected == segment => {}
            _ => return None,
        }
    }
    segments.next().is_none().then_some(found)
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;

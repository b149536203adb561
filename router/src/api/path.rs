//! Which API a path speaks, and what else it names.

use std::str::FromStr;

use super::{Api, Call, TABLE, segment::is_plain};
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
    /// The call of SageMaker's runtime API that it is. Its path at the instance is the variant's to say.
    pub call: Option<Call>,
    /// The model that the path names.
    pub model: Option<&'a str>,
    /// What stands in front of the API's own path, such as `/openai` in front of `/v1/...`. Servers
    /// are known to take anything under one of their other paths for that path, so a base says
    /// nothing about what the whole path means to an instance.
    pub base: Option<&'a str>,
    /// Whether the configuration has the path, as one that speaks this API.
    pub own: bool,
    /// The path to send on, when it is not the client's.
    pub path: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// The model or adapter that the path names; it goes before the one that the body names.
    pub fn named_model(&self) -> Option<&'a str> {
        self.component.or(self.model)
    }
}

/// A path that the configuration adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPath {
    /// The path.
    pub pattern: Pattern,
    /// What it speaks.
    pub api: Api,
    /// Methods that it takes, HEAD where there is GET. Empty: those of the API, and any for
    /// [`Api::Other`].
    pub methods: Vec<Method>,
}

impl OwnPath {
    fn takes(&self, method: Method) -> bool {
        let get = method == Method::Head && self.methods.contains(&Method::Get);
        match (&*self.methods, self.api) {
            ([], Api::Other) => true,
            ([], api) => api.info().methods.contains(&method),
            (methods, _) => methods.contains(&method) || get,
        }
    }
}

/// The paths that speak an API: those of the table, and those that the configuration adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths(Vec<OwnPath>);

impl Paths {
    /// The table's paths and these. Those that speak an API go before the table's, the others
    /// behind, so that a pattern that takes many paths takes none away from an API.
    pub fn new(own: Vec<OwnPath>) -> Self {
        Self(own)
    }

    /// Reads a path (without query). Nothing of it is decoded, and it is sent on as it is, unless
    /// [`Target::path`] says otherwise.
    ///
    /// These are taken for the same path: with a slash at its end, with several slashes in place of
    /// one, without its version (`/chat/completions`), and with up to four segments before its
    /// version (`/openai/v1/chat/completions`). A path that the configuration adds is taken with
    /// slashes like that only. What stands for a `{name}` must mean one thing to every server: no
    /// dots to climb up by, nothing encoded that could be a separator to one of them.
    ///
    /// Besides there are the paths of SageMaker's runtime API, which name an endpoint:
    /// `/endpoints/{name}/invocations`, `/endpoints/{name}/invocations-response-stream` and
    /// `/endpoints/{name}/openai/v1/...`, all optionally with
    /// `/inference-components/{component}` behind the endpoint. Instances get the part they know:
    /// `/invocations` or `/v1/...`. What else begins with `/endpoints/` speaks no API.
    pub fn target<'a>(&self, method: Method, path: &'a str) -> Target<'a> {
        // Nearly all requests end here.
        if !self.0.iter().any(|own| own.api != Api::Other)
            && let Some(api) = verbatim(method, path)
        {
            return Target { api, ..Target::default() };
        }
        let Some(segments) = Segments::of(path) else { return Target::default() };
        let all = segments.as_slice();
        self.own(method, all, true)
            .or_else(|| self.named(method, path, all))
            .or_else(|| known(method, path, all))
            .or_else(|| self.own(method, all, false))
            .unwrap_or_default()
    }

    /// A path of the configuration: one that speaks an API, or one that does not.
    fn own<'a>(&self, method: Method, segments: &[&'a str], speaks: bool) -> Option<Target<'a>> {
        // Below an endpoint's name nothing is anybody else's.
        if segments.first() == Some(&"endpoints") {
            return None;
        }
        let own = self.0.iter().filter(|own| own.takes(method));
        own.filter(|own| (own.api != Api::Other) == speaks).find_map(|own| {
            let model = matched(&own.pattern.0, segments)?.model;
            Some(Target { api: own.api, model, own: true, ..Target::default() })
        })
    }

    /// A path that names an endpoint.
    fn named<'a>(&self, method: Method, path: &'a str, segments: &[&'a str]) -> Option<Target<'a>> {
        let ["endpoints", endpoint, rest @ ..] = segments else { return None };
        let (component, rest) = match rest {
            ["inference-components", component, rest @ ..] => (Some(*component), rest),
            rest => (None, rest),
        };
        let (found, path) = match rest {
            ["invocations"] => (called(method, Call::Invoke), INVOCATIONS),
            ["invocations-response-stream"] => (called(method, Call::Stream), INVOCATIONS),
            ["openai", version @ "v1", _, ..] => {
                let rest = &rest[1..];
                let found = self
                    .own(method, rest, true)
                    .or_else(|| find(method, rest, Form::Whole).map(of_table))
                    .or_else(|| self.own(method, rest, false));
                (found.unwrap_or_default(), &path[offset(path, version) - 1..])
            }
            _ => return None,
        };
        Some(Target { endpoint: Some(endpoint), component, path: Some(path), ..found })
    }
}

/// Where an instance takes what SageMaker's runtime API is called with, unless its variant says otherwise.
const INVOCATIONS: &str = "/invocations";

/// A call of SageMaker's runtime API.
fn called<'a>(method: Method, call: Call) -> Target<'a> {
    match method {
        Method::Post => Target { api: Api::Invocations, call: Some(call), ..Target::default() },
        _ => Target::default(),
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
    /// There are too many slashes.
    #[error("has more than 16 segments")]
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
        if segments.as_slice().first() == Some(&"endpoints") {
            return Err(PatternError::Endpoints);
        }
        let last = segments.len.saturating_sub(1);
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

/// A path of the table.
fn of_table<'a>((api, matched): (Api, Matched<'a>)) -> Target<'a> {
    Target { api, model: matched.model, ..Target::default() }
}

fn known<'a>(method: Method, path: &'a str, all: &[&'a str]) -> Option<Target<'a>> {
    let plain = find(method, all, Form::Whole).or_else(|| find(method, all, Form::WithoutVersion));
    if plain.is_some() {
        return plain.map(of_table);
    }
    let at = all.iter().position(|segment| is_version(segment))?;
    let (base, rest) = all.split_at(at);
    if !is_base(base) {
        return None;
    }
    let base = path[..offset(path, rest[0])].trim_end_matches('/');
    find(method, rest, Form::Whole).map(|found| Target { base: Some(base), ..of_table(found) })
}

fn is_version(segment: &str) -> bool {
    matches!(segment, "v1" | "v2")
}

/// Whether these may stand in front of a version.
pub(super) fn is_base(segments: &[&str]) -> bool {
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
            // Slashes that are encoded separate segments here as well.
            let plain = |segment: &&str| is_plain(segment, true);
            return (plain(&segment) && segments.as_slice().iter().all(plain)).then_some(found);
        }
        match expected {
            _ if expected == segment => {}
            _ if !expected.starts_with('{') || !is_plain(segment, false) => return None,
            "{model}" => found.model = Some(segment),
            _ => {}
        }
    }
    segments.next().is_none().then_some(found)
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;

//! Which models instances serve, and which of them a request for one may go to.
//!
//! Pure: how a list is learned is the [health checker's](super::health) part.

use std::sync::Arc;

use serde::Deserialize;

/// Models that are kept of one instance's list. A longer one is no list of what a server has loaded.
const MAX_MODELS: usize = 10_000;

/// The models that an instance lists: base models, their aliases, and loaded adapters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelList(Vec<Box<str>>);

/// The body of `GET /v1/models` (OpenAI's API reference, "List models"), as far as it matters here.
#[derive(Deserialize)]
struct Body {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: Box<str>,
}

impl ModelList {
    /// Reads the body of an answer to `GET /v1/models`. `None` when it is no such list, or says nothing:
    /// an instance that lists no model may serve any.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let body: Body = serde_json::from_slice(body).ok()?;
        let mut ids: Vec<_> = body.data.into_iter().map(|model| model.id).collect();
        ids.sort_unstable();
        ids.dedup();
        (1..=MAX_MODELS).contains(&ids.len()).then_some(Self(ids))
    }

    /// Whether the instance serves the model by this list: it is in it, or it is
    ///
    /// - `base:adapter`, and both are in it (SGLang's documentation, "LoRA Serving");
    /// - a name without a tag, and is in it with the tag `latest` (Ollama's API, "Model names").
    pub fn has(&self, model: &[u8]) -> bool {
        let listed = |model: &[u8]| self.0.binary_search_by(|id| id.as_bytes().cmp(model)).is_ok();
        if listed(model) {
            return true;
        }
        match model.iter().rposition(|byte| *byte == b':') {
            Some(colon) => listed(&model[..colon]) && listed(&model[colon + 1..]),
            None => {
                let tagged = || model.iter().chain(b":latest");
                self.0.binary_search_by(|id| id.as_bytes().iter().cmp(tagged())).is_ok()
            }
        }
    }

    /// Their names, sorted.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }
}

/// The list of an instance; `None` while it is not known: not asked yet, no such page, or not for
/// everybody to see.
pub type Known = Option<Arc<ModelList>>;

/// Which instances a request may go to, by the lists that they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Any.
    #[default]
    Any,
    /// Those that list its model.
    Listing,
    /// Those that list its model, and those whose list is not known.
    NotWithout,
    /// Those whose list is not known.
    Unlisted,
}

impl Rule {
    /// The rule for a model, where instances have these lists. `None` when all have one, and the
    /// model is in none of them.
    ///
    /// An instance whose list is not known may well serve what others list, as long as these agree
    /// among themselves; when they do not, the lists decide.
    pub fn of(model: &[u8], lists: impl Iterator<Item = Known>) -> Option<Self> {
        let mut first: Known = None;
        let (mut unknown, mut differ, mut listed) = (false, false, false);
        for list in lists {
            let Some(list) = list else {
                unknown = true;
                continue;
            };
            listed |= list.has(model);
            differ |= *first.get_or_insert_with(|| Arc::clone(&list)) != list;
        }
        match (listed, unknown) {
            (true, true) if !differ => Some(Self::NotWithout),
            (true, _) => Some(Self::Listing),
            // Not even one list: nothing is known at all.
            (false, _) if first.is_none() => Some(Self::Any),
            (false, true) => Some(Self::Unlisted),
            (false, false) => None,
        }
    }

    /// Whether some instance is known to serve the model.
    pub const fn is_listed(self) -> bool {
        matches!(self, Self::Listing | Self::NotWithout)
    }
}

/// Which instances a request may go to, by the model that it asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Serves<'m> {
    /// The model.
    pub model: &'m [u8],
    /// How it matters.
    pub rule: Rule,
}

impl Serves<'_> {
    /// Any of them.
    pub const ANY: Self = Self { model: &[], rule: Rule::Any };

    /// Whether an instance with this list is one of them.
    pub fn admits(self, list: &Known) -> bool {
        match (self.rule, list) {
            (Rule::Any, _) | (Rule::NotWithout | Rule::Unlisted, None) => true,
            (Rule::Listing | Rule::NotWithout, Some(list)) => list.has(self.model),
            (Rule::Listing, None) | (Rule::Unlisted, Some(_)) => false,
        }
    }
}

/// Whether a request's model makes a difference to where it can go: some lists are known, and not all
/// the same. A fleet of equals never has to look for the model.
pub fn make_a_difference(lists: impl Iterator<Item = Known>) -> bool {
    let mut first: Option<Known> = None;
    for list in lists {
        match &first {
            None => first = Some(list),
            Some(first) if *first == list => {}
            Some(_) => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ids: &str) -> Known {
        let data: Vec<_> =
            ids.split(' ').map(|id| serde_json::json!({"id": id, "object": "model"})).collect();
        let body = serde_json::json!({"object": "list", "data": data}).to_string();
        ModelList::parse(body.as_bytes()).map(Arc::new)
    }

    #[test]
    fn a_list_has_its_ids_and_no_others() {
        let some = list("meta/llama sql-adapter llama meta/llama").expect("a list");
        assert_eq!(some.ids().collect::<Vec<_>>(), ["llama", "meta/llama", "sql-adapter"]);
        for (model, expected) in [("llama", true), ("lama", false), ("", false), ("llama2", false)]
        {
            assert_eq!(some.has(model.as_bytes()), expected, "{model}");
        }
        for body in
            [&b""[..], b"[]", b"{}", br#"{"data":{}}"#, br#"{"data":[{}]}"#, br#"{"data":[]}"#]
        {
            assert_eq!(ModelList::parse(body), None);
        }
        let many = |count| {
            let data: Vec<_> =
                (0..count).map(|n| serde_json::json!({"id": n.to_string()})).collect();
            ModelList::parse(serde_json::json!({ "data": data }).to_string().as_bytes())
        };
        assert!(many(MAX_MODELS).is_some() && many(MAX_MODELS + 1).is_none());
    }

    #[test]
    fn names_with_an_adapter_and_without_a_tag_are_understood() {
        let some = list("meta/llama sql mistral:latest mistral:7b").expect("a list");
        for (model, expected) in [
            ("meta/llama:sql", true),
            ("meta/llama:python", false),
            ("llama:sql", false),
            (":sql", false),
            ("sql:", false),
            ("mistral", true),
            ("mistral:7b", true),
            ("mistral:8b", false),
            ("mistra", false),
            ("sq", false),
        ] {
            assert_eq!(some.has(model.as_bytes()), expected, "{model}");
        }
    }

    #[test]
    fn a_model_goes_where_it_is_listed_or_where_that_is_not_known() {
        let rule = |model: &'static str, lists: &[Known]| {
            let model = model.as_bytes();
            let serves = Serves { model, rule: Rule::of(model, lists.iter().cloned())? };
            Some(lists.iter().map(|list| serves.admits(list)).collect::<Vec<_>>())
        };
        let (a, b, ab, unknown) = (list("a"), list("b"), list("a b"), None);
        let two = [a.clone(), b.clone(), ab.clone()];
        assert_eq!(rule("a", &two), Some(vec![true, false, true]));
        assert_eq!(rule("b", &two), Some(vec![false, true, true]));
        assert_eq!(rule("c", &two), None, "known nowhere");
        // Lists that differ decide; what is in none of them may be anywhere else.
        let mixed = [a.clone(), b.clone(), unknown.clone()];
        assert_eq!(rule("a", &mixed), Some(vec![true, false, false]));
        assert_eq!(rule("c", &mixed), Some(vec![false, false, true]));
        // Where those that are known are alike, the others may be so too.
        let alike = [a.clone(), a.clone(), unknown.clone()];
        assert_eq!(rule("a", &alike), Some(vec![true, true, true]));
        assert_eq!(rule("c", &alike), Some(vec![false, false, true]));
        assert_eq!(rule("a", &[unknown.clone(), unknown.clone()]), Some(vec![true, true]));
        assert_eq!(rule("a", &[a.clone(), a.clone()]), Some(vec![true, true]));
        assert_eq!(rule("a", &[]), Some(vec![]));
    }

    #[test]
    fn equals_make_no_difference() {
        let differ = |lists: &[Known]| make_a_difference(lists.iter().cloned());
        let (a, b, unknown) = (list("a"), list("b"), None);
        assert!(
            !differ(&[]) && !differ(std::slice::from_ref(&a)) && !differ(&[a.clone(), list("a")])
        );
        assert!(!differ(&[unknown.clone(), unknown.clone()]));
        assert!(differ(&[a.clone(), b]) && differ(&[a.clone(), unknown]) && differ(&[None, a]));
    }
}

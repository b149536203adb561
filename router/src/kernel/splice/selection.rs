//! Which interfaces the operator lets the programs on.

/// Patterns of interface names. In a pattern, `*` stands for any characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Those that may have the programs; all, if empty.
    pub only: Vec<String>,
    /// Those that may not, whatever `only` says.
    pub except: Vec<String>,
}

impl Selection {
    /// Why an interface is left out, if it is.
    pub(super) fn refuses(&self, name: &str) -> Option<String> {
        if let Some(pattern) = first_match(&self.except, name) {
            return Some(format!("`{pattern}` is in engine.except_interfaces"));
        }
        let refused = !self.only.is_empty() && first_match(&self.only, name).is_none();
        refused.then(|| "it is not in engine.interfaces".to_owned())
    }

    /// Why a suitable interface that is not refused is taken.
    pub(super) fn reason(&self, name: &str) -> String {
        match first_match(&self.only, name) {
            Some(pattern) => format!("`{pattern}` is in engine.interfaces"),
            None => "it is suitable".to_owned(),
        }
    }

    /// Patterns of `only` that no interface of these fits.
    pub(super) fn unmatched<'a>(
        &self,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Vec<String> {
        let unmatched = |pattern: &&String| !names.clone().any(|name| matches(pattern, name));
        self.only.iter().filter(unmatched).cloned().collect()
    }
}

fn first_match<'a>(patterns: &'a [String], name: &str) -> Option<&'a str> {
    patterns.iter().map(String::as_str).find(|pattern| matches(pattern, name))
}

/// Whether a name fits a pattern.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, mut rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    while let Some((part, behind)) = rest.split_once('*') {
        let Some(at) = name.find(part) else { return false };
        (name, rest) = (&name[at + part.len()..], behind);
    }
    name.ends_with(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(all: &[&str]) -> Vec<String> {
        all.iter().map(|&pattern| pattern.to_owned()).collect()
    }

    #[test]
    fn patterns_fit_names() {
        for (pattern, name, fits) in [
            ("eth0", "eth0", true),
            ("eth0", "eth01", false),
            ("eth*", "eth", true),
            ("eth*", "eth0.7", true),
            ("eth*", "veth0", false),
            ("*", "lo", true),
            ("*.7", "eth0.7", true),
            ("*.7", "eth0.71", false),
            ("en*s*f*", "enp3s0f1", true),
            ("en*s*f*", "enp3s0", false),
            ("a*a", "a", false),
            ("a**b", "ab", true),
            ("", "lo", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn exceptions_win_and_reasons_name_what_decided() {
        let all = Selection::default();
        assert_eq!((all.refuses("eth0"), &*all.reason("eth0")), (None, "it is suitable"));
        let some = Selection { only: patterns(&["eth*", "br0"]), except: patterns(&["eth1"]) };
        assert_eq!(some.refuses("eth0"), None);
        assert_eq!(some.reason("eth0"), "`eth*` is in engine.interfaces");
        assert_eq!(some.refuses("eth1").unwrap(), "`eth1` is in engine.except_interfaces");
        assert_eq!(some.refuses("lo").unwrap(), "it is not in engine.interfaces");
        assert_eq!(some.unmatched(["eth7", "lo"].into_iter()), ["br0"]);
        let most = Selection { only: Vec::new(), except: patterns(&["docker*"]) };
        assert_eq!((most.refuses("docker0").is_some(), most.refuses("eth0")), (true, None));
    }
}

//! Links within pages of Markdown.

#[cfg(test)]
use std::path::Path;

/// Where a page's links lead, in order, outside code.
#[cfg(test)]
pub(crate) fn targets(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    each_link(text, |_, target| all.push(target));
    all
}

/// The names that links to headings of a page use: lower case, spaces as hyphens, without punctuation;
/// a name that comes again gets a number.
#[cfg(test)]
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let (mut all, mut names) = (Vec::new(), Vec::new());
    let mut code = false;
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let name: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let again = names.iter().filter(|known| **known == name).count();
        all.push(if again == 0 { name.clone() } else { format!("{name}-{again}") });
        names.push(name);
    }
    all
}

/// Whether a link leads out of these files, to the web.
pub(crate) fn is_external(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// What is wrong with a page's links: files that are not there, headings that a page has not.
#[cfg(test)]
pub(crate) fn broken(page: &Path, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for target in targets(text).into_iter().filter(|target| !is_external(target)) {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() { page.to_owned() } else { page.with_file_name(file) };
        let there = if anchor.is_empty() {
            path.exists()
        } else {
            std::fs::read_to_string(&path)
                .is_ok_and(|other| anchors(&other).iter().any(|name| name == anchor))
        };
        if !there {
            broken.push(format!("{} links to {target}", page.display()));
        }
    }
    broken
}

/// The text without the links that `leads` says lead nowhere; their words stay.
pub(crate) fn without_dead(text: &str, leads: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    each_link(text, |range, target| {
        if !is_external(target) && !leads(target) {
            let words = &text[range.start + 1..range.middle];
            out.push_str(&text[copied..range.start]);
            out.push_str(words);
            copied = range.end;
        }
    });
    out + &text[copied..]
}

/// `[words](target)`: where it begins, where its words end, and where it ends.
struct Place {
    start: usize,
    middle: usize,
    end: usize,
}

fn each_link<'t>(text: &'t str, mut found: impl FnMut(Place, &'t str)) {
    let mut from = 0;
    while let Some(at) = text[from..].find("](") {
        let middle = from + at;
        from = middle + 2;
        let Some(length) = text[from..].find(')') else { return };
        let Some(start) = opening(&text[..middle]) else { continue };
        // A fence opens or closes code at each odd number of them.
        if text[..start].matches("\n```").count() % 2 == 1 {
            continue;
        }
        let target = &text[from..from + length];
        from += length + 1;
        found(Place { start, middle, end: from }, target);
    }
}

/// Where the bracket is that the one behind `text` closes; brackets within may come in pairs.
fn opening(text: &str) -> Option<usize> {
    let mut open = 1;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b']' => open += 1,
            b'[' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_and_dead_ones_taken_off() {
        let text = "See [the `[x]` page](a.md), [code](../src/b.rs)\nand [web](https://c.example).\n\
                    ```\n[not](one)\n```\n[end](#here)";
        assert_eq!(targets(text), ["a.md", "../src/b.rs", "https://c.example", "#here"]);
        let kept = without_dead(text, |target| target == "a.md" || target == "#here");
        assert_eq!(kept, text.replace("[code](../src/b.rs)", "code"));
    }

    #[test]
    fn headings_have_the_names_that_links_use() {
        let text = "# One: two\n## `[log]` & more\n```\n# no heading\n```\n## One: two\n";
        assert_eq!(anchors(text), ["one-two", "log--more", "one-two-1"]);
    }
}

//! Which file uses which: paths resolved to the files that define what they name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::source::{Kind, Name, Source};

/// One module's use of another one's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
    /// The first module below the root that each is in; nothing for the root itself.
    pub(crate) tops: [Option<String>; 2],
    /// Where, and by what path.
    pub(crate) line: usize,
    pub(crate) path: String,
    /// A module only passes on what is defined below it.
    pub(crate) facade: bool,
}

/// How many imports of imports are followed; more would be a circle among them.
const DEPTH: usize = 12;

/// All uses of other files in a crate.
pub(crate) fn edges(source: &Source) -> BTreeSet<Edge> {
    let mut edges = BTreeSet::new();
    for (index, module) in source.modules.iter().enumerate() {
        for one in &module.uses {
            let target = match source.resolve(index, &one.path, DEPTH) {
                // A variable that is called as a module is.
                Some(Found::Module(_)) if one.kind == Kind::Inline && one.path.len() == 1 => None,
                Some(Found::Module(target) | Found::ItemOf(target)) => Some(target),
                None => None,
            };
            let Some(target) = target.map(|target| &source.modules[target]) else { continue };
            if target.file != module.file {
                edges.insert(Edge {
                    from: module.file.clone(),
                    to: target.file.clone(),
                    tops: [module, target].map(|module| module.path.first().cloned()),
                    line: one.line,
                    path: one.path.join("::"),
                    facade: one.kind == Kind::Reexport && target.path.starts_with(&module.path),
                });
            }
        }
    }
    edges
}

/// What a path names.
enum Found {
    /// This module.
    Module(usize),
    /// An item that this module defines.
    ItemOf(usize),
}

impl Source {
    /// What a path in a module names; `None` for what another crate defines.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Found> {
        let depth = depth.checked_sub(1)?;
        let mut module = from;
        for (index, name) in path.iter().enumerate() {
            let found = match name.as_str() {
                "crate" => Found::Module(0),
                "self" => Found::Module(module),
                "super" => Found::Module(self.modules[module].parent?),
                name => self.look_up(module, name, index + 1 == path.len(), depth)?,
            };
            module = match found {
                Found::Module(module) => module,
                item @ Found::ItemOf(_) => return Some(item),
            };
        }
        Some(Found::Module(module))
    }

    /// What a name means in a module. The last name of a path is an item rather than a module, the
    /// others are not. Who may see the item is for the compiler to say.
    fn look_up(&self, module: usize, name: &str, last: bool, depth: usize) -> Option<Found> {
        let depth = depth.checked_sub(1)?;
        let here = &self.modules[module];
        let meanings = here.names.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut found: Vec<Found> = meanings
            .iter()
            .filter_map(|meaning| match meaning {
                Name::Item => Some(Found::ItemOf(module)),
                Name::Module(child) => Some(Found::Module(*child)),
                Name::Import(path) => self.resolve(module, path, depth),
            })
            .collect();
        found.sort_by_key(|found| matches!(found, Found::ItemOf(_)) != last);
        found.into_iter().next().or_else(|| {
            here.globs.iter().find_map(|path| match self.resolve(module, path, depth)? {
                Found::Module(from) if from != module => self.look_up(from, name, last, depth),
                _ => None,
            })
        })
    }
}

/// The files that each file uses.
type Next<'a> = BTreeMap<&'a Path, BTreeSet<&'a Path>>;

/// Files that use each other in a circle, and how; each file stands in one circle at most.
pub(crate) fn circles(edges: &BTreeSet<Edge>) -> Vec<BTreeSet<&Path>> {
    let mut next = Next::new();
    for edge in edges {
        next.entry(&edge.from).or_default().insert(&edge.to);
    }
    let reach: BTreeMap<&Path, BTreeSet<&Path>> =
        next.keys().map(|from| (*from, reachable(&next, from))).collect();
    let mut circles: Vec<BTreeSet<&Path>> = Vec::new();
    for (from, to) in &reach {
        if to.contains(from) && !circles.iter().any(|circle| circle.contains(from)) {
            let back = |other: &&&Path| reach.get(**other).is_some_and(|to| to.contains(from));
            circles.push(to.iter().filter(back).copied().collect());
        }
    }
    circles
}

/// What a file uses directly, or by way of others; itself among them if it is in a circle.
fn reachable<'a>(next: &Next<'a>, from: &'a Path) -> BTreeSet<&'a Path> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        open.extend(next.get(file).into_iter().flatten().copied().filter(|to| seen.insert(*to)));
    }
    seen
}

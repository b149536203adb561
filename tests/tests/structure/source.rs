//! Reads the modules of a crate from its source, and what each of them names.

use std::{collections::HashMap, path::PathBuf};

use syn::{
    Attribute, ImplItem, Item, ItemUse, Macro, Meta, Path, Token, UseTree, Visibility,
    buffer::{Cursor, TokenBuffer},
    punctuated::Punctuated,
    visit::{self, Visit},
};

/// A module.
#[derive(Debug)]
pub(crate) struct Module {
    /// Its names from the root of the crate; empty for the root.
    pub(crate) path: Vec<String>,
    /// Index of the module that declares it.
    pub(crate) parent: Option<usize>,
    /// The file that it stands in, relative to the root's directory.
    pub(crate) file: PathBuf,
    /// What can be named there. A name may mean several things: a module and a function, say.
    pub(crate) names: HashMap<String, Vec<Name>>,
    /// Paths of which everything is imported.
    pub(crate) globs: Vec<Vec<String>>,
    /// The paths that it contains.
    pub(crate) uses: Vec<Use>,
}

/// What a name means within a module.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    /// An item that is defined there.
    Item,
    /// A module that is declared there.
    Module(usize),
    /// Something that is imported from this path.
    Import(Vec<String>),
}

/// A path in the source.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

/// How a path is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By `use`.
    Import,
    /// By `pub use`, of whatever visibility.
    Reexport,
    /// Where it stands.
    Inline,
}

/// A crate's modules that are compiled without `cfg(test)`. The first is the root.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) modules: Vec<Module>,
}

/// Gives the text of a file, if there is one.
pub(crate) type Files<'a> = &'a dyn Fn(&std::path::Path) -> Option<String>;

impl Source {
    /// Reads a crate from its root file.
    ///
    /// # Panics
    /// When a file is missing, or no Rust.
    pub(crate) fn read(root: &str, files: Files) -> Self {
        let mut source = Self::default();
        let file = PathBuf::from(root);
        let text = files(&file).unwrap_or_else(|| panic!("there is no {root}"));
        source.add_module(None, "", file.clone());
        source.read_file(0, &file, &text, PathBuf::new(), files);
        source
    }

    fn add_module(&mut self, parent: Option<usize>, name: &str, file: PathBuf) -> usize {
        let mut path = parent.map_or_else(Vec::new, |parent| self.modules[parent].path.clone());
        if parent.is_some() {
            path.push(name.to_owned());
        }
        let (names, globs, uses) = Default::default();
        self.modules.push(Module { path, parent, file, names, globs, uses });
        self.modules.len() - 1
    }

    /// `children` is the directory in which the files of declared modules are.
    fn read_file(
        &mut self,
        module: usize,
        file: &std::path::Path,
        text: &str,
        children: PathBuf,
        files: Files,
    ) {
        let parsed =
            syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut reader = Reader { source: self, module, children, files };
        parsed.items.iter().for_each(|item| reader.visit_item(item));
    }
}

struct Reader<'a> {
    source: &'a mut Source,
    module: usize,
    children: PathBuf,
    files: Files<'a>,
}

impl Reader<'_> {
    fn here(&mut self) -> &mut Module {
        &mut self.source.modules[self.module]
    }

    fn define(&mut self, name: &syn::Ident, meaning: Name) {
        self.here().names.entry(name.to_string()).or_default().push(meaning);
    }

    fn add_use(&mut self, path: Vec<String>, line: usize, kind: Kind) {
        self.here().uses.push(Use { path, line, kind });
    }

    /// The paths that a `use` item imports, and under which names.
    fn import(&mut self, tree: &UseTree, mut path: Vec<String>, kind: Kind) {
        match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.import(&part.tree, path, kind);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, path.clone(), kind));
            }
            UseTree::Glob(glob) => {
                self.add_use(path.clone(), line(&glob.star_token), kind);
                self.here().globs.push(path);
            }
            UseTree::Name(name) => self.import_one(&name.ident, &name.ident, path, kind),
            UseTree::Rename(name) => self.import_one(&name.ident, &name.rename, path, kind),
        }
    }

    fn import_one(
        &mut self,
        what: &syn::Ident,
        name: &syn::Ident,
        mut path: Vec<String>,
        kind: Kind,
    ) {
        if what != "self" {
            path.push(what.to_string());
        }
        let name = if name == "self" { path.last().cloned() } else { Some(name.to_string()) };
        self.add_use(path.clone(), what.span().start().line, kind);
        let names = &mut self.here().names;
        names.entry(name.unwrap_or_default()).or_default().push(Name::Import(path));
    }

    /// Paths among the tokens of a macro's arguments, which nothing else understands.
    fn tokens(&mut self, mut at: Cursor) {
        while !at.eof() {
            if let Some((inside, _, _, rest)) = at.any_group() {
                self.tokens(inside);
                at = rest;
            } else if let Some(rest) = colons(at) {
                // From the root of all crates: not ours.
                at = rest;
                while let Some((_, rest)) = at.ident() {
                    at = colons(rest).unwrap_or(rest);
                }
            } else if let Some((first, mut rest)) = at.ident() {
                let mut path = vec![first.to_string()];
                while let Some((next, after)) = colons(rest).and_then(Cursor::ident) {
                    path.push(next.to_string());
                    rest = after;
                }
                self.add_use(path, first.span().start().line, Kind::Inline);
                at = rest;
            } else {
                at = at.token_tree().expect("a token").1;
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if left_out(attributes(item)) {
            return;
        }
        if let Some(name) = defined(item) {
            self.define(name, Name::Item);
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Fn(item) => &item.attrs[..],
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            _ => &[],
        };
        if !left_out(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        assert!(
            !item.attrs.iter().any(|attribute| attribute.path().is_ident("path")),
            "mod {name} is in a file of another name: the structure's checks cannot follow it"
        );
        let own = self.here().file.clone();
        let dir = self.children.join(&name);
        let (file, text) = match &item.content {
            Some(_) => (own, None),
            None => {
                let places = [self.children.join(format!("{name}.rs")), dir.join("mod.rs")];
                let found = places.into_iter().find_map(|file| {
                    let text = (self.files)(&file)?;
                    Some((file, Some(text)))
                });
                found.unwrap_or_else(|| panic!("{}: no file for mod {name}", own.display()))
            }
        };
        let module = self.source.add_module(Some(self.module), &name, file.clone());
        self.define(&item.ident, Name::Module(module));
        match (&item.content, text) {
            (Some((_, items)), _) => {
                let mut inner =
                    Reader { source: self.source, module, children: dir, files: self.files };
                items.iter().for_each(|item| inner.visit_item(item));
            }
            (None, text) => {
                self.source.read_file(module, &file, &text.unwrap_or_default(), dir, self.files);
            }
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            let private = matches!(item.vis, Visibility::Inherited);
            let kind = if private { Kind::Import } else { Kind::Reexport };
            self.import(&item.tree, Vec::new(), kind);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if let (None, Some(first)) = (path.leading_colon, path.segments.first()) {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.add_use(names, first.ident.span().start().line, Kind::Inline);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.tokens(TokenBuffer::new2(call.tokens.clone()).begin());
        visit::visit_macro(self, call);
    }

    // They name who may see an item, and what the compiler makes of it.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn line(token: &Token![*]) -> usize {
    token.spans[0].start().line
}

/// The name of an item that defines one; modules and imports are told otherwise.
fn defined(item: &Item) -> Option<&syn::Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item is there only under test, model checker or fuzzer.
fn left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        attribute.parse_args::<Meta>().is_ok_and(|condition| holds(&condition) == Some(false))
    })
}

/// Whether a condition holds in what ships; `None` when that depends on more.
fn holds(condition: &Meta) -> Option<bool> {
    let Meta::List(list) = condition else {
        let ours = ["test", "fuzzing", "loom"];
        return ours.iter().any(|name| condition.path().is_ident(name)).then_some(false);
    };
    let inner = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let mut inner = inner.iter().map(holds);
    if list.path.is_ident("not") {
        inner.next()?.map(|holds| !holds)
    } else if list.path.is_ident("any") {
        inner.try_fold(false, |any, one| if any || one == Some(true) { Some(true) } else { one })
    } else if inner.any(|one| one == Some(false)) {
        Some(false)
    } else {
        None
    }
}

/// What follows a `::`.
fn colons(at: Cursor) -> Option<Cursor> {
    let (first, rest) = at.punct()?;
    let (second, rest) = rest.punct()?;
    (first.as_char() == ':' && second.as_char() == ':').then_some(rest)
}

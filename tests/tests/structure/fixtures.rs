//! The checks find what they are for, on crates of a few lines.

use std::{collections::BTreeMap, path::Path};

use crate::{
    rules::{self, check, order_of, stated_orders},
    source::Source,
};

/// The names of what breaks the rules in a crate of these files, whose order is `order`.
fn violations(order: &str, files: &[(&str, &str)]) -> Vec<String> {
    let files: BTreeMap<&Path, &str> =
        files.iter().map(|(file, text)| (Path::new(*file), *text)).collect();
    let source = Source::read("lib.rs", &|file| files.get(file).map(|text| (*text).to_owned()));
    let order: Vec<String> = order.split_whitespace().map(str::to_owned).collect();
    check("src", &source, &order).into_keys().collect()
}

const THREE: (&str, &str) = ("lib.rs", "mod left; mod middle; mod right;");

#[test]
fn orders_are_read_from_the_page() {
    let page = "Text: a → b\n\n```\na → b\n    → c_d\n\nx → y\n```\n\
        and z → z\n```rust\nlet a = 1;\n→ no\n```\n";
    let orders = stated_orders(page);
    assert_eq!(orders, [vec!["a", "b", "c_d"], vec!["x", "y"]]);
    let source = Source::read("lib.rs", &|_| Some("mod b { mod x {} } mod y {} mod c_d {}".into()));
    assert_eq!(order_of(&source, &orders), Some(&orders[0][..]));
    assert_eq!(order_of(&source, &[vec!["z".into()]]), None);
}

#[test]
fn uses_to_the_right_are_allowed() {
    let files = [
        THREE,
        ("left.rs", "use crate::{middle, right::Two}; fn f() { middle::one(); let _: Two; }"),
        ("middle.rs", "use super::right::Two; pub fn one() {}"),
        (
            "right.rs",
            "pub struct Two; use std::fmt; use self::inner::X; mod inner { pub struct X; }",
        ),
    ];
    assert_eq!(violations("left middle right", &files), [""; 0]);
}

#[test]
fn uses_to_the_left_are_found_in_whatever_form() {
    for text in [
        "use crate::left::One;",
        "use super::left::One;",
        "use crate::{right, left::{self, One}};",
        "pub use crate::left::One as Other;",
        "use crate::left::*;",
        "use crate::left;",
        "fn f(_: crate::left::One) {}",
        "fn f() { crate::left::one(); }",
        "fn f() { use crate::left::one as two; two(); }",
        "impl crate::left::Trait for u8 {}",
        "fn f() -> Vec<Option<crate::left::One>> { vec![] }",
        "fn f() { println!(\"{}\", g(crate::left::ONE)); }",
        "mod inner { use super::super::left::One; }",
        "use crate as root; use root::left::One;",
        "#[cfg(not(test))] use crate::left::One;",
        "#[cfg(any(test, unix))] use crate::left::One;",
    ] {
        let left = "pub struct One; pub fn one() {} pub trait Trait {} pub const ONE: u8 = 1;";
        let files = [THREE, ("left.rs", left), ("middle.rs", ""), ("right.rs", text)];
        assert_eq!(violations("left middle right", &files), ["src/right.rs -> left"], "{text}");
    }
}

#[test]
fn what_is_there_for_tests_only_does_not_count() {
    for text in [
        "#[cfg(test)] mod tests { use crate::left::One; }",
        "#[cfg(test)] mod tests;",
        "#[cfg(all(test, unix))] use crate::left::One;",
        "#[cfg(any(test, fuzzing))] use crate::left::One;",
        "struct X; impl X { #[cfg(test)] fn f(_: crate::left::One) {} }",
        "/// See [`One`](crate::left::One).\nstruct X;",
        "fn f() { g(\"crate::left::One\"); } // crate::left::One",
        "use ::left::One;",
        "use left::One;",
        "pub(in crate::left) struct X;",
    ] {
        let files = [THREE, ("left.rs", "pub struct One;"), ("middle.rs", ""), ("right.rs", text)];
        assert_eq!(violations("left middle right", &files), [""; 0], "{text}");
    }
}

#[test]
fn what_another_folder_passes_on_is_a_use_of_where_it_is_defined() {
    let files = [
        THREE,
        ("left/mod.rs", "mod deep; pub use deep::Deep;"),
        ("left/deep.rs", "pub struct Deep;"),
        ("middle.rs", "pub use crate::left::Deep;"),
        ("right.rs", "use crate::middle::Deep;"),
    ];
    assert_eq!(
        violations("left middle right", &files),
        ["src/middle.rs -> left", "src/right.rs -> left"]
    );
}

#[test]
fn the_order_and_the_modules_agree() {
    let files = [THREE, ("left.rs", ""), ("middle.rs", ""), ("right.rs", "")];
    assert_eq!(violations("left right gone", &files), ["src: middle", "src: no gone"]);
}

#[test]
fn circles_are_found_through_what_a_parent_passes_on() {
    let lib = ("lib.rs", "mod dir;");
    let parent = ("dir/mod.rs", "mod a; mod b; mod c; pub use self::{a::A, b::B}; pub use c::*;");
    let circle = ["src/dir/a.rs in a circle", "src/dir/b.rs in a circle"];
    let c = ("dir/c.rs", "pub struct C;");
    let two = [lib, parent, ("dir/a.rs", "use super::B; pub struct A;"), c];
    for b in ["use super::A; pub struct B;", "use crate::dir::a; pub struct B(a::A);"] {
        assert_eq!(violations("dir", &[&two[..], &[("dir/b.rs", b)]].concat()), circle);
    }
    let b = ("dir/b.rs", "use super::C; pub struct B;");
    assert_eq!(violations("dir", &[&two[..], &[b]].concat()), [""; 0]);
    let c = ("dir/c.rs", "pub struct C(super::A);");
    let all = ["src/dir/a.rs in a circle", "src/dir/b.rs in a circle", "src/dir/c.rs in a circle"];
    assert_eq!(violations("dir", &[lib, parent, two[2], b, c]), all);
}

#[test]
fn children_may_use_their_parent_and_be_used_by_it() {
    let files = [
        ("lib.rs", "mod dir;"),
        ("dir/mod.rs", "mod a; mod b; use a::A; pub const LIMIT: usize = 1; fn f(_: b::B) {}"),
        ("dir/a.rs", "use super::LIMIT; pub struct A;"),
        ("dir/b.rs", "use super::{LIMIT, a::A}; pub struct B;"),
    ];
    assert_eq!(violations("dir", &files), [""; 0]);
}

#[test]
fn modules_and_items_of_one_name_are_told_apart() {
    let files = [
        ("lib.rs", "mod dir;"),
        ("dir/mod.rs", "mod pick; mod other; pub use pick::pick; pub use pick::Pick as Choice;"),
        ("dir/pick.rs", "use super::other::Other; pub fn pick() {} pub struct Pick;"),
        ("dir/other.rs", "pub struct Other; fn f(pick: u8) -> u8 { pick + other } "),
    ];
    // `pick` there is a variable.
    assert_eq!(violations("dir", &files), [""; 0]);
    let mut files = files;
    files[3].1 = "use super::Choice; pub struct Other;";
    let circle = ["src/dir/other.rs in a circle", "src/dir/pick.rs in a circle"];
    assert_eq!(violations("dir", &files), circle);
    files[3].1 = "pub struct Other; fn f() { super::pick() }";
    assert_eq!(violations("dir", &files), circle);
}

#[test]
fn details_say_where_and_how() {
    let files = BTreeMap::from([
        (Path::new("lib.rs"), "mod left; mod right;"),
        (Path::new("left.rs"), "pub struct One;"),
        (Path::new("right.rs"), "\nuse crate::left::One;"),
    ]);
    let source = Source::read("lib.rs", &|file| files.get(file).map(|text| (*text).to_owned()));
    let order = ["left".to_owned(), "right".to_owned()];
    let violations: rules::Violations = check("src", &source, &order);
    let details = &violations["src/right.rs -> left"];
    assert!(details.starts_with("line 2: crate::left::One\n"), "{details}");
}

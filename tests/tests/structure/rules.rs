//! The rules that hold for the modules of a crate, and what breaks them.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    edges::{Edge, circles, edges},
    source::Source,
};

/// What breaks a rule: a short name of it, and the details.
pub(crate) type Violations = BTreeMap<String, String>;

/// The orders that a page states: lines such as `a → b → c` in its code blocks, which go on where the
/// next line begins with an arrow.
pub(crate) fn stated_orders(page: &str) -> Vec<Vec<String>> {
    let mut orders = Vec::<Vec<String>>::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let mut goes_on = false;
        for line in block.lines().skip(1) {
            let names = line.split('→').map(|name| name.trim().to_owned());
            let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
            let continued = line.trim_start().starts_with('→');
            match orders.last_mut() {
                Some(last) if continued && goes_on => last.extend(names),
                _ if line.contains('→') && !continued => orders.push(names),
                _ => {}
            }
            goes_on = line.contains('→');
        }
    }
    orders
}

/// The order that is meant for a crate: the one that names the most of its modules.
pub(crate) fn order_of<'a>(source: &Source, orders: &'a [Vec<String>]) -> Option<&'a [String]> {
    let tops = tops(source);
    let named = |order: &&Vec<String>| order.iter().filter(|name| tops.contains(name)).count();
    orders.iter().max_by_key(named).filter(|order| named(order) > 0).map(Vec::as_slice)
}

/// The modules below the root.
fn tops(source: &Source) -> BTreeSet<&String> {
    source.modules.iter().filter_map(|module| module.path.first()).collect()
}

/// What breaks the order, or is a circle, in a crate. `base` stands before the names of its files.
pub(crate) fn check(base: &str, source: &Source, order: &[String]) -> Violations {
    let edges = edges(source);
    let mut violations = order_violations(base, source, &edges, order);
    violations.extend(circle_violations(base, &edges));
    violations
}

fn order_violations(
    base: &str,
    source: &Source,
    edges: &BTreeSet<Edge>,
    order: &[String],
) -> Violations {
    let mut violations = Violations::new();
    let tops = tops(source);
    for name in order.iter().filter(|name| !tops.contains(name)) {
        violations.insert(format!("{base}: no {name}"), "the order names it".to_owned());
    }
    for top in tops.iter().filter(|top| !order.contains(top)) {
        violations.insert(format!("{base}: {top}"), "it is not in the stated order".to_owned());
    }
    let place = |name: &String| order.iter().position(|other| other == name);
    for edge in edges {
        let [Some(from), Some(to)] = &edge.tops else { continue };
        if let (Some(mine), Some(theirs)) = (place(from), place(to))
            && theirs < mine
        {
            let file = edge.from.display();
            let details = format!(
                "line {}: {}\n  {from} is to the right of {to} in the stated order, and uses it",
                edge.line, edge.path
            );
            violations.entry(format!("{base}/{file} -> {to}")).or_insert(details);
        }
    }
    violations
}

fn circle_violations(base: &str, edges: &BTreeSet<Edge>) -> Violations {
    // A child is a part of its parent, which may use it and be used by it.
    let within = |edge: &Edge| edge.to.parent().is_some_and(|dir| edge.from.starts_with(dir));
    let to_parent = |edge: &Edge| edge.to.ends_with("mod.rs") && within(edge);
    let counted: BTreeSet<Edge> =
        edges.iter().filter(|edge| !edge.facade && !to_parent(edge)).cloned().collect();
    let mut violations = Violations::new();
    for circle in circles(&counted) {
        for file in &circle {
            let uses = counted
                .iter()
                .filter(|edge| edge.from == *file && circle.contains(edge.to.as_path()))
                .map(|edge| (&edge.to, format!("line {}: {}", edge.line, edge.path)));
            let first: BTreeMap<_, _> = uses.rev().collect();
            let uses: Vec<String> = first
                .into_iter()
                .map(|(to, how)| format!("it uses {} ({how})", to.display()))
                .collect();
            let name = format!("{base}/{} in a circle", file.display());
            violations.insert(name, uses.join("\n  "));
        }
    }
    violations
}

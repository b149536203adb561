//! Lists of resources: filters, order and pages, the same for all kinds.

use serde_json::{Value, json};

use super::{Outcome, set};
use crate::aws::{
    AwsError, json,
    page::{Order, page},
};

/// Items of a page when `MaxResults` does not say: what the service's pages say of those that do.
const DEFAULT_PAGE: usize = 10;

/// A resource in a list.
pub(super) struct Item<'a> {
    pub(super) name: &'a str,
    /// In milliseconds since 1970.
    pub(super) created: u64,
    /// In milliseconds since 1970; the creation for what cannot be modified.
    pub(super) modified: u64,
    /// Empty for what has none.
    pub(super) status: &'static str,
    /// What the list says of it.
    pub(super) summary: Value,
}

/// The page of the list that the input asks for.
pub(super) fn list<'a>(
    operation: &str,
    member: &str,
    input: &Value,
    all: impl Iterator<Item = Item<'a>>,
) -> Result<Outcome, AwsError> {
    let items = all.filter(|item| fits(item, input)).collect();
    // Descending by the time of creation, unless the input says otherwise.
    let order = Order::of(input, Order::Descending);
    let by = input["SortBy"].as_str().unwrap_or("CreationTime");
    let key = |item: &Item<'_>| -> (String, u64, String) {
        match by {
            "Name" => (String::new(), 0, item.name.to_owned()),
            "Status" => (item.status.to_owned(), 0, item.name.to_owned()),
            _ => (String::new(), item.created, item.name.to_owned()),
        }
    };
    let page = page(operation, input, DEFAULT_PAGE, order, items, key)?;
    let summaries: Vec<Value> = page.items.into_iter().map(|item| item.summary).collect();
    let mut output = json!({ member: summaries });
    set(&mut output, "NextToken", page.next.map(Value::from));
    Ok(Outcome::read(output))
}

fn fits(item: &Item<'_>, input: &Value) -> bool {
    let time = |member: &str| json::millis(&input[member]);
    let between = |at: u64, after: &str, before: &str| {
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        time(after).is_none_or(|after| at > after) && time(before).is_none_or(|before| at < before)
    };
    input["NameContains"].as_str().is_none_or(|part| item.name.contains(part))
        && input["StatusEquals"].as_str().is_none_or(|status| item.status == status)
        && between(item.created, "CreationTimeAfter", "CreationTimeBefore")
        && between(item.modified, "LastModifiedTimeAfter", "LastModifiedTimeBefore")
}

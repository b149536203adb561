//! Lists, one page at a time.
//!
//! A token says after which item the next page begins, not how many were passed: what is created or deleted
//! between two pages moves no other item from one to the other. It says as well what the list was asked for,
//! since it means nothing to another question.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::AwsError;

/// Which way a list is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the least.
    Ascending,
    /// From the greatest.
    Descending,
}

impl Order {
    /// An input's `SortOrder`, or this one.
    #[must_use]
    pub fn of(input: &Value, default: Self) -> Self {
        match input["SortOrder"].as_str() {
            Some("Ascending") => Self::Ascending,
            Some("Descending") => Self::Descending,
            _ => default,
        }
    }
}

/// One page of a list, and the token for the next if there is one.
#[derive(Debug, PartialEq)]
pub struct Page<T> {
    /// In order.
    pub items: Vec<T>,
    /// `NextToken` of the output.
    pub next: Option<String>,
}

/// The page that an input's `NextToken` and `MaxResults` ask for, out of all items that fit its filters.
///
/// `key` is what they are sorted by; it must tell any two apart, so the name belongs into it.
///
/// # Errors
/// `ValidationException` for a token that was not made for this operation, these filters and this order.
pub fn page<T, K>(
    operation: &str,
    input: &Value,
    default_size: usize,
    order: Order,
    mut items: Vec<T>,
    key: impl Fn(&T) -> K,
) -> Result<Page<T>, AwsError>
where
    K: Ord + Serialize + DeserializeOwned,
{
    let question = question(operation, input);
    if let Some(token) = input["NextToken"].as_str() {
        let after: K = read(token, question)?;
        items.retain(|item| match order {
            Order::Ascending => key(item) > after,
            Order::Descending => key(item) < after,
        });
    }
    items.sort_by(|one, other| match order {
        Order::Ascending => key(one).cmp(&key(other)),
        Order::Descending => key(other).cmp(&key(one)),
    });
    let size = input["MaxResults"].as_u64().and_then(|size| usize::try_from(size).ok());
    let size = size.unwrap_or(default_size).max(1);
    let is_more = items.len() > size;
    items.truncate(size);
    let next = items.last().filter(|_| is_more).map(|last| write(&key(last), question));
    Ok(Page { items, next })
}

/// What identifies a question: all that the input says, but for which page of the answer it wants.
fn question(operation: &str, input: &Value) -> u64 {
    let mut asked = input.clone();
    if let Value::Object(members) = &mut asked {
        members.remove("NextToken");
        members.remove("MaxResults");
    }
    // Members are sorted by name.
    xxh3_64(format!("{operation} {asked}").as_bytes())
}

#[derive(Serialize, Deserialize)]
struct Token<K> {
    question: u64,
    after: K,
}

/// Hexadecimal digits, which no shell and no JSON has to escape: of a checksum, then of the token.
fn write<K: Serialize>(after: &K, question: u64) -> String {
    let token = serde_json::to_vec(&Token { question, after }).unwrap_or_default();
    let checksum = xxh3_64(&token).to_be_bytes();
    checksum.iter().chain(&token).map(|byte| format!("{byte:02x}")).collect()
}

fn read<K: DeserializeOwned>(text: &str, question: u64) -> Result<K, AwsError> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Vec<u8>> = digits.map(byte).collect();
    let token = bytes.as_deref().and_then(|bytes| {
        let (checksum, token) = bytes.split_first_chunk()?;
        (u64::from_be_bytes(*checksum) == xxh3_64(token)).then_some(token)
    });
    let token: Option<Token<K>> = token.and_then(|token| serde_json::from_slice(token).ok());
    match token {
        Some(token) if token.question == question => Ok(token.after),
        Some(_) => Err(AwsError::validation(
            "NextToken belongs to another request: repeat the operation, filters and order of the \
             request that answered with it.",
        )),
        None => Err(AwsError::validation("NextToken is not one that this API answered with.")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn all_pages(items: &[u32], size: usize, order: Order) -> Vec<u32> {
        let mut found = Vec::new();
        let mut input = json!({ "MaxResults": size, "NameContains": "x" });
        loop {
            let page = page("ListModels", &input, 10, order, items.to_vec(), |item| *item).unwrap();
            assert!(page.items.len() <= size);
            found.extend(page.items);
            match page.next {
                Some(token) => input["NextToken"] = json!(token),
                None => return found,
            }
        }
    }

    proptest! {
        #[test]
        fn pages_make_up_the_whole_list(
            items in prop::collection::btree_set(any::<u32>(), 0..60),
            size in 1_usize..70,
        ) {
            let sorted: Vec<u32> = items.iter().copied().collect();
            let mut reversed = sorted.clone();
            reversed.reverse();
            prop_assert_eq!(all_pages(&reversed, size, Order::Ascending), sorted.clone());
            prop_assert_eq!(all_pages(&sorted, size, Order::Descending), reversed);
        }

        #[test]
        fn no_other_text_is_taken_for_a_token(text in "\\PC{0,80}") {
            let input = json!({ "NextToken": text });
            let result = page("ListModels", &input, 10, Order::Ascending, vec![1], |item| *item);
            prop_assert_eq!(result.unwrap_err().name, "ValidationException");
        }
    }

    #[test]
    fn what_is_deleted_between_two_pages_moves_no_other_item() {
        let input = json!({ "MaxResults": 2 });
        let first =
            page("ListModels", &input, 10, Order::Ascending, vec![1, 2, 3, 4], |item| *item);
        let token = first.unwrap().next;
        let input = json!({ "MaxResults": 2, "NextToken": token });
        let second = page("ListModels", &input, 10, Order::Ascending, vec![3, 4], |item| *item);
        assert_eq!(second, Ok(Page { items: vec![3, 4], next: None }));
    }

    #[test]
    fn a_token_belongs_to_one_question() {
        let list = |operation: &str, input: &Value| {
            page(operation, input, 1, Order::Ascending, vec![1, 2], |item| *item)
        };
        let input = json!({ "NameContains": "a" });
        let token = list("ListModels", &input).unwrap().next;
        let same = json!({ "NameContains": "a", "NextToken": token, "MaxResults": 5 });
        assert_eq!(list("ListModels", &same), Ok(Page { items: vec![2], next: None }));
        let other = json!({ "NameContains": "b", "NextToken": token });
        for (operation, input) in [("ListModels", &other), ("ListEndpoints", &same)] {
            let error = list(operation, input).unwrap_err();
            assert!(error.message.contains("another request"), "{}", error.message);
        }
    }
}

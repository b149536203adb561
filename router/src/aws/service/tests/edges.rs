//! Every constraint of the service model at its edges, at each place of each input where it holds.

use serde_json::{Map, Value, json};

use super::{
    super::{
        check::{self, as_in_messages},
        model::Model,
        operations,
        shape::{Kind, Member, Shape, ShapeId},
    },
    examples::{Example, padded},
};

/// A value, and what is wrong with it.
struct Case {
    value: Value,
    wrong: Wrong,
}

enum Wrong {
    Nothing,
    /// A constraint, at a place.
    Constraint {
        path: Vec<String>,
        text: String,
    },
    /// A type.
    Type,
}

impl Case {
    fn good(value: Value) -> Self {
        Self { value, wrong: Wrong::Nothing }
    }

    fn bad(value: Value, text: impl Into<String>) -> Self {
        Self { value, wrong: Wrong::Constraint { path: Vec::new(), text: text.into() } }
    }

    fn of_type(value: Value) -> Self {
        Self { value, wrong: Wrong::Type }
    }

    /// The same further outside.
    fn inside(self, parts: &[&str], around: impl FnOnce(Value) -> Value) -> Self {
        let wrong = match self.wrong {
            Wrong::Constraint { path, text } => {
                let outer = parts.iter().map(|part| (*part).to_owned());
                Wrong::Constraint { path: outer.chain(path).collect(), text }
            }
            other => other,
        };
        Self { value: around(self.value), wrong }
    }
}

#[test]
fn every_constraint_holds_at_its_edges_and_no_further() {
    let model = Model::get();
    let (mut good, mut bad, mut types) = (0, 0, 0);
    for operation in operations() {
        for case in cases(model, operation.input) {
            let result = check::check(model, operation.input, &case.value);
            let context = || format!("{}: {} {result:?}", operation.name, case.value);
            match &case.wrong {
                Wrong::Nothing => {
                    assert!(result.is_ok(), "{}", context());
                    good += 1;
                }
                Wrong::Constraint { path, text } => {
                    let message = result.as_ref().map_err(|error| {
                        assert_eq!(error.name, "ValidationException");
                        &error.message
                    });
                    let message = message.expect_err(&context());
                    let path = path.join(".");
                    let says = [
                        format!(" at '{path}' failed to satisfy constraint: {text}"),
                        format!(
                            " at '{path}' failed to satisfy constraint: Member must satisfy constraint: ["
                        ),
                        format!(
                            " at '{path}' failed to satisfy constraint: Map keys must satisfy constraint: ["
                        ),
                        format!(
                            " at '{path}' failed to satisfy constraint: Map value must satisfy constraint: ["
                        ),
                    ];
                    let is_said = says.iter().any(|start| message.contains(start));
                    assert!(is_said && message.contains(text), "{path} {text}: {}", context());
                    bad += 1;
                }
                Wrong::Type => {
                    let error = result.as_ref().expect_err(&context());
                    assert_eq!(error.name, "SerializationException", "{}", context());
                    types += 1;
                }
            }
        }
    }
    // Not all of them were passed over.
    assert!(good > 1500 && bad > 1000 && types > 2000, "{good} {bad} {types}");
}

/// A value without anything that may be left out.
fn least(model: &Model, id: ShapeId) -> Value {
    let shape = model.shape(id);
    match &shape.kind {
        Kind::Structure(members) => {
            let required = members.iter().filter(|member| member.required);
            required.map(|member| (member.name.clone(), least(model, member.shape))).collect()
        }
        Kind::List(member) => elements(model, *member, min_length(shape)),
        Kind::Map { key, value } => entries(model, *key, *value, min_length(shape)),
        Kind::String { values, .. } if !values.is_empty() => json!(values[0]),
        Kind::String { pattern: Some(pattern), .. } => {
            json!(Example::of(&pattern.text).shortest())
        }
        Kind::String { .. } => json!(padded("a~", min_length(shape).max(1)).expect("long enough")),
        Kind::Integer | Kind::Long => json!(shape.min.map_or(1, |min| min as i64)),
        Kind::Float => json!(shape.min.unwrap_or(0.5)),
        Kind::Boolean => json!(true),
        Kind::Timestamp => json!(1_700_000_000.25),
    }
}

fn min_length(shape: &Shape) -> usize {
    shape.min.map_or(0, |min| min as usize)
}

fn elements(model: &Model, member: ShapeId, count: usize) -> Value {
    vec![least(model, member); count].into()
}

fn entries(model: &Model, key: ShapeId, value: ShapeId, count: usize) -> Value {
    let name = least(model, key);
    let name = name.as_str().expect("keys are text");
    (0..count).map(|index| (format!("{name}{index}"), least(model, value))).collect()
}

/// Values at the edges of each constraint in a shape.
fn cases(model: &Model, id: ShapeId) -> Vec<Case> {
    let shape = model.shape(id);
    let mut cases = vec![Case::good(least(model, id))];
    match &shape.kind {
        Kind::Structure(members) => structure_cases(model, id, members, &mut cases),
        Kind::List(member) => {
            length_cases(shape, |count| Some(elements(model, *member, count)), &mut cases);
            let fill = |element| {
                let mut all = vec![element];
                all.resize_with(min_length(shape).max(1), || least(model, *member));
                Value::Array(all)
            };
            let parts = inner_parts(model, *member, "1");
            cases.extend(
                self::cases(model, *member).into_iter().map(|case| case.inside(&parts, fill)),
            );
            cases.push(Case::bad(fill(Value::Null), "Member must not be null"));
        }
        Kind::Map { key, value } => {
            length_cases(shape, |count| Some(entries(model, *key, *value, count)), &mut cases);
            for case in self::cases(model, *key) {
                if let Some(name) = case.value.as_str().map(str::to_owned) {
                    cases.push(case.inside(&[], |_| json!({ name: least(model, *value) })));
                }
            }
            let name = least(model, *key).as_str().expect("keys are text").to_owned();
            let parts = inner_parts(model, *value, &name);
            for case in self::cases(model, *value) {
                cases.push(case.inside(&parts, |value| json!({ &name: value })));
            }
        }
        Kind::String { pattern, values } => {
            let text = |length| match (pattern, values.is_empty()) {
                (Some(pattern), _) => Example::of(&pattern.text).good(length).map(Value::from),
                (None, true) => Some(padded("ä~", length).unwrap_or_default().into()),
                (None, false) => None,
            };
            length_cases(shape, text, &mut cases);
            if let Some(pattern) = pattern {
                let text = &pattern.text;
                for bad in Example::of(text).bad {
                    let says = format!("Member must satisfy regular expression pattern: {text}");
                    cases.push(Case::bad(json!(bad), says));
                }
            }
            cases.extend(values.iter().map(|value| Case::good(json!(value))));
            if !values.is_empty() {
                let says = format!("Member must satisfy enum value set: [{}]", values.join(", "));
                let others = ["", "NO_SUCH_VALUE"].map(str::to_owned);
                let small = values[0].to_lowercase() + " ";
                cases.extend(
                    others.into_iter().chain([small]).map(|bad| Case::bad(json!(bad), &*says)),
                );
            }
        }
        Kind::Integer | Kind::Long => {
            range_cases(shape, 1.0, |number| json!(number as i64), &mut cases);
        }
        Kind::Float => range_cases(shape, 0.001, |number| json!(number), &mut cases),
        Kind::Boolean => cases.push(Case::good(json!(false))),
        Kind::Timestamp => cases.push(Case::good(json!(0))),
    }
    cases.extend(other_types(&shape.kind).into_iter().map(Case::of_type));
    cases
}

/// Where an element is: those that are simple are told of at the list or map.
fn inner_parts<'p>(model: &Model, id: ShapeId, place: &'p str) -> Vec<&'p str> {
    match model.shape(id).kind {
        Kind::Structure(_) | Kind::List(_) | Kind::Map { .. } => vec![place, "member"],
        _ => Vec::new(),
    }
}

fn structure_cases(model: &Model, id: ShapeId, members: &[Member], cases: &mut Vec<Case>) {
    let with = |name: &str, value: Value| {
        let mut whole = least(model, id);
        whole[name] = value;
        whole
    };
    cases.push(Case::good(with("NoSuchMember", json!([1]))));
    for member in members {
        let path = as_in_messages(&member.name);
        let all = self::cases(model, member.shape);
        cases.extend(
            all.into_iter().map(|case| case.inside(&[&path], |value| with(&member.name, value))),
        );
        let null = Case::good(Value::Null);
        let mut absent = Map::clone(least(model, id).as_object().expect("a structure"));
        absent.remove(&member.name);
        for value in [with(&member.name, null.value), absent.into()] {
            cases.push(match member.required {
                true => Case::bad(value, "Member must not be null").inside(&[&path], |value| value),
                false => Case::good(value),
            });
        }
    }
}

fn length_cases(shape: &Shape, of: impl Fn(usize) -> Option<Value>, cases: &mut Vec<Case>) {
    for length in shape.min.into_iter().chain(shape.max) {
        cases.extend(of(length as usize).map(Case::good));
    }
    if let Some(max) = shape.max {
        let says = format!("Member must have length less than or equal to {max}");
        cases.extend(of(max as usize + 1).map(|value| Case::bad(value, says)));
    }
    if let Some(min) = shape.min.filter(|min| *min >= 1.0) {
        let says = format!("Member must have length greater than or equal to {min}");
        // No pattern is of use to texts that are too short for it.
        let shorter = of(min as usize - 1).unwrap_or_else(|| json!("a".repeat(min as usize - 1)));
        if shape.is_text_of_any_kind() || !shorter.is_string() {
            cases.push(Case::bad(shorter, says));
        }
    }
}

fn range_cases(shape: &Shape, step: f64, of: impl Fn(f64) -> Value, cases: &mut Vec<Case>) {
    for number in shape.min.into_iter().chain(shape.max) {
        cases.push(Case::good(of(number)));
    }
    if let Some(max) = shape.max {
        let says = format!("Member must have value less than or equal to {max}");
        cases.push(Case::bad(of(max + step), says));
    }
    if let Some(min) = shape.min {
        let says = format!("Member must have value greater than or equal to {min}");
        cases.push(Case::bad(of(min - step), says));
    }
}

/// Values that are of another type.
fn other_types(kind: &Kind) -> Vec<Value> {
    let all = [json!("1"), json!(1), json!(1.5), json!(true), json!([]), json!({})];
    let fits = |value: &Value| match kind {
        Kind::Structure(_) | Kind::Map { .. } => value.is_object(),
        Kind::List(_) => value.is_array(),
        Kind::String { .. } => value.is_string(),
        Kind::Integer | Kind::Long => value.is_i64(),
        Kind::Float | Kind::Timestamp => value.is_number(),
        Kind::Boolean => value.is_boolean(),
    };
    let mut others: Vec<Value> = all.into_iter().filter(|value| !fits(value)).collect();
    if let Kind::Integer = kind {
        others.extend([json!(i64::from(i32::MAX) + 1), json!(i64::MIN), json!(u64::MAX)]);
    }
    others
}

impl Shape {
    fn is_text_of_any_kind(&self) -> bool {
        matches!(&self.kind, Kind::String { values, .. } if values.is_empty())
    }
}

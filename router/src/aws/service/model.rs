//! The service model, read once.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use serde::Deserialize;

use super::{
    Operation,
    shape::{Kind, Member, Pattern, Shape, ShapeId},
};

/// What `cargo xtask service-model` wrote.
const FACTS: &str = include_str!("sagemaker.json");

/// Operations and shapes.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) target_prefix: String,
    /// By name.
    pub(super) operations: Vec<Operation>,
    shapes: Vec<Shape>,
}

impl Model {
    /// That of the control API.
    pub(super) fn get() -> &'static Model {
        static MODEL: LazyLock<Model> =
            LazyLock::new(|| Model::parse(FACTS).expect("a test reads what is built in"));
        &MODEL
    }

    /// A shape's type and constraints.
    pub(super) fn shape(&self, id: ShapeId) -> &Shape {
        &self.shapes[id.0]
    }

    fn parse(text: &str) -> Result<Self, String> {
        let facts: Facts = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let names: HashMap<&str, ShapeId> = facts
            .shapes
            .keys()
            .enumerate()
            .map(|(index, name)| (name.as_str(), ShapeId(index)))
            .collect();
        let id = |name: &str| {
            names.get(name).copied().ok_or_else(|| format!("there is no shape {name}"))
        };
        let shapes = facts
            .shapes
            .iter()
            .map(|(name, facts)| facts.shape(&id).map_err(|why| format!("{name}: {why}")))
            .collect::<Result<_, _>>()?;
        let operations = facts
            .operations
            .iter()
            .map(|(name, facts)| {
                let output = facts.output.as_deref().map(id).transpose()?;
                Ok(Operation { name: name.clone(), input: id(&facts.input)?, output })
            })
            .collect::<Result<_, String>>()?;
        Ok(Self { target_prefix: facts.target_prefix, operations, shapes })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    target_prefix: String,
    operations: BTreeMap<String, OperationFacts>,
    shapes: BTreeMap<String, ShapeFacts>,
}

#[derive(Deserialize)]
struct OperationFacts {
    input: String,
    output: Option<String>,
}

#[derive(Deserialize)]
struct ShapeFacts {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    required: Vec<String>,
    min: Option<f64>,
    max: Option<f64>,
    pattern: Option<String>,
    #[serde(rename = "enum", default)]
    values: Vec<String>,
    #[serde(default)]
    members: BTreeMap<String, String>,
    member: Option<String>,
    key: Option<String>,
    value: Option<String>,
}

impl ShapeFacts {
    fn shape(&self, id: &impl Fn(&str) -> Result<ShapeId, String>) -> Result<Shape, String> {
        let of = |part: &Option<String>| id(part.as_deref().ok_or("it is of nothing")?);
        let kind = match self.kind.as_str() {
            "structure" => Kind::Structure(self.members(id)?),
            "list" => Kind::List(of(&self.member)?),
            "map" => Kind::Map { key: of(&self.key)?, value: of(&self.value)? },
            "string" => {
                let pattern = self.pattern.clone().map(Pattern::new).transpose();
                let pattern = pattern.map_err(|error| error.to_string())?;
                Kind::String { pattern, values: self.values.clone() }
            }
            "integer" => Kind::Integer,
            "long" => Kind::Long,
            "float" | "double" => Kind::Float,
            "boolean" => Kind::Boolean,
            "timestamp" => Kind::Timestamp,
            other => return Err(format!("unknown type {other}")),
        };
        Ok(Shape { kind, min: self.min, max: self.max })
    }

    fn members(
        &self,
        id: &impl Fn(&str) -> Result<ShapeId, String>,
    ) -> Result<Vec<Member>, String> {
        if let Some(name) = self.required.iter().find(|name| !self.members.contains_key(*name)) {
            return Err(format!("{name} is required, and no member"));
        }
        let member = |(name, shape): (&String, &String)| {
            let required = self.required.contains(name);
            Ok(Member { name: name.clone(), shape: id(shape)?, required })
        };
        self.members.iter().map(member).collect()
    }
}

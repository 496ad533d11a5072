//! The part of JSON Schema that the document uses.

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value};

/// A type with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Its name in the document.
    pub name: String,
    /// What it is, in words; may be empty.
    pub description: String,
    /// What it consists of.
    pub shape: Shape,
}

/// What a type with a name consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An object with these fields, those that are always there first.
    Object(Vec<Field>),
    /// Another name for something.
    Alias(Kind),
}

/// A field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it is, in words; may be empty.
    pub description: String,
    /// It is always there.
    pub required: bool,
    /// What it holds.
    pub kind: Kind,
}

/// What a value can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any JSON.
    Any,
    /// Yes or no.
    Boolean,
    /// A whole number.
    Integer,
    /// A text.
    Text,
    /// One of these texts.
    Words(Vec<String>),
    /// Values of a kind, in their order.
    List(Box<Self>),
    /// Values of a kind, by name.
    Map(Box<Self>),
    /// What the type of this name is.
    Named(String),
    /// That, or null.
    OrNull(Box<Self>),
}

/// All types with a name, in the order of their names.
///
/// # Errors
/// Says what is not understood.
pub fn read(document: &Value) -> anyhow::Result<Vec<Type>> {
    let schemas = document.pointer("/components/schemas").and_then(Value::as_object);
    let schemas = schemas.context("the document has no schemas")?;
    let mut types = vec![];
    for (name, schema) in schemas {
        types.push(named(name, schema).with_context(|| format!("schema {name}"))?);
    }
    ensure!(!types.is_empty(), "the document has no schemas");
    Ok(types)
}

fn named(name: &str, schema: &Value) -> anyhow::Result<Type> {
    let schema = schema.as_object().context("no object")?;
    let shape = match schema.get("properties").and_then(Value::as_object) {
        Some(properties) => Shape::Object(fields(schema, properties)?),
        None => Shape::Alias(kind(schema)?),
    };
    Ok(Type { name: name.to_owned(), description: description(schema), shape })
}

fn fields(
    schema: &Map<String, Value>,
    properties: &Map<String, Value>,
) -> anyhow::Result<Vec<Field>> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut fields = vec![];
    for (name, schema) in properties {
        let schema = schema.as_object().with_context(|| format!("field {name} is no object"))?;
        fields.push(Field {
            name: name.clone(),
            description: description(schema),
            required: required.contains(&name.as_str()),
            kind: kind(schema).with_context(|| format!("field {name}"))?,
        });
    }
    fields.sort_by_key(|field| !field.required);
    Ok(fields)
}

/// What stands at the schema, or at what it refers to.
fn description(schema: &Map<String, Value>) -> String {
    let own = schema.get("description").and_then(Value::as_str);
    let first = || schema.get("oneOf")?.as_array()?.first()?.get("description")?.as_str();
    own.or_else(first).unwrap_or_default().to_owned()
}

fn kind(schema: &Map<String, Value>) -> anyhow::Result<Kind> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.strip_prefix("#/components/schemas/");
        return Ok(Kind::Named(name.context("a reference leads elsewhere")?.to_owned()));
    }
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        let [choice, null] = choices.as_slice() else { bail!("oneOf is more than a type or null") };
        ensure!(null.get("type").and_then(Value::as_str) == Some("null"), "oneOf without null");
        let choice = choice.as_object().context("a choice is no object")?;
        return Ok(Kind::OrNull(Box::new(kind(choice)?)));
    }
    match schema.get("type") {
        None => Ok(Kind::Any),
        Some(Value::String(name)) => simple(name, schema),
        Some(Value::Array(names)) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
            let [name, "null"] = names.as_slice() else { bail!("types {names:?}") };
            Ok(Kind::OrNull(Box::new(simple(name, schema)?)))
        }
        Some(other) => bail!("type {other}"),
    }
}

fn simple(name: &str, schema: &Map<String, Value>) -> anyhow::Result<Kind> {
    let inner = |field: &str| {
        let inner = schema.get(field).and_then(Value::as_object);
        kind(inner.with_context(|| format!("{name} without {field}"))?)
    };
    Ok(match name {
        "boolean" => Kind::Boolean,
        "integer" => Kind::Integer,
        "array" => Kind::List(Box::new(inner("items")?)),
        "object" => Kind::Map(Box::new(inner("additionalProperties")?)),
        "string" => match schema.get("enum").and_then(Value::as_array) {
            Some(words) => {
                let words = words.iter().map(|word| word.as_str().map(str::to_owned));
                Kind::Words(words.collect::<Option<_>>().context("a word that is no text")?)
            }
            None => Kind::Text,
        },
        other => bail!("type {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(schema: &Value) -> anyhow::Result<Type> {
        read(&json!({ "components": { "schemas": { "A": schema } } })).map(|mut all| all.remove(0))
    }

    #[test]
    fn a_field_that_is_always_there_stands_first() {
        let schema = json!({
            "type": "object",
            "required": ["b"],
            "properties": {
                "a": { "type": ["integer", "null"] },
                "b": { "type": "array", "items": { "$ref": "#/components/schemas/B" } },
            },
        });
        let Shape::Object(fields) = one(&schema).unwrap().shape else { panic!("no object") };
        let kinds: Vec<_> = fields.iter().map(|field| (&*field.name, &field.kind)).collect();
        let list = Kind::List(Box::new(Kind::Named("B".to_owned())));
        let number = Kind::OrNull(Box::new(Kind::Integer));
        assert_eq!(kinds, [("b", &list), ("a", &number)]);
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for schema in [
            json!({ "type": "number" }),
            json!({ "type": ["string", "integer"] }),
            json!({ "oneOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "type": "array" }),
            json!({ "$ref": "https://elsewhere" }),
        ] {
            assert!(one(&schema).is_err(), "{schema}");
        }
    }
}

//! Paths of schemas.

use super::super::names;
use super::super::request::{AdminRequest, NewSchema, TopicCall};
use super::{Asked, Routed, Show, Work, as_is, number, parse, superuser, unknown, user};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Kinds of schemas, by the names of Pulsar's JSON.
const KINDS: &[&str] = &[
    "NONE",
    "STRING",
    "JSON",
    "PROTOBUF",
    "AVRO",
    "BOOLEAN",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "KEY_VALUE",
    "INSTANT",
    "LOCAL_DATE",
    "LOCAL_TIME",
    "LOCAL_DATE_TIME",
    "PROTOBUF_NATIVE",
    "BYTES",
];

#[derive(Deserialize)]
struct Posted {
    #[serde(rename = "type")]
    kind: String,
    /// Older tools send `data`.
    #[serde(alias = "data", default)]
    schema: String,
    #[serde(default)]
    properties: BTreeMap<String, String>,
}

pub(super) fn schemas(
    asked: Asked<'_>,
    [tenant, namespace, topic]: [&str; 3],
    path: &[&str],
) -> Routed {
    let topic = names::topic(tenant, namespace, topic)?;
    let ask = |call| AdminRequest::Topic { topic: topic.clone(), call };
    match (asked.method, path) {
        ("GET", ["schema"]) => user(topic.clone(), as_is(ask(TopicCall::Schema { version: None }))),
        ("GET", ["schema", version]) => {
            let version = Some(number(version)?);
            user(topic.clone(), as_is(ask(TopicCall::Schema { version })))
        }
        ("GET", ["schemas"]) => user(topic.clone(), as_is(ask(TopicCall::Schemas))),
        ("POST", ["schema"]) => {
            let Posted { kind, schema, properties } = parse(asked.body)?;
            if !KINDS.contains(&kind.as_str()) {
                let reason = "the body cannot be read: unknown type of schema".to_owned();
                return Err(super::AdminError::BadRequest(reason));
            }
            let call = TopicCall::CreateSchema(NewSchema { kind, data: schema, properties });
            user(topic.clone(), Work::Ask(ask(call), Show::NewSchema))
        }
        ("DELETE", ["schema"]) => superuser(as_is(ask(TopicCall::DeleteSchema))),
        _ => Err(unknown(asked)),
    }
}

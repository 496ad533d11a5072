//! Routes of schemas.

use super::super::answer::AdminResponse;
use super::super::values::{AdminCallError, NewSchema};
use super::{
    AdminRequest, Routed, administrator, ask, json, number, parse, producer, unknown, user,
};
use crate::machine::kind_by_name;
use crate::name::TopicName;
use hyper::StatusCode;
use serde_json::json;

pub(super) fn schemas(asked: AdminRequest<'_>, topic: TopicName, path: &[&str]) -> Routed {
    let name = topic.clone();
    match (asked.method, path) {
        ("GET", ["schema"]) => user(name, json(move |machine| machine.schema(&topic, None))),
        ("GET", ["schema", version]) => {
            let version = Some(number(version)?);
            user(name, json(move |machine| machine.schema(&topic, version)))
        }
        ("GET", ["schemas"]) => {
            let work = ask(
                move |machine| Ok(machine.schemas(&topic)),
                |all, _| AdminResponse::json(&json!({ "getSchemaResponses": all })),
            );
            user(name, work)
        }
        ("POST", ["schema"]) => {
            let new: NewSchema = parse(asked.body)?;
            // The machine refuses `BYTES`, which Pulsar has no number for.
            if kind_by_name(&new.kind).is_none() && new.kind != "BYTES" {
                let reason = "the body cannot be read: unknown type of schema".to_owned();
                return Err(AdminCallError::BadRequest(reason));
            }
            let work = ask(
                move |machine| machine.add_schema(&topic, new),
                |version, _| AdminResponse::json(&json!({"version": {"version": version}})),
            );
            producer(name, work)
        }
        ("POST", ["compatibility"]) => {
            let new: NewSchema = parse(asked.body)?;
            let strategy = "ALWAYS_COMPATIBLE";
            let work = ask(
                move |machine| machine.takes_schema(&topic, new),
                move |is_compatible, _| {
                    let shown = json!({"compatibility": is_compatible, "schemaCompatibilityStrategy": strategy});
                    AdminResponse { status: StatusCode::ACCEPTED, ..AdminResponse::json(&shown) }
                },
            );
            user(name, work)
        }
        ("DELETE", ["schema"]) => administrator(
            name.tenant(),
            ask(
                move |machine| machine.remove_schemas(&topic),
                |version, _| AdminResponse::json(&json!({ "version": version })),
            ),
        ),
        _ => Err(unknown(asked)),
    }
}

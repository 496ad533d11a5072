//! Schemas of topics, from clients and from the admin interface.

use super::BrokerMachine;
use super::effect::RequestRefusal;
use crate::name::TopicName;
use crate::state::change::{AddSchema, DeleteSchemas};
use bytes::Bytes;
use longhaul_wire::messages::{
    CommandGetOrCreateSchema, CommandGetOrCreateSchemaResponse, CommandGetSchema,
    CommandGetSchemaResponse, Schema, SchemaType, ServerError,
};
use prost::Message as _;

impl BrokerMachine {
    /// The version of a producer's schema, which is stored if it is new.
    pub(super) fn register_schema(
        &mut self,
        topic: u32,
        schema: Option<&Schema>,
    ) -> Result<Bytes, RequestRefusal> {
        let Some(schema) = schema.filter(|schema| is_definite(schema)) else {
            return Ok(Bytes::new());
        };
        let Some(kept) = self.invariants.kept(self.state.topic(topic)) else {
            return Ok(Bytes::new());
        };
        let name = kept.name.clone();
        self.store_schema(&name, schema).map(version_bytes)
    }

    /// Checks a consumer's schema. Roles that may only consume must not decide what producers send,
    /// so it is stored only if the topic has none, is empty and has no producers, as on Pulsar.
    pub(super) fn check_consumer_schema(
        &mut self,
        topic: u32,
        schema: Option<&Schema>,
    ) -> Result<(), RequestRefusal> {
        let Some(schema) = schema.filter(|schema| is_definite(schema)) else { return Ok(()) };
        let Some(kept) = self.invariants.kept(self.state.topic(topic)) else { return Ok(()) };
        let name = kept.name.clone();
        if let Some(last) = self.state.schemas(name.whole().as_str()).last() {
            return check_kind(&name, &last.schema, schema);
        }
        // Partitions share the schemas of their topic.
        let is_idle = |id: &u32| {
            let both = self.state.topic(*id).zip(self.live.get(id));
            both.is_none_or(|(kept, live)| kept.bytes == 0 && live.producers.count() == 0)
        };
        if self.numbers_of(&name.whole()).iter().chain([&topic]).all(is_idle) {
            return self.store_schema(&name, schema).map(drop);
        }
        let text = format!(
            "{name} is in use and has no schema: a consumer sets one only on an empty topic without producers; let a producer set it"
        );
        Err(RequestRefusal::new(ServerError::IncompatibleSchema, text))
    }

    /// Refuses a producer without a schema if the topic has one and the policy enforces it.
    pub(super) fn check_schema(
        &mut self,
        topic: u32,
        version: &Bytes,
    ) -> Result<(), RequestRefusal> {
        let both = self.state.topic(topic).zip(self.live.get(&topic));
        let Some((kept, live)) = self.invariants.served(both) else { return Ok(()) };
        let (name, is_enforced) = (&kept.name, live.policies.enforces_schemas.unwrap_or_default());
        let has_schema = !self.state.schemas(name.whole().as_str()).is_empty();
        if !is_enforced || !has_schema || !version.is_empty() {
            return Ok(());
        }
        let text = format!(
            "{name} has a schema, and producers without one are refused (schemaValidationEnforced)"
        );
        Err(RequestRefusal::new(ServerError::IncompatibleSchema, text))
    }

    pub(super) fn store_schema(
        &mut self,
        name: &TopicName,
        schema: &Schema,
    ) -> Result<u64, RequestRefusal> {
        // Partitions share the schemas of their topic.
        let whole = name.whole();
        let known = self.state.schemas(whole.as_str());
        let same = |known: &Schema| {
            known.r#type == schema.r#type && known.schema_data == schema.schema_data
        };
        if let Some(version) = known.iter().position(|version| same(&version.schema)) {
            return Ok(version as u64);
        }
        if let Some(last) = known.last() {
            check_kind(name, &last.schema, schema)?;
        }
        self.check_schemas(name, known, schema.encoded_len())?;
        let version = known.len() as u64;
        // The room that is left on a full disk is for acknowledgements.
        self.check_disk(schema.encoded_len())?;
        // A copy: these bytes are a part of a connection's buffer, and would keep all of it.
        let schema_data = Bytes::copy_from_slice(&schema.schema_data);
        let (name, schema) =
            (whole.as_str().to_owned(), Some(Schema { schema_data, ..schema.clone() }));
        self.change(AddSchema { name, schema, added_at: self.now })?;
        Ok(version)
    }

    pub(super) fn delete_schemas(
        &mut self,
        name: &TopicName,
    ) -> Result<Option<u64>, RequestRefusal> {
        let name = name.whole().as_str().to_owned();
        let count = self.state.schemas(&name).len() as u64;
        if count == 0 {
            return Ok(None);
        }
        self.change(DeleteSchemas { name })?;
        Ok(Some(count - 1))
    }

    /// A version of a topic's schema, by default the latest.
    pub(super) fn schema_of(
        &self,
        name: &TopicName,
        version: Option<u64>,
    ) -> Option<(u64, &crate::state::SchemaVersion)> {
        let known = self.state.schemas(name.whole().as_str());
        let version = version.or_else(|| (known.len() as u64).checked_sub(1))?;
        Some((version, known.get(usize::try_from(version).ok()?)?))
    }

    pub(super) fn get_schema(&mut self, conn: u64, command: &CommandGetSchema) {
        let asked = command.schema_version.as_ref().filter(|version| !version.is_empty());
        let found = self.topic_name(&command.topic).and_then(|name| {
            self.authorize_any(conn, &name)?;
            let found = match asked {
                Some(bytes) => {
                    version_number(bytes).and_then(|version| self.schema_of(&name, Some(version)))
                }
                None => self.schema_of(&name, None),
            };
            let missing = || RequestRefusal::not_found(format!("{name} has no such schema"));
            found.map(|(version, found)| (version, found.schema.clone())).ok_or_else(missing)
        });
        let mut response = CommandGetSchemaResponse {
            request_id: command.request_id,
            ..CommandGetSchemaResponse::default()
        };
        match found {
            Ok((version, schema)) => {
                response.schema = Some(schema);
                response.schema_version = Some(version_bytes(version));
            }
            Err(refusal) => {
                response.error_code = Some(refusal.code.into());
                response.error_message = Some(refusal.text);
            }
        }
        self.send_after_commit(conn, response);
    }

    pub(super) fn get_or_create_schema(&mut self, conn: u64, command: &CommandGetOrCreateSchema) {
        let stored = self.topic_name(&command.topic).and_then(|name| {
            self.authorize(conn, &name, crate::policies::AuthAction::Produce)?;
            if self.state.topic_id(name.as_str()).is_none()
                && self.state.partitions(name.as_str()).is_none()
            {
                return Err(RequestRefusal::not_found(format!("{name} does not exist")));
            }
            self.store_schema(&name, &command.schema)
        });
        let mut response = CommandGetOrCreateSchemaResponse {
            request_id: command.request_id,
            ..CommandGetOrCreateSchemaResponse::default()
        };
        match stored {
            Ok(version) => response.schema_version = Some(version_bytes(version)),
            Err(refusal) => {
                response.error_code = Some(refusal.code.into());
                response.error_message = Some(refusal.text);
            }
        }
        self.send_after_commit(conn, response);
    }
}

/// Refuses a schema of another type than the last one of the topic.
fn check_kind(name: &TopicName, last: &Schema, schema: &Schema) -> Result<(), RequestRefusal> {
    if last.r#type == schema.r#type {
        return Ok(());
    }
    let text = format!(
        "{name} has a schema of type {}, this one is of type {}: delete it first, or use another topic",
        kind_name(last.r#type),
        kind_name(schema.r#type)
    );
    Err(RequestRefusal::new(ServerError::IncompatibleSchema, text))
}

/// Whether a schema is stored: raw bytes, and a schema that the client asks for, are not.
fn is_definite(schema: &Schema) -> bool {
    schema.r#type != i32::from(SchemaType::None)
        && schema.r#type != i32::from(SchemaType::AutoConsume)
}

fn version_bytes(version: u64) -> Bytes {
    Bytes::copy_from_slice(&version.to_be_bytes())
}

fn version_number(bytes: &Bytes) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.as_ref().try_into().ok()?))
}

/// The type of a schema in Pulsar's JSON.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others are one word")]
pub(super) fn kind_name(kind: i32) -> String {
    let Ok(kind) = SchemaType::try_from(kind) else { return format!("unknown ({kind})") };
    match kind {
        SchemaType::Bool => "BOOLEAN".to_owned(),
        SchemaType::KeyValue => "KEY_VALUE".to_owned(),
        SchemaType::LocalDate => "LOCAL_DATE".to_owned(),
        SchemaType::LocalTime => "LOCAL_TIME".to_owned(),
        SchemaType::LocalDateTime => "LOCAL_DATE_TIME".to_owned(),
        SchemaType::ProtobufNative => "PROTOBUF_NATIVE".to_owned(),
        SchemaType::AutoConsume => "AUTO_CONSUME".to_owned(),
        other => format!("{other:?}").to_uppercase(),
    }
}

/// The type of a schema that can be stored, from its name in Pulsar's JSON.
pub(crate) fn kind_by_name(name: &str) -> Option<i32> {
    (0..=20).find(|&kind| kind_name(kind) == name)
}

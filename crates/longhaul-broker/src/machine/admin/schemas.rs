//! Schemas. The topic need not exist; partitions share the schemas of their topic.

use super::super::BrokerMachine;
use super::super::schemas::{kind_by_name, kind_name};
use crate::admin::values::{AdminCallError, NewSchema, StoredSchema};
use crate::name::TopicName;
use crate::state::SchemaVersion;
use longhaul_wire::messages::{KeyValue, Schema};

impl BrokerMachine {
    /// A version of the schema, by default the latest; [`AdminCallError::NotFound`] if it does not
    /// exist.
    pub(crate) fn schema(
        &self,
        name: &TopicName,
        version: Option<u64>,
    ) -> Result<StoredSchema, AdminCallError> {
        let found = self.schema_of(name, version).ok_or_else(|| none(name))?;
        Ok(stored(found))
    }

    /// All versions, the oldest first.
    pub(crate) fn schemas(&self, name: &TopicName) -> Vec<StoredSchema> {
        (0..).map_while(|version| self.schema_of(name, Some(version))).map(stored).collect()
    }

    /// Whether a schema would be accepted: another definition is, another type is not.
    pub(crate) fn takes_schema(
        &self,
        name: &TopicName,
        new: NewSchema,
    ) -> Result<bool, AdminCallError> {
        let new = schema(name, new)?;
        let last = self.schema_of(name, None);
        Ok(last.is_none_or(|(_, last)| last.schema.r#type == new.r#type))
    }

    /// Stores a schema, or returns the version of an equal one.
    pub(crate) fn add_schema(
        &mut self,
        name: &TopicName,
        new: NewSchema,
    ) -> Result<u64, AdminCallError> {
        self.check_namespace(name).map_err(|refusal| AdminCallError::NotFound(refusal.text))?;
        let schema = schema(name, new)?;
        Ok(self.store_schema(name, &schema)?)
    }

    /// Removes all versions, and returns the last.
    pub(crate) fn remove_schemas(&mut self, name: &TopicName) -> Result<u64, AdminCallError> {
        self.delete_schemas(name)?.ok_or_else(|| none(name))
    }
}

fn none(name: &TopicName) -> AdminCallError {
    AdminCallError::NotFound(format!("{name} has no such schema"))
}

fn stored((version, known): (u64, &SchemaVersion)) -> StoredSchema {
    let properties = known.schema.properties.iter();
    StoredSchema {
        version,
        kind: kind_name(known.schema.r#type),
        timestamp: known.added_at,
        data: String::from_utf8_lossy(&known.schema.schema_data).into_owned(),
        properties: properties
            .map(|property| (property.key().to_owned(), property.value().to_owned()))
            .collect(),
    }
}

fn schema(name: &TopicName, new: NewSchema) -> Result<Schema, AdminCallError> {
    let r#type = kind_by_name(&new.kind).ok_or_else(|| {
        AdminCallError::BadRequest(format!("unknown type of schema: {}", new.kind.escape_debug()))
    })?;
    let properties = new.properties.into_iter().map(|(key, value)| KeyValue::new(key, value));
    Ok(Schema {
        name: name.as_str().to_owned(),
        schema_data: new.data.into_bytes().into(),
        r#type,
        properties: properties.collect(),
    })
}

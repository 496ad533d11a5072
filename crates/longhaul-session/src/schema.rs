//! The schema of the metadata topic, as the Java reference declares it.

use bytes::Bytes;
use longhaul_wire::messages::{KeyValue, Schema, SchemaType};

/// The reference's record, byte for byte as its client registers it: equal bytes are the same
/// schema version.
const TASK_METADATA: &str = concat!(
    r#"{"type":"record","name":"TaskMetadata","namespace":"io.streamnative.pulsar.recipes.task","fields":["#,
    r#"{"name":"attempts","type":"int"},"#,
    r#"{"name":"created","type":"long"},"#,
    r#"{"name":"failureReason","type":["null","string"],"default":null},"#,
    r#"{"name":"lastUpdated","type":"long"},"#,
    r#"{"name":"messageId","type":["null","string"],"default":null},"#,
    r#"{"name":"result","type":["null",{"type":"bytes","java-class":"[B"}],"default":null},"#,
    r#"{"name":"state","type":["null",{"type":"enum","name":"TaskState","symbols":["#,
    r#""NEW","PROCESSING","FAILED","COMPLETED","UNKNOWN"]}],"default":null},"#,
    r#"{"name":"task","type":["null",{"type":"bytes","java-class":"[B"}],"default":null}]}"#,
);

/// The schema that the reference's clients register. The broker refuses a producer whose schema is
/// incompatible with it.
pub(super) fn task_metadata() -> Schema {
    let property = |key: &'static str, value: &'static str| KeyValue::new(key, value);
    Schema {
        // The Java client leaves the name empty; the broker does not compare it.
        name: String::new(),
        schema_data: Bytes::from_static(TASK_METADATA.as_bytes()),
        r#type: SchemaType::Json as i32,
        properties: vec![
            property("__alwaysAllowNull", "true"),
            property("__jsr310ConversionEnabled", "false"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_schema_is_the_references() {
        let schema = task_metadata();
        let record: Value = serde_json::from_slice(&schema.schema_data).unwrap();
        let nullable =
            |name: &str, of: Value| json!({"name": name, "type": ["null", of], "default": null});
        let bytes = json!({"type": "bytes", "java-class": "[B"});
        let state = json!({
            "type": "enum",
            "name": "TaskState",
            "symbols": ["NEW", "PROCESSING", "FAILED", "COMPLETED", "UNKNOWN"],
        });
        let expected = json!({
            "type": "record",
            "name": "TaskMetadata",
            "namespace": "io.streamnative.pulsar.recipes.task",
            "fields": [
                {"name": "attempts", "type": "int"},
                {"name": "created", "type": "long"},
                nullable("failureReason", json!("string")),
                {"name": "lastUpdated", "type": "long"},
                nullable("messageId", json!("string")),
                nullable("result", bytes.clone()),
                nullable("state", state),
                nullable("task", bytes),
            ],
        });
        assert_eq!(record, expected);
        assert_eq!(schema.r#type, SchemaType::Json as i32);
        let properties: Vec<_> = schema.properties.iter().map(|p| (p.key(), p.value())).collect();
        let pinned = [("__alwaysAllowNull", "true"), ("__jsr310ConversionEnabled", "false")];
        assert_eq!(properties, pinned);
    }
}

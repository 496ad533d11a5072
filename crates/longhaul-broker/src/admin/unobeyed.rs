//! Checks for policy values that would require a behaviour that this broker does not have. Pure.

use super::values::AdminCallError;
use serde_json::Value;

/// Refuses the properties of a new topic or namespace. Otherwise they would be dropped without a
/// word.
pub(super) fn refuse_properties(given: &Value, of: &str) -> Result<(), AdminCallError> {
    match given {
        Value::Null => Ok(()),
        Value::Object(given) if given.is_empty() => Ok(()),
        Value::Object(_) => Err(AdminCallError::PreconditionFailed(format!(
            "{of} have no properties on this broker: create it without them"
        ))),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(AdminCallError::BadRequest(format!(
                "the properties of {of} cannot be read: an object is expected"
            )))
        }
    }
}

/// Whether a number limits something: 0 and less do not.
pub(super) fn is_limit(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0)
}

/// Whether an object limits a rate.
pub(super) fn is_rate(value: &Value) -> bool {
    let is_meant = |key: &str| key.contains("Throttling") || key.starts_with("subscribe");
    let mut fields = value.as_object().into_iter().flatten();
    fields.any(|(key, value)| is_meant(key) && is_limit(value))
}

/// Whether a list of types excludes one. An empty list allows all.
pub(super) fn excludes(value: &Value) -> bool {
    let types = value.as_array().or_else(|| value.get("subscriptionTypesEnabled")?.as_array());
    types.is_some_and(|types| {
        let has = |name: &&str| {
            let mut names = types.iter().filter_map(Value::as_str);
            names.any(|known| known.eq_ignore_ascii_case(name))
        };
        !types.is_empty() && !["Exclusive", "Shared", "Failover", "Key_Shared"].iter().all(has)
    })
}

/// Whether schema versions must be compared.
pub(super) fn is_strict(value: &Value) -> bool {
    *value != "ALWAYS_COMPATIBLE" && *value != "UNDEFINED" && !value.is_null()
}

/// Whether this field of an object is false.
pub(super) fn is_false(value: &Value, field: &str) -> bool {
    value.get(field) == Some(&Value::Bool(false))
}

/// Whether the value has any content.
pub(super) fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(fields) => fields.values().any(is_set),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Whether a number is a threshold: less than 0 means never.
pub(super) fn is_natural(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number >= 0.0)
}

/// Whether a list of clusters names another cluster than this one.
pub(super) fn is_elsewhere(value: &Value) -> bool {
    let others =
        |clusters: &Vec<Value>| clusters.iter().any(|cluster| *cluster != crate::policies::CLUSTER);
    value.as_array().map_or_else(|| !value.is_null(), others)
}

//! The names of settings. A misspelt setting would be stored like one of a newer version of
//! longhaul, without any effect.

use crate::exit::CommandFailure;
use serde_json::Value;

/// The minimum similarity of a suggested name; 1 is equal.
const ALIKE_MIN: f64 = 0.75;

/// The fields allowed in an object of settings.
enum Names {
    /// These fields, and for each one that is an object, its fields.
    Fields(&'static [(&'static str, Option<&'static Self>)]),
    /// Any name chosen by users, with these fields.
    Any(&'static Self),
}

static RATE: Names = Names::Fields(&[("tokens", None), ("per", None)]);
static LIMIT: Names = Names::Fields(&[("maxInFlight", None), ("rate", Some(&RATE))]);
static KEYS: Names = Names::Any(&LIMIT);
static RETRY: Names = Names::Fields(&[("base", None), ("max", None), ("intervals", None)]);
static DEAD_LETTERS: Names =
    Names::Fields(&[("enabled", None), ("expired", None), ("maxSize", None), ("retention", None)]);
static SETTINGS: Names = Names::Fields(&[
    ("paused", None),
    ("maxInFlight", None),
    ("rate", Some(&RATE)),
    ("perKey", Some(&LIMIT)),
    ("keys", Some(&KEYS)),
    ("noProgressTimeout", None),
    ("retry", Some(&RETRY)),
    ("maxAttempts", None),
    ("expiresAfter", None),
    ("deadLetters", Some(&DEAD_LETTERS)),
    ("order", None),
    ("description", None),
]);

/// Refuses a patch with an unknown setting. Settings written by a newer version are allowed, and so
/// is removing any.
pub(super) fn check(patch: &Value, stands: &Value) -> Result<(), CommandFailure> {
    look("", patch, Some(stands), &SETTINGS)
}

fn look(
    path: &str,
    patch: &Value,
    stands: Option<&Value>,
    names: &Names,
) -> Result<(), CommandFailure> {
    let Value::Object(fields) = patch else { return Ok(()) };
    for (name, value) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let stands = stands.and_then(|it| it.get(name));
        let inner = match names {
            Names::Any(inner) => Some(*inner),
            Names::Fields(fields) => match fields.iter().find(|(known, _)| known == name) {
                Some((_, inner)) => *inner,
                None if value.is_null() || stands.is_some() => None,
                None => return Err(unknown(&path, name, fields)),
            },
        };
        if let Some(inner) = inner {
            look(&path, value, stands, inner)?;
        }
    }
    Ok(())
}

fn unknown(
    path: &str,
    name: &str,
    fields: &[(&'static str, Option<&'static Names>)],
) -> CommandFailure {
    let alike = |known: &str| strsim::jaro_winkler(&known.to_lowercase(), &name.to_lowercase());
    let nearest = fields.iter().map(|(known, _)| (alike(known), *known));
    let nearest = nearest.max_by(|one, other| one.0.total_cmp(&other.0));
    let help = match nearest {
        Some((alike, known)) if alike >= ALIKE_MIN => format!("is `{known}` meant?"),
        _ => {
            let known: Vec<_> = fields.iter().map(|(known, _)| *known).collect();
            format!("there are: {}", known.join(", "))
        }
    };
    CommandFailure::usage(format!("there is no setting `{path}`; nothing was changed")).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::ops::QueueSettings;
    use serde_json::json;

    fn told(patch: &Value) -> String {
        match check(patch, &json!({ "fromTheFuture": 1 })) {
            Ok(()) => "fine".to_owned(),
            Err(error) => format!("{:#}", anyhow::Error::from(error)),
        }
    }

    #[test]
    fn a_misspelt_setting_is_told() {
        for (patch, path) in [
            (json!({"maxAtempts": 5}), "maxAtempts"),
            (json!({"max_in_flight": 5}), "max_in_flight"),
            (json!({"rate": {"token": 1, "per": "PT1S"}}), "rate.token"),
            (json!({"keys": {"acme": {"maxInflight": 1}}}), "keys.acme.maxInflight"),
            (json!({"perKey": {"rate": {"pro": "PT1S"}}}), "perKey.rate.pro"),
            (json!({"deadLetters": {"maxsize": 1}}), "deadLetters.maxsize"),
            (json!({"retry": {"interval": []}}), "retry.interval"),
        ] {
            let told = told(&patch);
            assert_eq!(told, format!("there is no setting `{path}`; nothing was changed"));
        }
        for fine in [
            json!({"maxAttempts": 5, "keys": {"anything": {"maxInFlight": 1}}}),
            json!({"fromTheFuture": 2}),
            json!({"nonsense": null}),
        ] {
            assert_eq!(told(&fine), "fine", "{fine}");
        }
    }

    /// Every setting of the library must be in this table, or it could not be set.
    #[test]
    fn every_setting_of_the_library_has_its_name_here() {
        let all = json!({
            "paused": true,
            "maxInFlight": 1,
            "rate": {"tokens": 1, "per": "PT1S"},
            "perKey": {"maxInFlight": 1, "rate": {"tokens": 1, "per": "PT1S"}},
            "keys": {"a": {"maxInFlight": 1, "rate": {"tokens": 1, "per": "PT1S"}}},
            "noProgressTimeout": "PT1S",
            "retry": {"base": "PT1S", "max": "PT1M"},
            "maxAttempts": 1,
            "expiresAfter": "PT1S",
            "deadLetters": {"enabled": true, "expired": true, "maxSize": 1, "retention": "PT1S"},
            "order": "key",
            "description": "mails of the shop",
        });
        let settings: QueueSettings = serde_json::from_value(all).unwrap();
        // The debug form shows all fields; unknown ones would be in the last one.
        let shown = format!("{settings:?}");
        assert!(!shown.contains("None") && shown.ends_with("other: {} }"), "{shown}");
        let written = serde_json::to_value(&settings).unwrap();
        assert!(check(&written, &json!({})).is_ok(), "{written}");
    }
}

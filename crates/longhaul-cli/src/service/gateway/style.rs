//! Converts field names: `maxInFlight` in documents of the library and here, `max_in_flight` in a
//! gateway's.

use serde_json::{Map, Value};

/// Renames the fields of settings; the keys of `keys` are names chosen by users and stay.
pub(super) fn renamed(value: Value, rename: &dyn Fn(&str) -> String) -> Value {
    let Value::Object(fields) = value else { return value };
    let one = |(name, value): (String, Value)| {
        let value = match (name.as_str(), value) {
            ("keys", Value::Object(keys)) => {
                let keys = keys.into_iter().map(|(key, it)| (key, renamed(it, rename)));
                Value::Object(keys.collect())
            }
            (_, value) => renamed(value, rename),
        };
        (rename(&name), value)
    };
    Value::Object(fields.into_iter().map(one).collect::<Map<_, _>>())
}

/// `maxInFlight`
pub(super) fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|it| it.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// `max_in_flight`
pub(super) fn snake(name: &str) -> String {
    let mut snake = String::new();
    for it in name.chars() {
        if it.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(it.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_have_other_names_there_and_keys_stay() {
        let here = json!({"maxInFlight": 1, "perKey": {"maxInFlight": 2}, "keys": {"acmeCorp": {"maxInFlight": 3}}});
        let there = json!({"max_in_flight": 1, "per_key": {"max_in_flight": 2}, "keys": {"acmeCorp": {"max_in_flight": 3}}});
        assert_eq!(renamed(here.clone(), &snake), there);
        assert_eq!(renamed(there, &camel), here);
    }
}

//! The OpenAPI document describes the routes.

use super::describe::parameters;
use super::{all, document};
use serde_json::Value;
use std::collections::BTreeSet;

const PINNED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");

/// A change of the API shows as a change of this file. `LONGHAUL_PIN=1` writes it.
#[test]
fn the_document_is_the_pinned_one() {
    if std::env::var_os("LONGHAUL_PIN").is_some() {
        std::fs::write(PINNED, document()).unwrap();
    }
    let pinned = std::fs::read_to_string(PINNED).unwrap_or_default();
    let differs = document().lines().zip(pinned.lines()).find(|(is, was)| is != was);
    assert!(
        document() == pinned,
        "the API is not that of openapi.json; first difference: {differs:?}. If that is meant, run the test once with LONGHAUL_PIN=1"
    );
}

#[test]
fn every_route_is_in_the_document_and_describes_itself() {
    let document: Value = serde_json::from_str(document()).unwrap();
    let mut names = BTreeSet::new();
    for route in all() {
        let (path, method) = (route.info.path, route.info.method.word().to_lowercase());
        let operation = &document["paths"][path][&method];
        let name = operation["operationId"].as_str().unwrap_or_default();
        assert!(!name.is_empty() && names.insert(name.to_owned()), "{method} {path}: `{name}`");
        assert!(
            operation["summary"].as_str().is_some_and(|it| it.ends_with('.') || it.len() > 20),
            "{path}"
        );
        let answers = operation["responses"].as_object().unwrap();
        assert!(answers.len() >= 2 && answers.contains_key("default"), "{method} {path}");
        let is_limited = answers.contains_key("429");
        assert_eq!(is_limited, route.info.access != super::RouteAccess::Open, "{method} {path}");
        let described = operation["parameters"].as_array().cloned().unwrap_or_default();
        for parameter in parameters(path) {
            assert!(
                described.iter().any(|it| it["name"] == parameter && it["in"] == "path"),
                "{path}"
            );
        }
    }
}

/// A generated client sends only the headers that the document has.
#[test]
fn headers_that_a_route_reads_are_in_the_document() {
    let document: Value = serde_json::from_str(document()).unwrap();
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let headers = parameters.filter(|it| it["in"] == "header");
            found.extend(headers.map(|it| format!("{method} {path} {}", it["name"])));
        }
    }
    let submit = r#"post /v1/queues/{queue}/tasks "Idempotency-Key""#;
    let events = r#"get /v1/queues/{queue}/events "Last-Event-ID""#;
    found.sort();
    assert_eq!(found, [events, submit]);
}

/// A dangling reference makes client generators fail.
#[test]
fn all_references_lead_somewhere() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|it| references(it, found));
            }
            Value::Array(items) => items.iter().for_each(|it| references(it, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document: Value = serde_json::from_str(document()).unwrap();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for reference in found {
        let pointer = reference.trim_start_matches('#');
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

/// The page about the gateway has each route with its scope and an example.
#[test]
fn every_route_is_on_the_page_about_the_gateway() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/http.md");
    let page = std::fs::read_to_string(page).unwrap();
    for route in all().iter().filter(|it| it.info.path.starts_with("/v1")) {
        let named = format!("`{} {}`", route.info.method.word(), route.info.path);
        let line = page.lines().find(|line| line.starts_with("| ") && line.contains(&named));
        let line = line.unwrap_or_else(|| panic!("{named} is not on the page"));
        let scope = match route.info.access {
            super::RouteAccess::Open => "none",
            super::RouteAccess::Needs(scope) => scope.word(),
        };
        assert!(line.contains(&format!("| {scope} |")), "{line}");
        assert!(line.contains("curl"), "{line}");
    }
}

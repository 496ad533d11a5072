//! The types as Python has them: `TypedDict`, which is a plain `dict` when the program runs.

use super::schema::{Field, Kind, Shape, Type};
use super::wrapped;
use anyhow::ensure;

const HEAD: &str = r#""""What the gateway takes and answers, as its OpenAPI document says. Made by `cargo xtask client-types`: do not edit."""

from __future__ import annotations

from typing import Any, Literal, TypedDict
"#;

/// Words that cannot be the name of a field in a class.
const KEYWORDS: &[&str] = &[
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Columns of a comment.
const WIDTH: usize = 145;

/// A module of Python 3.10 and later, with a class or another name for each type.
///
/// # Errors
/// A field has a name that Python does not allow there.
pub fn python(types: &[Type]) -> anyhow::Result<String> {
    let mut text = HEAD.to_owned();
    // Other names are evaluated when the module is read: those that name nothing else stand first.
    for named in types {
        if let Shape::Alias(kind) = &named.shape {
            text.push('\n');
            comment(&mut text, "", &named.description);
            text.push_str(&format!("{} = {}\n", named.name, written(kind)));
        }
    }
    for named in types {
        if let Shape::Object(fields) = &named.shape {
            class(&mut text, named, fields)?;
        }
    }
    Ok(text)
}

/// A class for the fields that are always there, and one upon it: `NotRequired` came with Python 3.11.
fn class(text: &mut String, named: &Type, fields: &[Field]) -> anyhow::Result<()> {
    let (always, perhaps): (Vec<_>, Vec<_>) = fields.iter().partition(|field| field.required);
    let base = if always.is_empty() || perhaps.is_empty() {
        "TypedDict".to_owned()
    } else {
        text.push_str(&format!("\n\nclass _{}(TypedDict):\n", named.name));
        members(text, &always)?;
        format!("_{}", named.name)
    };
    let total = if perhaps.is_empty() { "" } else { ", total=False" };
    text.push_str(&format!("\n\nclass {}({base}{total}):\n", named.name));
    let lines = wrapped(&named.description, WIDTH);
    text.push_str(&format!("    \"\"\"{}\"\"\"\n\n", lines.join("\n    ")));
    members(text, if perhaps.is_empty() { &always } else { &perhaps })
}

fn members(text: &mut String, fields: &[&Field]) -> anyhow::Result<()> {
    for field in fields {
        ensure!(!KEYWORDS.contains(&&*field.name), "`{}` cannot be a field in Python", field.name);
        comment(text, "    ", &field.description);
        text.push_str(&format!("    {}: {}\n", field.name, written(&field.kind)));
    }
    Ok(())
}

fn comment(text: &mut String, before: &str, description: &str) {
    for line in wrapped(description, WIDTH) {
        text.push_str(&format!("{before}# {line}\n"));
    }
}

fn written(kind: &Kind) -> String {
    match kind {
        Kind::Any => "Any".to_owned(),
        Kind::Boolean => "bool".to_owned(),
        Kind::Integer => "int".to_owned(),
        Kind::Text => "str".to_owned(),
        Kind::Words(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
            format!("Literal[{}]", words.join(", "))
        }
        Kind::List(of) => format!("list[{}]", written(of)),
        Kind::Map(of) => format!("dict[str, {}]", written(of)),
        Kind::Named(name) => name.clone(),
        Kind::OrNull(of) => format!("{} | None", written(of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_may_be_missing_have_a_class_of_their_own() {
        let field = |name: &str, required| Field {
            name: name.to_owned(),
            description: String::new(),
            required,
            kind: Kind::OrNull(Box::new(Kind::Text)),
        };
        let shape = Shape::Object(vec![field("a", true), field("b", false)]);
        let description = "What it is.".to_owned();
        let text = python(&[Type { name: "T".to_owned(), description, shape }]).unwrap();
        let expected = "\n\nclass _T(TypedDict):\n    a: str | None\n\n\nclass T(_T, total=False):\n    \"\"\"What it is.\"\"\"\n\n    b: str | None\n";
        assert_eq!(text.strip_prefix(HEAD), Some(expected));
        let shape = Shape::Object(vec![field("from", true)]);
        let bad = Type { name: "T".to_owned(), description: String::new(), shape };
        assert!(python(&[bad]).is_err());
    }
}

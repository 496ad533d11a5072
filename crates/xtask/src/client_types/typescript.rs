//! The types as TypeScript has them: interfaces, which are nothing when the program runs.

use super::schema::{Field, Kind, Shape, Type};
use super::wrapped;

const HEAD: &str = "/** What the gateway takes and answers, as its OpenAPI document says. Made by `cargo xtask client-types`: do not edit. */\n";

/// Columns of a comment.
const WIDTH: usize = 145;

/// A module with an interface or another name for each type.
#[must_use]
pub fn typescript(types: &[Type]) -> String {
    let mut text = HEAD.to_owned();
    for named in types {
        text.push('\n');
        comment(&mut text, "", &named.description);
        match &named.shape {
            Shape::Alias(kind) => {
                text.push_str(&format!("export type {} = {};\n", named.name, written(kind)));
            }
            Shape::Object(fields) => {
                text.push_str(&format!("export interface {} {{\n", named.name));
                for field in fields {
                    member(&mut text, field);
                }
                text.push_str("}\n");
            }
        }
    }
    text
}

fn member(text: &mut String, field: &Field) {
    comment(text, "  ", &field.description);
    let mark = if field.required { "" } else { "?" };
    text.push_str(&format!("  {}{mark}: {};\n", field.name, written(&field.kind)));
}

fn comment(text: &mut String, before: &str, description: &str) {
    // It would end the comment.
    let lines = wrapped(&description.replace("*/", "* /"), WIDTH);
    match lines.as_slice() {
        [] => {}
        [line] => text.push_str(&format!("{before}/** {line} */\n")),
        lines => {
            text.push_str(&format!("{before}/**\n"));
            for line in lines {
                text.push_str(&format!("{before} * {line}\n"));
            }
            text.push_str(&format!("{before} */\n"));
        }
    }
}

fn written(kind: &Kind) -> String {
    match kind {
        Kind::Any => "unknown".to_owned(),
        Kind::Boolean => "boolean".to_owned(),
        Kind::Integer => "number".to_owned(),
        Kind::Text => "string".to_owned(),
        Kind::Words(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
            words.join(" | ")
        }
        Kind::List(of) if matches!(**of, Kind::OrNull(_) | Kind::Words(_)) => {
            format!("({})[]", written(of))
        }
        Kind::List(of) => format!("{}[]", written(of)),
        Kind::Map(of) => format!("Record<string, {}>", written(of)),
        Kind::Named(name) => name.clone(),
        Kind::OrNull(of) => format!("{} | null", written(of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_cannot_be_left_by_what_it_says() {
        let kind = Kind::List(Box::new(Kind::Words(vec!["a".to_owned(), "b".to_owned()])));
        let field =
            Field { name: "c".to_owned(), description: "x */ y".to_owned(), required: false, kind };
        let shape = Shape::Object(vec![field]);
        let text = typescript(&[Type { name: "T".to_owned(), description: String::new(), shape }]);
        let expected = "\nexport interface T {\n  /** x * / y */\n  c?: (\"a\" | \"b\")[];\n}\n";
        assert_eq!(text.strip_prefix(HEAD), Some(expected));
    }
}

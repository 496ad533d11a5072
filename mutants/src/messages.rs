//! What cargo says while it builds, in JSON: errors with their places, and the test binaries.

use serde_json::Value;
use std::ops::Range;
use std::path::PathBuf;

/// What a build has led to.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// All was built.
    pub success: bool,
    /// What the compiler refused.
    pub complaints: Vec<Complaint>,
    /// The test binaries.
    pub binaries: Vec<Binary>,
}

/// An error of the compiler.
#[derive(Clone, Debug, Default)]
pub struct Complaint {
    /// As a user would see it.
    pub text: String,
    /// The function that is called where only a constant one may be.
    pub not_const: Option<String>,
    /// Where the error is.
    pub primary: Vec<Span>,
    /// What else it has to do with.
    pub others: Vec<Span>,
}

/// Bytes of a file.
#[derive(Clone, Debug)]
pub struct Span {
    /// The file, from the top of the workspace.
    pub file: String,
    /// The bytes.
    pub range: Range<usize>,
}

/// A binary with tests.
#[derive(Clone, Debug)]
pub struct Binary {
    /// Its package.
    pub package: String,
    /// Its target.
    pub target: String,
    /// The folder that it runs in.
    pub folder: PathBuf,
    /// The program.
    pub program: PathBuf,
}

impl Output {
    /// Reads the lines that cargo has written.
    pub fn parse(lines: &str) -> Self {
        let mut output = Self::default();
        for line in lines.lines() {
            let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
            match text(&value, "/reason") {
                "compiler-message" if text(&value, "/message/level") == "error" => {
                    output.complaints.extend(complaint(value.pointer("/message")));
                }
                "compiler-artifact" => output.binaries.extend(binary(&value)),
                _ => {}
            }
        }
        output
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn complaint(message: Option<&Value>) -> Option<Complaint> {
    let message = message?;
    let mut complaint =
        Complaint { text: text(message, "/rendered").to_owned(), ..Complaint::default() };
    // A summary such as "aborting due to 3 errors" has no place.
    list(message, "spans").next()?;
    if text(message, "/code/code") == "E0015" {
        complaint.not_const = function_name(text(message, "/message"));
    }
    let children = list(message, "children").flat_map(|child| list(child, "spans"));
    for (span, is_child) in
        list(message, "spans").map(|it| (it, false)).chain(children.map(|it| (it, true)))
    {
        let is_primary = span.get("is_primary").and_then(Value::as_bool) == Some(true);
        let spans =
            if is_primary && !is_child { &mut complaint.primary } else { &mut complaint.others };
        // Within a macro, the place where it is called counts as well.
        let mut at = Some(span);
        while let Some(span) = at {
            let byte = |name| span.get(name).and_then(Value::as_u64);
            let byte = |name| byte(name).and_then(|it| usize::try_from(it).ok());
            if let (Some(start), Some(end)) = (byte("byte_start"), byte("byte_end")) {
                spans.push(Span { file: text(span, "/file_name").to_owned(), range: start..end });
            }
            at = span.pointer("/expansion/span");
        }
    }
    Some(complaint)
}

/// The last name in the first backticks: "cannot call non-const method `a::B::<C>::name` in
/// constants".
fn function_name(message: &str) -> Option<String> {
    let path = message.split('`').nth(1)?;
    let path =
        if path.ends_with('>') { path.rsplit_once("::<").map_or(path, |it| it.0) } else { path };
    path.rsplit("::").next().map(str::to_owned)
}

fn binary(value: &Value) -> Option<Binary> {
    let program = value.get("executable").and_then(Value::as_str)?;
    value.pointer("/profile/test").and_then(Value::as_bool).filter(|test| *test)?;
    let manifest = PathBuf::from(text(value, "/manifest_path"));
    let (path, name) = text(value, "/package_id").split_once('#')?;
    let folder_name = path.rsplit('/').next().unwrap_or_default();
    let package = name.split_once('@').map_or(folder_name, |(name, _)| name);
    Some(Binary {
        package: package.to_owned(),
        target: text(value, "/target/name").to_owned(),
        folder: manifest.parent()?.to_owned(),
        program: PathBuf::from(program),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_with_all_its_places() {
        let span = |start, is_primary, expansion: &str| {
            format!(
                r#"{{"file_name":"src/a.rs","byte_start":{start},"byte_end":9,"is_primary":{is_primary},"expansion":{expansion}}}"#
            )
        };
        let outer = format!(r#"{{"span":{}}}"#, span(2, false, "null"));
        let line = format!(
            r#"{{"reason":"compiler-message","message":{{"level":"error","rendered":"E","code":{{"code":"E0308"}},"message":"m","spans":[{},{}],"children":[{{"spans":[{}]}}]}}}}"#,
            span(5, true, &outer),
            span(6, false, "null"),
            span(7, true, "null"),
        );
        let output = Output::parse(&format!("noise\n{line}\n"));
        let [complaint] = output.complaints.as_slice() else { panic!("{output:?}") };
        let starts = |spans: &[Span]| spans.iter().map(|it| it.range.start).collect::<Vec<_>>();
        assert_eq!(
            (starts(&complaint.primary), starts(&complaint.others)),
            (vec![5, 2], vec![6, 7])
        );
        assert_eq!(complaint.not_const, None);
    }

    #[test]
    fn a_call_that_must_be_constant_names_its_function() {
        let name = |text| function_name(text);
        assert_eq!(name("cannot call non-const method `a::B::next` in"), Some("next".to_owned()));
        assert_eq!(name("non-const function `a::f::<B>` in"), Some("f".to_owned()));
        assert_eq!(name("nothing"), None);
    }

    #[test]
    fn binaries_are_known_by_package_and_target() {
        let line = |id: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///x/{id}","manifest_path":"/x/Cargo.toml","target":{{"name":"t"}},"profile":{{"test":true}},"executable":"/x/t"}}"#
            )
        };
        let output = Output::parse(&[line("tree#a@0.1.0"), line("b#0.1.0")].join("\n"));
        let packages: Vec<_> = output.binaries.iter().map(|it| it.package.as_str()).collect();
        assert_eq!(packages, ["a", "b"]);
    }
}

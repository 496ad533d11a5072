//! The files of the repository, and the packages of the workspace.

use crate::code::Code;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names of folders without text of ours: build results, caches, git's own files, input of parsers.
const SKIPPED: [&str; 8] =
    [".cache", ".git", ".venv", "__pycache__", "build", "corpus", "node_modules", "target"];

/// A file that is text.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) text: String,
    /// The file taken apart, if it is Rust.
    pub(crate) code: Option<Code>,
    /// It belongs to the tests as a whole.
    pub(crate) is_test: bool,
}

/// Files by their paths from the top of the repository.
pub(crate) type Tree = BTreeMap<String, File>;

/// A tree of these files.
pub(crate) fn tree<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Tree {
    let mut tree = Tree::new();
    let mut modules = Vec::new();
    for (path, text) in files {
        let code = path.ends_with(".rs").then(|| Code::read(path, text));
        let stem = path.strip_suffix(".rs").unwrap_or(path);
        let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
        let base = if matches!(name, "mod" | "lib" | "main") { folder } else { stem };
        let declared = code.iter().flat_map(|code| &code.test_modules);
        modules.extend(declared.map(|module| format!("{base}/{module}")));
        // The folder beside `src`; a module `src/…/tests` is declared for tests, or is none.
        let in_folder = |part| matches!(part, "tests" | "benches");
        let is_test = !path.contains("src/") && path.split('/').any(in_folder);
        tree.insert(path.to_owned(), File { text: text.to_owned(), code, is_test });
    }
    for (path, file) in &mut tree {
        file.is_test |= modules.iter().any(|module| is_in(path, module));
    }
    tree
}

/// The files of the repository.
pub(crate) fn repository() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(read_all)
}

fn read_all() -> Tree {
    let (mut files, mut folders) = (Vec::new(), vec![top()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind.is_dir() {
                folders.extend((!SKIPPED.contains(&name.as_str())).then_some(path));
            } else if name == ".git" || name.ends_with(".log") {
                // In a linked work tree `.git` is a file.
                continue;
            } else if let (true, Ok(text)) = (kind.is_file(), std::fs::read_to_string(&path)) {
                let path = path.strip_prefix(top()).unwrap().to_string_lossy().into_owned();
                files.push((path, text));
            }
        }
    }
    assert!(files.len() > 500, "{} files", files.len());
    tree(files.iter().map(|(path, text)| (path.as_str(), text.as_str())))
}

/// Whether the file is the module at this path without `.rs`, or lies below it.
pub(crate) fn is_in(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// The top of the repository.
pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A file of the repository.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The packages of the workspace, as `cargo metadata` has them.
pub(crate) fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = ["metadata", "--no-deps", "--format-version", "1"];
    let output = Command::new(cargo).args(metadata).current_dir(top()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The texts of a list; none if there is no list.
pub(crate) fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Fails if there is anything in the list, and prints it.
#[track_caller]
pub(crate) fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

#[test]
fn files_that_are_declared_for_tests_are_tests() {
    let tree = tree([
        ("src/a.rs", "#[cfg(test)] mod tests; fn f() {}"),
        ("src/a/tests.rs", ""),
        ("src/a/tests/more.rs", ""),
        ("src/mod.rs", "#[cfg(test)] mod model; mod tests;"),
        ("src/model/deep.rs", ""),
        ("src/tests.rs", ""),
        ("crates/b/tests/c.rs", ""),
    ]);
    let tests = tree.iter().filter(|(_, file)| file.is_test).map(|(path, _)| path.as_str());
    let expected =
        ["crates/b/tests/c.rs", "src/a/tests.rs", "src/a/tests/more.rs", "src/model/deep.rs"];
    assert_eq!(tests.collect::<Vec<_>>(), expected);
}

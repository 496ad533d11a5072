//! Planted blocks, and the pages of the repository.

use super::*;
use crate::tree::{assert_none, packages, repository as files};
use std::path::Path;

fn repository(page: &str, text: &str) -> Repository {
    let package = |name: &str, folder: &str, target: &str| Package {
        name: name.to_owned(),
        version: "0.1.0".to_owned(),
        folder: folder.to_owned(),
        features: ["schedules".to_owned()].into(),
        targets: [target.to_owned()].into(),
    };
    let of = |reader: &Reader| (reader.test.to_owned(), reader.page.to_owned());
    let mut tests: BTreeMap<String, String> = BTreeMap::new();
    for (test, page) in READERS.iter().map(of) {
        tests.entry(test).or_default().push_str(&page);
    }
    Repository {
        pages: [(page.to_owned(), text.to_owned())].into(),
        tests,
        compiled: vec!["docs/compiled.md".to_owned()],
        packages: vec![
            package("longhaul", "", "router"),
            package("longhaul-cli", "crates/longhaul-cli", "longhaul"),
        ],
    }
}

#[track_caller]
fn passes(page: &str, text: &str) {
    assert_eq!(faults(&repository(page, text)), Vec::<String>::new());
}

#[track_caller]
fn fails(page: &str, text: &str, why: &str) {
    let told = faults(&repository(page, text));
    assert!(matches!(told.as_slice(), [only] if only.contains(why)), "{told:?} does not say {why}");
}

#[test]
fn what_a_test_reads_passes() {
    passes("docs/compiled.md", "```rust,no_run\nlet it = 1;\n```\n");
    passes(
        "docs/a.md",
        "```sh\n# a comment\n\nlonghaul dev \\\n  --demo\nlonghaul broker check DIR\n```\n",
    );
    passes("docs/a.md", "```console\n$ longhaul dev\nready\n```\n");
    passes("docs/a.md", "```sh\ncargo run --release -p longhaul-cli -- dev --demo\n```\n");
    passes("docs/a.md", "```sh\ncargo run --example router --features schedules\n```\n");
    passes("docs/a.md", "```sh\ncargo install --locked --path crates/longhaul-cli\n```\n");
    passes(
        "docs/a.md",
        "```toml\n[dependencies]\nlonghaul = { version = \"0.1\", features = [\"schedules\"] }\n```\n",
    );
    passes("docs/any-language.md", "<!-- example: claimed -->\n```text\nkey\n```\n");
    passes("docs/tour.md", "```console\n$ curl x\n```\n");
    passes(
        "docs/a.md",
        "- a list\n\n  <!-- not run: it takes a cluster -->\n  ```sh\n  kubectl\n  ```\n",
    );
}

#[test]
fn what_nobody_reads_is_a_fault() {
    for (page, text, why) in [
        ("docs/a.md", "```rust\nlet it = 1;\n```\n", "docs/a.md:1: the documentation of no crate"),
        (
            "docs/compiled.md",
            "\n```rust,ignore\nlet it = 1;\n```\n",
            "compiled.md:2: the compiler is told",
        ),
        ("docs/a.md", "```sh\nlonghaul dev\ncurl localhost\n```\n", "`curl localhost`: no test"),
        ("docs/a.md", "```console\n$ curl x\n```\n", "`curl x`: no test"),
        ("docs/a.md", "```text\nplain\n```\n", "no test reads `text`"),
        ("docs/a.md", "```\nplain\n```\n", "it has no language"),
        ("docs/a.md", "<!-- not run:  -->\n```sh\nx\n```\n", "for no reason"),
        ("docs/a.md", "<!-- example: claimed -->\n```text\nx\n```\n", "nobody reads the mark"),
        ("docs/a.md", "<!-- not run: why -->\n\n```sh\nx\n```\n", "no test reads it"),
        ("docs/any-language.md", "```text\nx\n```\n", "no test reads `text`"),
    ] {
        fails(page, text, why);
    }
}

#[test]
fn what_is_not_there_is_a_fault() {
    for (line, why) in [
        ("cargo run -p longhaul-clj", "there is no package `longhaul-clj`"),
        ("cargo run --example ruoter", "there is no `ruoter`"),
        ("cargo run -p longhaul-cli --example router", "there is no `router`"),
        ("cargo run --example router --features schedule", "no feature `schedule`"),
        ("cargo install --path crates/longhaul", "no package in"),
        ("cargo rnu", "`cargo rnu` is not known"),
    ] {
        fails("docs/a.md", &format!("```sh\n{line}\n```\n"), why);
    }
    for (wish, why) in [
        ("\"0.2\"", "longhaul is 0.1.0, and not 0.2"),
        ("{ version = \"0.1\", features = [\"schedule\"] }", "no feature `schedule`"),
        ("{ path = \"x\" }", "has no version"),
        ("{ version ", "TOML"),
    ] {
        fails("docs/a.md", &format!("```toml\n[dependencies]\nlonghaul = {wish}\n```\n"), why);
    }
    fails("docs/a.md", "```toml\noutput = \"table\"\n```\n", "it has no dependencies");
}

#[test]
fn a_test_that_reads_another_page_is_a_fault() {
    let mut repository = repository("docs/a.md", "");
    repository.tests.insert(SETTINGS.to_owned(), "docs/other.md".to_owned());
    let told = faults(&repository);
    assert_eq!(told, [format!("{SETTINGS} does not read docs/cli.md")]);
}

/// The pages that documentation of crates includes, by the attributes of their sources.
fn compiled(files: &crate::tree::Tree) -> Vec<String> {
    let mut pages = Vec::new();
    for (path, file) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        for include in file.text.split("doc = include_str!(\"").skip(1) {
            let page = include.split('"').next().unwrap();
            let mut parts: Vec<_> = Path::new(path).parent().unwrap().iter().collect();
            for part in Path::new(page) {
                if part == ".." {
                    parts.pop();
                } else {
                    parts.push(part);
                }
            }
            pages.push(parts.iter().collect::<std::path::PathBuf>().to_string_lossy().into_owned());
        }
    }
    pages
}

#[test]
fn every_block_is_judged_by_a_test_or_says_why_not() {
    let files = files();
    let pages = files.iter().filter(|(path, _)| path.ends_with(".md"));
    let pages: BTreeMap<_, _> =
        pages.map(|(path, file)| (path.clone(), file.text.clone())).collect();
    let tests =
        READERS.iter().map(|reader| (reader.test.to_owned(), crate::tree::read(reader.test)));
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect();
    let package = |it: serde_json::Value| {
        let manifest = Path::new(it["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().canonicalize().unwrap();
        let targets = it["targets"].as_array().unwrap().iter();
        Package {
            name: it["name"].as_str().unwrap().to_owned(),
            version: it["version"].as_str().unwrap().to_owned(),
            folder: folder.strip_prefix(crate::tree::top()).unwrap().to_string_lossy().into_owned(),
            features: keys(&it["features"]),
            targets: targets.map(|it| it["name"].as_str().unwrap().to_owned()).collect(),
        }
    };
    let repository = Repository {
        pages,
        tests: tests.collect(),
        compiled: compiled(files),
        packages: packages().into_iter().map(package).collect(),
    };
    let count: usize = repository.pages.values().map(|text| blocks(text).len()).sum();
    assert!(count > 80, "the pages have {count} blocks");
    assert_none(&faults(&repository));
}

//! Pages agree with each other and with the code. lychee checks links and headings.

use crate::tree::{assert_none, read, repository};
use std::collections::BTreeSet;

/// The README is also the documentation of the crate, from where its paths lead nowhere.
#[test]
fn pages_that_the_readme_names_are_found_from_the_documentation_too() {
    let (readme, crate_docs) = (read("README.md"), read("src/lib.rs"));
    assert!(!readme.contains("](docs/"), "name it as `[text][docs/page.md]`");
    let labels = readme.split("][docs/").skip(1).filter_map(|rest| rest.split(']').next());
    let labels: BTreeSet<_> = labels.collect();
    assert!(labels.len() > 5, "{labels:?}");
    for label in labels {
        let here = format!("\n[docs/{label}]: docs/{label}\n");
        assert!(readme.contains(&here), "the README does not end with {here}");
        let page = label.split('#').next().unwrap();
        let source = "https://docs.rs/crate/longhaul/latest/source/docs";
        let there = format!("\n//! [docs/{label}]: {source}/{page}\n");
        assert!(crate_docs.contains(&there), "src/lib.rs lacks {there}");
    }
}

/// The map to the documents that longhaul comes from, by their numbers: for developers alone.
const OUTSIDE: &str = "features.md";

#[test]
fn each_page_is_in_the_book() {
    let summary = read("docs/SUMMARY.md");
    let tree = repository();
    let pages = tree.keys().filter_map(|path| path.strip_prefix("docs/"));
    let pages = pages.filter(|page| page.ends_with(".md") && *page != "SUMMARY.md");
    let missing =
        pages.filter(|page| (*page != OUTSIDE) != summary.contains(&format!("]({page})")));
    assert_none(&missing.map(str::to_owned).collect::<Vec<_>>());
    let pages = tree.iter().filter(|(path, _)| path.ends_with(".md"));
    let naming = pages.filter(|(_, file)| file.text.contains(OUTSIDE));
    assert_none(&naming.map(|(path, _)| format!("{path} names {OUTSIDE}")).collect::<Vec<_>>());
}

/// The last cell of each row of the checklist names its tests.
#[test]
fn each_test_that_the_security_checklist_names_exists() {
    let page = read("docs/security.md");
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    // Every second piece between backticks is a name.
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let names: BTreeSet<_> = names.filter(|name| !name.contains(['/', '.', ' '])).collect();
    assert!(names.len() > 40, "{names:?}");
    let tree = repository();
    let words = tree.values().filter_map(|file| file.code.as_ref()).flat_map(|code| &code.words);
    let words: BTreeSet<_> = words.map(|word| word.path.as_str()).collect();
    let missing = names.difference(&words).map(|name| format!("`{name}` is no test"));
    assert_none(&missing.collect::<Vec<_>>());
}

/// The last cell of each row of the map names its test, or a file of tests: some named tests proved
/// something else, and nothing checked that a renamed one was still there.
#[test]
fn each_test_that_the_map_of_features_names_exists() {
    let page = read("docs/features.md");
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.matches('|').count() == 4);
    let cells = rows.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit('|').next());
    let names = cells.filter_map(|cell| cell.trim().strip_prefix('`')?.strip_suffix('`'));
    let names: BTreeSet<_> = names.filter(|name| !name.contains(' ')).collect();
    assert!(names.len() > 90, "{names:?}");
    let tree = repository();
    let missing = names.iter().filter(|name| {
        let test = format!("fn {name}(");
        let is_file = |path: &str| {
            path.strip_prefix(**name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        !tree.iter().any(|(path, file)| is_file(path) || file.text.contains(&test))
    });
    assert_none(&missing.map(|name| format!("`{name}` is no test")).collect::<Vec<_>>());
}

/// An alert links to the section of its name.
#[test]
fn each_alert_has_its_runbook() {
    let (rules, page) =
        (read("packaging/prometheus/longhaul.rules.yaml"), read("docs/runbooks.md"));
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: BTreeSet<_> = alerts.collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    let sections: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(sections, alerts);
}

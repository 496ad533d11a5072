//! No file is longer than can be read in one sitting. Tests do not count.

use super::violation;
use crate::tidy::exceptions::Ceiling;
use crate::tidy::{Tree, Violation};

/// How many lines outside its tests a Rust file may have.
pub const LINES_MAX: usize = 500;

/// Finds files above their ceiling, and exceptions that are no longer needed.
#[must_use]
pub fn check(tree: &Tree, ceilings: &[Ceiling]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, source) in tree.rust_files() {
        let lines = source.production_lines();
        let listed = ceilings.iter().find(|ceiling| ceiling.path == file.path);
        let lines_max = listed.map_or(LINES_MAX, |ceiling| ceiling.lines);
        if lines > lines_max {
            let message = format!(
                "{lines} lines outside its tests, of {lines_max}: split it by duty, or list it \
                 with a reason in crates/xtask/src/tidy/exceptions.rs"
            );
            violations.push(violation(file, 0, "length", message));
        } else if listed.is_some() && lines <= LINES_MAX {
            let message = format!("{lines} lines need no exception: remove it from the list");
            violations.push(violation(file, 0, "length", message));
        }
    }
    let missing = ceilings.iter().filter(|ceiling| tree.get(ceiling.path).is_none());
    violations.extend(missing.map(|ceiling| Violation {
        path: ceiling.path.to_owned(),
        line: 0,
        rule: "length",
        message: "is listed as an exception but does not exist".to_owned(),
    }));
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: Ceiling = Ceiling { path: "src/a.rs", lines: 600, reason: "planted for a test" };

    #[track_caller]
    fn check_file(path: &str, text: &str, ceilings: &[Ceiling], message: &str) {
        let found = check(&Tree::new([(path.to_owned(), text.to_owned())]), ceilings);
        let messages: Vec<_> = found.iter().map(|violation| violation.message.as_str()).collect();
        match messages.as_slice() {
            [] => assert_eq!(message, ""),
            [only] => assert!(!message.is_empty() && only.contains(message), "{only}"),
            more => panic!("{more:?}"),
        }
    }

    #[test]
    fn a_long_file_is_caught() {
        check_file("src/a.rs", &"a\n".repeat(500), &[], "");
        check_file("src/a.rs", &"a\n".repeat(501), &[], "501 lines outside its tests, of 500");
        check_file("docs/a.md", &"a\n".repeat(501), &[], "");
    }

    #[test]
    fn tests_do_not_count() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "a\n".repeat(700));
        check_file("src/a.rs", &format!("{}{tests}", "a\n".repeat(500)), &[], "");
        check_file("src/a.rs", &format!("{}{tests}", "a\n".repeat(501)), &[], "501 lines");
        check_file("integration-tests/tests/soak.rs", &"a\n".repeat(700), &[], "");
    }

    #[test]
    fn an_exception_has_a_ceiling_of_its_own() {
        check_file("src/a.rs", &"a\n".repeat(600), &[LISTED], "");
        check_file(
            "src/a.rs",
            &"a\n".repeat(601),
            &[LISTED],
            "601 lines outside its tests, of 600",
        );
    }

    #[test]
    fn a_needless_exception_is_caught() {
        check_file("src/a.rs", &"a\n".repeat(500), &[LISTED], "need no exception");
        check_file("src/b.rs", "a\n", &[LISTED], "does not exist");
    }
}

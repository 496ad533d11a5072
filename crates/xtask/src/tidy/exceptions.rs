//! What is excused, and why: the only place where a file may be let off a rule.
//!
//! An exception that excuses nothing is itself a violation, so that the lists never outlive their reasons.

use super::Violation;

/// Lets one file off one rule.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The file.
    pub path: &'static str,
    /// Name of the rule, as violations print it; never `length`, which has [`Ceiling`].
    pub rule: &'static str,
    /// Why the file may break the rule.
    pub reason: &'static str,
}

/// Lets one file be longer than the others.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// The file.
    pub path: &'static str,
    /// How many lines outside its tests it may have.
    pub lines: usize,
    /// Why it is not split.
    pub reason: &'static str,
}

/// The files that break a rule.
pub const EXCEPTIONS: &[Exception] = &[];

/// The files that are longer than the others.
pub const CEILINGS: &[Ceiling] = &[];

/// Removes what the exceptions excuse, and reports the exceptions that excuse nothing.
#[must_use]
pub fn apply(violations: Vec<Violation>, exceptions: &[Exception]) -> Vec<Violation> {
    let excuses = |exception: &Exception, violation: &Violation| {
        exception.path == violation.path && exception.rule == violation.rule
    };
    let needless: Vec<Violation> = exceptions
        .iter()
        .filter(|exception| !violations.iter().any(|found| excuses(exception, found)))
        .map(|exception| Violation {
            path: exception.path.to_owned(),
            line: 0,
            rule: "exceptions",
            message: format!("no longer breaks `{}`: remove its exception", exception.rule),
        })
        .collect();
    violations
        .into_iter()
        .filter(|found| !exceptions.iter().any(|exception| excuses(exception, found)))
        .chain(needless)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, rule: &'static str) -> Violation {
        Violation { path: path.to_owned(), line: 1, rule, message: String::new() }
    }

    #[test]
    fn an_exception_excuses_one_rule_in_one_file() {
        let exception = Exception { path: "a", rule: "words", reason: "planted" };
        let found = vec![found("a", "words"), found("a", "paths"), found("b", "words")];
        let kept = apply(found.clone(), &[exception]);
        assert_eq!(kept, found[1..]);
    }

    #[test]
    fn a_needless_exception_is_reported() {
        let exception = Exception { path: "a", rule: "words", reason: "planted" };
        let kept = apply(vec![found("a", "paths")], &[exception]);
        assert_eq!(kept[1].rule, "exceptions");
        assert_eq!(kept.len(), 2);
    }

    #[test]
    fn every_exception_has_a_reason() {
        let reasons = EXCEPTIONS.iter().map(|exception| exception.reason);
        for reason in reasons.chain(CEILINGS.iter().map(|ceiling| ceiling.reason)) {
            assert!(reason.split_whitespace().count() >= 3, "not a reason: `{reason}`");
        }
    }
}

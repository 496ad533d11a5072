//! Whether an SPDX expression is met by a list of licences.

use std::collections::BTreeSet;

/// Words of an expression that wait to be read.
struct Words<'a> {
    left: Vec<&'a str>,
    allowed: &'a BTreeSet<String>,
}

/// Whether what a package says of its licence lets us choose only from these licences. An exception behind `WITH` permits more and not less, so it
/// is passed over. What is no expression is not allowed. An old way to write `OR` is a stroke.
#[must_use]
pub fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let left = spaced.split_whitespace().rev().collect();
    let mut words = Words { left, allowed };
    let is_met = words.any();
    words.left.is_empty() && is_met == Some(true)
}

impl Words<'_> {
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.left.last().is_some_and(|next| *next == word);
        if is_next {
            self.left.pop();
        }
        is_next
    }

    /// One of those that `OR` joins. None if this is no expression.
    fn any(&mut self) -> Option<bool> {
        let mut is_met = self.all()?;
        while self.takes("OR") {
            is_met |= self.all()?;
        }
        Some(is_met)
    }

    /// Each of those that `AND` joins, which binds more closely.
    fn all(&mut self) -> Option<bool> {
        let mut is_met = self.one()?;
        while self.takes("AND") {
            is_met &= self.one()?;
        }
        Some(is_met)
    }

    fn one(&mut self) -> Option<bool> {
        if self.takes("(") {
            let is_met = self.any()?;
            return self.takes(")").then_some(is_met);
        }
        let is_name = |word: &&str| !["AND", "OR", "WITH", "(", ")"].contains(word);
        let name = self.left.pop().filter(is_name)?;
        if self.takes("WITH") {
            self.left.pop().filter(is_name)?;
        }
        Some(self.allowed.contains(name))
    }
}

#[test]
fn expressions_are_met_by_what_they_offer() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned));
    for met in [
        "MIT",
        "MIT OR GPL-3.0-only",
        "GPL-3.0-only/MIT",
        "MIT AND Unicode-3.0",
        "(MIT OR GPL-3.0-only) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception",
        "GPL-3.0-only OR MIT AND Apache-2.0",
    ] {
        assert!(is_allowed(met, &allowed), "{met}");
    }
    for unmet in [
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "(MIT OR Apache-2.0) AND GPL-3.0-only",
        "mit",
        "",
        "MIT OR",
        "(MIT",
        "MIT)",
        "MIT Apache-2.0",
        "MIT WITH",
        "OR",
    ] {
        assert!(!is_allowed(unmet, &allowed), "{unmet}");
    }
}

//! What `.deny.toml` says of parts, as far as that can be judged without a database of advisories.

use super::{Part, is_allowed};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use toml::{Table, Value};

/// How the source of a package of a registry begins, and that of no other.
const REGISTRY: &str = "registry+";

/// A package of the default registry.
const WITNESS: &str = "tokio";

/// What may come in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    licences: BTreeSet<String>,
    /// Names of packages.
    denied: BTreeSet<String>,
}

impl Rules {
    /// Reads the file. Of an entry about single packages nothing is known here, so a file that has one is refused rather than passed over.
    ///
    /// # Errors
    ///
    /// If it is not as `cargo deny` wants it, or has rules that are not understood here.
    pub fn read(text: &str) -> Result<Self> {
        let file: Table = text.parse().context(".deny.toml")?;
        let list = |section: &str, name: &str| {
            let list = file.get(section).and_then(|it| it.get(name)).and_then(Value::as_array);
            list.with_context(|| format!(".deny.toml has no {section}.{name}"))
        };
        for (section, name) in
            [("licenses", "exceptions"), ("licenses", "clarify"), ("bans", "skip")]
        {
            anyhow::ensure!(
                list(section, name).is_err(),
                "{section}.{name} is not understood here"
            );
        }
        anyhow::ensure!(list("sources", "allow-git")?.is_empty(), "no source but the registry");
        let licences = list("licenses", "allow")?.iter().filter_map(Value::as_str);
        let denied = list("bans", "deny")?.iter().filter_map(|it| it.get("crate")?.as_str());
        Ok(Self {
            licences: licences.map(str::to_owned).collect(),
            denied: denied.map(str::to_owned).collect(),
        })
    }
}

/// What is wrong with each part that may not be there: all come from one registry, the default one, which tokio comes from too. Packages of this repository
/// have its licence.
#[must_use]
pub fn faults(parts: &[Part], rules: &Rules) -> Vec<String> {
    let mut found = Vec::new();
    let mut default = parts.iter().filter(|part| part.name == WITNESS);
    let default = default.next().and_then(|part| part.source.as_deref());
    for part in parts {
        let Part { name, version, licence, source, .. } = part;
        let Some(source) = source else { continue };
        if !source.starts_with(REGISTRY) || default.is_some_and(|default| default != source) {
            found.push(format!("{name} {version} comes from {source}"));
        }
        let said = licence.as_deref().unwrap_or_default();
        if !is_allowed(said, &rules.licences) {
            found.push(format!("{name} {version}: the licence `{said}` is not one of ours"));
        }
        if rules.denied.contains(name) {
            found.push(format!("{name} {version} is denied by name"));
        }
    }
    found
}

#[test]
fn each_planted_fault_is_found() {
    let text = "[licenses]\nallow = [\"MIT\"]\n[bans]\ndeny = [{ crate = \"openssl\" }]\n[sources]\nallow-git = []\n";
    let rules = Rules::read(text).unwrap();
    let good = Part {
        name: "good".to_owned(),
        version: "1.0.0".to_owned(),
        licence: Some("MIT OR Apache-2.0".to_owned()),
        source: Some("registry+https://example.org/index".to_owned()),
        needs: BTreeSet::new(),
    };
    let witness = Part { name: WITNESS.to_owned(), ..good.clone() };
    assert_eq!(faults(&[good.clone(), witness.clone()], &rules), Vec::<String>::new());
    for (planted, told) in [
        (Part { licence: Some("GPL-3.0-only".to_owned()), ..good.clone() }, "GPL"),
        (Part { licence: None, ..good.clone() }, "``"),
        (Part { source: Some("git+https://example.org".to_owned()), ..good.clone() }, "git"),
        (Part { source: Some("registry+https://other.org".to_owned()), ..good.clone() }, "other"),
        (Part { name: "openssl".to_owned(), ..good.clone() }, "denied"),
    ] {
        let found = faults(&[planted, witness.clone()], &rules);
        assert!(found.len() == 1 && found.concat().contains(told), "{told}: {found:?}");
    }
    let ours = Part { source: None, licence: None, ..good };
    assert!(faults(&[ours], &rules).is_empty());
    let lenient = text.replace("deny =", "skip = []\ndeny =");
    assert!(Rules::read(&lenient).is_err(), "a rule that nobody applies");
}

//! What everything here is made of: what tests and builds need included, for each system that longhaul is built for.

use super::{read, top};
use std::collections::BTreeSet;
use xtask::parts::{PROGRAM, Rules, TARGET, below, bill, faults, known};

/// Those of `.deny.toml`.
const TARGETS: [&str; 3] =
    ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "aarch64-apple-darwin"];

#[test]
fn each_part_has_a_licence_that_is_allowed_and_comes_from_the_registry() {
    let text = read(".deny.toml");
    assert!(TARGETS.iter().all(|target| text.contains(target)), "other targets");
    let rules = Rules::read(&text).unwrap();
    for target in TARGETS {
        let parts = known(&top(), target).unwrap();
        assert!(parts.len() > 200, "{target}: {} parts", parts.len());
        assert_eq!(faults(&parts, &rules), Vec::<String>::new(), "{target}");
    }
    // Without one of its licences the same parts have faults.
    let strict = Rules::read(&text.replace("\"ISC\",", "")).unwrap();
    assert!(!faults(&known(&top(), TARGET).unwrap(), &strict).is_empty());
}

#[test]
fn the_list_of_parts_has_what_the_program_is_built_from_and_nothing_else() {
    let parts = known(&top(), TARGET).unwrap();
    let list = bill(&parts, &read("Cargo.lock")).unwrap();
    let components = list["components"].as_array().unwrap();
    assert_eq!(components.len() + 1, below(&parts, PROGRAM).len());
    let names: BTreeSet<_> = components.iter().map(|part| part["name"].as_str().unwrap()).collect();
    for needed in ["longhaul", "longhaul-broker", "ring", "rustls", "tokio"] {
        assert!(names.contains(needed), "{needed} is missing");
    }
    for stranger in ["proptest", "xtask", "pulsar", "trycmd", "windows-sys"] {
        assert!(!names.contains(stranger), "{stranger} is no part of the program");
    }
    for component in components {
        let is_ours = component["name"].as_str().unwrap().starts_with("longhaul");
        assert_eq!(component["hashes"].is_array(), !is_ours, "{component}");
        assert!(component["licenses"].is_array(), "{component}");
    }
}

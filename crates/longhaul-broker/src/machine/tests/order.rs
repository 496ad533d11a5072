//! The order of the machine's files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The code of each part that the machine's documentation lists, in that order, without comments
/// and tests.
fn parts(root: &Path) -> Vec<(String, String)> {
    let main = std::fs::read_to_string(root.join("mod.rs")).unwrap();
    let listed =
        main.split_once("//! The parts").unwrap().1.split_once("//! Invariants").unwrap().0;
    let names = listed.split("[`").skip(1);
    let names = names.filter_map(|rest| Some(rest.split_once("`]")?.0.to_owned()));
    names
        .map(|name| (code_of(&files_of(root, &name)), name))
        .map(|(code, name)| (name, code))
        .collect()
}

/// `name.rs`, and the files in the folder of that name.
fn files_of(root: &Path, name: &str) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root.join(name)).into_iter().flatten();
    let inside = folder.map(|entry| entry.unwrap().path());
    let all = inside.chain([root.join(format!("{name}.rs"))]);
    all.filter(|path| path.is_file() && path.file_name().unwrap() != "tests.rs").collect()
}

fn code_of(files: &[PathBuf]) -> String {
    let mut code = String::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.for_each(|line| code.extend([line, "\n"]));
    }
    code
}

/// The words after this mark, each with the character that follows it.
fn words_after<'a>(code: &'a str, mark: &str) -> impl Iterator<Item = (&'a str, char)> {
    code.split(mark).skip(1).filter_map(|rest| {
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
        Some((rest.get(..end)?, rest.get(end..)?.chars().next()?))
    })
}

/// The methods of the machine, as code.
fn methods(code: &str) -> String {
    let blocks = code.split("\nimpl BrokerMachine {").skip(1);
    blocks.filter_map(|block| block.split("\n}\n").next()).collect()
}

/// Modules and methods of the machine that a part uses although they are below it in the list.
fn wrong(parts: &[(String, String)]) -> Vec<String> {
    let place = |name: &str| parts.iter().position(|part| part.0 == name);
    let mut homes: BTreeMap<String, usize> = BTreeMap::new();
    for (at, (_, code)) in parts.iter().enumerate() {
        let methods = methods(code);
        homes.extend(words_after(&methods, "fn ").map(|(method, _)| (method.to_owned(), at)));
    }
    let mut wrong = Vec::new();
    for (at, (name, code)) in parts.iter().enumerate() {
        let modules = ["super::", "machine::"].into_iter().flat_map(|mark| words_after(code, mark));
        let used = modules.filter_map(|(module, _)| Some((module, place(module)?)));
        let methods = methods(code);
        let marks = ["self.", "self\n            .", "machine."];
        let words = marks.into_iter().flat_map(|mark| words_after(&methods, mark));
        let called = words.filter(|(_, next)| *next == '(');
        let called = called.filter_map(|(method, _)| Some((method, *homes.get(method)?)));
        let below = used.chain(called).filter(|(_, home)| *home > at);
        wrong.extend(below.map(|(what, home)| format!("{name} -> {}::{what}", parts[home].0)));
    }
    wrong
}

/// Six files of the machine called each other in a circle: none of them could be understood without
/// the others.
#[test]
fn each_part_knows_only_those_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/machine");
    let mut parts = parts(&root);
    let main = std::fs::read_to_string(root.join("mod.rs")).unwrap();
    let modules = main
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    for module in modules.filter(|module| *module != "tests") {
        assert!(parts.iter().any(|part| part.0 == module), "{module} has no place");
    }
    assert_eq!(wrong(&parts), [""; 0]);
    // In reverse order, violations must be found.
    parts.reverse();
    let found = wrong(&parts);
    assert!(found.contains(&"rounds -> cleaning::clean".to_owned()), "{found:?}");
    assert!(found.contains(&"view -> withheld::withheld".to_owned()), "{found:?}");
}

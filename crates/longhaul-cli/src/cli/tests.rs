use super::*;
use clap::CommandFactory;

mod pages;

/// Every leaf command, with its path.
fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
    let path = format!("{path}{}", command.get_name());
    if !command.has_subcommands() {
        found.push((path.clone(), command.clone()));
    }
    for child in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        leaves(child, &format!("{path} "), found);
    }
}

#[test]
fn the_tree_is_sound() {
    Cli::command().debug_assert();
}

/// Finds examples that became invalid, for instance by a renamed option.
#[test]
fn each_help_has_two_examples_that_can_be_typed() {
    let mut found = Vec::new();
    leaves(&Cli::command(), "", &mut found);
    assert!(found.len() > 5, "{found:?}");
    for (path, command) in found {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples: Vec<_> =
            help.lines().filter_map(|it| it.strip_prefix("  longhaul ")).collect();
        assert!(examples.len() >= 2, "`{path}` has {} examples", examples.len());
        for example in examples {
            let words = words(&format!("longhaul {example}"));
            assert!(words.join(" ").starts_with(&path), "`{example}` is no example of `{path}`");
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("`{example}` cannot be typed: {error}");
            }
        }
    }
}

/// Options after a flattened group must not appear under its heading, such as gateway tokens under
/// "Embedded broker".
#[test]
fn options_stand_under_their_own_headings() {
    let mut found = Vec::new();
    leaves(&Cli::command(), "", &mut found);
    let heading = |path: &str, option: &str| {
        let (_, command) = found.iter().find(|(it, _)| it == path).unwrap();
        let mut arguments = command.get_arguments();
        let found = arguments.find(|it| it.get_long() == Some(option)).unwrap();
        found.get_help_heading().map(str::to_owned)
    };
    for (path, option) in [
        ("longhaul server start", "http-tokens"),
        ("longhaul server start", "insecure"),
        ("longhaul server start", "drain"),
        ("longhaul task list", "at"),
        ("longhaul task list", "all"),
        ("longhaul dead list", "limit"),
        ("longhaul queue purge", "all"),
    ] {
        assert_eq!(heading(path, option), None, "{path} --{option}");
    }
    let of_broker = Some("Embedded broker".to_owned());
    assert_eq!(heading("longhaul server start", "broker-tls"), of_broker);
    assert_eq!(heading("longhaul task list", "status"), Some("Which tasks".to_owned()));
}

/// Every command must be in the documentation.
#[test]
fn each_command_is_in_the_documentation() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut found = Vec::new();
    leaves(&Cli::command(), "", &mut found);
    for (path, _) in found {
        assert!(page.contains(&format!("`{path}`")), "docs/cli.md does not name `{path}`");
    }
}

/// Every setting must be in the documentation.
#[test]
fn each_setting_is_in_the_documentation() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = std::fs::read_to_string(page).unwrap();
    for setting in crate::settings::SETTINGS.iter().filter(|it| it.name != "token") {
        let name = setting.name;
        assert!(page.contains(&format!("`{name}`")), "docs/cli.md does not name `{name}`");
    }
}

/// An option is read by the name of its setting: under another name it would have no effect. What
/// has the name of a setting sets it, whatever the command.
#[test]
fn options_have_the_names_of_their_settings_and_arguments_have_others() {
    let is_setting = |name: &str| crate::settings::SETTINGS.iter().any(|it| it.name == name);
    let of_settings = ["", " dev", " server dev", " server start", " broker run"]
        .map(|it| format!("longhaul{it}"));
    let mut found = vec![("longhaul".to_owned(), Cli::command())];
    leaves(&Cli::command(), "", &mut found);
    // `server check` reads the address of the gateway so. `worker run` does not read the setting
    // `drain`, so its option of that name changes nothing there.
    let others = ["longhaul server check --http", "longhaul worker run --drain"];
    let mut seen = Vec::new();
    for (path, command) in found {
        for argument in command.get_arguments() {
            let name = argument.get_id().as_str().replace('_', "-");
            let option = format!("{path} --{name}");
            let is_read = is_setting(&name) || name == "context";
            if argument.is_positional() || !of_settings.contains(&path) {
                assert!(!is_read || others.contains(&option.as_str()), "`{path}` has {name}");
                seen.extend(is_read.then_some(option));
            } else {
                let is_known = is_read || ["demo", "until-stdin-closes"].contains(&name.as_str());
                assert!(is_known && argument.get_long() == Some(&*name), "`{path}` has --{name}");
            }
        }
    }
    seen.sort();
    assert_eq!(seen, others);
}

/// The words of a line as a shell splits them, up to the end of the first command. Handles only
/// quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for it in line.chars() {
        match quote {
            Some(end) if it == end => quote = None,
            Some(_) => word.push(it),
            None if matches!(it, '\'' | '"') => quote = Some(it),
            None if matches!(it, '|' | '<' | '>' | '&' | ';') => break,
            None if it == '#' && word.is_empty() => break,
            None if it == ' ' => {
                words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)))
            }
            None => word.push(it),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

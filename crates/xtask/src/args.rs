//! The command line: what `cargo xtask` understands, and its help.
//!
//! Written by hand: so few verbs do not need a parser that takes longer to build than xtask itself.

use crate::mutants::Options;
use crate::mutants::area::{AREAS, Area};
use std::fmt;

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Print a help text.
    Help(&'static str),
    /// Make the documentation site.
    Book,
    /// Run all checks.
    Ci,
    /// Write the types of the client libraries.
    ClientTypes,
    /// Run the simulation from a seed.
    Sim {
        /// The first seed.
        seed: u64,
        /// How many seeds to run, if not as many as the suite does by itself.
        runs: Option<u64>,
    },
    /// Search the states of the model.
    Model {
        /// What to hand to the model: a scenario and its options.
        args: Vec<String>,
    },
    /// Plant faults and see whether tests fail.
    Mutants(Options),
    /// Print the list of the program's parts.
    Parts,
    /// Run a command beside a Pulsar.
    Pulsar {
        /// The command with its arguments.
        command: Vec<String>,
    },
}

/// The command line is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

const HELP: &str = "\
Developer commands of longhaul

Usage: cargo xtask <command>

Commands:
  book          Make a site of the documentation
  ci            Run what a change must pass: format, lints, docs, tests
  client-types  Write the types of the client libraries from the OpenAPI document
  sim           Replay the simulation from a seed
  model         Search the states of the protocol's model
  mutants       Plant faults into the pure code, and see whether tests fail
  parts         Print what the program is made of, as CycloneDX has it (SBOM)
  pulsar        Run a command beside a real Pulsar
  help          Print this text, or the help of a command

`cargo xtask help <command>` tells more of each.
";

const BOOK_HELP: &str = "\
Makes a site of the documentation in target/book, whose first page is index.html

Usage: cargo xtask book

docs/SUMMARY.md says which pages are in it. Fails if a link or a heading is not there.
";

const CI_HELP: &str = "\
Runs what a change must pass, and stops at the first failure

Usage: cargo xtask ci

Steps:
  format  cargo fmt --all --check
  lints   cargo clippy --workspace --all-targets -- -D warnings
  docs    cargo doc --workspace --no-deps, with warnings as errors
  tests   cargo test --workspace

Prints how long each step took. Suites that need a broker start the embedded one unless
LONGHAUL_TEST_BROKER names another: a service URL, docker, maven, or none. A test that is
skipped says so on stderr, and in the file that LONGHAUL_TEST_SKIPS names.
The tests include the tidy rules; `cargo test -p xtask --test tidy` runs them alone.
";

const CLIENT_TYPES_HELP: &str = "\
Writes the types of the client libraries from crates/longhaul-server/openapi.json

Usage: cargo xtask client-types

Writes clients/python/longhaul/types.py and clients/typescript/src/types.ts. A test compares
them with the document: `cargo test -p xtask --test clients`.
";

const SIM_HELP: &str = "\
Replays the simulation from a seed

Usage: cargo xtask sim --seed <N> [--runs <K>]

Options:
  --seed <N>  Where to begin, in decimal or as 0x followed by hex digits
  --runs <K>  How many runs to make [default: the suite's choice]

A seed and a commit together determine a run to the last event, so that
`cargo xtask sim --seed <N> --runs 1` shows a failure again. The suite receives both
values in decimal, as LONGHAUL_SIM_SEED and LONGHAUL_SIM_RUNS.
";

const MODEL_HELP: &str = "\
Searches the states of the protocol's model, in a release build

Usage: cargo xtask model [<scenario>] [<option>...]

All arguments go to the model; without any it does what it does by default.
`cargo xtask model -- --help` prints what it understands.
";

const PULSAR_HELP: &str = "\
Runs a command beside a real Pulsar, and stops the Pulsar afterwards

Usage: cargo xtask pulsar -- <command> [<argument>...]

Forwards to the sandbox of integration-tests, which starts the Pulsar. Example:

  cargo xtask pulsar -- cargo test -p integration-tests
";

const PARTS_HELP: &str = "\
Prints what the program is made of, for x86_64 Linux, as CycloneDX 1.5 has it (SBOM)

Usage: cargo xtask parts

The same sources make the same bytes. Example:

  cargo xtask parts >target/longhaul.cdx.json
";

const MUTANTS_HELP: &str = "\
Plants faults into the code, one at a time, and sees whether tests fail

Usage: cargo xtask mutants [<area>...] [<option>...]

Areas: protocol, machine, partition, metadata, worker-session, session, wire, broker
[default: all of them]

Options:
  --file <part>  Only in files whose path holds this
  --sample <K>   Only K faults of each area, for a quick score
  --seed <N>     Which of them [default: 0]
  --jobs <N>     How many faults to try at a time [default: half of the processors]
  --thorough     Ask the slow tests as well
  --list         Only print the faults
  --fresh        Forget what earlier runs have found

All faults are woven into one copy of the project below target/mutants, each behind a switch;
what does not compile is left out. A fault that was caught stays so until its function changes,
others are tried again when any source has changed, and a run that was interrupted goes on.
Prints for each area how many faults were caught and missed, and fails if one was missed that
is not in crates/xtask/mutants-accepted.txt, where each has its reason.
";

/// Reads the arguments behind `cargo xtask`.
///
/// # Errors
///
/// Says which argument is not understood, and which was expected.
pub fn parse(args: &[String]) -> Result<Command, UsageError> {
    let Some((verb, rest)) = args.split_first() else {
        return Ok(Command::Help(HELP));
    };
    let own = rest.split(|arg| arg == "--").next().unwrap_or_default();
    if own.iter().any(|arg| is_help(arg)) {
        return help(verb);
    }
    match verb.as_str() {
        "book" => alone(verb, rest, Command::Book),
        "ci" => alone(verb, rest, Command::Ci),
        "client-types" => alone(verb, rest, Command::ClientTypes),
        "sim" => parse_sim(rest),
        "model" => Ok(Command::Model { args: without_separator(rest).to_vec() }),
        "mutants" => parse_mutants(rest),
        "parts" => alone(verb, rest, Command::Parts),
        "pulsar" => match without_separator(rest) {
            [] => usage("pulsar needs a command: cargo xtask pulsar -- <command>"),
            command => Ok(Command::Pulsar { command: command.to_vec() }),
        },
        "help" => rest.first().map_or(Ok(Command::Help(HELP)), |verb| help(verb)),
        verb if is_help(verb) => Ok(Command::Help(HELP)),
        unknown => unknown_command(unknown),
    }
}

/// A verb without arguments.
fn alone(verb: &str, rest: &[String], command: Command) -> Result<Command, UsageError> {
    match rest {
        [] => Ok(command),
        [unknown, ..] => usage(format!("{verb} takes no argument, and was given `{unknown}`")),
    }
}

fn is_help(arg: &str) -> bool {
    matches!(arg, "--help" | "-h")
}

fn help(verb: &str) -> Result<Command, UsageError> {
    let text = match verb {
        "book" => BOOK_HELP,
        "ci" => CI_HELP,
        "client-types" => CLIENT_TYPES_HELP,
        "sim" => SIM_HELP,
        "model" => MODEL_HELP,
        "mutants" => MUTANTS_HELP,
        "parts" => PARTS_HELP,
        "pulsar" => PULSAR_HELP,
        "help" | "--help" | "-h" => HELP,
        unknown => return unknown_command(unknown),
    };
    Ok(Command::Help(text))
}

fn parse_sim(args: &[String]) -> Result<Command, UsageError> {
    let mut seed = None;
    let mut runs = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (name, joined) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (arg.as_str(), None),
        };
        let slot = match name {
            "--seed" => &mut seed,
            "--runs" => &mut runs,
            _ => return usage(format!("sim knows --seed and --runs, not `{arg}`")),
        };
        let Some(value) = joined.or_else(|| args.next().map(String::as_str)) else {
            return usage(format!("{name} needs a value"));
        };
        let Some(number) = parse_number(value) else {
            return usage(format!("{name} needs a number from 0 to {}, not `{value}`", u64::MAX));
        };
        if slot.replace(number).is_some() {
            return usage(format!("{name} is given twice"));
        }
    }
    match (seed, runs) {
        (None, _) => usage("sim needs a seed: cargo xtask sim --seed <N>"),
        (_, Some(0)) => usage("--runs 0 would run nothing"),
        (Some(seed), runs) => Ok(Command::Sim { seed, runs }),
    }
}

fn parse_mutants(args: &[String]) -> Result<Command, UsageError> {
    let mut options = Options { areas: Vec::new(), ..Options::default() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (name, joined) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (arg.as_str(), None),
        };
        let mut value = || joined.or_else(|| args.next().map(String::as_str));
        let mut number = || {
            let number = value().and_then(parse_number).filter(|number| *number < 1 << 32);
            number.map_or_else(|| usage(format!("{name} needs a number")), Ok)
        };
        let count = |number: u64| usize::try_from(number).ok();
        match name {
            "--list" => options.list = true,
            "--thorough" => options.thorough = true,
            "--fresh" => options.fresh = true,
            "--seed" => options.seed = number()?,
            "--sample" => options.sample = count(number()?),
            "--jobs" => options.jobs = count(number()?),
            "--file" => match value() {
                Some(part) => options.file = Some(part.to_owned()),
                None => return usage("--file needs a part of a path"),
            },
            name => match Area::find(name) {
                Some(area) => options.areas.push(area),
                None => {
                    let known: Vec<_> = AREAS.iter().map(|area| area.name).collect();
                    let known = known.join(", ");
                    return usage(format!("there is no area `{arg}`: known are {known}"));
                }
            },
        }
    }
    if options.areas.is_empty() {
        options.areas.extend(AREAS);
    }
    Ok(Command::Mutants(options))
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn without_separator(args: &[String]) -> &[String] {
    match args {
        [first, rest @ ..] if first == "--" => rest,
        all => all,
    }
}

fn unknown_command(name: &str) -> Result<Command, UsageError> {
    usage(format!(
        "there is no command `{name}`: known are book, ci, client-types, sim, model, mutants, parts, pulsar and help"
    ))
}

fn usage<T>(message: impl Into<String>) -> Result<T, UsageError> {
    Err(UsageError(message.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(line: &str, expected: &Command) {
        assert_eq!(parse(&words(line)).as_ref(), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, message: &str) {
        assert_eq!(parse(&words(line)).unwrap_err().to_string(), message, "{line}");
    }

    #[test]
    fn commands_are_understood() {
        check("book", &Command::Book);
        check("ci", &Command::Ci);
        check("client-types", &Command::ClientTypes);
        check("parts", &Command::Parts);
        check("sim --seed 7", &Command::Sim { seed: 7, runs: None });
        check("sim --runs=3 --seed=0xff", &Command::Sim { seed: 255, runs: Some(3) });
        check("model", &Command::Model { args: vec![] });
        check("model once --deep", &Command::Model { args: words("once --deep") });
        check("model -- --help", &Command::Model { args: words("--help") });
        let areas = vec![Area::find("protocol").unwrap()];
        let list = Options { areas, list: true, ..Options::default() };
        check("mutants protocol --list", &Command::Mutants(list));
        let sample =
            Options { sample: Some(20), seed: 3, jobs: Some(2), fresh: true, ..Options::default() };
        check("mutants --sample=20 --seed 3 --jobs 2 --fresh", &Command::Mutants(sample));
        let file = Options { file: Some("fold".to_owned()), ..Options::default() };
        check("mutants --file fold", &Command::Mutants(file));
        check("pulsar -- ls --help", &Command::Pulsar { command: words("ls --help") });
        check("pulsar ls -- a", &Command::Pulsar { command: words("ls -- a") });
    }

    #[test]
    fn help_is_found_where_it_is_looked_for() {
        for line in ["", "help", "--help", "-h", "help help", "help --help"] {
            check(line, &Command::Help(HELP));
        }
        for line in ["help sim", "sim --help", "sim --seed 7 -h"] {
            check(line, &Command::Help(SIM_HELP));
        }
        check("ci --help", &Command::Help(CI_HELP));
        check("model --help", &Command::Help(MODEL_HELP));
        check("mutants --help", &Command::Help(MUTANTS_HELP));
        check("pulsar --help -- ls", &Command::Help(PULSAR_HELP));
    }

    #[test]
    fn mistakes_are_named() {
        let unknown = "there is no command `tests`: known are book, ci, client-types, sim, model, mutants, parts, pulsar and help";
        check_error("tests", unknown);
        check_error("help tests", unknown);
        check_error("tests --help", unknown);
        check_error("ci fast", "ci takes no argument, and was given `fast`");
        check_error("sim", "sim needs a seed: cargo xtask sim --seed <N>");
        check_error("sim 7", "sim knows --seed and --runs, not `7`");
        check_error("sim --seed", "--seed needs a value");
        check_error("sim --seed 7 --seed 8", "--seed is given twice");
        check_error("sim --seed 7 --runs 0", "--runs 0 would run nothing");
        let range = "--seed needs a number from 0 to 18446744073709551615, not `-1`";
        check_error("sim --seed -1", range);
        let areas = "protocol, machine, partition, metadata, worker-session, session, wire, broker";
        check_error("mutants x", &format!("there is no area `x`: known are {areas}"));
        check_error("mutants --jobs x", "--jobs needs a number");
        check_error("mutants --file", "--file needs a part of a path");
        check_error("pulsar --", "pulsar needs a command: cargo xtask pulsar -- <command>");
    }

    #[test]
    fn help_fits_a_terminal() {
        for help in [
            HELP,
            BOOK_HELP,
            CI_HELP,
            CLIENT_TYPES_HELP,
            SIM_HELP,
            MODEL_HELP,
            MUTANTS_HELP,
            PARTS_HELP,
            PULSAR_HELP,
        ] {
            assert!(help.lines().all(|line| line.len() <= 100));
            assert!(help.contains("Usage: cargo xtask "));
        }
    }
}

//! Mutation tests: faults are planted into the code, and for each of them a test must fail.
//!
//! A build for each of thousands of faults takes a day. So all of them are woven into one copy of
//! the project, each behind a switch that an environment variable turns
//! ([`generate`](mod@generate), [`weave`](mod@weave), [`build`]). A fault then costs one run of the
//! tests that reach it ([`suite`], [`run`]). [`area`] divides the code into areas and names the
//! tests that judge each.
//! `mutants/accepted.txt` lists the survivors that are accepted, each with its reason
//! ([`report::Accepted`]); any other survivor fails the command.

mod area;
mod build;
mod generate;
mod messages;
mod operators;
mod report;
mod results;
mod run;
mod suite;
mod syntax;
mod values;
mod weave;

use anyhow::Context;
use area::{AREAS, Area};
use build::{Faults, Places};
use clap::Parser;
use generate::Mutant;
use report::{Accepted, Found, Report, Survivor};
use results::{Results, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The folder for the copy, its build and the results, from the top of the project.
const OUTPUT: &str = "target/mutants";
/// The list of survivors that are accepted.
const ACCEPTED: &str = "mutants/accepted.txt";

/// Plants faults into the code, one at a time, and runs the tests that reach each of them.
///
/// All faults are woven into one copy of the project below target/mutants, each behind a switch;
/// a fault that does not compile is left out. A caught fault stays caught until its function
/// changes. The others are tried again when any source has changed. An interrupted run continues
/// where it stopped. The command prints the faults caught and missed in each area, and fails if a
/// missed fault is not in mutants/accepted.txt, where each has its reason.
#[derive(Clone, Debug, Default, Parser)]
struct Options {
    /// Areas to plant faults into: all of them by default
    #[arg(value_parser = AREAS.iter().map(|area| area.name).collect::<Vec<_>>())]
    areas: Vec<String>,
    /// Only files whose path contains this text
    #[arg(long, value_name = "PART")]
    file: Option<String>,
    /// Only K faults of each area, for a quick score
    #[arg(long, value_name = "K")]
    sample: Option<usize>,
    /// Seed that selects the faults of a sample
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Faults tried at a time: half of the processors by default
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Run the slow tests, too
    #[arg(long)]
    thorough: bool,
    /// Print the faults and stop
    #[arg(long)]
    list: bool,
    /// Discard the results of earlier runs
    #[arg(long)]
    fresh: bool,
}

impl Options {
    fn areas(&self) -> impl Iterator<Item = &'static Area> {
        AREAS
            .iter()
            .filter(|area| self.areas.is_empty() || self.areas.iter().any(|name| name == area.name))
    }

    fn jobs(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        self.jobs.unwrap_or(processors / 2).max(1)
    }

    /// Seconds for the tests of one binary that reach a mutant, as measured without a mutant.
    fn seconds_max(&self) -> u64 {
        const QUICK: u64 = 20;
        if self.thorough { u64::MAX } else { QUICK }
    }

    /// The mutants of an area that are asked for.
    fn chosen(&self, area: &Area, faults: &Faults) -> Vec<usize> {
        let is_wanted = |path: &str| {
            Area::of(path) == Some(area)
                && self.file.as_ref().is_none_or(|part| path.contains(part))
        };
        let all = faults.mutants.iter().enumerate().filter(|(_, mutant)| is_wanted(&mutant.path));
        let mut chosen: Vec<_> = all.map(|(index, mutant)| (index, &mutant.name)).collect();
        if let Some(count) = self.sample {
            chosen.sort_by_cached_key(|(_, name)| hash(&(self.seed, name)));
            chosen.truncate(count);
            chosen.sort_unstable();
        }
        chosen.into_iter().map(|(index, _)| index).collect()
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let root = top()?;
    let (faults, sources) = generate_all(&root)?;
    if options.list {
        for index in options.areas().flat_map(|area| options.chosen(area, &faults)) {
            let mutant = &faults.mutants[index];
            println!("{} (line {})", mutant.name, mutant.line);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let is_terminal = std::io::stderr().is_terminal();
    let report = plant(&root, &options, faults, sources, |line| match is_terminal {
        true => eprint!("\r\x1b[K{line}"),
        false => eprintln!("{}", line.trim_end()),
    })?;
    print!("\n{report}");
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The top of the project.
fn top() -> std::io::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Plants the mutants of the options and returns the report; `tell` gets the progress.
fn plant(
    root: &Path,
    options: &Options,
    mut faults: Faults,
    sources: u64,
    mut tell: impl FnMut(&str),
) -> anyhow::Result<Report> {
    let output = root.join(OUTPUT);
    fs::create_dir_all(&output)?;
    let accepted = Accepted::parse(&fs::read_to_string(root.join(ACCEPTED))?)?;
    let path = output.join("results.txt");
    if options.fresh && path.try_exists()? {
        fs::remove_file(&path)?;
    }
    let mut results = Results::open(&path, hash(&(sources, options.thorough)))?;
    faults.refused = known_refused(&faults, &results);
    let judges: BTreeMap<_, _> = options
        .areas()
        .flat_map(|area| area.judges)
        .map(|it| ((it.package, it.target), *it))
        .collect();
    let judges: Vec<_> = judges.into_values().collect();
    let places = Places::new(root, &output);
    let refuse = |mutant: &Mutant| results.put(&mutant.name, mutant.fingerprint, Verdict::Refused);
    let built = faults.build(&places, &judges, refuse, &mut tell)?;
    let suites = run::baseline(&judges, &built, options.jobs(), &output, &mut tell)?;
    let mut report = Report::default();
    for area in options.areas() {
        let chosen = options.chosen(area, &faults);
        let rest: Vec<_> = chosen
            .iter()
            .filter(|index| !faults.refused.contains(index))
            .map(|index| (*index, &faults.mutants[*index]))
            .filter(|(_, mutant)| results.get(&mutant.name, mutant.fingerprint).is_none())
            .collect();
        let judges = area.judges.iter();
        let judges: Vec<_> =
            judges.filter_map(|it| suites.iter().find(|suite| suite.judge == *it)).collect();
        let mut done = 0;
        let (mut known, count) = (BTreeMap::<&str, usize>::new(), rest.len());
        run::judge(&rest, &judges, options, &output, |index, verdict| {
            let mutant = &faults.mutants[index];
            done += 1;
            *known.entry(verdict.word()).or_default() += 1;
            tell(&format!("{}: {done} of {count} {known:?}", area.name));
            results.put(&mutant.name, mutant.fingerprint, verdict)
        })?;
        let found = found(&chosen, &faults, &results);
        let survivors: String = found.missed.iter().map(|it| format!("{it}\n")).collect();
        fs::write(output.join(format!("survivors-{}.txt", area.name)), survivors)?;
        report.add(area.name, found, &accepted);
    }
    Ok(report)
}

/// All mutants of all areas, and the hash of all sources. The mutants are built together, and the
/// number of each depends on all of them.
fn generate_all(root: &Path) -> anyhow::Result<(Faults, u64)> {
    let mut hasher = DefaultHasher::new();
    let mut files = Vec::new();
    let mut test_modules = BTreeSet::new();
    for path in build::sources(root)?.into_iter().filter(|path| path.ends_with(".rs")) {
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        if !path.starts_with("mutants/") {
            (&path, &text).hash(&mut hasher);
        }
        // A test module is declared in its own crate; the file may itself have no mutants.
        if AREAS.iter().any(|area| area.paths.iter().any(|it| in_crate_of(it, &path))) {
            let file = syn::parse_file(&text).with_context(|| path.clone())?;
            test_modules.extend(syntax::test_modules(&path, &file));
        }
        files.push((path, text));
    }
    let mut faults = Faults::default();
    for (path, text) in files {
        let is_test = |module: &String| {
            path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        if Area::of(&path).is_some() && !test_modules.iter().any(is_test) {
            faults.add(&path, &text)?;
        }
    }
    Ok((faults, hasher.finish()))
}

/// Whether the file lies in the sources of the crate that `part`, a path of an area, belongs to.
fn in_crate_of(part: &str, path: &str) -> bool {
    path.strip_prefix(area::crate_of(part)).is_some_and(|rest| rest.starts_with("src/"))
}

fn known_refused(faults: &Faults, results: &Results) -> BTreeSet<usize> {
    let all = faults.mutants.iter().enumerate();
    all.filter(|(_, it)| results.get(&it.name, it.fingerprint) == Some(&Verdict::Refused))
        .map(|(index, _)| index)
        .collect()
}

fn found(chosen: &[usize], faults: &Faults, results: &Results) -> Found {
    let mut found = Found::default();
    for mutant in chosen.iter().map(|index| &faults.mutants[*index]) {
        match results.get(&mutant.name, mutant.fingerprint) {
            Some(Verdict::Caught(_)) => found.caught += 1,
            Some(Verdict::TimedOut) => found.timeouts += 1,
            Some(Verdict::Refused) => found.unviable += 1,
            Some(Verdict::Missed) => {
                found.missed.push(Survivor { name: mutant.name.clone(), line: mutant.line });
            }
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that the generator cannot parse would have no mutants, and nobody would notice.
    #[test]
    fn every_area_has_mutants_and_a_sample_is_the_same_each_time() {
        let (faults, _) = generate_all(&top().unwrap()).unwrap();
        for area in AREAS {
            let all = Options::default().chosen(area, &faults);
            assert!(all.len() > 50, "{}: {}", area.name, all.len());
            let options = Options { sample: Some(20), seed: 7, ..Options::default() };
            let sample = options.chosen(area, &faults);
            assert_eq!(sample.len(), 20);
            assert_eq!(sample, options.chosen(area, &faults));
            assert_ne!(sample, Options { seed: 8, ..options }.chosen(area, &faults));
        }
        let names: BTreeSet<_> = faults.mutants.iter().map(|it| &it.name).collect();
        assert_eq!(names.len(), faults.mutants.len(), "a name stands for one mutant");
        // Tests have no mutants, be they in the file or in a file of their own.
        let in_tests = |it: &&Mutant| it.path.ends_with("/tests.rs") || it.path.contains("/tests/");
        assert_eq!(faults.mutants.iter().find(in_tests), None);
    }

    #[test]
    fn options_are_understood() {
        let read = |words: &str| Options::try_parse_from(words.split(' '));
        let options = read("mutants wire --sample 5 --list").unwrap();
        assert_eq!(options.areas().map(|area| area.name).collect::<Vec<_>>(), ["wire"]);
        assert_eq!((options.sample, options.list), (Some(5), true));
        assert_eq!(read("mutants --fresh").unwrap().areas().count(), AREAS.len());
        assert!(read("mutants wore").is_err());
    }
}

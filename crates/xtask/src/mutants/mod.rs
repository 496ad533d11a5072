//! Mutation tests: faults are planted into the code, and for each of them a test must fail.
//!
//! To build the project once for each of thousands of faults takes a day. So all of them are woven into one copy of it, each behind a
//! switch that an environment variable turns ([`generate`](mod@generate), [`weave`](mod@weave), [`build`]); a fault costs a run of
//! the tests that reach it ([`suite`], [`run`]). The code is divided into areas with the tests that judge them ([`area`]). What survives
//! and why that is right is listed in `crates/xtask/mutants-accepted.txt` ([`report::Accepted`]); anything else that survives fails
//! the command.

pub mod area;
pub mod build;
pub mod generate;
pub mod messages;
pub mod operators;
pub mod report;
pub mod results;
pub mod run;
pub mod suite;
mod syntax;
pub mod values;
pub mod weave;

use area::{AREAS, Area};
use build::{Faults, Places};
use generate::Mutant;
use report::{Accepted, Found, Report, Survivor};
use results::{Results, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Where all is kept, from the top of the project.
pub const OUTPUT: &str = "target/mutants";
/// The list of survivors that are accepted.
pub const ACCEPTED: &str = "crates/xtask/mutants-accepted.txt";

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where to plant.
    pub areas: Vec<&'static Area>,
    /// Only into files whose path holds this.
    pub file: Option<String>,
    /// Only so many mutants of each area.
    pub sample: Option<usize>,
    /// Which ones those are.
    pub seed: u64,
    /// How many mutants are judged at a time; half of the processors if nothing is said.
    pub jobs: Option<usize>,
    /// Ask every test that takes bearable time, and not only as many as tell within seconds.
    pub thorough: bool,
    /// Only list the mutants.
    pub list: bool,
    /// Forget what earlier runs have found.
    pub fresh: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            areas: AREAS.iter().collect(),
            file: None,
            sample: None,
            seed: 0,
            jobs: None,
            thorough: false,
            list: false,
            fresh: false,
        }
    }
}

impl Options {
    fn jobs(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        self.jobs.unwrap_or(processors / 2).max(1)
    }

    /// The time for the tests of one binary that reach a mutant, as they take without one.
    const fn seconds_max(&self) -> u64 {
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

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Plants what is asked for and returns what was found; `tell` hears how it goes on. Nothing is returned for a mere list.
///
/// # Errors
///
/// The copy could not be built, or its tests not be run.
pub fn plant(
    root: &Path,
    options: &Options,
    mut tell: impl FnMut(&str),
) -> anyhow::Result<Option<Report>> {
    let output = root.join(OUTPUT);
    fs::create_dir_all(&output)?;
    let accepted = Accepted::parse(&fs::read_to_string(root.join(ACCEPTED))?)?;
    let (mut faults, sources) = generate_all(root)?;
    if options.list {
        for area in &options.areas {
            for mutant in
                options.chosen(area, &faults).iter().filter_map(|it| faults.mutants.get(*it))
            {
                tell(&format!("{} (line {})", mutant.name, mutant.line));
            }
        }
        return Ok(None);
    }
    let path = output.join("results.txt");
    if options.fresh && path.try_exists()? {
        fs::remove_file(&path)?;
    }
    let mut results = Results::open(&path, hash(&(sources, options.thorough)))?;
    faults.refused = known_refused(&faults, &results);
    let judges: BTreeMap<_, _> = options
        .areas
        .iter()
        .flat_map(|area| area.judges)
        .map(|it| ((it.package, it.target), *it))
        .collect();
    let judges: Vec<_> = judges.into_values().collect();
    let places = Places::new(root, &output);
    let refuse = |mutant: &Mutant| results.put(&mutant.name, mutant.fingerprint, Verdict::Refused);
    let built = faults.build(&places, &judges, refuse, &mut tell)?;
    let suites = run::baseline(&judges, &built, options.jobs(), &output, &mut tell)?;
    let mut report = Report::default();
    for area in &options.areas {
        let chosen = options.chosen(area, &faults);
        let rest: Vec<_> = chosen
            .iter()
            .filter(|index| !faults.refused.contains(index))
            .filter_map(|index| Some((*index, faults.mutants.get(*index)?)))
            .filter(|(_, mutant)| results.get(&mutant.name, mutant.fingerprint).is_none())
            .collect();
        let judges = area.judges.iter();
        let judges: Vec<_> =
            judges.filter_map(|it| suites.iter().find(|suite| suite.judge == *it)).collect();
        let mut done = 0;
        let (mut known, count) = (BTreeMap::<&str, usize>::new(), rest.len());
        run::judge(&rest, &judges, options, &output, |index, verdict| {
            let Some(mutant) = faults.mutants.get(index) else { return Ok(()) };
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
    Ok(Some(report))
}

/// All mutants of all areas: they are built together, and the number of each depends on all. Also says what all sources hash to.
fn generate_all(root: &Path) -> anyhow::Result<(Faults, u64)> {
    let mut hasher = DefaultHasher::new();
    let mut files = Vec::new();
    for path in build::sources(root)? {
        if let Ok(text) = fs::read_to_string(root.join(&path)) {
            if path.ends_with(".rs") && !path.starts_with("crates/xtask/") {
                (&path, &text).hash(&mut hasher);
            }
            files.push((path, text));
        }
    }
    let tree = crate::tidy::Tree::new(files);
    let mut faults = Faults::default();
    for (file, source) in tree.rust_files() {
        if Area::of(&file.path).is_some() && !source.production.trim().is_empty() {
            faults.add(&file.path, &file.text)?;
        }
    }
    Ok((faults, hasher.finish()))
}

fn known_refused(faults: &Faults, results: &Results) -> BTreeSet<usize> {
    let all = faults.mutants.iter().enumerate();
    all.filter(|(_, it)| results.get(&it.name, it.fingerprint) == Some(&Verdict::Refused))
        .map(|(index, _)| index)
        .collect()
}

fn found(chosen: &[usize], faults: &Faults, results: &Results) -> Found {
    let mut found = Found::default();
    for mutant in chosen.iter().filter_map(|index| faults.mutants.get(*index)) {
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

    /// The project itself is what the generator must be able to read; a file that it cannot parse would have no mutants unseen.
    #[test]
    fn every_area_has_mutants_and_a_sample_is_the_same_each_time() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (faults, _) = generate_all(&root).unwrap();
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
    }
}

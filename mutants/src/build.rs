//! Builds a copy of the project with all mutants in it. What the compiler refuses is left out,
//! until the rest compiles.

use crate::area::{Judge, crate_of};
use crate::generate::{self, Mutant, Plan};
use crate::messages::{Complaint, Output};
use crate::weave::{Origin, Woven, weave};
use anyhow::{Context, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// What each crate with mutants gets as a module.
const SWITCH: &str = include_str!("switch.rs");
const SWITCH_MODULE: &str = "fault_switch";

/// Lints that are errors by default, and that a mutant may break and still be a mutant.
const LINTS: &[&str] = &[
    "arithmetic_overflow",
    "overflowing_literals",
    "unconditional_panic",
    "unconditional_recursion",
];

/// A build ends after so many rounds. Each of them leaves mutants out.
const ROUNDS_MAX: usize = 40;

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Places {
    /// The project.
    pub root: PathBuf,
    /// The copy of it.
    pub copy: PathBuf,
    /// What is built of the copy.
    pub target: PathBuf,
}

impl Places {
    /// All that is kept lies in this folder.
    pub fn new(root: &Path, output: &Path) -> Self {
        Self { root: root.to_owned(), copy: output.join("tree"), target: output.join("build") }
    }
}

/// All mutants. Each is known by its index.
#[derive(Debug, Default)]
pub struct Faults {
    /// The mutants.
    pub mutants: Vec<Mutant>,
    files: Vec<File>,
    /// Those that the compiler refuses.
    pub refused: BTreeSet<usize>,
}

#[derive(Debug)]
struct File {
    path: String,
    text: String,
    plan: Plan,
    /// The index of its first mutant.
    first: usize,
}

impl Faults {
    /// Adds all mutants of a file.
    pub fn add(&mut self, path: &str, text: &str) -> anyhow::Result<()> {
        let plan = generate::generate(path, text).with_context(|| path.to_owned())?;
        let first = self.mutants.len();
        self.mutants.extend(plan.mutants.iter().cloned());
        self.files.push(File { path: path.to_owned(), text: text.to_owned(), plan, first });
        Ok(())
    }

    fn weave(&self, file: &File) -> Woven {
        let is_viable = |mutant| !self.refused.contains(&(file.first + mutant));
        let call =
            |mutant| format!("crate::{SWITCH_MODULE}::is_on({})", number(file.first + mutant));
        let mut woven = weave(&file.text, &file.plan.edits, is_viable, call);
        for mutant in woven.marks.iter_mut().flat_map(|mark| &mut mark.mutants) {
            *mutant += file.first;
        }
        woven
    }

    /// Finds who is to blame for what the compiler says.
    fn blame(&self, complaint: &Complaint, woven: &BTreeMap<&str, Woven>) -> BTreeSet<usize> {
        if let Some(name) = &complaint.not_const {
            return self.of_const_functions(name);
        }
        for origin in [Origin::Text, Origin::Place] {
            for spans in [&complaint.primary, &complaint.others] {
                let marks = spans.iter().flat_map(|span| {
                    let marks = woven.get(span.file.as_str()).into_iter().flat_map(|it| &it.marks);
                    let touching = marks.filter(|mark| {
                        let (mark, span) = (&mark.range, &span.range);
                        mark.start < span.end && span.start < mark.end
                            || span.is_empty() && mark.contains(&span.start)
                    });
                    let around = touching.filter(|mark| {
                        mark.origin == origin
                            && (origin == Origin::Text || mark.range.start <= span.range.start)
                    });
                    // The smallest part is the nearest to the fault.
                    around.min_by_key(|mark| mark.range.len())
                });
                let found: BTreeSet<_> = marks.flat_map(|mark| mark.mutants.clone()).collect();
                if !found.is_empty() {
                    return found;
                }
            }
        }
        self.of_function_around(complaint, woven)
    }

    /// All mutants of the functions that are complained of.
    fn of_function_around(
        &self,
        complaint: &Complaint,
        woven: &BTreeMap<&str, Woven>,
    ) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        for span in complaint.primary.iter().chain(&complaint.others) {
            let file = self.files.iter().find(|file| file.path == span.file);
            let (Some(file), Some(woven)) = (file, woven.get(span.file.as_str())) else { continue };
            let around = |(_, function): &(usize, &generate::Function)| {
                woven.place_of(function.range.start) <= span.range.start
                    && span.range.start < woven.place_of(function.range.end)
            };
            let functions = file.plan.functions.iter().enumerate().filter(around);
            let function = functions.min_by_key(|(_, function)| function.range.len());
            found.extend(function.into_iter().flat_map(|(index, _)| file.of_function(index)));
        }
        found.difference(&self.refused).copied().collect()
    }

    fn of_const_functions(&self, name: &str) -> BTreeSet<usize> {
        let of_file = |file: &File| {
            let functions = file.plan.functions.iter().enumerate();
            let named = functions.filter(|(_, it)| it.is_const && it.name == name);
            named.flat_map(|(index, _)| file.of_function(index)).collect::<Vec<_>>()
        };
        let all: BTreeSet<_> = self.files.iter().flat_map(of_file).collect();
        all.difference(&self.refused).copied().collect()
    }

    /// Builds the test binaries of the judges, and leaves out what does not compile.
    pub fn build(
        &mut self,
        places: &Places,
        judges: &[Judge],
        mut refuse: impl FnMut(&Mutant) -> anyhow::Result<()>,
        mut tell: impl FnMut(&str),
    ) -> anyhow::Result<Output> {
        let files = copy(places)?;
        let mut log = fs::File::create(places.copy.with_extension("log"))?;
        for round in 1..=ROUNDS_MAX {
            let woven: BTreeMap<&str, Woven> =
                self.files.iter().map(|file| (file.path.as_str(), self.weave(file))).collect();
            self.write(places, &files, &woven)?;
            let viable = self.mutants.len() - self.refused.len();
            tell(&format!("round {round} of the build: {viable} mutants"));
            // Whether it compiles is asked without writing programs, which takes a tenth of the
            // time.
            let output = cargo(places, judges, &["check", "--tests", "--keep-going"])?;
            if output.success {
                tell(&format!("building {viable} mutants"));
                if judges.iter().any(|judge| judge.starts_programs()) {
                    build_programs(places)?;
                }
                return cargo(places, judges, &["test", "--no-run"]);
            }
            let before = self.refused.len();
            for complaint in &output.complaints {
                let found = self.blame(complaint, &woven);
                let names = found.iter().filter_map(|it| self.mutants.get(*it));
                let names: String =
                    names.map(|mutant| format!("refused: {}\n", mutant.name)).collect();
                writeln!(log, "{names}{}", complaint.text)?;
                for mutant in found {
                    if let (true, Some(mutant)) =
                        (self.refused.insert(mutant), self.mutants.get(mutant))
                    {
                        refuse(mutant)?;
                    }
                }
            }
            if self.refused.len() == before {
                let texts: Vec<_> = output.complaints.iter().map(|it| it.text.as_str()).collect();
                bail!(
                    "the copy does not compile, and no mutant is to blame:\n{}",
                    texts.join("\n")
                );
            }
        }
        bail!("the copy does not compile after {ROUNDS_MAX} rounds")
    }

    /// Writes what differs from the project: woven files, and the switch in their crates.
    fn write(
        &self,
        places: &Places,
        files: &BTreeSet<String>,
        woven: &BTreeMap<&str, Woven>,
    ) -> anyhow::Result<()> {
        let crates: BTreeSet<&str> = self.files.iter().map(|file| crate_of(&file.path)).collect();
        let switch = SWITCH.replace(
            "const COUNT: usize = 0;",
            &format!("const COUNT: usize = {};", number(self.mutants.len())),
        );
        for folder in &crates {
            put(
                &places.copy.join(folder).join("src").join(format!("{SWITCH_MODULE}.rs")),
                &switch,
            )?;
        }
        for path in files {
            let mut text = match woven.get(path.as_str()) {
                Some(woven) => woven.text.clone(),
                None => match fs::read_to_string(places.root.join(path)) {
                    Ok(text) => text,
                    // What is not text has no mutants, and was copied as it is.
                    Err(_) => continue,
                },
            };
            if let Some(folder) = path.strip_suffix("src/lib.rs")
                && crates.contains(folder)
            {
                text.push_str(&format!("\nmod {SWITCH_MODULE};\n"));
            }
            if path == "Cargo.toml" {
                let lint = |lint: &&str| format!("{lint} = \"allow\"\n");
                let lints: String = LINTS.iter().map(lint).collect();
                let section = "[workspace.lints.rust]\n";
                text = text.replace(section, &format!("{section}{lints}"));
                // Built for a few minutes of tests: no time of the compiler is spent on speed.
                text = text.replace("opt-level = 2", "opt-level = 1");
            }
            put(&places.copy.join(path), &text)?;
        }
        Ok(())
    }
}

impl File {
    fn of_function(&self, index: usize) -> impl Iterator<Item = usize> {
        let mutants = self.plan.mutants.iter().enumerate();
        let own = mutants.filter(move |(_, mutant)| mutant.function == index);
        own.map(|(mutant, _)| self.first + mutant)
    }
}

/// The number that switches a mutant on; 0 is none.
pub fn number(mutant: usize) -> usize {
    mutant + 1
}

/// All files of the project that are its sources.
pub fn sources(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(list).current_dir(root).output();
    let output = output.context("git did not start")?;
    ensure!(output.status.success(), "git does not list the files of the project");
    let names = String::from_utf8(output.stdout)?;
    let exists = |name: &&str| !name.is_empty() && root.join(name).is_file();
    Ok(names.split('\0').filter(exists).map(str::to_owned).collect())
}

/// Copies the files that are no text, and removes what is no longer in the project.
fn copy(places: &Places) -> anyhow::Result<BTreeSet<String>> {
    let files = sources(&places.root)?;
    for path in &files {
        let bytes = fs::read(places.root.join(path))?;
        if std::str::from_utf8(&bytes).is_err() {
            put(&places.copy.join(path), &bytes)?;
        } else if !places.copy.join(path).try_exists()? {
            // Written with its permissions first: some are programs.
            let to = places.copy.join(path);
            to.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::copy(places.root.join(path), to)?;
        }
    }
    let mut folders = vec![places.copy.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(&places.copy)?.to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if !files.contains(&name) && !name.ends_with(&format!("{SWITCH_MODULE}.rs")) {
                fs::remove_file(&path)?;
            }
        }
    }
    Ok(files)
}

/// Writes a file if it is not so already, so that cargo builds only what has changed.
fn put(path: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|old| old == text.as_ref()) {
        return Ok(());
    }
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Cargo on the copy.
fn command(places: &Places, verb: &[&str]) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // `cargo run` has described this program in the environment. Build scripts that watch such a
    // variable would run again, and everything behind them would be built again.
    let is_ours =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os().filter(|(name, _)| is_ours(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
        .args(verb)
        .args(["--features", "longhaul/testing,longhaul/oauth2,longhaul-broker/testing"])
        .current_dir(&places.copy)
        .env("CARGO_TARGET_DIR", &places.target)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .stdin(Stdio::null());
    command
}

/// Builds the programs that tests start: the mutants are in those, too. Tests would else build them
/// by themselves, and take too long.
fn build_programs(places: &Places) -> anyhow::Result<()> {
    let mut command = command(places, &["build", "--quiet", "--examples"]);
    command.args(["--bin", "longhaul", "--package", "longhaul", "--package", "longhaul-cli"]);
    let output = command.output();
    let output = output.context("cargo did not start")?;
    ensure!(output.status.success(), "cargo failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn cargo(places: &Places, judges: &[Judge], verb: &[&str]) -> anyhow::Result<Output> {
    let packages: BTreeSet<_> = judges.iter().map(|judge| judge.package).collect();
    let mut command = command(places, verb);
    command.args(["--message-format=json", "--lib"]);
    for package in packages {
        command.args(["--package", package]);
    }
    let targets: BTreeSet<_> =
        judges.iter().filter(|judge| !judge.is_library()).map(|judge| judge.target).collect();
    for target in targets {
        command.args(["--test", target]);
    }
    let output = command.output().context("cargo did not start")?;
    let mut found = Output::parse(&String::from_utf8_lossy(&output.stdout));
    found.success = output.status.success();
    if !found.success && found.complaints.is_empty() {
        bail!("cargo failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(found)
}

//! Builds projects of other languages once and caches the results outside the source tree.
//!
//! An entry is named by a hash of its sources. It appears completely or not at all (it is built
//! beside its place and renamed), and is built by one process at a time (a lock file), so that test
//! binaries started together wait for one download.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use crate::wait::{say, stopwatch};

/// The build tool of a project.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tool {
    /// `mvn`
    Maven,
    /// `pip`, which installs the packages of a Python program.
    Pip,
    /// `go`
    Go,
}

impl Tool {
    /// The command that takes the goals.
    fn command(self) -> &'static [&'static str] {
        match self {
            Self::Maven => &["mvn", "--batch-mode", "-Dstyle.color=never"],
            Self::Pip => &["python3", "-m", "pip"],
            Self::Go => &["go"],
        }
    }

    /// The error if the tool is missing.
    fn hint(self) -> &'static str {
        match self {
            Self::Maven => "cannot run mvn; it must be on the PATH, and so must Java 17 or later",
            Self::Pip => "cannot run python3; it must be on the PATH, with its pip",
            Self::Go => "cannot run go; it must be on the PATH",
        }
    }
}

/// A project whose files are compiled into this crate, so that a changed file gives another entry.
#[derive(Debug)]
pub(crate) struct Project {
    /// The first part of the entry's folder name.
    pub(crate) name: &'static str,
    /// Path inside the project, and contents.
    pub(crate) sources: &'static [(&'static str, &'static str)],
    /// The build tool.
    pub(crate) tool: Tool,
    /// Goals and settings given to the tool.
    pub(crate) goals: &'static [&'static str],
}

impl Project {
    /// Returns the folder of the built project, and builds it if necessary. Blocks.
    pub(crate) fn install(&self) -> Result<PathBuf> {
        self.install_with(&[])
    }

    /// As [`install`](Self::install), with further settings for the tool; they are part of the
    /// entry's name.
    pub(crate) fn install_with(&self, settings: &[&str]) -> Result<PathBuf> {
        let root = root()?;
        let entry = root.join(format!("{}-{:016x}", self.name, self.hash(settings)));
        if entry.try_exists()? {
            return Ok(entry);
        }
        fs::create_dir_all(&root).with_context(|| format!("cannot create {}", root.display()))?;
        let lock = File::create(root.join(format!("{}.lock", self.name)))?;
        lock.lock().context("cannot lock the cache")?;
        if entry.try_exists()? {
            return Ok(entry);
        }
        // Left by a dead process, because the lock is ours.
        let partial = root.join(format!("{}.partial", self.name));
        if partial.try_exists()? {
            fs::remove_dir_all(&partial)?;
        }
        self.build(&partial, settings)?;
        fs::rename(&partial, &entry)?;
        Ok(entry)
    }

    fn build(&self, folder: &Path, settings: &[&str]) -> Result<()> {
        for (path, contents) in self.sources {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, contents)?;
        }
        let command = [self.tool.command(), self.goals, settings].concat();
        let Some((program, arguments)) = command.split_first() else { return Ok(()) };
        say(&format!("building {} with {program}, kept for later runs", self.name));
        let elapsed = stopwatch();
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context(self.tool.hint())?;
        let output = child.stdout.take().ok_or_else(|| anyhow!("{program} has no stdout"))?;
        let errors = follow(BufReader::new(output))?;
        let status = child.wait()?;
        if !status.success() {
            bail!("{} for {}: {status}\n{}", command.join(" "), self.name, errors.join("\n"));
        }
        say(&format!("{} is ready after {:.0?}", self.name, elapsed()));
        Ok(())
    }

    fn hash(&self, settings: &[&str]) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.sources, self.goals).hash(&mut hasher);
        if !settings.is_empty() {
            settings.hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Reports the downloads now and then, since a first run of Maven takes minutes; returns its
/// errors.
fn follow(output: impl BufRead) -> Result<Vec<String>> {
    const REPORT_EVERY: usize = 50;
    let (mut jars, mut errors) = (0, Vec::new());
    for line in output.lines() {
        let line = line?;
        if line.contains("Downloaded from") && line.contains(".jar") {
            jars += 1;
            if jars % REPORT_EVERY == 0 {
                say(&format!("{jars} jars downloaded"));
            }
        } else if line.contains("ERROR") {
            errors.push(line);
        }
    }
    Ok(errors)
}

/// Folder of the cache: `LONGHAUL_TEST_CACHE`, or `longhaul` in the user's cache folder.
fn root() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    if let Some(root) = set("LONGHAUL_TEST_CACHE") {
        // Java and Maven run in other folders.
        return Ok(std::path::absolute(root)?);
    }
    if let Some(cache) = set("XDG_CACHE_HOME") {
        return Ok(PathBuf::from(cache).join("longhaul"));
    }
    let home = set("HOME").ok_or_else(|| anyhow!("neither LONGHAUL_TEST_CACHE nor HOME is set"))?;
    Ok(PathBuf::from(home).join(".cache/longhaul"))
}

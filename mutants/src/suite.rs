//! Test binaries: which tests they have, how long each takes, and which mutants it reaches.

use crate::area::{Judge, SETTINGS};
use crate::build::number;
use crate::messages::Binary;
use anyhow::{Context, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// So much memory, in KiB, may a process of tests ask for: a fault may ask for all there is.
const MEMORY_MAX_KIB: u64 = 12 << 20;

/// A test binary with what is known of its tests.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Which.
    pub judge: Judge,
    binary: Binary,
    tests: Vec<Test>,
    /// For each mutant the tests that reach it, by their index, the quickest first.
    reaching: BTreeMap<usize, Vec<usize>>,
}

#[derive(Clone, Debug)]
struct Test {
    name: String,
    time: Duration,
}

/// How a run of tests ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All passed.
    Passed,
    /// This test failed, or the process itself.
    Failed(String),
    /// They took too long.
    TimedOut,
}

/// What is set for a run of tests.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// Find out what is reached, and write it to this file.
    Record(&'a Path),
    /// Judge a mutant.
    Judge(usize),
}

/// A test of the baseline: its time and the mutants it reaches, if it passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    time: Duration,
    reached: Option<Vec<usize>>,
}

impl Reading {
    /// As a line of a file.
    fn write(&self) -> String {
        let reached = self.reached.as_ref().map(|all| {
            let words: Vec<_> = all.iter().map(usize::to_string).collect();
            words.join(" ")
        });
        format!("{}\t{}", self.time.as_micros(), reached.as_deref().unwrap_or("-"))
    }

    fn parse(line: &str) -> Option<Self> {
        let (time, reached) = line.split_once('\t')?;
        let reached = match reached {
            "-" => None,
            words => Some(words.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?),
        };
        Some(Self { time: Duration::from_micros(time.parse().ok()?), reached })
    }
}

impl Suite {
    /// Asks a binary for its tests.
    pub fn new(judge: Judge, binary: &Binary) -> anyhow::Result<Self> {
        let list = |more: &[&str]| {
            let mut command = Command::new(&binary.program);
            command.args(["--list", "--format", "terse"]).args(more).current_dir(&binary.folder);
            let output = command.output().with_context(|| binary.program.display().to_string())?;
            ensure!(output.status.success(), "{} does not list its tests", judge.target);
            let text = String::from_utf8(output.stdout)?;
            let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
            anyhow::Ok(names.map(str::to_owned).collect::<BTreeSet<_>>())
        };
        let ignored = list(&["--ignored"])?;
        let names = list(&[])?.into_iter().filter(|name| !ignored.contains(name));
        let tests = names.map(|name| Test { name, time: Duration::ZERO }).collect();
        Ok(Self { judge, binary: binary.clone(), tests, reaching: BTreeMap::new() })
    }

    /// How many tests there are.
    pub fn len(&self) -> usize {
        self.tests.len()
    }

    /// What the binary is known by until it is built again, and with which settings it runs.
    fn identity(&self) -> anyhow::Result<String> {
        let time = fs::metadata(&self.binary.program)?.modified()?;
        Ok(format!("{} {time:?} {:?} {SETTINGS:?}", self.binary.program.display(), self.judge))
    }

    /// What an earlier run has kept of this very binary, if it has all.
    pub fn kept(&self, path: &Path) -> anyhow::Result<Option<Vec<Reading>>> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines();
        if lines.next() != Some(&self.identity()?) {
            return Ok(None);
        }
        let readings: Vec<_> = lines.map_while(Reading::parse).collect();
        Ok((readings.len() == self.len()).then_some(readings))
    }

    /// Keeps the readings of all tests for a later run.
    pub fn keep(&self, path: &Path, readings: &[Reading]) -> anyhow::Result<()> {
        let lines = readings.iter().map(Reading::write);
        let lines: Vec<_> = std::iter::once(self.identity()?).chain(lines).collect();
        fs::write(path, lines.join("\n")).with_context(|| path.display().to_string())
    }

    /// Where the programs lie that tests start, built with the same mutants.
    fn programs(&self) -> Option<PathBuf> {
        Some(self.binary.program.ancestors().nth(2)?.join("examples"))
    }

    /// Runs one test without a fault.
    pub fn read(&self, index: usize, scratch: &Path) -> anyhow::Result<Reading> {
        let Some(test) = self.tests.get(index) else {
            return Ok(Reading { time: Duration::ZERO, reached: None });
        };
        let record = scratch.join("record");
        let start = Instant::now();
        let names = [test.name.as_str()];
        let limit = Duration::from_secs(self.judge.seconds_max);
        let ending = self.run(&names, Purpose::Record(&record), limit, scratch)?;
        let time = start.elapsed();
        let numbers = fs::read(&record).unwrap_or_default();
        let numbers = numbers.chunks_exact(4).filter_map(|it| it.try_into().ok());
        let numbers = numbers.filter_map(|it| usize::try_from(u32::from_le_bytes(it)).ok());
        let reached = numbers.filter_map(|it| it.checked_sub(number(0))).collect();
        Ok(Reading { time, reached: (ending == Ending::Passed).then_some(reached) })
    }

    /// Takes in what the baseline has shown, and returns the tests that are not asked: they fail,
    /// or take too long.
    pub fn learn(&mut self, readings: &[Reading]) -> Vec<String> {
        let mut left_out = Vec::new();
        for (index, (test, reading)) in self.tests.iter_mut().zip(readings).enumerate() {
            test.time = reading.time;
            let Some(reached) = &reading.reached else {
                let seconds = reading.time.as_secs_f32();
                left_out.push(format!("{} did not pass in {seconds:.1} s", test.name));
                continue;
            };
            for mutant in reached {
                self.reaching.entry(*mutant).or_default().push(index);
            }
        }
        for tests in self.reaching.values_mut() {
            tests.sort_by_key(|index| self.tests.get(*index).map(|test| test.time));
        }
        left_out
    }

    /// The tests that can notice a mutant, with the time that they take, in portions: the quick
    /// ones first, and those that would take longer than so many seconds together not at all.
    pub fn portions(&self, mutant: usize, seconds_max: u64) -> Vec<(Vec<&str>, Duration)> {
        const QUICK: [u64; 2] = [1, 5];
        let limits = [QUICK.as_slice(), &[seconds_max]].concat();
        let mut portions = vec![(Vec::new(), Duration::ZERO); limits.len()];
        let mut total = Duration::ZERO;
        let reaching = self.reaching.get(&mutant).into_iter().flatten();
        for test in reaching.filter_map(|index| self.tests.get(*index)) {
            total += test.time;
            let place = limits.iter().position(|limit| total <= Duration::from_secs(*limit));
            if let Some((names, time)) = place.and_then(|place| portions.get_mut(place)) {
                names.push(test.name.as_str());
                *time += test.time;
            }
        }
        portions.retain(|(names, _)| !names.is_empty());
        portions
    }

    /// Runs these tests one after the other, until one fails.
    pub fn run(
        &self,
        names: &[&str],
        purpose: Purpose<'_>,
        limit: Duration,
        scratch: &Path,
    ) -> anyhow::Result<Ending> {
        if scratch.try_exists()? {
            fs::remove_dir_all(scratch)?;
        }
        fs::create_dir_all(scratch)?;
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -v {MEMORY_MAX_KIB} 2>/dev/null; exec \"$0\" \"$@\"")])
            .arg(&self.binary.program)
            .args(["--test-threads=1", "--exact"])
            .args(names)
            .current_dir(&self.binary.folder)
            .envs(SETTINGS.iter().copied())
            .env("TMPDIR", scratch)
            .envs(self.programs().map(|folder| ("LONGHAUL_EXAMPLES", folder)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        match purpose {
            Purpose::Record(path) => command.env("LONGHAUL_MUTANTS_RECORD", path),
            Purpose::Judge(mutant) => command.env("LONGHAUL_MUTANT", number(mutant).to_string()),
        };
        let mut child = command.spawn().context("could not start tests")?;
        let ending = watch(&mut child, limit);
        kill(&child);
        let status = child.wait()?;
        Ok(match ending {
            Some(ending) => ending,
            None if status.success() => Ending::Passed,
            None => Ending::Failed("the process".to_owned()),
        })
    }
}

/// Reads what the tests say, up to the first that fails or the end; none means the end.
fn watch(child: &mut Child, limit: Duration) -> Option<Ending> {
    let lines = BufReader::new(child.stdout.take()?);
    let (sender, receiver) = mpsc::channel();
    let end = Instant::now() + limit;
    std::thread::spawn(move || {
        let lines = lines.split(b'\n').map_while(Result::ok);
        lines.map(|line| sender.send(line)).take_while(Result::is_ok).count()
    });
    loop {
        match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(name) = failed(&String::from_utf8_lossy(&line)) {
                    return Some(Ending::Failed(name));
                }
            }
            Err(RecvTimeoutError::Timeout) => return Some(Ending::TimedOut),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // It has closed its output, and may still not end.
    while let Ok(None) = child.try_wait() {
        if Instant::now() > end {
            return Some(Ending::TimedOut);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// The name of the test that failed, if the line says so: `test name ... FAILED`.
fn failed(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix("FAILED")?;
    name.split(" ... ").next().map(|name| name.trim_end_matches(" - should panic").to_owned())
}

/// Ends the process with all that it has started.
fn kill(child: &Child) {
    let group = format!("-{}", child.id());
    let mut command = Command::new("kill");
    command.args(["-KILL", "--", &group]).stderr(Stdio::null());
    let _ended_before = command.status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_is_named() {
        assert_eq!(failed("test a::b ... FAILED"), Some("a::b".to_owned()));
        assert_eq!(failed("test a::b - should panic ... FAILED"), Some("a::b".to_owned()));
        for line in ["test a::b ... ok", "test result: FAILED. 1 passed", "FAILED"] {
            assert_eq!(failed(line), None, "{line}");
        }
    }

    fn suite(times: &[u64]) -> Suite {
        let test = |index: usize| Test { name: format!("t{index}"), time: Duration::ZERO };
        let empty = PathBuf::new;
        let mut suite = Suite {
            judge: Judge { package: "p", target: "t", seconds_max: 30 },
            binary: Binary {
                package: "p".to_owned(),
                target: "t".to_owned(),
                folder: empty(),
                program: empty(),
            },
            tests: (0..times.len()).map(test).collect(),
            reaching: BTreeMap::new(),
        };
        let reading = |time: &u64| Reading {
            time: Duration::from_millis(*time),
            reached: (*time > 0).then(|| vec![7]),
        };
        let readings: Vec<_> = times.iter().map(reading).collect();
        let left_out = suite.learn(&readings).len();
        assert_eq!(left_out, times.iter().filter(|it| **it == 0).count());
        suite
    }

    #[test]
    fn a_reading_is_kept() {
        for reached in [None, Some(vec![]), Some(vec![3, 70])] {
            let reading = Reading { time: Duration::from_micros(1_234_567), reached };
            assert_eq!(Reading::parse(&reading.write()), Some(reading));
        }
        assert_eq!(Reading::parse("12\t3 x"), None);
    }

    #[test]
    fn quick_tests_are_asked_first_and_those_that_did_not_pass_never() {
        let suite = suite(&[3_000, 200, 900, 0, 20_000]);
        assert!(suite.portions(8, 20).is_empty());
        let names = |seconds_max| {
            let portions = suite.portions(7, seconds_max).into_iter();
            portions.map(|(names, _)| names.len()).collect::<Vec<_>>()
        };
        assert_eq!(names(20), [1, 2]);
        let portions = suite.portions(7, u64::MAX);
        let names: Vec<_> = portions.iter().map(|(names, _)| names.clone()).collect();
        assert_eq!(names, [vec!["t1"], vec!["t2", "t0"], vec!["t4"]]);
        assert_eq!(portions[1].1, Duration::from_millis(3_900));
    }
}

//! Runs tests: all of them once without a fault, and then for each mutant those that reach it.

use crate::Options;
use crate::area::Judge;
use crate::generate::Mutant;
use crate::messages::Output;
use crate::results::Verdict;
use crate::suite::{Ending, Purpose, Reading, Suite};
use anyhow::Context;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Runs every test of every judge once, and learns what it reaches.
pub fn baseline(
    judges: &[Judge],
    built: &Output,
    jobs: usize,
    output: &Path,
    mut tell: impl FnMut(&str),
) -> anyhow::Result<Vec<Suite>> {
    let mut suites = Vec::new();
    for judge in judges {
        let binary = built.binaries.iter().find(|binary| judge.is(binary));
        let binary = binary.with_context(|| format!("no tests {} were built", judge.target))?;
        let mut suite = Suite::new(*judge, binary)?;
        let path = output.join(format!("reached-{}.txt", judge.target));
        let readings = match suite.kept(&path)? {
            Some(readings) => readings,
            None => {
                let readings = read_all(&suite, jobs, output, &mut tell)?;
                suite.keep(&path, &readings)?;
                readings
            }
        };
        for left_out in suite.learn(&readings) {
            tell(&format!("not asked: {left_out}\n"));
        }
        suites.push(suite);
    }
    Ok(suites)
}

fn read_all(
    suite: &Suite,
    jobs: usize,
    output: &Path,
    mut tell: impl FnMut(&str),
) -> anyhow::Result<Vec<Reading>> {
    let count = suite.len();
    let mut readings = vec![None; count];
    let mut done = 0;
    parallel(
        count,
        jobs,
        |index, worker| suite.read(index, &output.join(format!("scratch-{worker}"))),
        |index, reading| {
            done += 1;
            tell(&format!("{} without a fault: {done} of {count}", suite.judge.target));
            if let Some(place) = readings.get_mut(index) {
                *place = Some(reading);
            }
            Ok(())
        },
    )?;
    Ok(readings.into_iter().flatten().collect())
}

/// Judges mutants, so many at a time; `take` gets each verdict as it comes.
pub fn judge(
    mutants: &[(usize, &Mutant)],
    suites: &[&Suite],
    options: &Options,
    output: &Path,
    mut take: impl FnMut(usize, Verdict) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let index = |place: usize| mutants.get(place).map_or(usize::MAX, |(index, _)| *index);
    parallel(
        mutants.len(),
        options.jobs(),
        |place, worker| {
            let scratch = output.join(format!("scratch-{worker}"));
            judge_one(index(place), suites, options.seconds_max(), |suite, names, mutant, limit| {
                suite.run(names, Purpose::Judge(mutant), limit, &scratch)
            })
        },
        |place, verdict| take(index(place), verdict),
    )
}

fn judge_one(
    mutant: usize,
    suites: &[&Suite],
    seconds_max: u64,
    run: impl Fn(&Suite, &[&str], usize, Duration) -> anyhow::Result<Ending>,
) -> anyhow::Result<Verdict> {
    for suite in suites {
        for (names, time) in suite.portions(mutant, seconds_max) {
            // The machine may be busy, and a fault may cost a little time and not be noticed by
            // that.
            let limit = 3 * time + Duration::from_secs(10);
            match run(suite, &names, mutant, limit)? {
                Ending::Passed => {}
                Ending::Failed(test) => {
                    return Ok(Verdict::Caught(format!("{} {test}", suite.judge.target)));
                }
                Ending::TimedOut => return Ok(Verdict::TimedOut),
            }
        }
    }
    Ok(Verdict::Missed)
}

/// Does `count` things, `jobs` at a time, and takes what comes of each in the calling thread.
fn parallel<T: Send>(
    count: usize,
    jobs: usize,
    perform: impl Fn(usize, usize) -> anyhow::Result<T> + Sync,
    mut take: impl FnMut(usize, T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for worker in 0..jobs {
            let (sender, next, stop, perform) = (sender.clone(), &next, &stop, &perform);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || sender.send((index, perform(index, worker))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let taken = receiver.iter().try_for_each(|(index, outcome)| take(index, outcome?));
        stop.store(true, Ordering::Relaxed);
        taken
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn everything_is_done_once_and_an_error_ends_it() {
        let mut taken = BTreeSet::new();
        let double = |index: usize, _| anyhow::Ok(2 * index);
        parallel(100, 3, double, |index, twice| {
            assert!(taken.insert(index) && twice == 2 * index);
            Ok(())
        })
        .unwrap();
        assert_eq!(taken.len(), 100);
        let failing = |index: usize, _| if index < 5 { Ok(()) } else { anyhow::bail!("planted") };
        assert!(parallel(1_000_000, 2, failing, |_, ()| Ok(())).is_err());
    }
}

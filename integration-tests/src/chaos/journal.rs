//! The journals written by the example `scripted`.

use anyhow::{Context, Result, bail};
use longhaul::TaskId;
use proofs::checkers::Run;
use std::collections::BTreeMap;

/// The journal of one process.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// When it took its first task, in µs of the wall clock.
    pub(super) ready_us: Option<u64>,
    /// Its attempts, in the order of their starts.
    pub(super) runs: Vec<Run>,
}

impl Journal {
    pub(super) fn read(worker: &str, text: &str) -> Result<Self> {
        let mut journal = Self::default();
        let mut open: BTreeMap<(TaskId, u32), usize> = BTreeMap::new();
        // The last line may be incomplete.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [at, event, task, epoch, attempt] = words.as_slice() else {
                bail!("{worker}: {line}")
            };
            let at: u64 = at.parse().with_context(|| line.to_owned())?;
            if *event == "ready" {
                journal.ready_us = Some(at);
                continue;
            }
            let (task, epoch) = (task.parse()?, epoch.parse()?);
            if *event == "start" {
                open.insert((task, epoch), journal.runs.len());
                journal.runs.push(Run {
                    worker: worker.to_owned(),
                    task,
                    epoch,
                    attempt: attempt.parse()?,
                    started_us: at,
                    cancelled_us: None,
                    ended_us: None,
                });
                continue;
            }
            let run = open.get(&(task, epoch)).and_then(|index| journal.runs.get_mut(*index));
            let run = run.with_context(|| format!("{worker}: ends before it starts: {line}"))?;
            match *event {
                "cancelled" => run.cancelled_us = Some(at),
                "end" | "dropped" => run.ended_us = Some(at),
                _ => bail!("{worker}: {line}"),
            }
        }
        Ok(journal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_up_to_its_last_whole_line() {
        let text = "1 ready - 0 0\n2 start 1:2:-1 1 1\n3 start 1:3:-1 2 2\n4 cancelled 1:2:-1 1 1\n5 dropped 1:2:-1 1 1\n6 end 1:3";
        let journal = Journal::read("w", text).unwrap();
        assert_eq!(journal.ready_us, Some(1));
        let spans: Vec<_> = journal
            .runs
            .iter()
            .map(|run| (run.started_us, run.cancelled_us, run.ended_us))
            .collect();
        assert_eq!(spans, [(2, Some(4), Some(5)), (3, None, None)]);
        assert!(Journal::read("w", "1 end 1:2:-1 1 1\n").is_err());
    }
}

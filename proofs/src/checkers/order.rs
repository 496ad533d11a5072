//! C-29, judged from the logs alone: the order in which the tasks of a key began, by the checkers'
//! own fold. It does not use the workers' implementation of the order.

use super::fold::{Stand, State};
use super::{History, Run};
use longhaul::TaskId;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::invariants::ORDER;
use std::collections::{BTreeMap, BTreeSet};

/// A task, from its message.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The key of its message, or of its batch; without one it has no order.
    pub key: Option<Vec<u8>>,
    /// When it gets its place in the order, if not at once.
    pub from_ms: Option<u64>,
}

/// The number of comparisons, to recognize a run in which nothing could go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Pairs of tasks of one key in which the second one began and the first one had to be over.
    pub pairs: usize,
    /// Pairs among these whose first task was taken over or retried before it was over.
    pub troubled: usize,
    /// Pairs whose first task had no place yet, so that the second one was free to begin.
    pub exempt: usize,
    /// Tasks that began when they were due, in a line that was assigned anew, while one behind them
    /// was running.
    pub beside: usize,
}

/// Reads the ledger of one partition in order.
#[derive(Debug, Default)]
pub struct OrderJudge {
    tasks: BTreeMap<TaskId, Submitted>,
    lines: BTreeMap<Vec<u8>, BTreeSet<TaskId>>,
    states: BTreeMap<TaskId, State>,
    compared: Compared,
    found: Vec<String>,
}

impl OrderJudge {
    /// A judge of these tasks.
    #[must_use]
    pub fn new(tasks: BTreeMap<TaskId, Submitted>) -> Self {
        let mut judge = Self::default();
        for (task, submitted) in &tasks {
            if let Some(key) = &submitted.key {
                judge.lines.entry(key.clone()).or_default().insert(*task);
            }
        }
        Self { tasks, ..judge }
    }

    /// Handles the next entry. `decided_ms` is the time of its publisher's decision, in ms of the
    /// clock by which tasks have their places. `dealt_anew` tells, for a scheduled task, whether
    /// the claimer may have received it after other tasks.
    pub fn read(
        &mut self,
        entry: &Entry,
        decided_ms: u64,
        dealt_anew: impl FnOnce(TaskId) -> bool,
    ) {
        let Some(task) = entry.task().filter(|_| !matches!(entry, Entry::Tombstone(_))) else {
            return;
        };
        let state = self.states.entry(task).or_default();
        let before = *state;
        state.take(entry);
        // A parked task begins when it continues.
        let begins = !has_begun(&before) && has_begun(state) && state.end().is_none();
        if begins {
            self.begun(task, decided_ms, dealt_anew);
        }
    }

    fn begun(&mut self, task: TaskId, decided_ms: u64, dealt_anew: impl FnOnce(TaskId) -> bool) {
        let key = self.tasks.get(&task).and_then(|submitted| submitted.key.as_deref());
        let Some(line) = key.and_then(|key| self.lines.get(key)) else { return };
        let is_late = self.tasks.get(&task).is_some_and(|submitted| submitted.from_ms.is_some());
        let may_be_beside = is_late && dealt_anew(task);
        for first in line.range(..task) {
            let state = self.states.get(first).copied().unwrap_or_default();
            if state.end().is_some() {
                self.compared.pairs += 1;
                self.compared.troubled += usize::from(state.epoch > 1);
                continue;
            }
            let from_ms = self.tasks.get(first).and_then(|submitted| submitted.from_ms);
            if !has_begun(&state) && from_ms.is_some_and(|from_ms| decided_ms < from_ms) {
                self.compared.exempt += 1;
                continue;
            }
            let stand = state.stand;
            self.found.push(format!(
                "{ORDER}: task {task} began before {first} of the same key was over: {stand:?}"
            ));
        }
        // Only a scheduled task may have been overtaken, and a task that has overtaken it must be
        // over now.
        for last in line.range(task..).skip(1) {
            let state = self.states.get(last).copied().unwrap_or_default();
            if has_begun(&state) && state.end().is_none() && may_be_beside {
                self.compared.beside += 1;
            } else if has_begun(&state) && state.end().is_none() {
                let stand = state.stand;
                self.found.push(format!(
                    "{ORDER}: task {task} began while {last} of the same key went on: {stand:?}"
                ));
            }
        }
    }

    /// The findings, and the number of comparisons.
    pub fn end(self) -> (Vec<String>, Compared) {
        (self.found, self.compared)
    }
}

fn has_begun(state: &State) -> bool {
    match state.stand {
        Stand::New => false,
        Stand::Waiting(next) => !next.is_parked(),
        Stand::Running | Stand::Ended(_) => true,
    }
}

/// Processors of one key that ran at the same time, by the workers' records. Epochs that were taken
/// over do not count, because a zombie goes on until it reads that it was replaced. Nor do
/// scheduled tasks, which may begin beside others when their line is assigned anew.
pub fn overlapping(tasks: &BTreeMap<TaskId, Submitted>, history: &History) -> Vec<String> {
    let mut last: BTreeMap<TaskId, u32> = BTreeMap::new();
    for run in &history.runs {
        let epoch = last.entry(run.task).or_default();
        *epoch = run.epoch.max(*epoch);
    }
    let mut by_key: BTreeMap<&[u8], Vec<&Run>> = BTreeMap::new();
    for run in history.runs.iter().filter(|run| last.get(&run.task) == Some(&run.epoch)) {
        let submitted = tasks.get(&run.task).filter(|submitted| submitted.from_ms.is_none());
        if let Some(key) = submitted.and_then(|submitted| submitted.key.as_deref()) {
            by_key.entry(key).or_default().push(run);
        }
    }
    let mut found = Vec::new();
    for runs in by_key.values_mut() {
        runs.sort_by_key(|run| run.started_us);
        for (one, next) in runs.iter().zip(runs.iter().skip(1)) {
            if one.ended_us.is_some_and(|ended| ended > next.started_us) {
                found.push(format!("{ORDER}: two processors of a key at once: {one:?}, {next:?}"));
            }
        }
    }
    found
}

impl std::ops::AddAssign for Compared {
    fn add_assign(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.troubled += other.troubled;
        self.exempt += other.exempt;
        self.beside += other.beside;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, NextAttempt, Outcome};
    use longhaul_core::protocol::key::{Epoch, OnceKey, OwnerId};

    const fn task(entry: u64) -> TaskId {
        TaskId { ledger: 1, entry, partition: -1, batch_index: None }
    }

    const fn key(entry: u64, epoch: u32) -> OnceKey {
        OnceKey { task: task(entry), epoch: Epoch(epoch), owner: OwnerId(7), serial: 10 * entry }
    }

    fn claim(entry: u64, epoch: u32, kind: ClaimKind) -> Entry {
        let attempt = if kind == ClaimKind::Run { epoch } else { 0 };
        Entry::Claim(Claim::plain(key(entry, epoch), attempt, kind))
    }

    fn run(entry: u64) -> Entry {
        claim(entry, 1, ClaimKind::Run)
    }

    fn done(entry: u64, epoch: u32, outcome: Outcome) -> Entry {
        Entry::Done(Done { key: key(entry, epoch), attempt: epoch, outcome, writer: None })
    }

    fn over(entry: u64) -> Entry {
        done(entry, 1, Outcome::Completed)
    }

    /// Tasks 1, 2 and 3 with one key, 4 with another and 5 without; 1 has its place from 100 ms on.
    fn judged(delayed: bool, anew: bool, entries: &[(Entry, u64)]) -> (usize, Compared) {
        let of = |key: &[u8], from_ms| Submitted { key: Some(key.to_vec()), from_ms };
        let tasks = [
            (task(1), of(b"a", delayed.then_some(100))),
            (task(2), of(b"a", None)),
            (task(3), of(b"a", None)),
            (task(4), of(b"b", None)),
            (task(5), Submitted { key: None, from_ms: None }),
        ];
        let mut judge = OrderJudge::new(tasks.into());
        for (entry, decided_ms) in entries {
            judge.read(entry, *decided_ms, |_| anew);
        }
        let (found, compared) = judge.end();
        (found.len(), compared)
    }

    #[track_caller]
    fn check(entries: &[Entry], found: usize, pairs: usize, troubled: usize) {
        let entries: Vec<_> = entries.iter().map(|entry| (entry.clone(), 0)).collect();
        let compared = Compared { pairs, troubled, ..Compared::default() };
        assert_eq!(judged(false, false, &entries), (found, compared), "{entries:?}");
    }

    #[test]
    fn a_task_that_begins_before_its_turn_is_found() {
        check(&[run(1), run(4), run(5), over(1), run(2), over(2), run(3)], 0, 3, 0);
        check(&[run(2)], 1, 0, 0);
        check(&[run(1), run(2), over(1)], 1, 0, 0);
        check(&[run(1), over(1), run(3)], 1, 1, 0);
        check(&[run(1), over(1), claim(2, 1, ClaimKind::Park), run(3)], 1, 1, 0);
        check(&[claim(2, 1, ClaimKind::Park), run(1), claim(2, 2, ClaimKind::Run)], 1, 0, 0);
        check(
            &[claim(2, 1, ClaimKind::Park), run(1), over(1), claim(2, 2, ClaimKind::Run)],
            0,
            1,
            0,
        );
        // A claim without effect begins nothing.
        check(&[run(1), claim(2, 2, ClaimKind::Run), over(1), run(2)], 0, 1, 0);
    }

    #[test]
    fn what_waits_for_its_next_attempt_keeps_its_place() {
        let failed = done(1, 1, Outcome::Failed(NextAttempt::new(0, 10)));
        check(&[run(1), failed.clone(), run(2)], 1, 0, 0);
        let again = [claim(1, 2, ClaimKind::Run), done(1, 2, Outcome::Completed), run(2)];
        check(&[&[run(1), failed][..], &again[..]].concat(), 0, 1, 1);
    }

    #[test]
    fn what_ends_unseen_needs_no_place_and_makes_room() {
        let cancelled = claim(2, 1, ClaimKind::Cancelled);
        check(&[cancelled, run(1), over(1), run(3)], 0, 2, 0);
    }

    #[test]
    fn processors_that_run_at_once_are_found_unless_one_is_a_zombie() {
        let run = |entry, epoch, started_us, ended_us| Run {
            worker: "w".to_owned(),
            task: task(entry),
            epoch,
            attempt: epoch,
            started_us,
            cancelled_us: None,
            ended_us: Some(ended_us),
        };
        let of = |key: &[u8]| Submitted { key: Some(key.to_vec()), from_ms: None };
        let late = Submitted { from_ms: Some(1), ..of(b"a") };
        let tasks: BTreeMap<_, _> =
            [(task(1), of(b"a")), (task(2), of(b"a")), (task(3), of(b"b")), (task(4), late)].into();
        let found = |runs: &[Run]| {
            overlapping(&tasks, &History { runs: runs.to_vec(), ..History::default() }).len()
        };
        assert_eq!(found(&[run(1, 1, 10, 20), run(2, 1, 21, 30), run(3, 1, 5, 40)]), 0);
        assert_eq!(found(&[run(1, 1, 10, 20), run(4, 1, 15, 30)]), 0);
        assert_eq!(found(&[run(1, 1, 10, 20), run(2, 1, 19, 30)]), 1);
        let zombie = run(1, 1, 10, 100);
        assert_eq!(found(&[zombie, run(1, 2, 30, 40), run(2, 1, 41, 50)]), 0);
    }

    #[test]
    fn a_task_has_no_place_before_its_time() {
        let early = [(run(2), 99), (over(2), 200), (run(1), 201)];
        assert_eq!(judged(true, false, &early), (0, Compared { exempt: 1, ..Compared::default() }));
        assert_eq!(judged(true, false, &[(run(2), 100)]).0, 1, "its time has come");
        let beside = [(run(2), 99), (run(1), 101)];
        assert_eq!(judged(true, false, &beside).0, 1, "the other one goes on");
        assert_eq!(
            judged(true, true, &beside),
            (0, Compared { exempt: 1, beside: 1, ..Compared::default() })
        );
    }
}

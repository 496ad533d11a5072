//! What processors and holders of leases have done, and acts of clients and operators on tasks.

use super::script::{Placed, Script};
use bytes::Bytes;
use longhaul::TaskId;
use longhaul_transport::clock::Clock;
use longhaul_transport::moment::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A processor, or a holder of a lease, at work on a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The number of the task's script.
    pub(super) number: usize,
    /// The worker that runs it. `None`: the holder of a lease does.
    pub(super) worker: Option<usize>,
    pub(super) begin: Duration,
    pub(super) end: Option<Duration>,
    /// When its lease is over, as the holder knows. A holder that no gateway answers goes on, and
    /// others may begin then.
    pub(super) lease_ends: Option<Duration>,
    /// Whether the work came to its own end.
    pub(super) returned: bool,
}

/// An act of a client or an operator on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Cancel,
    Delete,
    Fail,
    Release,
}

/// A trouble of the broker.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) begin: Duration,
    /// The time until which its effects may last.
    pub(super) end: Duration,
    /// Whether workers may be unable to read a ledger meanwhile.
    pub(super) stops_ledger: bool,
}

/// Everything that has happened in a history.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) scripts: Vec<Script>,
    pub(super) placed: BTreeMap<usize, Placed>,
    pub(super) runs: Vec<Run>,
    pub(super) acts: Vec<(TaskId, Act, Duration)>,
    /// The last checkpoint of each script that was confirmed as stored, and the last one given.
    stored: BTreeMap<usize, u64>,
    given: u64,
    /// Tasks with an unanswered request, whose effect is unknown.
    pub(super) unsure: BTreeSet<TaskId>,
    /// When the queue was paused, as answered, and when the request to resume began.
    pub(super) pauses: Vec<(Duration, Option<Duration>)>,
    /// Failures of the broker, and how long their effects may last.
    pub(super) troubles: Vec<Trouble>,
    /// When workers or gateways came, left or died.
    pub(super) disturbed: Vec<Duration>,
    pub(super) counts: BTreeMap<&'static str, usize>,
    pub(super) violations: Vec<String>,
}

/// The same, shared by everything that takes notes.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    clock: Clock,
    start: Moment,
    done: Arc<Mutex<Done>>,
}

impl Notes {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, start: clock.now(), done: Arc::default() }
    }

    /// The time since the history began.
    pub(super) fn now(&self) -> Duration {
        self.clock.now().since(self.start)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, what: &'static str) {
        self.count_many(what, 1);
    }

    pub(super) fn count_many(&self, what: &'static str, count: u64) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        *self.lock().counts.entry(what).or_default() += count;
    }

    pub(super) fn violation(&self, what: String) {
        self.lock().violations.push(what);
    }

    pub(super) fn act(&self, task: TaskId, act: Act) {
        let now = self.now();
        self.lock().acts.push((task, act, now));
        self.count(match act {
            Act::Cancel => "cancelled",
            Act::Delete | Act::Fail => "deleted",
            Act::Release => "released",
        });
    }

    /// Notes that the broker has not answered a request about the task.
    pub(super) fn unsure(&self, task: TaskId) {
        self.lock().unsure.insert(task);
    }

    pub(super) fn pause(&self) {
        let now = self.now();
        self.lock().pauses.push((now, None));
        self.count("paused");
    }

    /// Notes the checkpoint of an earlier attempt that an attempt found.
    pub(super) fn found_checkpoint(&self, number: usize, found: Option<&Bytes>) {
        let found = found.and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok());
        let mut done = self.lock();
        let stored = done.stored.get(&number).copied();
        if found < stored {
            let now = self.now();
            done.violations.push(format!(
                "the attempt of {number} at {now:?} found checkpoint {found:?}, and {stored:?} was stored"
            ));
        }
    }

    /// A new checkpoint, unique over all attempts.
    pub(super) fn next_checkpoint(&self) -> u64 {
        let mut done = self.lock();
        done.given += 1;
        done.given
    }

    pub(super) fn stored(&self, number: usize, checkpoint: u64) {
        let mut done = self.lock();
        let stored = done.stored.entry(number).or_default();
        *stored = checkpoint.max(*stored);
        drop(done);
        self.count("checkpoints");
    }

    pub(super) fn is_paused(&self) -> bool {
        self.lock().pauses.last().is_some_and(|(_, end)| end.is_none())
    }

    pub(super) fn resume(&self) {
        let now = self.now();
        if let Some((_, end)) = self.lock().pauses.last_mut() {
            *end = Some(now);
        }
    }

    pub(super) fn trouble(&self, felt: Duration, stops_ledger: bool) {
        let begin = self.now();
        self.lock().troubles.push(Trouble { begin, end: begin + felt, stops_ledger });
        self.count("broken");
    }

    pub(super) fn disturb(&self) {
        let now = self.now();
        self.lock().disturbed.push(now);
    }

    /// Notes that work begins. It ends at the latest when the returned value is dropped.
    pub(super) fn begin(&self, number: usize, worker: Option<usize>) -> (Script, Working) {
        let begin = self.now();
        let mut done = self.lock();
        done.runs.push(Run { number, worker, begin, end: None, lease_ends: None, returned: false });
        let (script, run) = (done.scripts[number].clone(), done.runs.len() - 1);
        drop(done);
        (script, Working { notes: self.clone(), run })
    }
}

impl Done {
    /// The runs that have not ended.
    pub(super) fn running(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.end.is_none())
    }

    /// Whether the broker's failures may have effects in this time.
    pub(super) fn is_troubled(&self, time: &Range<Duration>) -> bool {
        self.troubles.iter().any(|it| it.begin < time.end && time.start < it.end)
    }

    /// Whether a trouble that had begun by `begun_by`, and may last beyond `end`, keeps workers
    /// from reading a ledger.
    pub(super) fn may_not_hear(&self, begun_by: Duration, end: Duration) -> bool {
        let stops = |it: &Trouble| it.stops_ledger && it.begin < begun_by && end < it.end;
        self.troubles.iter().any(stops)
    }

    pub(super) fn has_begun(&self, number: usize) -> bool {
        self.runs.iter().any(|run| run.number == number)
    }
}

/// Work under way.
pub(super) struct Working {
    notes: Notes,
    run: usize,
}

impl Working {
    /// Notes that the lease of this work lasts until `end`.
    pub(super) fn lasts_until(&self, end: Duration) {
        self.notes.lock().runs[self.run].lease_ends = Some(end);
    }

    /// Notes that the work has come to its own end.
    pub(super) fn returned(&self) {
        let now = self.notes.now();
        let mut done = self.notes.lock();
        let run = &mut done.runs[self.run];
        (run.returned, run.end) = (true, run.end.or(Some(now)));
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let now = self.notes.now();
        let mut done = self.notes.lock();
        let run = &mut done.runs[self.run];
        run.end = run.end.or(Some(now));
    }
}

//! The metadata topic as one worker writes it: which entry of a task is shown, and when. Pure: it
//! takes the machine's decisions, the entries read and the results of publishes, always with the
//! time, and returns the entries to publish, read or remove. `driver/{showing,renewing}.rs`
//! performs that.
//!
//! The metadata topic is for people and decides nothing, but people must be able to rely on it. The
//! required entries:
//!
//! | entry | when | written by |
//! |---|---|---|
//! | PROCESSING | start of an attempt, every keep-alive, progress | the owner (`running.rs`) |
//! | PROCESSING with `warning` | the same, after a takeover from a silent worker | the owner |
//! | FAILED with `nextAttemptAt` | outcome read back, more attempts | its writer (`ended.rs`) |
//! | the same | a draining worker has given the attempt back | the worker that ran it |
//! | COMPLETED, or FAILED with `outcome` | end read back, once | the finisher (see below) |
//! | the same, from outside | at once by a holder, after 2 s by the keeper | holder, else keeper |
//! | the same again | covered by a late entry, or missing | the keeper (`keeper.rs`) |
//! | tombstone | the retention after the end | the keeper |
//!
//! Another worker writes the end where the finisher's entry may be lost (`partition/finishers.rs`).
//! An end counts as missing when its finisher is gone or reports that it was shown.
//!
//! - **Order**: the outcome on the ledger; the dead letter of a task that failed for good; the
//!   release of its key on the register; its end on the metadata topic; the ack. Each waits until
//!   the one before was read back or has its receipt.
//! - **Late entries**: a worker that was cut off or suspended, a *zombie*, may write PROCESSING of
//!   an old epoch after the end. An entry PROCESSING expires with the heartbeats on which it is
//!   based, so this is rare.
//! - **The keeper** is the first worker by rank. Only the keeper reads the metadata topic: a worker
//!   needs nothing of it for its own tasks. When the keeper dies the next worker becomes the first
//!   after 2 heartbeat intervals, and reads the topic from its start.
//! - **Refused entries** are published again without the payload; if that is refused as well, the
//!   entry is given up, and the task goes on.

pub mod ended;
mod ends;
pub mod entry;
pub mod keeper;
mod looks;
pub mod running;

pub use ended::Showing;
pub use keeper::{Chore, Lack, ShownEntry};

use crate::protocol::fold::TaskFold;
use crate::protocol::moment::Moment;
use crate::task::{Position, TaskId};
use ended::EndedAttempts;
use keeper::MetadataMaintenance;
use looks::Looks;
use running::ShownAttempts;
use std::time::Duration;

/// One partition of the metadata topic. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The entries of running attempts.
    pub running: ShownAttempts,
    /// The entries of ended attempts.
    pub ended: EndedAttempts,
    /// The repairs and removals of the keeper.
    pub keeper: MetadataMaintenance,
    /// Set if this worker is the keeper.
    keeping: Option<Keeping>,
    /// How often it became the keeper; numbers the followers.
    followers: u64,
}

#[derive(Clone, Copy, Debug)]
struct Keeping {
    /// Position up to which the ledger was read when it began.
    since: Option<Position>,
    /// The last position read. After an error its follower continues behind it; in a simulation
    /// entries may come again from the start.
    read_to: Option<Position>,
    /// Whether that is the end of the topic.
    looks: Looks,
}

/// A command for the follower of the metadata topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerCommand {
    /// Follow it from the start, as the follower with this number.
    Start(u64),
    /// Stop following it.
    Stop,
}

impl Metadata {
    /// Creates a state in which nothing is shown.
    #[must_use]
    pub fn new(retention: Duration, keep_alive: Duration) -> Self {
        Self {
            running: ShownAttempts::new(keep_alive),
            ended: EndedAttempts::default(),
            keeper: MetadataMaintenance::new(retention),
            keeping: None,
            followers: 0,
        }
    }

    /// Sets whether this worker is the keeper, as of this position on the ledger. Returns the
    /// change for the follower.
    pub fn keep(
        &mut self,
        keeps: bool,
        ledger_read_to: Option<Position>,
    ) -> Option<FollowerCommand> {
        match (keeps, self.keeping) {
            (true, None) => {
                self.keeping =
                    Some(Keeping { since: ledger_read_to, read_to: None, looks: Looks::default() });
                self.followers += 1;
                Some(FollowerCommand::Start(self.followers))
            }
            (false, Some(_)) => {
                self.keeping = None;
                self.keeper.stop();
                Some(FollowerCommand::Stop)
            }
            (true, Some(_)) | (false, None) => None,
        }
    }

    /// Whether this worker is the keeper.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.keeping.is_some()
    }

    /// Handles an entry read by the follower of this number at this position. If it is new, returns
    /// the position up to which the ledger was read when the follower began.
    pub fn is_news(&mut self, follower: u64, at: Position) -> Option<Option<Position>> {
        let keeping = self.keeping.as_mut().filter(|_| self.followers == follower)?;
        if keeping.read_to.is_some_and(|read_to| at <= read_to) {
            return None;
        }
        keeping.read_to = Some(at);
        keeping.looks.read(keeping.read_to);
        Some(keeping.since)
    }

    /// Handles the end of the topic that the follower of this number reports for the request of
    /// this time.
    pub fn told_end(&mut self, follower: u64, asked: Moment, end: Option<Position>) {
        if let Some(keeping) = self.keeping.as_mut().filter(|_| self.followers == follower) {
            keeping.looks.told(asked, end, keeping.read_to);
        }
    }

    /// The next chore that is due. `fold` gives a task's state on the ledger, `awaited` whether its
    /// end is in flight to the metadata topic.
    pub fn poll(
        &mut self,
        now: Moment,
        fold: impl Fn(TaskId) -> TaskFold,
        awaited: impl Fn(TaskId) -> bool,
    ) -> Option<Chore> {
        let keeper = &mut self.keeper;
        let Some(Keeping { looks, .. }) = &mut self.keeping else {
            // Own ends that were refused, and no entries read.
            return keeper.poll_repair(now, now, fold, awaited);
        };
        if let Some(seen) = looks.seen()
            && let Some(chore) = keeper.poll_repair(now, seen, &fold, awaited)
        {
            looks.repaired();
            return Some(chore);
        }
        let unseen = keeper.next_repair().is_some_and(|due| due <= now);
        if unseen && looks.ask(now) { Some(Chore::Look) } else { keeper.poll_removal(now, fold) }
    }

    /// Handles the result of a tombstone. If it is unknown, the keeper at that time publishes it
    /// again.
    pub fn removed(&mut self, id: TaskId, is_known: bool) {
        self.keeper.removed(id, is_known || self.keeping.is_none());
    }

    /// When to look next. Before the ledger was read nothing is repaired or removed.
    #[must_use]
    pub fn timeout(&self, ready: bool) -> Option<Moment> {
        let (repair, removal) = (self.keeper.next_repair(), self.keeper.next_removal());
        let chores = match &self.keeping {
            Some(Keeping { looks, .. }) => [repair.map(|due| looks.next(due)), removal],
            None => [repair, None],
        };
        let chores = chores.into_iter().filter(|_| ready);
        chores.chain([self.running.next()]).flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::fold::Phase;
    use crate::protocol::key::Epoch;

    const ID: TaskId = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };

    fn keeping() -> Metadata {
        let mut metadata = Metadata::new(Duration::from_secs(1_000), Duration::from_secs(300));
        assert_eq!(metadata.keep(true, None), Some(FollowerCommand::Start(1)));
        metadata
    }

    fn seconds(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    fn completed() -> TaskFold {
        TaskFold { epoch: Epoch(1), phase: Phase::Completed, ..TaskFold::default() }
    }

    /// The chore that is due for a completed task.
    fn poll(metadata: &mut Metadata, now: Moment) -> Option<Chore> {
        metadata.poll(now, |_| completed(), |_| false)
    }

    /// Entry number `entry` shows the task of [`poll`].
    fn read(metadata: &mut Metadata, entry: u64, terminal: bool, now: Moment) {
        let shown = ShownEntry { epoch: Some(1), terminal, last_updated_ms: 0, at: at(entry) };
        metadata.is_news(1, at(entry)).expect("it is news");
        metadata.keeper.read(ID, shown, &completed(), false, now, 0);
    }

    const fn at(entry: u64) -> Position {
        Position { ledger: 1, entry, batch_index: None }
    }

    /// Earlier, every worker read and decoded each entry: three fields of each task, at 200 bytes.
    #[test]
    fn only_who_keeps_m_follows_it() {
        let mut metadata = Metadata::new(Duration::from_secs(100), Duration::from_secs(300));
        assert_eq!(metadata.keep(false, None), None);
        assert_eq!(metadata.keep(true, Some(at(7))), Some(FollowerCommand::Start(1)));
        assert_eq!(metadata.keep(true, Some(at(8))), None);
        assert_eq!(metadata.is_news(1, at(3)), Some(Some(at(7))));
        assert_eq!(metadata.is_news(1, at(3)), None, "it was read");
        assert_eq!(metadata.keep(false, None), Some(FollowerCommand::Stop));
        assert_eq!(metadata.is_news(1, at(4)), None);
        assert_eq!(metadata.keep(true, None), Some(FollowerCommand::Start(2)));
        assert_eq!(metadata.is_news(1, at(5)), None, "it is of the follower before");
        assert_eq!(metadata.is_news(2, at(1)), Some(None));
    }

    /// Earlier, a keeper whose follower was suspended for 10 s treated unread entries as missing:
    /// each task that had ended meanwhile was shown as ended a second time.
    #[test]
    fn nothing_is_missing_that_was_not_read_yet() {
        let mut metadata = keeping();
        read(&mut metadata, 1, false, seconds(0));
        assert_eq!(metadata.timeout(true), Some(seconds(10)));
        assert_eq!(poll(&mut metadata, seconds(60)), Some(Chore::Look));
        assert_eq!(poll(&mut metadata, seconds(61)), None, "it is asked for");
        metadata.told_end(1, seconds(60), Some(at(2)));
        assert_eq!(poll(&mut metadata, seconds(62)), None, "it is not read");
        read(&mut metadata, 2, true, seconds(63));
        assert_eq!(poll(&mut metadata, seconds(100)), None);
    }

    #[test]
    fn what_is_missing_when_all_was_read_is_repaired() {
        let mut metadata = keeping();
        read(&mut metadata, 1, false, seconds(0));
        assert_eq!(poll(&mut metadata, seconds(60)), Some(Chore::Look));
        metadata.told_end(1, seconds(60), Some(at(1)));
        assert_eq!(metadata.timeout(true), Some(seconds(10)));
        let missing = Some(Chore::Repair(ID, Lack::Missing));
        assert_eq!(poll(&mut metadata, seconds(60)), missing);
        assert_eq!(poll(&mut metadata, seconds(60)), None);
    }

    /// A worker's own end that was refused is published again even if the worker is not the keeper.
    #[test]
    fn who_does_not_keep_m_repairs_what_it_has_missed_itself() {
        let mut metadata = Metadata::new(Duration::from_secs(1_000), Duration::from_secs(300));
        metadata.keeper.missed(ID, seconds(0));
        assert_eq!(metadata.timeout(true), Some(seconds(10)));
        let missing = Some(Chore::Repair(ID, Lack::Missing));
        assert_eq!(poll(&mut metadata, seconds(10)), missing);
    }

    /// Earlier, a former keeper went on publishing a tombstone that might have been lost.
    #[test]
    fn who_stops_keeping_removes_nothing_any_more() {
        let mut metadata = keeping();
        read(&mut metadata, 1, true, seconds(0));
        assert_eq!(poll(&mut metadata, seconds(1_000)), Some(Chore::Remove(ID)));
        assert_eq!(metadata.keep(false, None), Some(FollowerCommand::Stop));
        metadata.removed(ID, false);
        assert_eq!((metadata.timeout(true), poll(&mut metadata, seconds(2_000))), (None, None));
        assert_eq!(metadata.keep(true, None), Some(FollowerCommand::Start(2)));
        assert_eq!(poll(&mut metadata, seconds(2_000)), None);
    }

    /// Earlier, no test failed when a worker that had stopped reading the topic went on with
    /// repairs based on entries read before.
    #[test]
    fn who_stops_keeping_repairs_nothing_that_it_has_read() {
        let mut metadata = keeping();
        read(&mut metadata, 1, false, seconds(0));
        assert_eq!(metadata.timeout(true), Some(seconds(10)));
        assert_eq!(metadata.keep(false, None), Some(FollowerCommand::Stop));
        assert_eq!((metadata.timeout(true), poll(&mut metadata, seconds(60))), (None, None));
    }

    /// Earlier, no test failed when any number of repairs followed from one answer.
    #[test]
    fn after_some_repairs_it_is_asked_again_where_m_ends() {
        let mut metadata = keeping();
        let task = |entry| TaskId { entry, ..ID };
        for entry in 0..65 {
            metadata.keeper.missed(task(entry), seconds(0));
        }
        assert_eq!(poll(&mut metadata, seconds(60)), Some(Chore::Look));
        metadata.told_end(1, seconds(60), None);
        for entry in 0..64 {
            let missing = Some(Chore::Repair(task(entry), Lack::Missing));
            assert_eq!(poll(&mut metadata, seconds(61)), missing);
        }
        assert_eq!(poll(&mut metadata, seconds(61)), Some(Chore::Look));
    }

    /// Earlier, no test failed when the keeper did not learn the results of its tombstones: a lost
    /// one never came, and after 64 of them none did.
    #[test]
    fn a_tombstone_that_may_be_lost_is_published_again() {
        let mut metadata = keeping();
        read(&mut metadata, 1, true, seconds(0));
        for is_known in [false, true] {
            assert_eq!(poll(&mut metadata, seconds(1_000)), Some(Chore::Remove(ID)));
            metadata.removed(ID, is_known);
        }
        assert_eq!(poll(&mut metadata, seconds(1_000)), None);
    }
}

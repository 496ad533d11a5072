//! The metadata topic M, as far as one worker writes it: what is shown of which task, and when.
//! Pure: it is told what the machine has decided, what was read on M and what became of each
//! publish, always with the time, and it answers with what is to be published, read or removed.
//! `driver/{showing,renewing}.rs` does that.
//!
//! M is for people and decides nothing; but they must be able to rely on it. What it must show, and
//! who sees to that:
//!
//! | what | when | who |
//! |---|---|---|
//! | PROCESSING | when an attempt starts, every keep-alive, and as it has progress | who runs it (`running.rs`) |
//! | PROCESSING with `warning` | the same, where the attempt has taken over from a silent worker | who runs it |
//! | FAILED with `nextAttemptAt` | when an outcome was read back that another attempt follows | whose outcome it is (`ended.rs`) |
//! | the same | when a worker that drains has given the attempt back: nobody runs the task then | who ran it |
//! | COMPLETED, or FAILED with `outcome` | when the end was read back, once | the finisher; another one where that may be lost (`partition/finishers.rs`) |
//! | the same | two seconds after somebody has ended a task from outside (force-fail, delete) | who holds a delivery, at once; the keeper, if M does not show it by then |
//! | the same once more | when a late entry has covered it, or it has not come although its finisher is gone or says that it has | the keeper (`keeper.rs`) |
//! | nothing, by a tombstone | the retention after its end | the keeper |
//!
//! - **Order**: the dead letter of a task that failed for good, then its end on M, then the ack.
//!   Each waits for the receipt of the one before.
//! - **Late entries**: a worker that was cut off or stood still, a *zombie*, may write PROCESSING
//!   of an epoch that is over after the end. An entry PROCESSING expires with the heartbeats that
//!   it rests on, so that few do.
//! - **The keeper** is the first worker by rank. Only that one reads M: a worker needs nothing of M
//!   for its own tasks. When it dies the next one becomes the first after 2 H, and reads M from the
//!   start.
//! - **Refused entries** are published again without the payload; then M goes without, and the task
//!   goes on.

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

/// One partition of M. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// What is shown of running attempts.
    pub running: ShownAttempts,
    /// What is shown of attempts that have ended.
    pub ended: EndedAttempts,
    /// What the keeper shows again, and removes.
    pub keeper: MetadataMaintenance,
    /// This worker keeps M.
    keeping: Option<Keeping>,
    /// Counts the times that it began to.
    followers: u64,
}

#[derive(Clone, Copy, Debug)]
struct Keeping {
    /// Up to where the ledger was read when it began.
    since: Option<Position>,
    /// The last position read of M. Its follower goes on behind it after an error; in a simulation
    /// entries may come again from the start.
    read_to: Option<Position>,
    /// Whether that is its end.
    looks: Looks,
}

/// What is to be done about following M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerCommand {
    /// Follow it from the start; what comes is of the follower of this number.
    Start(u64),
    /// Follow it no more.
    Stop,
}

impl Metadata {
    /// Nothing is shown yet.
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

    /// This worker is to keep M, or not, as of what it has read of the ledger. Says what changes.
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

    /// Whether this worker keeps M.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.keeping.is_some()
    }

    /// The follower of this number has read an entry of M at this position. If it is news, says up
    /// to where the ledger was read when it began.
    pub fn is_news(&mut self, follower: u64, at: Position) -> Option<Option<Position>> {
        let keeping = self.keeping.as_mut().filter(|_| self.followers == follower)?;
        if keeping.read_to.is_some_and(|read_to| at <= read_to) {
            return None;
        }
        keeping.read_to = Some(at);
        keeping.looks.read(keeping.read_to);
        Some(keeping.since)
    }

    /// The follower of this number was asked at this time where M ends, and says so.
    pub fn told_end(&mut self, follower: u64, asked: Moment, end: Option<Position>) {
        if let Some(keeping) = self.keeping.as_mut().filter(|_| self.followers == follower) {
            keeping.looks.told(asked, end, keeping.read_to);
        }
    }

    /// The next chore that is due. `fold` says what the ledger knows of a task, `awaited` whether
    /// its end is on its way to M.
    pub fn poll(
        &mut self,
        now: Moment,
        fold: impl Fn(TaskId) -> TaskFold,
        awaited: impl Fn(TaskId) -> bool,
    ) -> Option<Chore> {
        let keeper = &mut self.keeper;
        let Some(Keeping { looks, .. }) = &mut self.keeping else {
            // Own ends that M has refused, and nothing that was read there.
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

    /// What became of a tombstone. One of which that is not known is published again by whoever
    /// keeps M then.
    pub fn removed(&mut self, id: TaskId, is_known: bool) {
        self.keeper.removed(id, is_known || self.keeping.is_none());
    }

    /// When to look at it next. Before the ledger was read nothing is repaired or removed.
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

    /// What is due of a task that has completed.
    fn poll(metadata: &mut Metadata, now: Moment) -> Option<Chore> {
        metadata.poll(now, |_| completed(), |_| false)
    }

    /// Entry number `entry` of M shows the task of [`poll`].
    fn read(metadata: &mut Metadata, entry: u64, terminal: bool, now: Moment) {
        let shown = ShownEntry { epoch: Some(1), terminal, last_updated_ms: 0, at: at(entry) };
        metadata.is_news(1, at(entry)).expect("it is news");
        metadata.keeper.read(ID, shown, &completed(), false, now, 0);
    }

    const fn at(entry: u64) -> Position {
        Position { ledger: 1, entry, batch_index: None }
    }

    /// Every worker read and decoded each entry of M: three fields of each task, at 200 bytes.
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

    /// A keeper whose follower stood still for ten seconds took for missing what it had not read:
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

    /// Its own end that M has refused is published again also by a worker that does not read M.
    #[test]
    fn who_does_not_keep_m_repairs_what_it_has_missed_itself() {
        let mut metadata = Metadata::new(Duration::from_secs(1_000), Duration::from_secs(300));
        metadata.keeper.missed(ID, seconds(0));
        assert_eq!(metadata.timeout(true), Some(seconds(10)));
        let missing = Some(Chore::Repair(ID, Lack::Missing));
        assert_eq!(poll(&mut metadata, seconds(10)), missing);
    }

    /// A keeper that was not the first any more went on publishing a tombstone that might have been
    /// lost.
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

    /// No test noticed when a worker that did not read M any more went on with the repairs that
    /// what it had read there led to.
    #[test]
    fn who_stops_keeping_repairs_nothing_that_it_has_read() {
        let mut metadata = keeping();
        read(&mut metadata, 1, false, seconds(0));
        assert_eq!(metadata.timeout(true), Some(seconds(10)));
        assert_eq!(metadata.keep(false, None), Some(FollowerCommand::Stop));
        assert_eq!((metadata.timeout(true), poll(&mut metadata, seconds(60))), (None, None));
    }

    /// No test noticed when any number of repairs followed from one look at the end of M.
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

    /// No test noticed when the keeper was not told what became of its tombstones: one that was
    /// lost never came, and after 64 of them none did.
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

//! The metadata topic M, as far as one worker writes it: what is shown of which task, and when. Pure: it is told what the machine has decided,
//! what was read on M and what became of each publish, always with the time, and it answers with what is to be published, read or removed.
//! `driver/{showing,renewing}.rs` does that.
//!
//! M is for people and decides nothing; but they must be able to rely on it. What it must show, and who sees to that:
//!
//! | what | when | who |
//! |---|---|---|
//! | PROCESSING | when an attempt starts, every keep-alive, and as it has progress | who runs it (`running.rs`) |
//! | PROCESSING with `warning` | the same, where the attempt has taken over from a silent worker | who runs it |
//! | FAILED with `nextAttemptAt` | when an outcome was read back that another attempt follows | whose outcome it is (`ended.rs`) |
//! | the same | when a worker that drains has given the attempt back: nobody runs the task then | who ran it |
//! | COMPLETED, or FAILED with `outcome` | when the end was read back, once | the finisher; another one where that may be lost (`partition/finishers.rs`) |
//! | the same once more | when a late entry has covered it, or it has not come although its finisher is gone or says that it has | the keeper (`keeper.rs`) |
//! | nothing, by a tombstone | the retention after its end | the keeper |
//!
//! - **Order**: the dead letter of a task that failed for good, then its end on M, then the ack. Each waits for the receipt of the one before.
//! - **Late entries**: a worker that was cut off or stood still, a *zombie*, may write PROCESSING of an epoch that is over after the end. An entry
//!   PROCESSING expires with the heartbeats that it rests on, so that few do.
//! - **The keeper** is the first worker by rank. Only that one reads M: a worker needs nothing of M for its own tasks. When it dies the next one
//!   becomes the first after 2 H, and reads M from the start.
//! - **Refused entries** are published again without the payload; then M goes without, and the task goes on.

pub(in crate::worker) mod ended;
mod ends;
pub(in crate::worker) mod entry;
mod keeper;
mod running;

pub(in crate::worker) use ended::Showing;
pub(in crate::worker) use keeper::{Chore, Lack, Shown};

use crate::protocol::moment::Moment;
use crate::task::Position;
use ended::Ended;
use keeper::Keeper;
use running::Running;
use std::time::Duration;

/// One partition of M. See the module's documentation.
#[derive(Clone, Debug)]
pub(in crate::worker) struct Metadata {
    pub(in crate::worker) running: Running,
    pub(in crate::worker) ended: Ended,
    pub(in crate::worker) keeper: Keeper,
    /// This worker keeps M.
    keeping: Option<Keeping>,
    /// Counts the times that it began to.
    followers: u64,
}

#[derive(Clone, Copy, Debug)]
struct Keeping {
    /// Up to where the ledger was read when it began.
    since: Option<Position>,
    /// The last position read of M. Its follower goes on behind it after an error; in a simulation entries may come again from the start.
    read_to: Option<Position>,
}

/// What is to be done about following M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Following {
    /// Follow it from the start; what comes is of the follower of this number.
    Start(u64),
    /// Follow it no more.
    Stop,
}

impl Metadata {
    /// Nothing is shown yet.
    #[must_use]
    pub(in crate::worker) fn new(retention: Duration, keep_alive: Duration) -> Self {
        Self {
            running: Running::new(keep_alive),
            ended: Ended::default(),
            keeper: Keeper::new(retention),
            keeping: None,
            followers: 0,
        }
    }

    /// This worker is to keep M, or not, as of what it has read of the ledger. Says what changes.
    pub(in crate::worker) fn keep(
        &mut self,
        keeps: bool,
        ledger_read_to: Option<Position>,
    ) -> Option<Following> {
        match (keeps, self.keeping) {
            (true, None) => {
                self.keeping = Some(Keeping { since: ledger_read_to, read_to: None });
                self.followers += 1;
                Some(Following::Start(self.followers))
            }
            (false, Some(_)) => {
                self.keeping = None;
                self.keeper.stop();
                Some(Following::Stop)
            }
            (true, Some(_)) | (false, None) => None,
        }
    }

    /// The follower of this number has read an entry of M at this position. If it is news, says up to where the ledger was read when it began.
    pub(in crate::worker) fn is_news(
        &mut self,
        follower: u64,
        at: Position,
    ) -> Option<Option<Position>> {
        let keeping = self.keeping.as_mut().filter(|_| self.followers == follower)?;
        if keeping.read_to.is_some_and(|read_to| at <= read_to) {
            return None;
        }
        keeping.read_to = Some(at);
        Some(keeping.since)
    }

    /// When to look at it next. Before the ledger was read nothing is repaired or removed.
    #[must_use]
    pub(in crate::worker) fn timeout(&self, ready: bool) -> Option<Moment> {
        let chore = self.keeper.timeout().filter(|_| ready);
        [self.running.next(), chore].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(entry: u64) -> Position {
        Position { ledger: 1, entry, batch_index: None }
    }

    /// Every worker read and decoded each entry of M: three fields of each task, at 200 bytes.
    #[test]
    fn only_who_keeps_m_follows_it() {
        let mut metadata = Metadata::new(Duration::from_secs(100), Duration::from_secs(300));
        assert_eq!(metadata.keep(false, None), None);
        assert_eq!(metadata.keep(true, Some(at(7))), Some(Following::Start(1)));
        assert_eq!(metadata.keep(true, Some(at(8))), None);
        assert_eq!(metadata.is_news(1, at(3)), Some(Some(at(7))));
        assert_eq!(metadata.is_news(1, at(3)), None, "it was read");
        assert_eq!(metadata.keep(false, None), Some(Following::Stop));
        assert_eq!(metadata.is_news(1, at(4)), None);
        assert_eq!(metadata.keep(true, None), Some(Following::Start(2)));
        assert_eq!(metadata.is_news(1, at(5)), None, "it is of the follower before");
        assert_eq!(metadata.is_news(2, at(1)), Some(None));
    }
}

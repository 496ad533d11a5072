//! Entries of the ledger, and their form as messages. The properties describe the entry; the body
//! (`body.rs`) holds a result, a failure reason or a checkpoint, and is never empty.
//!
//! | property | meaning |
//! |---|---|
//! | `k` | kind: `claim`, `done`, `cancel`, `hb`, `ckpt`, `keep`, `cfg`, `seal` |
//! | `t` | task id |
//! | `e`, `a`, `o` | epoch, attempt, owner |
//! | `s` | status of a claim or an outcome; `PARKED` on a claim if the task waits for others |
//! | `y`, `at` | on an offer (a claim PARKED): the task's type, and since when it is ready, in ms |
//! | `na`, `nd` | next attempt: wall-clock ms, and the delay in ms |
//! | `w` | on a RELEASED: `drain` if the attempt had begun and its worker was stopped |
//! | | `park` if the task waits for those that the body names |
//! | `b` | on a claim: number of tasks of its batch that were not acknowledged one by one |
//! | `f` | base of a claim: time of the first claim, in ms by that claimer's wall clock |
//! | `ma`, `tb`, `x` | on a claim: the task's maximum of attempts, total budget in ms, expiry |
//! | `m` | on a claim that runs a task without `ma`: its writer's maximum of attempts |
//! | `ttl` | on a claim of a lease and a `keep`: ms of silence after which the lease may be ended |
//! | `by` | on a `keep`: the worker that attends the lease from now on |
//! | `sub` | subscription (hb, cfg) |
//! | `q`, `u` | on a heartbeat: number, uptime in ms |
//! | `c`, `w` | on a heartbeat: the owner's claims and outcomes stored, and in flight |
//! | `lc`, `lw` | on a gateway's heartbeat: the same for its claims and outcomes for leases |
//! | `m` | on a heartbeat, optional: the sender's maximum of attempts |
//! | `p` | on a heartbeat: ledger position up to which the metadata topic shows the owner's ends |
//! | `d` | on a heartbeat: `?` asks for the digest of the fold; or an answer to that |
//! | `n` | on a seal: number of tasks that ended COMPLETED, FINAL, CANCELLED, EXPIRED |
//! | `h`, `r`, `g` | on a cfg, in ms: heartbeat interval, ledger retention, self-fence limit |
//! | `v` | on a cfg: format of ledger and register |

mod read;
mod write;

use super::body;
use super::config::LedgerConfig;
use super::digest::Comparison;
use super::hash::NameHash;
use super::key::{Key, OnceKey, OwnerId};
use super::limits::Limits;
pub use super::next_attempt::{AttemptCause, NextAttempt};
pub use super::offer::Offer;
use super::seal::{self, Seal};
use crate::task::{Position, Properties, TaskId};
use bytes::Bytes;
use read::EntryReader;
use std::num::NonZeroU32;
use std::time::Duration;

/// An entry of the ledger, without the content of its body, which the fold never reads; only a
/// seal's body is part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Claims an epoch of a task.
    Claim(Claim),
    /// Ends the epoch that its owner holds.
    Done(Done),
    /// Requests the end of a task, whatever its state.
    Cancel(TaskId),
    /// Shows that an owner is alive.
    Heartbeat(Heartbeat),
    /// Stores data of a running attempt for the next one.
    Checkpoint(OnceKey),
    /// Shows that the holder of a lease is alive.
    Renewal(Renewal),
    /// Declares tasks to be over for good: see `seal.rs`.
    Seal(Seal),
    /// Settings that every worker of this ledger must share.
    Config(LedgerConfig),
    /// Removes a key that is no longer needed.
    Tombstone(Key),
}

/// A claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Task, epoch, owner and serial.
    pub key: OnceKey,
    /// The attempt that it starts; for a closing claim the attempts used up so far.
    pub attempt: u32,
    /// Whether it runs the task or closes it.
    pub kind: ClaimKind,
    /// Number of tasks in the message's batch that were not acknowledged one by one, for workers
    /// without the delivery; `None` if the task was not in a batch.
    pub batch_size: Option<u32>,
    /// Makes the task's older keys superfluous.
    pub base: Option<Base>,
    /// Limits in the task's message for the task as a whole, for workers without the payload.
    pub limits: Limits,
    /// The writer's maximum of attempts, if the task's message sets none. It decides whether
    /// another attempt follows this claim, even if another worker decides, because workers may have
    /// different settings. Claims that run a task carry it.
    pub gives: Option<NonZeroU32>,
    /// Set if the claim grants a lease: its owner id belongs to the lease and has no heartbeats.
    /// Any worker may end the lease after nothing of it was read for this many ms.
    pub lease_ms: Option<LeaseMs>,
    /// The task's order key on a queue with an order. Claims that run a task carry it, and offers.
    pub order: Option<NameHash>,
}

/// The silence after which a lease may be ended, in ms.
pub type LeaseMs = NonZeroU32;

/// The lease time as a duration.
#[must_use]
pub fn lease_time(lease_ms: LeaseMs) -> Duration {
    Duration::from_millis(u64::from(lease_ms.get()))
}

/// Renews a lease. The fold treats it like a checkpoint; it does not change the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// Task, epoch and owner of the lease; the serial is the one of all renewals.
    pub key: OnceKey,
    /// The silence after which the lease may be ended from now on.
    pub lease_ms: LeaseMs,
    /// The worker that attends the lease from now on.
    pub by: OwnerId,
}

impl Claim {
    /// A claim with the required fields only.
    #[must_use]
    pub const fn plain(key: OnceKey, attempt: u32, kind: ClaimKind) -> Self {
        Self {
            key,
            attempt,
            kind,
            batch_size: None,
            base: None,
            limits: Limits::NONE,
            gives: None,
            lease_ms: None,
            order: None,
        }
    }

    /// The claim with what the last one has told of the task's message, for a writer that has not
    /// read the message.
    #[must_use]
    pub const fn repeating(self, last: &Self) -> Self {
        let Self { batch_size, limits, gives, order, .. } = *last;
        Self { batch_size, limits, gives, order, ..self }
    }
}

/// Data in a claim that replaces all older entries of its task. Claims that run a task carry it
/// when there are many such entries, which may be removed after it was accepted and read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Base {
    /// Time of the task's first claim, in ms by that claimer's wall clock.
    pub created_ms: u64,
}

/// The effect of an accepted claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimKind {
    /// The owner runs the attempt.
    Run,
    /// Closes: all attempts are used up.
    Final,
    /// Closes: the task was cancelled.
    Cancelled,
    /// Closes: the task was not started in time.
    Expired,
    /// Parks: the task waits for others, which the body names. No attempt runs in this epoch, and
    /// none is used.
    Park,
    /// Offers: the worker with the delivery has no request for the task, so any worker may claim
    /// it. No attempt runs in this epoch, and none is used.
    Offer(Offer),
}

/// An outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Done {
    /// Task, epoch, owner and serial.
    pub key: OnceKey,
    /// The attempt that it ends.
    pub attempt: u32,
    /// The outcome.
    pub outcome: Outcome,
    /// The worker that wrote it in the name of a lease granted by another one: the writer shows the
    /// end.
    pub writer: Option<OwnerId>,
}

impl Done {
    /// The writer: the owner, unless another worker spoke for a lease.
    #[must_use]
    pub fn written_by(&self) -> OwnerId {
        self.writer.unwrap_or(self.key.owner)
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The task has its result.
    Completed,
    /// The attempt failed; another one follows.
    Failed(NextAttempt),
    /// The task failed for good.
    Final,
    /// The task was cancelled.
    Cancelled,
    /// The attempt was given back: it does not count.
    Released(NextAttempt),
}

/// A heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// The sender.
    pub owner: OwnerId,
    /// The subscription whose tasks it works on.
    pub subscription: String,
    /// Number of the heartbeat, so that its sender knows which one came back.
    pub number: u64,
    /// Number of claims and outcomes of this owner that have their receipt; a reader of fewer has
    /// lost entries.
    pub receipted: u64,
    /// Number of claims and outcomes of this owner that wait for their receipt.
    pub underway: u64,
    /// The same for claims and outcomes that the sender has published in the name of leases: with
    /// receipt, and waiting for it. `None` if the sender grants no leases.
    pub leased: Option<(u64, u64)>,
    /// How long the sender has been up, in ms.
    pub uptime_ms: u64,
    /// The sender's maximum of attempts, so that differences between workers can be reported;
    /// nothing depends on it.
    pub max_attempts: Option<u32>,
    /// Position on the ledger up to which this owner has shown its ends: their dead letters and
    /// metadata entries are stored. `None` if not given.
    pub shown_to: Option<Position>,
    /// Whether the sender has been reading the ledger for a while and has not finished: it takes no
    /// turns.
    pub reading: bool,
    /// A question about the fold's digest, or the answer to another worker's.
    pub comparison: Option<Comparison>,
}

/// The message is not an entry of the ledger, or of the register, that this version knows; the fold
/// ignores it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// It was published in another cluster, where task ids denote other tasks.
    #[error("it comes from another cluster")]
    Replicated,
    /// Its key is missing or malformed.
    #[error("key is missing or malformed")]
    Key,
    /// Its body is empty, or this version does not know its form.
    #[error("the body is empty or of an unknown form")]
    Body,
    /// A property is missing, malformed, or contradicts the key.
    #[error("property `{0}` is missing, malformed or contradicts the key")]
    Property(&'static str),
}

impl Entry {
    /// The key under which the entry is published.
    #[must_use]
    pub const fn key(&self) -> Key {
        match self {
            Self::Claim(claim) => Key::Once(claim.key),
            Self::Done(done) => Key::Once(done.key),
            Self::Checkpoint(key) => Key::Once(*key),
            Self::Renewal(renewal) => Key::Once(renewal.key),
            Self::Cancel(task) => Key::Cancel(*task),
            Self::Heartbeat(heartbeat) => Key::Heartbeat(heartbeat.owner),
            Self::Seal(seal) => Key::Seal(seal.key),
            Self::Config(config) => Key::Config(config.version),
            Self::Tombstone(key) => *key,
        }
    }

    /// The key of a claim or an outcome. Their receipts are awaited, and heartbeats count them.
    #[must_use]
    pub const fn counted(&self) -> Option<OnceKey> {
        match self {
            Self::Claim(Claim { key, .. }) | Self::Done(Done { key, .. }) => Some(*key),
            Self::Checkpoint(_)
            | Self::Renewal(_)
            | Self::Cancel(_)
            | Self::Heartbeat(_)
            | Self::Seal(_)
            | Self::Config(_)
            | Self::Tombstone(_) => None,
        }
    }

    /// The task whose fold the entry belongs to.
    #[must_use]
    pub const fn task(&self) -> Option<TaskId> {
        self.key().task()
    }

    /// The body of the entry's message. `content` is the data that the entry itself does not
    /// contain: a result, a failure reason, a checkpoint, or nothing. Only a tombstone's body is
    /// empty.
    #[must_use]
    pub fn body(&self, content: &[u8]) -> Bytes {
        match self {
            Self::Tombstone(_) => Bytes::new(),
            Self::Seal(seal) => seal::encode(&seal.entries),
            Self::Claim(_)
            | Self::Done(_)
            | Self::Cancel(_)
            | Self::Heartbeat(_)
            | Self::Checkpoint(_)
            | Self::Renewal(_)
            | Self::Config(_) => body::encode(content),
        }
    }

    /// Reads an entry from a message's key, properties and body; `null` marks a tombstone.
    ///
    /// # Errors
    /// If this version does not know the entry.
    pub fn read(
        key: Option<&str>,
        properties: &Properties,
        body: &Bytes,
        null: bool,
    ) -> Result<Self, EntryError> {
        let text = key.unwrap_or_default();
        let key: Key = text.parse()?;
        if null {
            return Ok(Self::Tombstone(key));
        }
        let from = EntryReader { key: text, properties };
        if let ("seal", Key::Seal(key)) = (from.text("k")?, key) {
            return from.seal(key, body).map(Self::Seal);
        }
        // Compaction would remove an empty message: no worker may act on an entry that others may
        // never see.
        let content = body::decode(body).ok_or(EntryError::Body)?;
        match (from.text("k")?, key) {
            ("claim", Key::Once(key)) => from.claim(key, &content).map(Self::Claim),
            ("done", Key::Once(key)) => from.done(key, &content).map(Self::Done),
            ("ckpt", Key::Once(key)) => from.agrees(&key).map(|()| Self::Checkpoint(key)),
            ("keep", Key::Once(key)) => from.renewal(key).map(Self::Renewal),
            ("cancel", Key::Cancel(task)) => Ok(Self::Cancel(task)),
            ("hb", Key::Heartbeat(owner)) => from.heartbeat(owner).map(Self::Heartbeat),
            ("cfg", Key::Config(version)) => from.config(version).map(Self::Config),
            _ => Err(EntryError::Property("k")),
        }
    }
}

impl ClaimKind {
    /// Whether the task begins with this claim, in the line of its order key.
    pub(crate) const fn begins(self) -> bool {
        matches!(self, Self::Run | Self::Offer(_))
    }
}

impl Outcome {
    /// Whether this outcome ends the task.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Self::Completed | Self::Final | Self::Cancelled)
    }
}

#[cfg(test)]
mod tests;

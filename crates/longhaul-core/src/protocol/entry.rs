//! Entries of the ledger C, and their form as messages: the properties say what an entry is, the
//! body (`body.rs`) holds a result, a failure reason or a checkpoint, and is never empty.
//!
//! | property | meaning |
//! |---|---|
//! | `k` | kind: `claim`, `done`, `cancel`, `hb`, `ckpt`, `keep`, `cfg`, `seal` |
//! | `t` | task id |
//! | `e`, `a`, `o` | epoch, attempt, owner |
//! | `s` | status of a claim or an outcome; of a claim `PARKED` if the task waits for those that the body names |
//! | `y`, `at` | of a claim PARKED that offers the task to anybody: its type, and since when it is ready, in ms |
//! | `na`, `nd` | next attempt: wall-clock ms, and the delay in ms |
//! | `w` | of a RELEASED: `drain` if the attempt had begun and its worker was stopped, `park` if the task waits for those that the body names |
//! | `b` | of a claim: how many tasks of the batch that the task came in were not acknowledged one by one |
//! | `f` | base of a claim: when the task was claimed first, in ms by the wall clock of that claimer |
//! | `ma`, `tb`, `x` | of a claim, where the task has it: its own number of attempts, its total budget in ms, and when it expires |
//! | `m` | of a claim that runs a task without an `ma`: how many attempts its writer gives it |
//! | `ttl` | of a claim that grants a lease, and of a `keep` that renews it: after so many ms of silence the lease may be ended |
//! | `by` | of a `keep`: the worker that looks after the lease from now on |
//! | `sub` | subscription (hb, cfg) |
//! | `q`, `c`, `w`, `u` | of a heartbeat: number, the owner's claims and outcomes stored and on their way, uptime in ms |
//! | `lc`, `lw` | of a heartbeat of a gateway: its claims and outcomes for leases, stored and on their way |
//! | `m` | of a heartbeat, where it says so: how many attempts the sender gives a task |
//! | `p` | of a heartbeat: up to which position of the ledger M shows the ends that the owner has written |
//! | `n` | of a seal: how many tasks ended COMPLETED, FINAL, CANCELLED, EXPIRED |
//! | `h`, `r`, `g`, `v` | of a cfg: H, R, G in ms, minimum protocol version |

mod read;

use super::body;
use super::config::LedgerConfig;
use super::hash::NameHash;
use super::key::{Key, OnceKey, OwnerId};
use super::limits::Limits;
pub use super::next_attempt::{AttemptCause, NextAttempt};
pub use super::offer::Offer;
use super::seal::{self, EndedCounts, Seal};
use crate::task::{Position, Properties, PropertyWriter, TaskId};
use bytes::Bytes;
use read::EntryReader;
use std::num::NonZeroU32;
use std::time::Duration;

/// An entry of the ledger, without what its body holds; but a seal's body is part of it. The fold
/// looks at no other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Asks for an epoch of a task.
    Claim(Claim),
    /// Ends the epoch that its owner holds.
    Done(Done),
    /// Asks for the end of a task, whatever its state.
    Cancel(TaskId),
    /// Says that an owner is alive.
    Heartbeat(Heartbeat),
    /// Keeps what a running attempt wants its successor to find.
    Checkpoint(OnceKey),
    /// Says that whoever holds a lease is alive.
    Renewal(Renewal),
    /// Says that tasks are over for good: see `seal.rs`.
    Seal(Seal),
    /// Settings that every worker on this ledger must share.
    Config(LedgerConfig),
    /// The key is of no more use.
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
    /// How many tasks of the batch that the message came in were not acknowledged one by one, so
    /// that workers without the delivery know it; `None` when it came alone.
    pub batch_size: Option<u32>,
    /// What makes the task's older keys superfluous.
    pub base: Option<Base>,
    /// What the task's message allows it as a whole, so that workers without the payload know it.
    pub limits: Limits,
    /// How many attempts the writer gives a task whose message does not say it. Whether the task
    /// has another one after this claim goes by that, whoever looks at it then: workers may be set
    /// differently. Claims that run have it.
    pub gives: Option<NonZeroU32>,
    /// It grants a lease: its owner id is the lease's, and has no heartbeats. After so many ms in
    /// which nothing is read of the lease it may be ended by any worker.
    pub lease_ms: Option<LeaseMs>,
    /// The order key that the task has on a queue with an order. Claims that run have it, and
    /// offers.
    pub order: Option<NameHash>,
}

/// The silence after which a lease may be ended, in ms.
pub type LeaseMs = NonZeroU32;

/// The same as a time.
#[must_use]
pub fn lease_time(lease_ms: LeaseMs) -> Duration {
    Duration::from_millis(u64::from(lease_ms.get()))
}

/// Renews a lease. The fold looks at it as at a checkpoint, and it changes nothing there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// Task, epoch and owner of the lease; the serial is that of all renewals.
    pub key: OnceKey,
    /// The silence after which the lease may be ended from now on.
    pub lease_ms: LeaseMs,
    /// The worker that looks after the lease from now on.
    pub by: OwnerId,
}

impl Claim {
    /// A claim that says nothing beyond what each has to say.
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
}

/// What a claim says besides epoch and attempt so that nobody needs an older entry of its task.
/// Claims that run have it, when many such entries stand there; when it was accepted and read back
/// those may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Base {
    /// When the task was claimed first, in ms by the wall clock of that claimer.
    pub created_ms: u64,
}

/// What a claim does when it is accepted.
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
    /// Parks: the task waits for others, which the body names. Nothing runs in this epoch, and no
    /// attempt is used.
    Park,
    /// Offers: nobody asks for the task where it was delivered, so that anybody may claim it.
    /// Nothing runs in this epoch, and no attempt is used.
    Offer(Offer),
}

/// An outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Done {
    /// Task, epoch, owner and serial.
    pub key: OnceKey,
    /// The attempt that it ends.
    pub attempt: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// The worker that has written it in the name of a lease which another one has granted: it is
    /// that one's to show.
    pub writer: Option<OwnerId>,
}

impl Done {
    /// Who has written it: its owner, unless that is a lease for which another worker spoke.
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
    /// Who is alive.
    pub owner: OwnerId,
    /// The subscription whose tasks it works on.
    pub subscription: String,
    /// Number of the heartbeat, so that its sender knows which one came back.
    pub number: u64,
    /// Claims and outcomes of this owner that have their receipt; who has read fewer has lost
    /// entries.
    pub receipted: u64,
    /// Claims and outcomes of this owner that wait for their receipt; `None` when it does not say.
    pub underway: Option<u64>,
    /// The same of the claims and outcomes that the sender has published in the name of leases:
    /// those that have their receipt, and those that wait for it. `None` when it does not say.
    pub leased: Option<(u64, u64)>,
    /// How long the sender has been up, in ms.
    pub uptime_ms: u64,
    /// How many attempts the sender gives a task, so that people learn of workers that disagree;
    /// nothing follows from it.
    pub max_attempts: Option<u32>,
    /// Of every end that this owner has written up to this position of the ledger, dead letter and
    /// entry on M are stored; `None` when it does not say.
    pub shown_to: Option<Position>,
    /// The sender has read the ledger for a while and still does: it takes no turn in anything.
    pub reading: bool,
}

/// The message is not an entry of this protocol version; the fold ignores and counts it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// It was published in another cluster, where the ids of tasks mean other tasks.
    #[error("it comes from another cluster")]
    Replicated,
    /// It has no key, or one of another form.
    #[error("key is missing or malformed")]
    Key,
    /// Its body is empty, or has a form that this version does not know.
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

    /// The key of a claim or an outcome: those have receipts that somebody waits for, and are
    /// counted in heartbeats.
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

    /// The properties of the entry's message. A tombstone has none.
    #[must_use]
    pub fn properties(&self) -> Properties {
        if matches!(self, Self::Tombstone(_)) {
            return Properties::new();
        }
        let mut out = PropertyWriter::new();
        match self {
            Self::Claim(claim) => write_claim(&mut out, claim),
            Self::Done(done) => {
                write_once(&mut out, "done", &done.key);
                out.put("a", done.attempt);
                out.put_word("s", done.outcome.status());
                if let Outcome::Failed(next) | Outcome::Released(next) = done.outcome {
                    write_next(&mut out, &next);
                }
                if let Some(writer) = done.writer {
                    out.put("writer", writer);
                }
            }
            Self::Checkpoint(key) => write_once(&mut out, "ckpt", key),
            Self::Renewal(renewal) => {
                write_once(&mut out, "keep", &renewal.key);
                out.put("ttl", renewal.lease_ms);
                out.put("by", renewal.by);
            }
            Self::Cancel(task) => {
                out.put_word("k", "cancel");
                out.put("t", task);
            }
            Self::Heartbeat(heartbeat) => {
                out.put_word("k", "hb");
                out.put("o", heartbeat.owner);
                out.put("sub", &heartbeat.subscription);
                out.put("q", heartbeat.number);
                out.put("c", heartbeat.receipted);
                if let Some(underway) = heartbeat.underway {
                    out.put("w", underway);
                }
                if let Some((receipted, underway)) = heartbeat.leased {
                    out.put("lc", receipted);
                    out.put("lw", underway);
                }
                out.put("u", heartbeat.uptime_ms);
                if let Some(max_attempts) = heartbeat.max_attempts {
                    out.put("m", max_attempts);
                }
                match heartbeat.shown_to {
                    Some(Position { ledger, entry, batch_index: None }) => {
                        out.put("p", format_args!("{ledger}:{entry}"));
                    }
                    Some(Position { ledger, entry, batch_index: Some(index) }) => {
                        out.put("p", format_args!("{ledger}:{entry}:{index}"));
                    }
                    None => {}
                }
                if heartbeat.reading {
                    out.put_word("l", "1");
                }
            }
            Self::Seal(seal) => {
                let EndedCounts { completed, failed, cancelled, expired } = seal.counts;
                out.put_word("k", "seal");
                out.put("o", seal.key.owner);
                out.put("n", format_args!("{completed},{failed},{cancelled},{expired}"));
            }
            Self::Config(config) => {
                out.put_word("k", "cfg");
                config.write(&mut |name, value| out.put(name, value));
            }
            Self::Tombstone(_) => {}
        }
        out.finish()
    }

    /// The body of the entry's message. `content` is what it holds besides what the entry says
    /// itself: a result, a failure reason, a checkpoint, or nothing. Only a tombstone's is empty.
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

    /// Reads an entry from a message's key, properties and body; `null` says that the message is a
    /// tombstone.
    ///
    /// # Errors
    /// When the message is not an entry that this version knows.
    pub fn read(
        key: Option<&str>,
        properties: &Properties,
        body: &Bytes,
        null: bool,
    ) -> Result<Self, EntryError> {
        let text = key.unwrap_or_default();
        let key: Key = text.parse().map_err(|_| EntryError::Key)?;
        if null {
            return Ok(Self::Tombstone(key));
        }
        let from = EntryReader { key: text, properties };
        if let ("seal", Key::Seal(key)) = (from.text("k")?, key) {
            return from.seal(key, body).map(Self::Seal);
        }
        // A compaction would remove what is empty: what some readers may never see, none must act
        // upon.
        let content = body::decode(body).ok_or(EntryError::Body)?;
        match (from.text("k")?, key) {
            ("claim", Key::Once(key)) => from.claim(key, &content).map(Self::Claim),
            ("done", Key::Once(key)) => from.done(key, &content).map(Self::Done),
            ("ckpt", Key::Once(key)) => from.agrees(&key).map(|()| Self::Checkpoint(key)),
            ("keep", Key::Once(key)) => from.renewal(key).map(Self::Renewal),
            ("cancel", Key::Cancel(task)) => Ok(Self::Cancel(task)),
            ("hb", Key::Heartbeat(owner)) => from.heartbeat(owner).map(Self::Heartbeat),
            ("cfg", Key::Config(version)) => {
                LedgerConfig::read(version, &|name| properties.get(name))
                    .map(Self::Config)
                    .map_err(EntryError::Property)
            }
            _ => Err(EntryError::Property("k")),
        }
    }
}

impl ClaimKind {
    /// Whether the task has begun with it, in the line of its order key.
    pub(crate) const fn begins(self) -> bool {
        matches!(self, Self::Run | Self::Offer(_))
    }

    const fn status(self) -> &'static str {
        match self {
            Self::Run => "RUN",
            Self::Final => "FINAL",
            Self::Cancelled => "CANCELLED",
            Self::Expired => "EXPIRED",
            Self::Park | Self::Offer(_) => "PARKED",
        }
    }
}

impl Outcome {
    const fn status(&self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Failed(_) => "FAILED",
            Self::Final => "FINAL",
            Self::Cancelled => "CANCELLED",
            Self::Released(_) => "RELEASED",
        }
    }

    /// Whether the task ends with it.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Self::Completed | Self::Final | Self::Cancelled)
    }
}

fn write_once(out: &mut PropertyWriter, kind: &'static str, key: &OnceKey) {
    out.put_word("k", kind);
    out.put("t", key.task);
    out.put("e", key.epoch);
    out.put("o", key.owner);
}

fn write_claim(out: &mut PropertyWriter, claim: &Claim) {
    write_once(out, "claim", &claim.key);
    out.put("a", claim.attempt);
    out.put_word("s", claim.kind.status());
    if let Some(size) = claim.batch_size {
        out.put("b", size);
    }
    if let Some(base) = claim.base {
        out.put("f", base.created_ms);
    }
    if let ClaimKind::Offer(offer) = claim.kind {
        offer.write(&mut |name, value| out.put(name, value));
    }
    claim.limits.write(&mut |name, value| out.put(name, value));
    if let Some(gives) = claim.gives {
        out.put("m", gives);
    }
    if let Some(lease_ms) = claim.lease_ms {
        out.put("ttl", lease_ms);
    }
    if let Some(order) = claim.order {
        out.put("line", order);
    }
}

fn write_next(out: &mut PropertyWriter, next: &NextAttempt) {
    out.put("na", next.at_ms);
    out.put("nd", next.delay_ms);
    if let Some(mark) = next.after.mark() {
        out.put_word("w", mark);
    }
}

#[cfg(test)]
mod tests;

//! Breaks one rule at a time. The production code has no switches for this; the harness around it
//! does it.

use longhaul_core::protocol::entry::{Claim, Entry, Outcome};
use longhaul_core::protocol::key::{Key, OnceKey};
use serde::{Deserialize, Serialize};

/// A rule that the harness breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fault {
    /// None.
    #[default]
    None,
    /// A body starts when its claim is published, not when it was read back.
    StartBeforeReadBack,
    /// Compaction treats all entries of an owner's epoch as one: their keys lack the serial.
    KeyReused,
    /// A RELEASED outcome is never published.
    NoRelease,
    /// The message is acknowledged when the outcome is published, not when it was accepted.
    AckBeforeAccepted,
    /// A claim that came back late is run.
    LateClaimRun,
    /// Tombstones of a task's keys are published together with its seal, before that was read back.
    TombstonesBeforeSeal,
    /// Tombstones are published in any order.
    TombstonesInAnyOrder,
    /// A task is sealed on its outcome, which was not read back.
    SealUnread,
    /// A seal names everything between its first task and its last, and one more.
    SealOverHole,
    /// A task is sealed before its dead letter, its view and its ack.
    SealUnclosed,
    /// A union leaves out a task, and its seals are removed anyway.
    MergeForgets,
    /// Seals are removed as soon as their union is published, before it was read back.
    OldSealsFirst,
    /// A seal is removed if any other covers it, including an earlier one.
    SealsCoverEachOther,
    /// A task's superseded keys are removed in any order, including those that the log rejected.
    SupersededInAnyOrder,
    /// A task's superseded keys are removed although the claim that superseded them has no base.
    NoBase,
    /// The claim with the base is removed, too.
    BaseGoes,
    /// A task's older keys are removed when a claim with a base is published, not when it was read
    /// back.
    BaseUnread,
    /// The dead letter is published after the ack.
    DeadLetterAfterAck,
    /// The client sends an entry twice, and the broker keeps both copies.
    Resend,
    /// An outcome is published again under its earlier key.
    KeyUsedAgain,
    /// The view shows an outcome when it is published, not when it was accepted.
    ViewBeforeAccepted,
    /// The view shows an outcome after the ack.
    ViewAfterAck,
    /// A claim that came back is run although the task was cancelled before.
    CancelIgnored,
    /// A new task is claimed by a worker that knows of it and holds no delivery.
    NewWithoutDelivery,
    /// The batch size from a message that was read is not noted.
    BatchUnknown,
    /// An adopter claims before it has read the payload.
    ClaimBeforePayload,
    /// A parked task is due when its dependency was claimed, not when it is over.
    ParkedUntilClaimed,
    /// A parked task does not treat a sealed one as over.
    SealNotOver,
    /// Tasks are not put into the lines of their keys.
    NoLine,
    /// A task that waits for its next attempt leaves its line.
    RetryLeavesLine,
    /// The broker deals tasks of a key to a worker while another one holds earlier ones.
    KeyDealtTwice,
    /// An operator's claim counts although the epoch that it saw is over.
    StaleActionCounts,
}

impl Fault {
    /// Whether tombstones are published one at a time, unlike the machine does it.
    #[must_use]
    pub const fn sweeps_on_its_own(self) -> bool {
        matches!(
            self,
            Self::TombstonesInAnyOrder | Self::SupersededInAnyOrder | Self::NoBase | Self::BaseGoes
        )
    }

    /// The key by which compaction tells entries apart.
    #[must_use]
    pub fn compaction_key(self, entry: &Entry) -> Key {
        match entry.key() {
            Key::Once(key) if self == Self::KeyReused => Key::Once(OnceKey { serial: 0, ..key }),
            key @ (Key::Once(_)
            | Key::Seal(_)
            | Key::Cancel(_)
            | Key::Heartbeat(_)
            | Key::Config(_)) => key,
        }
    }

    /// The entry published in place of this one.
    #[must_use]
    pub fn tampered(self, entry: Entry) -> Entry {
        match (self, entry) {
            (Self::NoBase, Entry::Claim(claim)) => Entry::Claim(Claim { base: None, ..claim }),
            (_, entry) => entry,
        }
    }

    /// Whether this publish is lost.
    #[must_use]
    pub const fn swallows(self, entry: &Entry) -> bool {
        match (self, entry) {
            (Self::NoRelease, Entry::Done(done)) => matches!(done.outcome, Outcome::Released(_)),
            _ => false,
        }
    }
}

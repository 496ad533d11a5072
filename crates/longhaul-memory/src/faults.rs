//! The possible faults, their rates and durations. All are off by default.
//!
//! A fault has two sources: a rate in [`Faults`], drawn from the seed, and a method of the broker
//! or of a transport, for tests that need exactly one. Both use the same code.

use std::time::Duration;

/// A range of durations to draw from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationRange {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl DurationRange {
    /// Zero.
    pub const ZERO: Self = Self::millis(0, 0);

    /// From `min` to `max` milliseconds.
    #[must_use]
    pub const fn millis(min: u64, max: u64) -> Self {
        Self { min: Duration::from_millis(min), max: Duration::from_millis(max) }
    }

    /// From `min` to `max` seconds.
    #[must_use]
    pub const fn secs(min: u64, max: u64) -> Self {
        Self { min: Duration::from_secs(min), max: Duration::from_secs(max) }
    }

    /// Draws a duration, in whole microseconds.
    pub(super) fn draw(self, rng: &mut fastrand::Rng) -> Duration {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let (min, max) = (micros(self.min), micros(self.max));
        Duration::from_micros(if max > min { rng.u64(min..=max) } else { min })
    }
}

/// How a client learns that its session is over. The broker knows at once, and redelivers the
/// pending messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// An error, again at every further call.
    Error,
    /// One error, then silence for ever: a second call waits without end.
    ErrorThenSilence,
    /// Silence for this time, then an error: the client clings to a dead address.
    SilenceThenError(Duration),
    /// Silence for this time, then the session continues without an error: the client has
    /// reconnected. A follower reads from its start again, a publisher resends entries without a
    /// receipt, a consumer has a new session without the old deliveries.
    Replay(Duration),
    /// Silence for ever. No transport may do this; only a watchdog helps.
    Silence,
}

/// The sessions of a process that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// All of them.
    All,
    /// Publishers.
    Publishers,
    /// Consumers of tasks.
    Consumers,
    /// Followers of a topic.
    Followers,
}

/// The fate of one published entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishFate {
    /// It is stored, and the receipt has its position.
    Stored,
    /// It is never stored; the receipt reports an unknown result.
    Lost,
    /// It is stored; the receipt reports an unknown result.
    ReceiptLost,
    /// The session ends at once; the entry is stored after this time anyway.
    Late(Duration),
    /// The client sends it again after this time, though it had its receipt.
    Resent(Duration),
    /// The first receipt is lost; the client sends it again after this time, and that receipt
    /// counts.
    ResentForReceipt(Duration),
    /// The broker refuses it.
    Refused,
}

/// The weights of the kinds of [`Loss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses {
    /// Weight of [`Loss::Error`].
    pub error: u32,
    /// Weight of [`Loss::ErrorThenSilence`].
    pub error_then_silence: u32,
    /// Weight of [`Loss::SilenceThenError`].
    pub silence_then_error: u32,
    /// Weight of [`Loss::Replay`], for followers.
    pub replay: u32,
    /// Weight of [`Loss::Replay`], for consumers and publishers: other clients do this, the
    /// transport interface forbids it.
    pub hidden_reconnect: u32,
    /// How long a silence lasts.
    pub silence: DurationRange,
}

/// A recurring fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    /// Time from one to the next.
    pub every: DurationRange,
    /// How long each lasts; ignored for instantaneous faults.
    pub lasts: DurationRange,
}

/// The fault plan of a broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Time from handing a message over to its storage.
    pub publish_delay: DurationRange,
    /// Time from the storage to the receipt.
    pub receipt_delay: DurationRange,
    /// Time from the storage to the arrival at a follower.
    pub read_back_delay: DurationRange,
    /// Time from the broker's choice of a consumer to the arrival there.
    pub dispatch_delay: DurationRange,
    /// Time from an ack to its effect, and from there to its receipt.
    pub ack_delay: DurationRange,
    /// Time of one round trip: opening a session, reading a message, asking for a position.
    pub request_delay: DurationRange,
    /// How long a broker keeps the sessions of a silent client.
    pub keep_alive: DurationRange,
    /// Time from a move of the mark-delete position to its storage.
    pub mark_delete_delay: DurationRange,

    /// Rate of entries that are never stored, with an unknown result.
    pub publish_lost: f64,
    /// Rate of entries that are stored, with an unknown result.
    pub receipt_lost: f64,
    /// Rate of entries that are stored after their session is gone.
    pub publish_late: f64,
    /// How late such an entry is stored.
    pub publish_late_by: DurationRange,
    /// Rate of entries that the client sends twice.
    pub resend: f64,
    /// Delay of the second copy.
    pub resend_after: DurationRange,
    /// Rate of entries that the broker refuses.
    pub publish_refused: f64,
    /// Probability that a message in flight is lost when its session ends; all messages behind a
    /// lost one are lost, too.
    pub orphan_dropped: f64,
    /// Rate of acks that are accepted and forgotten, with or without their receipt; the session is
    /// lost soon after.
    pub ack_lost: f64,
    /// Rate of requests that fail.
    pub request_error: f64,
    /// Rate of deliveries that arrive twice at the same consumer.
    pub delivered_twice: f64,
    /// Rate of deliveries that go to the next consumer as well, while the first one is still alive.
    pub redelivered_early: f64,
    /// Delay of the second delivery.
    pub redelivered_after: DurationRange,
    /// Probability that a compaction overtakes a compacted reader in its bootstrap.
    pub compaction_in_bootstrap: f64,
    /// Whether a Key_Shared subscription assigns each message to any consumer. No broker may do
    /// this.
    pub keys_dealt_to_any: bool,

    /// Length of the queue of deliveries that the client requests by itself, as third-party clients
    /// do. Zero: only requested messages are delivered, and the rest of their batch.
    pub prefetch: usize,
    /// How sessions end.
    pub losses: Losses,
    /// One session ends.
    pub connection_lost: Option<Every>,
    /// One partition is unloaded: its sessions end, its ledger rolls.
    pub unload: Option<Every>,
    /// The broker restarts: all sessions end, all ledgers roll, and no client can connect
    /// meanwhile.
    pub restart: Option<Every>,
    /// Probability that a restart forgets the acks above the stored mark-delete position.
    pub restart_forgets_acks: f64,
    /// The broker hangs: nothing moves, and at first nothing fails.
    pub hang: Option<Every>,
    /// No partition stores anything, as when bookies are missing.
    pub publish_stall: Option<Every>,
    /// One topic is away, with all its partitions: its sessions end, and it cannot be opened
    /// meanwhile.
    pub topic_outage: Option<Every>,
    /// One partition is compacted, up to any position.
    pub compaction: Option<Every>,
    /// One partition loses its acknowledged messages; one without subscriptions loses the compacted
    /// part, which is then only in the compacted view.
    pub trim: Option<Every>,
    /// One subscription dispatches nothing until a consumer subscribes anew.
    pub subscription_stall: Option<Every>,
    /// One process is cut off: its sessions end, and it cannot connect meanwhile.
    pub cut: Option<Every>,
    /// One process is in a black hole: it runs on, and nothing gets through in either direction.
    pub black_hole: Option<Every>,
    /// One process is stopped, with its connections, and continues later.
    pub suspension: Option<Every>,
    /// Time after setting the plan from which on there are no more faults; delays remain.
    pub until: Option<Duration>,
}

impl Default for Faults {
    fn default() -> Self {
        Self::quiet()
    }
}

impl Faults {
    /// No faults, and a delay of 1 ms for everything.
    #[must_use]
    pub const fn quiet() -> Self {
        const BRIEF: DurationRange = DurationRange::millis(1, 1);
        Self {
            publish_delay: BRIEF,
            receipt_delay: BRIEF,
            read_back_delay: BRIEF,
            dispatch_delay: BRIEF,
            ack_delay: BRIEF,
            request_delay: BRIEF,
            keep_alive: DurationRange::secs(30, 60),
            mark_delete_delay: DurationRange::ZERO,
            publish_lost: 0.0,
            receipt_lost: 0.0,
            publish_late: 0.0,
            publish_late_by: DurationRange::ZERO,
            resend: 0.0,
            resend_after: DurationRange::ZERO,
            publish_refused: 0.0,
            orphan_dropped: 0.0,
            ack_lost: 0.0,
            request_error: 0.0,
            delivered_twice: 0.0,
            redelivered_early: 0.0,
            redelivered_after: DurationRange::ZERO,
            compaction_in_bootstrap: 0.0,
            keys_dealt_to_any: false,
            prefetch: 3,
            losses: Losses {
                error: 1,
                error_then_silence: 0,
                silence_then_error: 0,
                replay: 0,
                hidden_reconnect: 0,
                silence: DurationRange::ZERO,
            },
            connection_lost: None,
            unload: None,
            restart: None,
            restart_forgets_acks: 0.0,
            hang: None,
            publish_stall: None,
            topic_outage: None,
            compaction: None,
            trim: None,
            subscription_stall: None,
            cut: None,
            black_hole: None,
            suspension: None,
            until: None,
        }
    }

    /// Every fault that a transport may have, often, with durations seen on real Pulsar.
    #[must_use]
    pub const fn rough() -> Self {
        const fn every(every: DurationRange, lasts: DurationRange) -> Option<Every> {
            Some(Every { every, lasts })
        }
        Self {
            publish_delay: DurationRange::millis(1, 40),
            receipt_delay: DurationRange::millis(0, 40),
            read_back_delay: DurationRange::millis(1, 200),
            dispatch_delay: DurationRange::millis(1, 200),
            ack_delay: DurationRange::millis(1, 100),
            request_delay: DurationRange::millis(1, 50),
            mark_delete_delay: DurationRange::millis(0, 60_000),
            publish_lost: 0.01,
            receipt_lost: 0.01,
            publish_late: 0.005,
            publish_late_by: DurationRange::millis(100, 60_000),
            resend: 0.01,
            resend_after: DurationRange::millis(1, 10_000),
            publish_refused: 0.002,
            orphan_dropped: 0.3,
            ack_lost: 0.02,
            request_error: 0.02,
            delivered_twice: 0.01,
            redelivered_early: 0.02,
            redelivered_after: DurationRange::millis(0, 30_000),
            compaction_in_bootstrap: 0.3,
            losses: Losses {
                error: 3,
                error_then_silence: 2,
                silence_then_error: 2,
                replay: 4,
                hidden_reconnect: 0,
                silence: DurationRange::millis(150, 42_000),
            },
            connection_lost: every(DurationRange::secs(1, 60), DurationRange::ZERO),
            unload: every(DurationRange::secs(5, 180), DurationRange::ZERO),
            restart: every(DurationRange::secs(60, 900), DurationRange::secs(1, 30)),
            restart_forgets_acks: 0.5,
            hang: every(DurationRange::secs(60, 600), DurationRange::secs(1, 60)),
            publish_stall: every(DurationRange::secs(60, 600), DurationRange::secs(1, 26)),
            topic_outage: every(DurationRange::secs(60, 600), DurationRange::secs(1, 60)),
            compaction: every(DurationRange::secs(1, 60), DurationRange::ZERO),
            trim: every(DurationRange::secs(10, 120), DurationRange::ZERO),
            subscription_stall: every(DurationRange::secs(60, 900), DurationRange::ZERO),
            cut: every(DurationRange::secs(60, 600), DurationRange::secs(1, 60)),
            black_hole: every(DurationRange::secs(60, 600), DurationRange::secs(1, 120)),
            suspension: every(DurationRange::secs(20, 300), DurationRange::secs(1, 120)),
            ..Self::quiet()
        }
    }

    /// The same delays without faults.
    #[must_use]
    pub const fn calm(&self) -> Self {
        Self {
            publish_delay: self.publish_delay,
            receipt_delay: self.receipt_delay,
            read_back_delay: self.read_back_delay,
            dispatch_delay: self.dispatch_delay,
            ack_delay: self.ack_delay,
            request_delay: self.request_delay,
            keep_alive: self.keep_alive,
            mark_delete_delay: self.mark_delete_delay,
            prefetch: self.prefetch,
            losses: self.losses,
            ..Self::quiet()
        }
    }
}

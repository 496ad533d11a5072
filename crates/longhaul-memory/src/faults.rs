//! What goes wrong, how often and for how long. All of it is off until asked for.
//!
//! Two ways lead to a fault: a rate in [`Faults`], drawn from the seed, and a method of the broker
//! or of a transport, for tests that want exactly one. Both end in the same code.

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
    /// No time at all.
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

    /// Draws one, in whole microseconds.
    pub(super) fn draw(self, rng: &mut fastrand::Rng) -> Duration {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let (min, max) = (micros(self.min), micros(self.max));
        Duration::from_micros(if max > min { rng.u64(min..=max) } else { min })
    }
}

/// How a client learns that its session is over. The broker knows at once, and delivers again what
/// was pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// An error, again at every further call.
    Error,
    /// One error, then silence for ever: whoever asks a second time waits in vain.
    ErrorThenSilence,
    /// Nothing for so long, then an error: the client below clings to a dead address.
    SilenceThenError(Duration),
    /// Nothing for so long, then it goes on without a word: the client below has connected anew. A
    /// follower reads from its start again, a publisher resends what has no receipt, a consumer has
    /// a new session and nothing of the old one.
    Replay(Duration),
    /// Nothing, for ever. No transport may do that; a watchdog is all that helps.
    Silence,
}

/// Which sessions of a process a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// All of them.
    All,
    /// Those that publish.
    Publishers,
    /// Those that consume tasks.
    Consumers,
    /// Those that follow a topic.
    Followers,
}

/// What becomes of one entry that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishFate {
    /// It is stored, and the receipt says where.
    Stored,
    /// It is never stored; the receipt says that nobody knows.
    Lost,
    /// It is stored; the receipt says that nobody knows.
    ReceiptLost,
    /// The session ends at once; the entry lands so much later all the same.
    Late(Duration),
    /// The client sends it again so much later, though it had its receipt.
    Resent(Duration),
    /// The first receipt gets lost; the client sends it again so much later, and that receipt
    /// counts.
    ResentForReceipt(Duration),
    /// The broker refuses it.
    Refused,
}

/// How many times each [`Loss`] is drawn, relative to the others.
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
    /// Weight of [`Loss::Replay`], for consumers and publishers: other clients do it, the seam
    /// forbids it.
    pub hidden_reconnect: u32,
    /// How long a silence lasts.
    pub silence: DurationRange,
}

/// A fault that comes now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    /// Time from one to the next.
    pub every: DurationRange,
    /// How long each lasts; without meaning for what is over at once.
    pub lasts: DurationRange,
}

/// The fault plan of a broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// From handing a message over to its being stored.
    pub publish_delay: DurationRange,
    /// From its being stored to the receipt.
    pub receipt_delay: DurationRange,
    /// From its being stored to a follower's having it.
    pub read_back_delay: DurationRange,
    /// From the broker's choice of a consumer to that consumer's having it.
    pub dispatch_delay: DurationRange,
    /// From an ack to its taking effect, and from there to its receipt.
    pub ack_delay: DurationRange,
    /// One round trip: opening a session, reading a message, asking for a position.
    pub request_delay: DurationRange,
    /// How long a broker keeps the sessions of a client that has gone silent.
    pub keep_alive: DurationRange,
    /// From a move of the mark-delete position to its being stored.
    pub mark_delete_delay: DurationRange,

    /// Rate of entries that are never stored, with unknown fate.
    pub publish_lost: f64,
    /// Rate of entries that are stored, with unknown fate.
    pub receipt_lost: f64,
    /// Rate of entries that land after their session is gone.
    pub publish_late: f64,
    /// How late such an entry lands.
    pub publish_late_by: DurationRange,
    /// Rate of entries that the client sends twice.
    pub resend: f64,
    /// When it sends the second copy.
    pub resend_after: DurationRange,
    /// Rate of entries that the broker refuses.
    pub publish_refused: f64,
    /// Chance of whatever is under way to be lost when its session ends; once one is lost, so is
    /// all behind it.
    pub orphan_dropped: f64,
    /// Rate of acks that are accepted and forgotten, their receipt included or not; the session is
    /// lost soon after.
    pub ack_lost: f64,
    /// Rate of requests that fail.
    pub request_error: f64,
    /// Rate of deliveries that arrive twice at the same consumer.
    pub delivered_twice: f64,
    /// Rate of deliveries that go to the next consumer as well, while the first one still lives.
    pub redelivered_early: f64,
    /// How long after the first delivery that happens.
    pub redelivered_after: DurationRange,
    /// Chance that a compaction overtakes a compacted reader in its bootstrap.
    pub compaction_in_bootstrap: f64,
    /// A Key_Shared subscription deals each message to any consumer. No broker may do that.
    pub keys_dealt_to_any: bool,

    /// Deliveries that the client below asks for by itself and keeps in a queue of this length, as
    /// third-party clients do. Zero: only what was asked for is delivered, and the rest of its
    /// batch.
    pub prefetch: usize,
    /// How sessions end.
    pub losses: Losses,
    /// One session ends.
    pub connection_lost: Option<Every>,
    /// One partition is unloaded: its sessions end, its ledger rolls.
    pub unload: Option<Every>,
    /// The broker restarts: all sessions end, all ledgers roll, nobody can connect meanwhile.
    pub restart: Option<Every>,
    /// Chance that a restart forgets the acks above the stored mark-delete position.
    pub restart_forgets_acks: f64,
    /// The broker hangs: nothing moves, and nothing fails at first.
    pub hang: Option<Every>,
    /// No partition stores anything, as when bookies are missing.
    pub publish_stall: Option<Every>,
    /// One topic is away, with all its partitions: its sessions end, and nobody can open it
    /// meanwhile.
    pub topic_outage: Option<Every>,
    /// One partition is compacted, up to any position.
    pub compaction: Option<Every>,
    /// One partition loses its acknowledged messages; one without subscriptions what was compacted,
    /// and then is found in the compacted view only.
    pub trim: Option<Every>,
    /// One subscription dispatches nothing any more, until a consumer subscribes anew.
    pub subscription_stall: Option<Every>,
    /// One process is cut off: its sessions end, and it cannot connect meanwhile.
    pub cut: Option<Every>,
    /// One process is behind a black hole: it runs on, and nothing comes through in either
    /// direction.
    pub black_hole: Option<Every>,
    /// One process is stopped, with its connections, and goes on later.
    pub suspension: Option<Every>,
    /// From then on, counted from the moment the plan was set, nothing goes wrong any more; delays
    /// stay.
    pub until: Option<Duration>,
}

impl Default for Faults {
    fn default() -> Self {
        Self::quiet()
    }
}

impl Faults {
    /// Nothing goes wrong, and everything takes a millisecond.
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

    /// Everything that a transport may do goes wrong, often, in the figures seen on real Pulsar.
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

    /// The same delays, and nothing that goes wrong.
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

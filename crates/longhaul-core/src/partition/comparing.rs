//! Compares what a first read has found with what workers that run know: see `protocol::digest`.
//!
//! ```text
//!               nobody else is known, or nobody answers in time
//!   first read ─────────────────────────────────────────────────▶ ready
//!      │  ▲           an equal answer                               ▲
//!      │  └── ask again ◀── the first answer that differs           │
//!      └──── read view and log ◀── one to that question             │
//!              └── say so ◀── the same again ───────────────────────┘
//! ```
//!
//! The first answer that differs proves nothing: the view may have been compacted behind the
//! position of the question, and lack keys that were removed there.
//!
//! A worker that is ready without an answer goes on asking, as long as it knows of others that could
//! answer, and an answer that comes late counts: at worst it has begun something twice meanwhile.
//!
//! Two workers that began on the same wrong view agree. So whoever has an answer that differs from
//! the one that was given gives it, too, and one difference outweighs an equal answer until the log
//! was read. From then on an equal answer suffices: the other worker may be the one that is wrong.

use super::{Mode, Partition, PartitionEffect};
use crate::protocol::digest::{Comparison, FoldDigest};
use crate::protocol::entry::Heartbeat;
use crate::protocol::key::OwnerId;
use crate::protocol::moment::Moment;
use crate::protocol::rank::{SLOT, rank};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The last place by rank that answers: each a turn later than the one before, unless another one
/// was faster. Those in front may have died a moment ago.
const PLACE_MAX: u32 = 8;

/// How long a worker waits for an answer before it begins. Who dies has a place in line for 2 H, so
/// a worker that starts again after a crash waits as long. Once an answer has differed the wait
/// lasts 2 H.
const ANSWER_MAX: Duration = SLOT.saturating_mul(4);

/// The most questions that wait for answers, of this worker and of others. Beyond that, older ones of
/// this worker and newer ones of others are dropped.
const QUESTIONS_MAX: usize = 64;

/// How often it is said that another worker knows the ledger differently.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// How long the log is not read again for the same reason; the time doubles with each read.
const REREAD_AFTER: Duration = Duration::from_secs(600);
const REREAD_DOUBLINGS_MAX: u32 = 6;

/// The comparison of a worker with others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Comparing {
    /// What a self-fence does not forget.
    pub(super) kept: Distrust,
    /// The own questions of the last 2 H, the newest first.
    asked: VecDeque<OwnQuestion>,
    /// Whether another worker has the same digest, or there is none that answers.
    is_confirmed: bool,
    /// Since when nobody answers.
    unanswered: Option<Moment>,
    /// The number of the heartbeat that was sent because an answer had differed: one to an earlier
    /// question proves nothing.
    asked_again: Option<u64>,
    /// When to say the next time that another worker knows the ledger differently.
    tell_at: Moment,
    /// The last question of each other worker, while answers may come.
    heard: BTreeMap<OwnerId, HeardQuestion>,
}

/// Whether the compacted view of the ledger is known to be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Distrust {
    /// How often the log was read for this reason.
    reads: u32,
    /// When the log may be read again for this reason.
    again_at: Moment,
    /// Whether the worker was at work before it was read the last time.
    worked: bool,
}

/// A question of this worker, in the heartbeat of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OwnQuestion {
    number: u64,
    digest: FoldDigest,
    came_back: Moment,
}

/// A question of another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HeardQuestion {
    number: u64,
    /// The own digest at its position.
    digest: FoldDigest,
    /// When to answer; `None`: this digest was answered.
    at: Option<Moment>,
    /// When all have answered that do.
    until: Moment,
}

impl Comparing {
    /// Drops what an owner has asked that left.
    pub(super) fn left(&mut self, owner: OwnerId) {
        self.heard.remove(&owner);
    }
}

impl Partition {
    /// Whether the log is to be read behind the part of the ledger that is only in the compacted
    /// view: the view has lost entries.
    #[must_use]
    pub const fn reads_log(&self) -> bool {
        self.log_reads() > 0
    }

    /// How often the log was read because the view had lost entries.
    #[must_use]
    pub const fn log_reads(&self) -> u32 {
        self.comparing.kept.reads
    }

    /// Whether the next heartbeat asks the others for their digest.
    pub(super) const fn asks(&self) -> bool {
        !self.comparing.is_confirmed
    }

    /// When there is something to do.
    pub(super) fn comparison_at(&self) -> Option<Moment> {
        let answers = self.comparing.heard.values().filter_map(|question| question.at);
        answers.chain(self.begins_at()).min()
    }

    /// When a first read that has come to its end goes without an answer.
    fn begins_at(&self) -> Option<Moment> {
        let doubted = self.comparing.asked_again.is_some() || self.reads_log();
        let patience = if doubted { self.silence_max() } else { ANSWER_MAX };
        let unanswered = self.comparing.unanswered.filter(|_| self.mode == Mode::Bootstrap);
        unanswered.map(|since| since + patience)
    }

    fn silence_max(&self) -> Duration {
        2 * self.settings.ledger.heartbeat
    }

    /// Handles the own heartbeat that shows that the ledger was read to its end.
    pub(super) fn compare(&mut self, number: u64, now: Moment) {
        if !self.comparing.is_confirmed {
            let question = OwnQuestion { number, digest: self.machine.digest(), came_back: now };
            let asked = &mut self.comparing.asked;
            asked.truncate(QUESTIONS_MAX - 1);
            asked.push_front(question);
            let since = *self.comparing.unanswered.get_or_insert(now);
            // Without others somebody whose heartbeats were lost, too, answers all the same, as a
            // rule before the first claim of this worker has come back.
            self.comparing.is_confirmed = self.silence.ready_owners().next().is_none()
                || self.mode != Mode::Bootstrap && now.since(since) > self.silence_max();
        }
        if self.comparing.is_confirmed {
            self.end_if_reading(now);
        }
    }

    /// Ends a first read that has come to the end of the ledger a short while ago. Otherwise the
    /// next own heartbeat does.
    fn end_if_reading(&mut self, now: Moment) {
        if self.mode == Mode::Bootstrap && self.has_recent_view(now) {
            self.end_bootstrap(now);
            self.recheck_rank(now);
        }
    }

    /// Handles what another owner's heartbeat says of a comparison.
    pub(super) fn hear_comparison(&mut self, heartbeat: &Heartbeat, now: Moment) {
        match heartbeat.comparison {
            Some(Comparison::Question) if self.comparing.is_confirmed => {
                self.prepare_answer(heartbeat, now);
            }
            Some(Comparison::Answer { to, number, digest }) if to == self.machine.owner() => {
                self.hear_answer(heartbeat.owner, (number, digest), now);
            }
            Some(Comparison::Answer { to, number, digest }) => {
                let heard = self.comparing.heard.get_mut(&to);
                let same =
                    |heard: &&mut HeardQuestion| (heard.number, heard.digest) == (number, digest);
                if let Some(heard) = heard.filter(same) {
                    heard.at = None;
                }
            }
            Some(Comparison::Question) | None => {}
        }
    }

    fn hear_answer(&mut self, from: OwnerId, (number, digest): (u64, FoldDigest), now: Moment) {
        let own = self.comparing.asked.iter().find(|asked| asked.number == number).copied();
        let Some(own) = own else { return };
        self.comparing.unanswered = None;
        if own.digest == digest {
            let doubted = self.comparing.asked_again.is_some_and(|again| number < again);
            if !doubted || self.reads_log() {
                self.comparing.is_confirmed = true;
                self.end_if_reading(now);
            }
            return;
        }
        if self.mode == Mode::Draining {
            // It begins nothing any more, and is to give back what runs.
            return;
        }
        let lacks = own.digest.lacks(digest);
        if self.reads_log() && self.comparing.is_confirmed {
            return self.tell(from, lacks, now);
        }
        let Some(again) = self.comparing.asked_again else {
            self.comparing.is_confirmed = false;
            self.comparing.asked_again = Some(self.silence.next_number());
            return self.send_heartbeats(now);
        };
        if number < again || self.distrust_view(now) {
            return;
        }
        self.tell(from, lacks, now);
        if self.comparing.kept.worked {
            // Its running attempts would be stuck, and it has worked with what it knows.
            self.comparing.is_confirmed = true;
            self.end_if_reading(now);
        }
    }

    /// Says that another worker knows the ledger differently, and whether this one works.
    fn tell(&mut self, other: OwnerId, lacks: u64, now: Moment) {
        if now >= self.comparing.tell_at {
            self.comparing.tell_at = now + TOLD_EVERY;
            let works = self.mode != Mode::Bootstrap || self.comparing.kept.worked;
            self.effects.push_back(PartitionEffect::Differs { other, lacks, works });
        }
    }

    /// Begins afresh, with the log in place of the view. Returns false if that was done a short
    /// while ago.
    fn distrust_view(&mut self, now: Moment) -> bool {
        let Distrust { reads, again_at, .. } = self.comparing.kept;
        if reads > 0 && now < again_at {
            return false;
        }
        let pause = REREAD_AFTER * (1 << reads.min(REREAD_DOUBLINGS_MAX));
        let (again_at, worked) = (now + pause, self.mode != Mode::Bootstrap);
        self.comparing.kept = Distrust { reads: reads.saturating_add(1), again_at, worked };
        self.fence();
        true
    }

    fn prepare_answer(&mut self, heartbeat: &Heartbeat, now: Moment) {
        let Heartbeat { owner, number, .. } = *heartbeat;
        let place = rank(self.shared_duty(), self.machine.owner(), self.silence.ready_owners());
        let Some(turn) = u32::try_from(place).ok().filter(|turn| *turn <= PLACE_MAX) else {
            return;
        };
        let heard = &mut self.comparing.heard;
        if heard.len() >= QUESTIONS_MAX {
            heard.retain(|_, question| question.at.is_some());
        }
        let pending = heard.get(&owner).and_then(|question| question.at);
        if heard.len() < QUESTIONS_MAX || pending.is_some() {
            // Whoever asks again and again is answered all the same.
            let at = Some(pending.unwrap_or(now + SLOT * turn));
            let (digest, until) = (self.machine.digest(), now + SLOT * (PLACE_MAX + 1));
            heard.insert(owner, HeardQuestion { number, digest, at, until });
        }
    }

    /// Answers the questions whose turn it is, and ends the wait for an answer.
    pub(super) fn recheck_comparison(&mut self, now: Moment) {
        let patience = self.silence_max();
        self.comparing.asked.retain(|question| now.since(question.came_back) <= patience);
        self.comparing.heard.retain(|_, question| question.at.is_some() || question.until > now);
        let mut answers = Vec::new();
        for (to, heard) in &mut self.comparing.heard {
            if heard.at.is_some_and(|at| at <= now) {
                heard.at = None;
                let HeardQuestion { number, digest, .. } = *heard;
                answers.push(Comparison::Answer { to: *to, number, digest });
            }
        }
        for answer in answers {
            self.send_heartbeats_saying(Some(answer), now);
        }
        if self.begins_at().is_some_and(|at| at <= now) {
            self.comparing.unanswered = None;
            self.end_if_reading(now);
        }
    }
}

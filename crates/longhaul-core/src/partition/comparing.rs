//! Compares what a first read has found with what workers that run know: see `protocol::digest`.
//!
//! ```text
//!               nobody else is known, or nobody answers in time
//!   first read ─────────────────────────────────────────────────▶ ready
//!      │  ▲           an equal answer                               ▲
//!      │  └── ask again ◀── the first answer that differs           │
//!      └──── read view and log ◀── the second one                   │
//!              └── say what is missing ◀── each further one ────────┘
//! ```
//!
//! The first answer that differs proves nothing: the view may have been compacted behind the
//! position of the question, and lack keys that were removed there.
//!
//! A worker that is ready without an answer goes on asking, as long as it knows of others that could
//! answer, and an answer that comes late counts: at worst it has begun something twice meanwhile.
//!
//! Two workers that began on the same wrong view agree. So whoever has an answer that differs from
//! the one that was given gives it, too; and who hears one from a worker that runs for longer than
//! itself reads the log as well.

use super::{Mode, Partition, PartitionEffect};
use crate::protocol::digest::{Comparison, FoldDigest};
use crate::protocol::entry::Heartbeat;
use crate::protocol::key::OwnerId;
use crate::protocol::moment::Moment;
use crate::protocol::rank::{SLOT, rank};
use crate::task::TaskId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The last place by rank that answers: each a turn later than the one before, unless another one
/// was faster. Those in front may have died a moment ago.
const PLACE_MAX: u32 = 8;

/// How long a worker waits for an answer before it begins. Who dies has a place in line for 2 H, so
/// a worker that starts again after a crash waits as long.
const ANSWER_MAX: Duration = SLOT.saturating_mul(4);

/// Questions that wait for their answers, of this worker and of others. Older ones are dropped.
const QUESTIONS_MAX: usize = 64;

/// The answers of others that differed after which view and log are read.
const VIEW_DIFFERS: u32 = 2;

/// How often it is said that the ledger is incomplete.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The comparison of a worker with others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Comparing {
    /// The own questions of the last 2 H, the newest first.
    asked: VecDeque<OwnQuestion>,
    /// Whether another worker has the same digest, or there is none.
    is_confirmed: bool,
    /// Until when the first read is prolonged for an answer.
    until: Option<Moment>,
    /// How many answers have differed.
    differing: u32,
    /// When to say the next time that the ledger is incomplete.
    tell_at: Moment,
    /// The last question of each other worker, while answers may come.
    heard: BTreeMap<OwnerId, HeardQuestion>,
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
    /// When there is something to do.
    pub(super) fn next(&self) -> Option<Moment> {
        self.heard.values().filter_map(|question| question.at).chain(self.until).min()
    }

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
        self.comparing.differing >= VIEW_DIFFERS
    }

    /// Whether the next heartbeat asks the others for their digest.
    pub(super) const fn asks(&self) -> bool {
        !self.comparing.is_confirmed
    }

    /// Handles the own heartbeat that shows that the ledger was read to its end.
    pub(super) fn compare(&mut self, number: u64, now: Moment) {
        if self.comparing.is_confirmed {
            return;
        }
        let question = OwnQuestion { number, digest: self.machine.digest(), came_back: now };
        let Comparing { asked, until, is_confirmed, .. } = &mut self.comparing;
        asked.truncate(QUESTIONS_MAX - 1);
        asked.push_front(question);
        if self.silence.ready_owners().next().is_some() {
            until.get_or_insert(now + ANSWER_MAX);
            return;
        }
        // Somebody whose heartbeats were lost, too, answers all the same, as a rule before the first
        // claim of this worker has come back.
        *is_confirmed = true;
        if self.mode == Mode::Bootstrap {
            self.end_bootstrap(now);
        }
    }

    /// Handles what another owner's heartbeat says of a comparison.
    pub(super) fn hear_comparison(&mut self, heartbeat: &Heartbeat, now: Moment) {
        match heartbeat.comparison {
            Some(Comparison::Question) if self.comparing.is_confirmed => {
                self.prepare_answer(heartbeat, now);
            }
            Some(Comparison::Answer { to, number, digest }) if to == self.machine.owner() => {
                self.hear_answer(number, digest, now);
            }
            Some(Comparison::Answer { to, number, digest }) => {
                let younger = self.uptime_ms(now) < heartbeat.uptime_ms;
                let heard = self.comparing.heard.get_mut(&to);
                let Some(heard) = heard.filter(|heard| heard.number == number) else { return };
                if heard.digest == digest {
                    heard.at = None;
                } else if younger {
                    self.distrust_view();
                }
            }
            Some(Comparison::Question) | None => {}
        }
    }

    /// Reads the log in place of the view, unless that was done.
    fn distrust_view(&mut self) {
        if !self.reads_log() {
            self.fence();
            self.comparing.differing = VIEW_DIFFERS;
        }
    }

    fn hear_answer(&mut self, number: u64, digest: FoldDigest, now: Moment) {
        let Comparing { asked, until, differing, .. } = &mut self.comparing;
        let Some(own) = asked.iter().find(|asked| asked.number == number).copied() else {
            return;
        };
        *until = None;
        if own.digest == digest {
            self.comparing.is_confirmed = true;
            if self.mode == Mode::Bootstrap {
                self.end_bootstrap(now);
                self.recheck_rank(now);
            }
            return;
        }
        asked.retain(|asked| asked.number > number);
        if self.mode != Mode::Bootstrap || *differing + 1 == VIEW_DIFFERS {
            return self.distrust_view();
        }
        *differing += 1;
        if *differing < VIEW_DIFFERS {
            self.send_heartbeats(now);
        } else if now >= self.comparing.tell_at {
            self.comparing.tell_at = now + TOLD_EVERY;
            self.effects.push_back(PartitionEffect::Incomplete(own.digest.lacks(digest)));
        }
    }

    fn prepare_answer(&mut self, heartbeat: &Heartbeat, now: Moment) {
        let Heartbeat { owner, number, .. } = *heartbeat;
        let partition = self.settings.partition;
        let question = TaskId { ledger: 0, entry: 0, partition, batch_index: None };
        let place = rank(question, self.machine.owner(), self.silence.ready_owners());
        let turn = u32::try_from(place).ok().filter(|turn| *turn <= PLACE_MAX);
        let Some(turn) = turn else { return };
        let heard = &mut self.comparing.heard;
        if heard.len() >= QUESTIONS_MAX {
            heard.retain(|_, question| question.at.is_some());
        }
        if heard.len() < QUESTIONS_MAX {
            let (at, until) = (Some(now + SLOT * turn), now + SLOT * (PLACE_MAX + 1));
            let digest = self.machine.digest();
            heard.insert(owner, HeardQuestion { number, digest, at, until });
        }
    }

    /// Answers the questions whose turn it is, and ends the wait for an answer.
    pub(super) fn recheck_comparison(&mut self, now: Moment) {
        let patience = 2 * self.settings.ledger.heartbeat;
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
            let own = self.silence.send(now);
            let heartbeat = self.heartbeat(self.machine.owner(), own, now);
            self.publish_heartbeat(Heartbeat { comparison: Some(answer), ..heartbeat });
        }
        if self.comparing.until.is_some_and(|until| until <= now) {
            self.comparing.until = None;
            // Once a difference is known, only silence for 2 H counts: see `compare`.
            if self.mode == Mode::Bootstrap && self.comparing.differing == 0 {
                self.end_bootstrap(now);
                self.recheck_rank(now);
            }
        }
    }
}

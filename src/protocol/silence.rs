//! Who has fallen silent, on the reader's own clock.
//!
//! A heartbeat read back at its send time `t` proves that the local view is complete up to `t`. So an owner is stale when the
//! last own heartbeat that came back was *sent* more than 2 H after anything of that owner was last read: own lag never makes
//! others look stale. Silence counts only over an unbroken run of own heartbeats. After a gap of more than 1.5 H between two of
//! them, as after a restart, everybody's silence starts afresh: else, after an outage of the ledger, the first worker back
//! would take over the whole fleet.

use super::key::OwnerId;
use super::moment::Moment;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// At least this long between two heartbeats, extra ones included.
const HEARTBEAT_SPACING_MIN: Duration = Duration::from_millis(100);

/// Heartbeats that may be on their way at once. Older ones count as lost.
const UNDERWAY_MAX: usize = 64;

/// Own heartbeats and the silence of others, on one partition of the ledger.
#[derive(Clone, Debug)]
pub struct Silence {
    heartbeat: Duration,
    /// Own heartbeats that have not come back: number and send time.
    underway: VecDeque<(u64, Moment)>,
    /// Number of the next one.
    next_number: u64,
    last_sent: Option<Moment>,
    /// Send time of the last own heartbeat that came back: the view is complete up to here.
    view_at: Option<Moment>,
    /// How long that one took.
    lag: Duration,
    /// Nobody's silence began before: end of the bootstrap, or of the last gap.
    floor: Moment,
    owners: BTreeMap<OwnerId, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Moment,
    /// Uptime in its last heartbeat, and when that was read.
    uptime: Option<(Duration, Moment)>,
}

impl Silence {
    /// Nothing sent, nothing seen.
    #[must_use]
    pub const fn new(heartbeat: Duration) -> Self {
        Self {
            heartbeat,
            underway: VecDeque::new(),
            next_number: 1,
            last_sent: None,
            view_at: None,
            lag: Duration::ZERO,
            floor: Moment(Duration::ZERO),
            owners: BTreeMap::new(),
        }
    }

    /// Numbers a heartbeat that is sent now.
    pub fn send(&mut self, now: Moment) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.last_sent = Some(now);
        self.underway.push_back((number, now));
        if self.underway.len() > UNDERWAY_MAX {
            self.underway.pop_front();
        }
        number
    }

    /// The number of the last heartbeat sent.
    #[must_use]
    pub const fn last_number(&self) -> Option<u64> {
        self.next_number.checked_sub(1)
    }

    /// An own heartbeat came back. True if it is the first after a start or a gap.
    pub fn came_back(&mut self, number: u64, now: Moment) -> bool {
        let Some(&(_, sent)) = self.underway.iter().find(|(n, _)| *n == number) else {
            return false;
        };
        self.underway.retain(|(n, _)| *n > number);
        let gap = self.view_at.is_none_or(|at| sent.since(at) > self.heartbeat.mul_f32(1.5));
        if gap {
            self.floor = if self.view_at.is_none() { now } else { sent };
        }
        self.view_at = Some(sent);
        self.lag = now.since(sent);
        gap
    }

    /// Anything of an owner was read.
    pub fn heard(&mut self, owner: OwnerId, now: Moment) {
        self.owners.entry(owner).or_insert(Seen { at: now, uptime: None }).at = now;
    }

    /// A heartbeat of another owner was read. Returns by how much its uptime has outrun the own clock since its last one: a
    /// large value says that this machine was suspended in a way its clock did not notice.
    pub fn heard_heartbeat(&mut self, owner: OwnerId, uptime: Duration, now: Moment) -> Duration {
        self.heard(owner, now);
        let Some(seen) = self.owners.get_mut(&owner) else { return Duration::ZERO };
        let before = seen.uptime.replace((uptime, now));
        before.map_or(Duration::ZERO, |(earlier, at)| {
            uptime.saturating_sub(earlier).saturating_sub(now.since(at))
        })
    }

    /// The owner's heartbeat key was tombstoned: it left.
    pub fn left(&mut self, owner: OwnerId) {
        self.owners.remove(&owner);
    }

    /// When the owner's silence began.
    #[must_use]
    pub fn silent_since(&self, owner: OwnerId) -> Moment {
        self.owners.get(&owner).map_or(self.floor, |seen| seen.at.max(self.floor))
    }

    /// Whether the owner has been silent for more than 2 H of a view known to be complete.
    #[must_use]
    pub fn is_stale(&self, owner: OwnerId) -> bool {
        self.view_at.is_some_and(|view_at| view_at > self.stale_at(owner))
    }

    /// The send time that a heartbeat must pass, and come back, before the owner can be called stale.
    #[must_use]
    pub fn stale_at(&self, owner: OwnerId) -> Moment {
        self.silent_since(owner) + 2 * self.heartbeat
    }

    /// Up to when the view is known to be complete; `None` before the bootstrap has ended.
    #[must_use]
    pub const fn view_at(&self) -> Option<Moment> {
        self.view_at
    }

    /// Whether the view is good enough to claim by: at most 2 H old, and read back with a lag of at most H/2 (else most claims
    /// would come back too late to be run).
    #[must_use]
    pub fn may_claim(&self, now: Moment) -> bool {
        let fresh = |at: Moment| now.since(at) <= 2 * self.heartbeat;
        self.view_at.is_some_and(fresh) && self.lag <= self.heartbeat / 2
    }

    /// When the next heartbeat is due: H after the last one; at once when the last one came back so late that nothing may be
    /// claimed by it, and none is on its way that could tell better.
    #[must_use]
    pub fn heartbeat_at(&self) -> Moment {
        let blocked = self.lag > self.heartbeat / 2 && self.underway.is_empty();
        let spacing = if blocked { HEARTBEAT_SPACING_MIN } else { self.heartbeat };
        self.last_sent.map_or_else(Moment::default, |sent| sent + spacing)
    }

    /// When to send one more heartbeat that could settle whether the owner is stale, so that it need not wait for the next
    /// regular one. `None`: one that can is on its way.
    #[must_use]
    pub fn extra_at(&self, owner: OwnerId) -> Option<Moment> {
        let after = self.stale_at(owner) + Duration::from_millis(1);
        match self.last_sent {
            Some(sent) if sent >= after => None,
            Some(sent) => Some(after.max(sent + HEARTBEAT_SPACING_MIN)),
            None => Some(after),
        }
    }

    /// Owners heard of within 2 H, besides the own one.
    pub fn live_owners(&self, now: Moment) -> impl Iterator<Item = OwnerId> {
        let recent = now - 2 * self.heartbeat;
        self.owners.iter().filter(move |(_, seen)| seen.at >= recent).map(|(owner, _)| *owner)
    }

    /// Owners that have been silent for longer than `limit`: their heartbeat keys are of no more use.
    pub fn silent_for(&self, limit: Duration, now: Moment) -> impl Iterator<Item = OwnerId> {
        let gone = move |owner: &OwnerId| now.since(self.silent_since(*owner)) > limit;
        self.owners.keys().copied().filter(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H: Duration = Duration::from_secs(10);
    const OTHER: OwnerId = OwnerId(7);

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    /// Sends a heartbeat at each of these seconds; each comes back at once.
    fn beat(silence: &mut Silence, seconds: impl IntoIterator<Item = u64>) {
        for second in seconds {
            let number = silence.send(at(second));
            silence.came_back(number, at(second));
        }
    }

    #[test]
    fn an_owner_is_stale_only_when_a_heartbeat_sent_after_2h_of_silence_came_back() {
        let mut silence = Silence::new(H);
        beat(&mut silence, [100]);
        silence.heard(OTHER, at(105));
        beat(&mut silence, [110, 120]);
        assert!(!silence.is_stale(OTHER));
        assert_eq!(silence.extra_at(OTHER), Some(at(125) + Duration::from_millis(1)));
        let number = silence.send(at(126));
        assert!(!silence.is_stale(OTHER), "not before it came back");
        assert_eq!(silence.extra_at(OTHER), None);
        silence.came_back(number, at(140));
        assert!(silence.is_stale(OTHER));
    }

    #[test]
    fn silence_starts_afresh_after_an_outage_of_the_ledger() {
        let mut silence = Silence::new(H);
        beat(&mut silence, [100]);
        silence.heard(OTHER, at(101));
        // Nothing came back for 25 s. The first worker back must not take everybody else for dead.
        beat(&mut silence, [125]);
        assert!(!silence.is_stale(OTHER));
        beat(&mut silence, [135, 145]);
        assert!(!silence.is_stale(OTHER));
        beat(&mut silence, [146]);
        assert!(silence.is_stale(OTHER));
    }

    #[test]
    fn an_owner_never_heard_of_is_silent_since_the_bootstrap() {
        let mut silence = Silence::new(H);
        assert!(!silence.is_stale(OTHER));
        beat(&mut silence, [100, 110, 120]);
        assert!(!silence.is_stale(OTHER));
        beat(&mut silence, [121]);
        assert!(silence.is_stale(OTHER));
    }

    #[test]
    fn a_laggard_does_not_claim() {
        let mut silence = Silence::new(H);
        let number = silence.send(at(100));
        silence.came_back(number, at(106));
        assert!(!silence.may_claim(at(106)));
        beat(&mut silence, [107]);
        assert!(silence.may_claim(at(127)) && !silence.may_claim(at(128)));
    }

    /// A worker that took 6 s to read a ledger of 100,000 finished tasks was ready, and claimed nothing until its next regular
    /// heartbeat: the first one had come back only at the end of all that reading.
    #[test]
    fn a_lag_that_forbids_claims_is_measured_anew_at_once() {
        let mut silence = Silence::new(H);
        let number = silence.send(at(100));
        assert_eq!(silence.heartbeat_at(), at(110), "one is on its way");
        silence.came_back(number, at(106));
        assert!(!silence.may_claim(at(106)) && silence.heartbeat_at() <= at(106));
        let number = silence.send(at(106));
        assert_eq!(silence.heartbeat_at(), at(116), "not another one before it came back");
        silence.came_back(number, at(107));
        assert!(silence.may_claim(at(107)));
        assert_eq!(silence.heartbeat_at(), at(116));
    }
}

//! Detects silent owners, by the reader's own clock.
//!
//! A heartbeat read back that was sent at `t` proves that the local view is complete up to `t`. So
//! an owner is stale when the last own heartbeat that came back was *sent* more than 2 heartbeat
//! intervals (H) after any entry of that owner was last read: the reader's own lag never makes
//! others look stale. Silence counts only over an unbroken run of own heartbeats. After a gap of
//! more than 1.5 H between two of them, as after a restart, the silence of all owners starts again.
//! Otherwise the first worker back after an outage of the ledger would take over the whole fleet.

use super::key::OwnerId;
use super::moment::Moment;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Minimum interval between two heartbeats, including extra ones, but not those of a comparison.
const HEARTBEAT_SPACING_MIN: Duration = Duration::from_millis(100);

/// Maximum number of heartbeats in flight. Older ones count as lost.
const UNDERWAY_MAX: usize = 64;

/// Own heartbeats and the silence of others, on one partition of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Silence {
    heartbeat: Duration,
    /// Own heartbeats that have not come back: number and send time.
    underway: VecDeque<(u64, Moment)>,
    /// Number of the next heartbeat.
    next_number: u64,
    last_sent: Option<Moment>,
    /// Send time of the last own heartbeat that came back: the view is complete up to here.
    view_at: Option<Moment>,
    /// How long that heartbeat took.
    lag: Duration,
    /// Lower limit for the start of any silence: end of the bootstrap, or of the last gap.
    floor: Moment,
    owners: BTreeMap<OwnerId, OwnerActivity>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct OwnerActivity {
    at: Moment,
    /// Whether the owner has a heartbeat or has sealed. An owner that has only claimed may be an
    /// operator.
    worker: bool,
    lead: Option<Lead>,
    /// Whether it is an earlier id of a worker that has fenced itself, kept alive for attempts that
    /// still run under it.
    former: bool,
    /// Whether its worker still reads the ledger.
    reading: bool,
    /// Whether its worker has asked for a digest in its last heartbeat: it is not ready.
    asking: bool,
}

impl OwnerActivity {
    /// Whether it is the current id of a worker that has read the ledger, or will have in a moment.
    const fn takes_turns(&self) -> bool {
        self.worker && !self.former && !self.reading
    }
}

/// The lead of an owner's uptime over the own clock, in ms. A heartbeat that was in flight for
/// long, or is read late, shows too small a lead; only a suspended clock shows too large a one. So
/// the largest lead counts, over spans of a little more than 2 heartbeat intervals, and not for
/// ever: after a suspension of the owner's own machine its lead is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lead {
    /// The largest lead in each of the two previous spans. The first value alone proves nothing,
    /// because its heartbeat may have been in flight for long.
    before: [Option<i128>; 2],
    /// The largest lead in this span, and the start of the span. The span lasts until an own
    /// heartbeat that was sent in it comes back: others' heartbeats that were written during a
    /// suspension come before that, however long it takes to read them.
    recent: i128,
    since: Moment,
}

impl Lead {
    /// Updates the lead; everything written before `view_at` was read. Returns by how much the lead
    /// has grown.
    fn heard(
        &mut self,
        lead: i128,
        now: Moment,
        view_at: Option<Moment>,
        span: Duration,
    ) -> Duration {
        let before = self.before.into_iter().flatten().max();
        let caught_up = view_at.is_some_and(|at| at >= self.since);
        if caught_up && now.since(self.since) > span {
            let before = [Some(self.recent), self.before[0]];
            *self = Self { before, recent: lead, since: now };
        } else {
            self.recent = self.recent.max(lead);
        }
        let ahead = before.and_then(|before| u64::try_from(lead - before).ok());
        Duration::from_millis(ahead.unwrap_or_default())
    }
}

fn signed(time: Duration) -> i128 {
    i128::try_from(time.as_millis()).unwrap_or(i128::MAX)
}

/// How far this worker is behind in reading the ledger: entries older than this were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// How long the last own heartbeat that came back was in flight.
    last: Duration,
    /// When the oldest heartbeat that has not come back was sent.
    unread_since: Option<Moment>,
}

impl Lag {
    /// The lag at this time, if nothing was read since.
    #[must_use]
    pub fn at(&self, now: Moment) -> Duration {
        let unread = self.unread_since.map_or(Duration::ZERO, |sent| now.since(sent));
        self.last.max(unread)
    }
}

impl Silence {
    /// Creates the state before any heartbeat.
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

    /// Whether a heartbeat was sent at this time or later.
    #[must_use]
    pub fn has_sent_since(&self, since: Moment) -> bool {
        self.last_sent.is_some_and(|sent| sent >= since)
    }

    /// Whether a heartbeat has followed the first one.
    #[must_use]
    pub const fn has_sent_more_than_one(&self) -> bool {
        self.next_number > 2
    }

    /// The number of the heartbeat that is sent next.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.next_number
    }

    /// The number of the last heartbeat sent.
    #[cfg(test)]
    pub(crate) const fn last_number(&self) -> Option<u64> {
        self.next_number.checked_sub(1)
    }

    /// Handles an own heartbeat that came back. Returns true if it is the first after a start or a
    /// gap.
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

    /// How far the view is behind.
    #[must_use]
    pub fn lag(&self) -> Lag {
        Lag { last: self.lag, unread_since: self.underway.front().map(|(_, sent)| *sent) }
    }

    /// Handles a heartbeat or a seal of an owner, which is therefore a worker.
    pub fn heard(&mut self, owner: OwnerId, now: Moment) {
        self.seen(owner, now).worker = true;
    }

    /// Handles a claim by which an owner runs a task. The owner may be an operator that releases
    /// the task at once.
    pub fn heard_running(&mut self, owner: OwnerId, now: Moment) {
        self.seen(owner, now);
    }

    fn seen(&mut self, owner: OwnerId, now: Moment) -> &mut OwnerActivity {
        let seen = self.owners.entry(owner).or_default();
        seen.at = now;
        seen
    }

    /// Handles an entry of an owner that need not be a worker: an operator or a lease has no
    /// heartbeat, and takes no turn.
    pub fn heard_if_known(&mut self, owner: OwnerId, now: Moment) {
        if let Some(seen) = self.owners.get_mut(&owner) {
            seen.at = now;
        }
    }

    /// Notes that the owner is an earlier id of its worker: it is alive and takes no turn.
    pub fn record_former(&mut self, owner: OwnerId) {
        if let Some(seen) = self.owners.get_mut(&owner) {
            seen.former = true;
        }
    }

    /// Notes whether the owner's worker still reads the ledger: then it is alive and takes no turn;
    /// and whether it asks for a digest: then it cannot tell its own.
    pub fn record_reading(&mut self, owner: OwnerId, reading: bool, asking: bool) {
        if let Some(seen) = self.owners.get_mut(&owner) {
            (seen.reading, seen.asking) = (reading, asking);
        }
    }

    /// Whether the owner is an earlier id of its worker.
    #[must_use]
    pub fn is_former(&self, owner: OwnerId) -> bool {
        self.owners.get(&owner).is_some_and(|seen| seen.former)
    }

    /// Handles a heartbeat of another owner. Returns by how much its uptime has outrun the own
    /// clock: a large value means that this machine was suspended without its clock noticing.
    pub fn heard_heartbeat(&mut self, owner: OwnerId, uptime: Duration, now: Moment) -> Duration {
        self.heard(owner, now);
        let (view_at, span) = (self.view_at, 2 * self.heartbeat);
        let Some(seen) = self.owners.get_mut(&owner) else { return Duration::ZERO };
        let lead = signed(uptime) - signed(now.0);
        let first = Lead { before: [None; 2], recent: lead, since: now };
        seen.lead.get_or_insert(first).heard(lead, now, view_at, span)
    }

    /// Handles an owner that left: its heartbeat key was tombstoned.
    pub fn left(&mut self, owner: OwnerId) {
        self.owners.remove(&owner);
    }

    /// Whether an entry of the owner was read that only workers publish.
    #[must_use]
    pub fn has_heard_of(&self, owner: OwnerId) -> bool {
        self.owners.get(&owner).is_some_and(|seen| seen.worker)
    }

    /// When the owner's silence began.
    #[must_use]
    pub fn silent_since(&self, owner: OwnerId) -> Moment {
        self.owners.get(&owner).map_or(self.floor, |seen| seen.at.max(self.floor))
    }

    /// Whether the owner has been silent for more than 2 heartbeat intervals in a view known to be
    /// complete.
    #[must_use]
    pub fn is_stale(&self, owner: OwnerId) -> bool {
        self.view_at.is_some_and(|view_at| view_at > self.stale_at(owner))
    }

    /// An own heartbeat must be sent after this time, and come back, before the owner counts as
    /// stale.
    #[must_use]
    pub fn stale_at(&self, owner: OwnerId) -> Moment {
        self.silent_since(owner) + 2 * self.heartbeat
    }

    /// The time up to which the view is known to be complete; `None` before the end of the
    /// bootstrap.
    #[must_use]
    pub const fn view_at(&self) -> Option<Moment> {
        self.view_at
    }

    /// Whether the view is good enough to claim: at most 2 heartbeat intervals old, and read back
    /// with a lag of at most half an interval; otherwise most claims would come back too late to be
    /// run.
    #[must_use]
    pub fn may_claim(&self, now: Moment) -> bool {
        let fresh = |at: Moment| now.since(at) <= 2 * self.heartbeat;
        self.view_at.is_some_and(fresh) && self.lag <= self.heartbeat / 2
    }

    /// When the next heartbeat is due: one interval after the last one; at once if the last one
    /// came back too late for claims and no other is in flight.
    #[must_use]
    pub fn heartbeat_at(&self) -> Moment {
        let blocked = self.lag > self.heartbeat / 2 && self.underway.is_empty();
        let spacing = if blocked { HEARTBEAT_SPACING_MIN } else { self.heartbeat };
        self.last_sent.map_or_else(Moment::default, |sent| sent + spacing)
    }

    /// When to send an extra heartbeat that could prove whether the owner is stale, before the next
    /// regular one. `None`: such a heartbeat is in flight.
    #[must_use]
    pub fn extra_at(&self, owner: OwnerId) -> Option<Moment> {
        self.extra_behind(self.stale_at(owner))
    }

    fn extra_behind(&self, at: Moment) -> Option<Moment> {
        let after = at + Duration::from_millis(1);
        match self.last_sent {
            Some(sent) if sent >= after => None,
            Some(sent) => Some(after.max(sent + HEARTBEAT_SPACING_MIN)),
            None => Some(after),
        }
    }

    /// The worker that granted the lease with this owner id, if that worker is known.
    #[must_use]
    pub fn grantor(&self, owner: OwnerId) -> Option<OwnerId> {
        if self.owners.contains_key(&owner) {
            return None;
        }
        self.owners.keys().copied().find(|worker| owner.is_lease_of(*worker))
    }

    /// Whether nothing was heard for longer than this limit since `heard`, in a view known to be
    /// complete.
    #[must_use]
    pub fn is_over(&self, heard: Moment, limit: Duration) -> bool {
        self.view_at.is_some_and(|view_at| view_at > heard.max(self.floor) + limit)
    }

    /// Like [`Silence::extra_at`], for a source that was last heard at `heard` and may be silent
    /// for `limit`.
    #[must_use]
    pub fn extra_after(&self, heard: Moment, limit: Duration) -> Option<Moment> {
        self.extra_behind(heard.max(self.floor) + limit)
    }

    /// Owners heard of within 2 heartbeat intervals, besides the own one: one for each worker that
    /// has read the ledger.
    pub fn live_owners(&self, now: Moment) -> impl Iterator<Item = OwnerId> {
        let recent = now - 2 * self.heartbeat;
        self.owners
            .iter()
            .filter(move |(_, seen)| seen.takes_turns() && seen.at >= recent)
            .map(|(owner, _)| *owner)
    }

    /// Owners of other workers that can tell the digest of their fold, as far as is known: those
    /// that have read the ledger and are not known to be silent.
    pub fn ready_owners(&self) -> impl Iterator<Item = OwnerId> {
        let is_ready = |owner: &OwnerId, seen: &OwnerActivity| {
            seen.takes_turns() && !seen.asking && !self.is_stale(*owner)
        };
        self.owners
            .iter()
            .filter(move |(owner, seen)| is_ready(owner, seen))
            .map(|(owner, _)| *owner)
    }

    /// Owners that have been silent for longer than `limit`: their heartbeat keys are no longer
    /// needed.
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
    fn the_lag_is_that_of_the_last_heartbeat_or_of_the_oldest_that_is_on_its_way() {
        let mut silence = Silence::new(H);
        let lag = |silence: &Silence, second| silence.lag().at(at(second)).as_secs();
        assert_eq!(lag(&silence, 90), 0);
        let first = silence.send(at(100));
        let second = silence.send(at(110));
        assert_eq!(lag(&silence, 112), 12);
        silence.came_back(first, at(113));
        assert_eq!((lag(&silence, 113), lag(&silence, 125)), (13, 15));
        silence.came_back(second, at(126));
        assert_eq!(lag(&silence, 500), 16);
        beat(&mut silence, [500]);
        assert_eq!(lag(&silence, 505), 0);
    }

    /// Earlier, a worker that had fenced itself and still ran an attempt under its earlier id
    /// counted twice in all lines but its own: no worker was first to sweep.
    #[test]
    fn an_earlier_id_of_a_worker_takes_no_turn_but_is_alive() {
        let mut silence = Silence::new(H);
        beat(&mut silence, [100]);
        silence.heard(OTHER, at(100));
        assert_eq!(silence.live_owners(at(101)).count(), 1);
        silence.record_former(OTHER);
        silence.heard(OTHER, at(110));
        assert_eq!(silence.live_owners(at(111)).count(), 0);
        beat(&mut silence, [110, 120]);
        assert!(!silence.is_stale(OTHER));
    }

    /// Otherwise an operator that closed or released tasks would be in every line for 2 heartbeat
    /// intervals, and while it was first no worker would sweep.
    #[test]
    fn who_closes_a_task_and_has_no_heartbeat_takes_no_turn() {
        let mut silence = Silence::new(H);
        beat(&mut silence, [0, 10, 20, 30]);
        silence.heard_if_known(OTHER, at(30));
        assert_eq!(silence.live_owners(at(30)).count(), 0);
        assert!(silence.is_stale(OTHER));
        silence.heard_running(OTHER, at(30));
        assert_eq!((silence.live_owners(at(30)).count(), silence.has_heard_of(OTHER)), (0, false));
        assert!(!silence.is_stale(OTHER), "what it runs is not taken over");
        silence.heard(OTHER, at(31));
        assert_eq!((silence.live_owners(at(31)).count(), silence.has_heard_of(OTHER)), (1, true));
        silence.heard_if_known(OTHER, at(40));
        assert_eq!(silence.silent_since(OTHER), at(40));
    }

    /// Earlier, a worker that still read the ledger was in every line: while it was first, no
    /// worker kept the metadata topic or swept.
    #[test]
    fn who_still_reads_the_ledger_takes_no_turn_but_is_alive() {
        let mut silence = Silence::new(H);
        beat(&mut silence, [100]);
        for (second, reading, turns) in [(100, true, 0), (110, true, 0), (120, false, 1)] {
            silence.heard(OTHER, at(second));
            silence.record_reading(OTHER, reading, false);
            assert_eq!(silence.live_owners(at(second)).count(), turns);
            beat(&mut silence, [second]);
            assert!(!silence.is_stale(OTHER));
        }
    }

    #[test]
    fn silence_starts_afresh_after_an_outage_of_the_ledger() {
        let mut silence = Silence::new(H);
        beat(&mut silence, [100]);
        silence.heard(OTHER, at(101));
        // Nothing came back for 25 s. The first worker back must not treat all others as dead.
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

    /// A virtual machine that was saved and restarted an hour later reads all heartbeats of that
    /// hour in a row. Earlier, each was compared with the one before, so no jump was larger than
    /// one interval, and the worker went on with its view of an hour ago.
    #[test]
    fn a_standstill_is_noticed_although_no_heartbeat_is_missing() {
        let mut silence = Silence::new(H);
        let hear = |silence: &mut Silence, uptime, now| {
            silence.heard_heartbeat(OTHER, Duration::from_secs(uptime), at(now)).as_secs()
        };
        for tens in 5..20 {
            beat(&mut silence, [10 * tens + 50]);
            assert_eq!(hear(&mut silence, 10 * tens, 10 * tens + 50), 0);
        }
        let ahead: Vec<u64> = (20..400).map(|tens| hear(&mut silence, 10 * tens, 241)).collect();
        assert!(ahead.is_sorted() && ahead.last() > Some(&3_700), "{ahead:?}");
    }

    /// On a busy ledger it takes a while to read the backlog. Earlier, the others' lead rose with
    /// each of their heartbeats, and so did the value it was compared with: a suspension of 20
    /// minutes whose backlog took 45 s to read went unnoticed.
    #[test]
    fn a_standstill_is_noticed_although_its_backlog_is_read_slowly() {
        let mut silence = Silence::new(H);
        for tens in 5..20 {
            beat(&mut silence, [10 * tens]);
            silence.heard_heartbeat(OTHER, Duration::from_secs(10 * tens), at(10 * tens));
        }
        silence.send(at(200));
        // Two minutes for an hour, and the own heartbeat is not among the entries read in them.
        let ahead = (0..360).map(|tens| {
            let uptime = Duration::from_secs(200 + 10 * tens);
            silence.heard_heartbeat(OTHER, uptime, at(200 + tens / 3)).as_secs()
        });
        assert_eq!(ahead.max(), Some(3_590 - 119));
    }

    /// A worker that was cut off publishes its queued heartbeats at once when it is back. For their
    /// readers that is no suspension.
    #[test]
    fn heartbeats_that_come_late_are_no_standstill() {
        let mut silence = Silence::new(H);
        let late = (20..60).map(|tens| (10 * tens, 600));
        let in_time = (5..20).map(|tens| (10 * tens, 10 * tens));
        for (uptime, now) in in_time.chain(late).chain([(610, 610)]) {
            beat(&mut silence, [now]);
            // It may have a new owner id since then.
            for owner in if now < 600 { vec![OTHER] } else { vec![OTHER, OwnerId(8)] } {
                let ahead = silence.heard_heartbeat(owner, Duration::from_secs(uptime), at(now));
                assert_eq!(ahead, Duration::ZERO, "{owner:?} {uptime} at {now}");
            }
        }
    }

    /// Two machines whose clocks differ by a few hundredths do not count as suspended, however long
    /// they run.
    #[test]
    fn a_clock_that_runs_slow_does_not_stand_still() {
        let mut silence = Silence::new(H);
        for beat in 0..100_000 {
            let now = Moment(Duration::from_millis(9_600) * beat);
            let number = silence.send(now);
            silence.came_back(number, now);
            let ahead = silence.heard_heartbeat(OTHER, Duration::from_secs(10) * beat, now);
            assert!(ahead < H, "{ahead:?} at {beat}");
        }
    }

    /// By how many seconds each of these heartbeats, given by uptime and second of reading, seems
    /// to be ahead.
    fn aheads(heartbeats: &[(u64, u64)]) -> Vec<u64> {
        let mut silence = Silence::new(H);
        let heard = heartbeats.iter().map(|(uptime, now)| {
            beat(&mut silence, [*now]);
            let uptime = Duration::from_secs(*uptime);
            silence.heard_heartbeat(OTHER, uptime, at(*now)).as_secs()
        });
        heard.collect()
    }

    /// The lead caused by a suspension is measured from the largest one heard in the last two spans
    /// of 2 heartbeat intervals, whatever came late in them.
    #[test]
    fn a_lead_is_measured_from_the_best_that_was_heard() {
        // One of the first ones was late.
        assert_eq!(aheads(&[(0, 5), (10, 10), (31, 31), (40, 40)]), [0; 4]);
        assert_eq!(aheads(&[(10, 10), (15, 20), (31, 31), (40, 40)]), [0; 4]);
        // All are late for 48 s.
        let late = [(0, 0), (32, 32), (55, 64), (103, 112), (120, 120)];
        assert_eq!(aheads(&late), [0; 5]);
        // In time until the jump.
        assert_eq!(aheads(&[(0, 0), (32, 32), (64, 64), (156, 96)]), [0, 0, 0, 60]);
        // Two intervals after the first one nothing is known yet.
        assert_eq!(aheads(&[(0, 0), (20, 20), (90, 30)]), [0; 3]);
    }

    /// Another worker's machine stood still for half a minute. Earlier, the largest lead ever was
    /// remembered, so an equally long suspension of this machine minutes later went unnoticed, and
    /// this worker ran tasks that others had taken over.
    #[test]
    fn an_owner_that_has_stood_still_itself_tells_of_a_standstill_all_the_same() {
        let in_time = [(0, 0), (21, 21), (42, 42)];
        let behind = [(50, 80), (71, 101), (92, 122), (113, 143)];
        let heard: Vec<(u64, u64)> = in_time.into_iter().chain(behind).collect();
        assert_eq!(aheads(&heard), [0; 7]);
        // 26 s pass for the other one while 1 s passes here.
        let jump: Vec<(u64, u64)> = heard.into_iter().chain([(139, 144)]).collect();
        assert_eq!(aheads(&jump).last(), Some(&25));
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

    /// Earlier, a worker that took 6 s to read a ledger of 100,000 finished tasks was ready but
    /// claimed nothing until its next regular heartbeat: the first one had come back only at the
    /// end of the read.
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

    #[test]
    fn heartbeats_are_numbered_and_the_oldest_count_as_lost() {
        let mut silence = Silence::new(H);
        assert_eq!(silence.last_number(), Some(0));
        let numbers: Vec<u64> = (0..64).map(|second| silence.send(at(second))).collect();
        assert_eq!(numbers, (1..=64).collect::<Vec<_>>());
        assert_eq!(silence.last_number(), Some(64));
        let mut one_more = silence.clone();
        assert!(silence.came_back(1, at(64)), "64 may be on their way");
        assert_eq!(one_more.send(at(64)), 65);
        assert!(!one_more.came_back(1, at(64)) && one_more.view_at().is_none());
        assert!(one_more.came_back(2, at(64)));
    }

    /// After a start, entries published while the ledger was being read are not known to be
    /// complete; after a gap, everything published since the heartbeat was sent is known.
    #[test]
    fn silence_begins_when_the_bootstrap_ends_or_the_heartbeat_behind_a_gap_was_sent() {
        let mut silence = Silence::new(H);
        let number = silence.send(at(100));
        silence.came_back(number, at(103));
        assert_eq!(silence.silent_since(OTHER), at(103));
        let number = silence.send(at(115));
        assert!(!silence.came_back(number, at(115)), "one and a half H are no gap");
        assert_eq!(silence.silent_since(OTHER), at(103));
        let number = silence.send(at(131));
        assert!(silence.came_back(number, at(134)));
        assert_eq!(silence.silent_since(OTHER), at(131));
    }

    #[test]
    fn a_lag_of_half_a_heartbeat_still_lets_claim() {
        let mut silence = Silence::new(H);
        let number = silence.send(at(100));
        silence.came_back(number, at(105));
        assert!(silence.may_claim(at(105)));
        assert_eq!(silence.heartbeat_at(), at(110));
    }

    #[test]
    fn an_extra_heartbeat_keeps_its_distance_and_is_sent_once() {
        let millis = |millis| Moment(Duration::from_millis(millis));
        let mut silence = Silence::new(H);
        assert_eq!(silence.extra_at(OTHER), Some(millis(20_001)), "none was ever sent");
        silence.heard(OTHER, at(100));
        silence.send(millis(119_951));
        assert_eq!(silence.extra_at(OTHER), Some(millis(120_051)));
        silence.send(millis(120_001));
        assert_eq!(silence.extra_at(OTHER), None);
    }

    #[test]
    fn who_left_or_was_not_heard_of_for_2h_is_not_alive() {
        let mut silence = Silence::new(H);
        let third = OwnerId(8);
        silence.heard(OTHER, at(100));
        silence.heard(third, at(110));
        let live = |silence: &Silence, second| silence.live_owners(at(second)).collect::<Vec<_>>();
        assert_eq!(live(&silence, 120), [OTHER, third]);
        assert_eq!(live(&silence, 121), [third]);
        let gone =
            |limit| silence.silent_for(Duration::from_secs(limit), at(130)).collect::<Vec<_>>();
        assert_eq!((gone(29), gone(30)), (vec![OTHER], vec![]));
        silence.left(third);
        assert_eq!(live(&silence, 110), [OTHER]);
    }
}

//! Periods in which the holder of a task was silent. Pure: takes the entries of the ledger in
//! order.
//!
//! Every publish of an owner shows that it is alive, as for
//! [`Silence`](longhaul_core::protocol::silence): heartbeats, and entries about any task.
//! Compaction keeps one heartbeat per owner, so the compacted part shows no silences: they are
//! found from the start of the log on.

use crate::client::logs::MessageOrigin;
use longhaul_core::protocol::entry::{Entry, LeaseMs, Renewal, lease_time};
use longhaul_core::protocol::fold::{Phase, TaskFold};
use longhaul_core::protocol::key::{Epoch, Key, OwnerId};
use longhaul_core::task::WorkerIdentity;
use std::sync::Arc;
use std::time::Duration;

/// A period in which the holder of the task was silent although heartbeats were due. All instants
/// are in ms since the epoch, by the wall clocks of the publishers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderSilence {
    /// The epoch of the holder.
    pub epoch: u32,
    /// The holder: 32 hexadecimal digits.
    pub owner: String,
    /// The worker behind the holder, if one of its heartbeats is still on the ledger; for a lease,
    /// its holder by name.
    pub worker: Option<Arc<WorkerIdentity>>,
    /// When the holder was last heard.
    pub from_ms: u64,
    /// When the holder was heard again, or stopped holding the task; `None` while the silence
    /// lasts.
    pub to_ms: Option<u64>,
    /// The interval at which it was due to publish: the heartbeat interval of the ledger; for a
    /// lease, its lease time.
    pub every: Duration,
    /// The number of missing heartbeats; one that is up to half an interval late is not missing.
    /// For a lease, how many lease times have passed.
    pub missed: u64,
}

/// Finds the silences of the holders of one task.
#[derive(Debug, Default)]
pub(super) struct Silences {
    /// The current version of the ledger's settings, and its heartbeat interval.
    config: Option<(u32, Duration)>,
    is_in_log: bool,
    holder: Option<EpochHolder>,
    found: Vec<(OwnerId, HolderSilence)>,
}

#[derive(Debug)]
struct EpochHolder {
    epoch: Epoch,
    owner: OwnerId,
    lease_ms: Option<LeaseMs>,
    heard_ms: u64,
}

impl Silences {
    /// Reads the next entry of the ledger, before it is folded.
    pub(super) fn read(&mut self, found: MessageOrigin, entry: &Entry, published_ms: u64) {
        if let Entry::Config(config) = entry {
            let version = self.config.map_or(0, |(version, _)| version);
            if config.version >= version {
                self.config = Some((config.version, config.heartbeat));
            }
        }
        let begins = found == MessageOrigin::Log && !self.is_in_log;
        self.is_in_log |= begins;
        let Some(holder) = &mut self.holder else { return };
        if begins {
            holder.heard_ms = holder.heard_ms.max(published_ms);
        }
        if publisher(entry) != Some(holder.owner) {
            return;
        }
        self.note(published_ms, false);
        let Some(holder) = &mut self.holder else { return };
        holder.heard_ms = holder.heard_ms.max(published_ms);
        if let Entry::Renewal(Renewal { lease_ms, .. }) = entry {
            holder.lease_ms = Some(*lease_ms);
        }
    }

    /// Reads the fold after the entry: it tells the current holder.
    pub(super) fn folded(&mut self, fold: &TaskFold, entry: &Entry, published_ms: u64) {
        let holds = fold.phase == Phase::Running;
        let is_same =
            |holder: &EpochHolder| (holder.epoch, holder.owner) == (fold.epoch, fold.owner);
        if self.holder.as_ref().is_some_and(|holder| holds && is_same(holder)) {
            return;
        }
        self.note(published_ms, false);
        let lease_ms = if let Entry::Claim(claim) = entry { claim.lease_ms } else { None };
        let (epoch, owner) = (fold.epoch, fold.owner);
        self.holder =
            holds.then_some(EpochHolder { epoch, owner, lease_ms, heard_ms: published_ms });
    }

    /// Records the silence of the holder up to this time, if heartbeats are missing in it. `lasts`
    /// if its end is unknown.
    fn note(&mut self, end_ms: u64, lasts: bool) {
        let Some(holder) = self.holder.as_ref().filter(|_| self.is_in_log) else { return };
        let silent = Duration::from_millis(end_ms.saturating_sub(holder.heard_ms));
        let heartbeat = self.config.map(|(_, heartbeat)| heartbeat);
        let (every, missed) = match (holder.lease_ms.map(lease_time), heartbeat) {
            (Some(lease_time), _) => (lease_time, times(silent, lease_time)),
            (None, Some(heartbeat)) => (heartbeat, missed_in(silent, heartbeat)),
            (None, None) => return,
        };
        if missed == 0 {
            return;
        }
        let silence = HolderSilence {
            epoch: holder.epoch.0,
            owner: holder.owner.to_string(),
            worker: None,
            from_ms: holder.heard_ms,
            to_ms: (!lasts).then_some(end_ms),
            every,
            missed,
        };
        self.found.push((holder.owner, silence));
    }

    /// All silences in order, including one that lasts at `now_ms`.
    pub(super) fn finish(mut self, now_ms: u64) -> Vec<(OwnerId, HolderSilence)> {
        self.note(now_ms, true);
        self.found
    }
}

/// The number of heartbeats missing in a silence; one that is less than half an interval late is
/// not missing.
pub(in crate::client) fn missed_in(silent: Duration, every: Duration) -> u64 {
    times(silent + every / 2, every).saturating_sub(1)
}

/// How often `every` fits into `time`.
fn times(time: Duration, every: Duration) -> u64 {
    let times = time.as_millis().checked_div(every.as_millis()).unwrap_or_default();
    u64::try_from(times).unwrap_or(u64::MAX)
}

/// The publisher of an entry, if the entry names it.
fn publisher(entry: &Entry) -> Option<OwnerId> {
    // Any worker may publish the tombstone of a key.
    if matches!(entry, Entry::Tombstone(_)) {
        return None;
    }
    match entry.key() {
        Key::Once(key) => Some(key.owner),
        Key::Seal(key) => Some(key.owner),
        Key::Heartbeat(owner) => Some(owner),
        Key::Cancel(_) | Key::Config(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::protocol::config::{LEDGER_FORMAT, LedgerConfig};
    use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Heartbeat, Outcome};
    use longhaul_core::protocol::key::OnceKey;
    use longhaul_core::task::{Position, TaskId};

    const FIRST: OwnerId = OwnerId(1);
    const SECOND: OwnerId = OwnerId(2);
    const ID: TaskId = TaskId { ledger: 3, entry: 4, partition: -1, batch_index: None };

    /// A ledger with heartbeats due every 10 s, written entry by entry. Times are in seconds.
    struct Ledger {
        silences: Silences,
        fold: TaskFold,
    }

    impl Ledger {
        fn new() -> Self {
            let mut ledger = Self { silences: Silences::default(), fold: TaskFold::default() };
            ledger.config(1, 10);
            ledger
        }

        fn config(&mut self, version: u32, heartbeat: u64) {
            let seconds = Duration::from_secs;
            self.tell(
                MessageOrigin::Compacted,
                0,
                &Entry::Config(LedgerConfig {
                    version,
                    subscription: "longhaul".to_owned(),
                    heartbeat: seconds(heartbeat),
                    ledger_retention: seconds(3600),
                    self_fence: seconds(600),
                    format: LEDGER_FORMAT,
                }),
            );
        }

        fn tell(&mut self, found: MessageOrigin, at: u64, entry: &Entry) {
            self.silences.read(found, entry, at * 1000);
            if entry.task() == Some(ID) {
                self.fold.apply(entry);
            }
            self.silences.folded(&self.fold, entry, at * 1000);
        }

        fn beat(&mut self, owner: OwnerId, seconds: &[u64]) {
            for &at in seconds {
                let beat = Heartbeat { owner, ..Heartbeat::default() };
                self.tell(MessageOrigin::Log, at, &Entry::Heartbeat(beat));
            }
        }

        fn claim(&mut self, at: u64, epoch: u32, owner: OwnerId, lease_ms: Option<u32>) {
            let lease_ms = lease_ms.and_then(LeaseMs::new);
            let claim =
                Claim { lease_ms, ..Claim::plain(key(epoch, owner), epoch, ClaimKind::Run) };
            self.tell(MessageOrigin::Log, at, &Entry::Claim(claim));
        }

        fn complete(&mut self, at: u64, epoch: u32, owner: OwnerId) {
            let (key, outcome) = (key(epoch, owner), Outcome::Completed);
            let done = Done { key, attempt: epoch, outcome, writer: None };
            self.tell(MessageOrigin::Log, at, &Entry::Done(done));
        }

        /// Each silence: its epoch, start, end, and the number of missing heartbeats.
        fn told(self, now: u64) -> Vec<(u32, u64, Option<u64>, u64)> {
            let found = self.silences.finish(now * 1000).into_iter().map(|(_, silence)| silence);
            found
                .map(|silence| {
                    (
                        silence.epoch,
                        silence.from_ms / 1000,
                        silence.to_ms.map(|ms| ms / 1000),
                        silence.missed,
                    )
                })
                .collect()
        }
    }

    fn key(epoch: u32, owner: OwnerId) -> OnceKey {
        OnceKey { task: ID, epoch: Epoch(epoch), owner, serial: 1 }
    }

    #[test]
    fn heartbeats_in_time_are_no_silence_and_half_an_interval_is_no_delay() {
        let mut ledger = Ledger::new();
        ledger.beat(FIRST, &[0, 10]);
        ledger.claim(12, 1, FIRST, None);
        ledger.beat(FIRST, &[20, 34, 44]);
        ledger.complete(58, 1, FIRST);
        ledger.beat(FIRST, &[200]);
        assert_eq!(ledger.told(900), []);
    }

    #[test]
    fn a_holder_that_stood_still_and_went_on_has_missed_some() {
        let mut ledger = Ledger::new();
        ledger.claim(0, 1, FIRST, None);
        ledger.beat(FIRST, &[10, 45]);
        ledger.beat(SECOND, &[46]);
        assert_eq!(ledger.told(50), [(1, 10, Some(45), 3)]);
    }

    /// Entries that a frozen worker writes after its return are no sign of life of the new holder.
    #[test]
    fn the_silence_of_a_replaced_holder_ends_with_the_claim_that_replaced_it() {
        let mut ledger = Ledger::new();
        ledger.beat(FIRST, &[0]);
        ledger.claim(1, 1, FIRST, None);
        ledger.beat(SECOND, &[5, 15, 25]);
        ledger.claim(26, 2, SECOND, None);
        ledger.beat(FIRST, &[27, 37]);
        ledger.complete(38, 1, FIRST);
        ledger.beat(SECOND, &[35]);
        assert_eq!(ledger.told(40), [(1, 1, Some(26), 2)]);
    }

    #[test]
    fn a_silence_that_lasts_has_no_end() {
        let mut ledger = Ledger::new();
        ledger.claim(0, 1, FIRST, None);
        ledger.beat(FIRST, &[10]);
        assert_eq!(ledger.told(100), [(1, 10, None, 8)]);
    }

    #[test]
    fn entries_about_other_tasks_are_signs_of_life() {
        let mut ledger = Ledger::new();
        ledger.claim(0, 1, FIRST, None);
        let other = OnceKey { task: TaskId { entry: 5, ..ID }, ..key(1, FIRST) };
        ledger.tell(MessageOrigin::Log, 12, &Entry::Checkpoint(other));
        ledger.beat(FIRST, &[24]);
        assert_eq!(ledger.told(24), []);
    }

    #[test]
    fn a_lease_is_silent_when_its_own_time_has_passed() {
        let mut ledger = Ledger::new();
        ledger.claim(0, 1, FIRST, Some(30_000));
        let (key, by) = (key(1, FIRST), SECOND);
        let renewal = |seconds: u32| {
            let lease_ms = LeaseMs::new(seconds * 1000).unwrap();
            Entry::Renewal(Renewal { key, lease_ms, by })
        };
        ledger.tell(MessageOrigin::Log, 29, &renewal(60));
        ledger.tell(MessageOrigin::Log, 88, &renewal(5));
        ledger.complete(100, 1, FIRST);
        assert_eq!(ledger.told(900), [(1, 88, Some(100), 2)]);
    }

    #[test]
    fn the_latest_settings_of_the_ledger_say_how_often_heartbeats_are_due() {
        let mut ledger = Ledger::new();
        ledger.config(2, 30);
        ledger.config(1, 1);
        ledger.claim(0, 1, FIRST, None);
        ledger.beat(FIRST, &[40, 90]);
        assert_eq!(ledger.told(90), [(1, 40, Some(90), 1)]);
    }

    /// Compaction keeps the last heartbeat of an owner. Any number of heartbeats may have been
    /// between two that are left.
    #[test]
    fn what_compaction_has_left_tells_of_no_silence() {
        let mut ledger = Ledger::new();
        let claim = Claim::plain(key(1, FIRST), 1, ClaimKind::Run);
        ledger.tell(MessageOrigin::Compacted, 100, &Entry::Claim(claim));
        let beat = |owner| Entry::Heartbeat(Heartbeat { owner, ..Heartbeat::default() });
        ledger.tell(MessageOrigin::Compacted, 500, &beat(FIRST));
        ledger.tell(MessageOrigin::Log, 800, &beat(SECOND));
        ledger.tell(MessageOrigin::Log, 830, &beat(FIRST));
        assert_eq!(ledger.told(830), [(1, 800, Some(830), 2)]);
    }

    #[test]
    fn who_gives_a_key_up_is_not_heard_of_by_that() {
        let gone = Entry::Tombstone(Key::Heartbeat(FIRST));
        assert_eq!(publisher(&gone), None);
        let position = Position { ledger: 1, entry: 1, batch_index: None };
        let beat = Heartbeat { owner: FIRST, shown_to: Some(position), ..Heartbeat::default() };
        assert_eq!(publisher(&Entry::Heartbeat(beat)), Some(FIRST));
    }
}

//! Random entries and ledgers, for property tests.

use super::entry::{
    Base, Claim, ClaimKind, Done, Entry, LeaseMs, NextAttempt, Offer, Outcome, Renewal,
};
use super::key::{Epoch, OnceKey, OwnerId, RENEWAL_SERIAL};
use super::offer::TaskType;
use crate::task::TaskId;
use proptest::collection::vec;
use proptest::prelude::*;

pub(super) fn any_kind() -> impl Strategy<Value = ClaimKind> {
    prop_oneof![
        4 => Just(ClaimKind::Run),
        1 => Just(ClaimKind::Final),
        1 => Just(ClaimKind::Cancelled),
        1 => Just(ClaimKind::Expired),
        1 => Just(ClaimKind::Park),
        1 => (any::<u64>(), any::<u8>()).prop_map(|(ready_ms, name)| {
            let task_type = TaskType::of(Some(&name.to_string()));
            ClaimKind::Offer(Offer { task_type, ready_ms })
        }),
    ]
}

pub(super) fn any_outcome() -> impl Strategy<Value = Outcome> {
    let next = || {
        let parts = (any::<u64>(), any::<u64>());
        parts.prop_map(|(at_ms, delay_ms)| NextAttempt::new(at_ms, delay_ms))
    };
    prop_oneof![
        Just(Outcome::Completed),
        Just(Outcome::Final),
        Just(Outcome::Cancelled),
        next().prop_map(Outcome::Failed),
        next().prop_map(Outcome::Released),
        Just(Outcome::Released(NextAttempt::AFTER_DRAIN)),
    ]
}

pub(super) const TASKS: u64 = 2;

pub(super) const fn task(number: u64) -> TaskId {
    TaskId { ledger: 0, entry: number, partition: 0, batch_index: None }
}

/// An entry of a small world, so that many are accepted. Its serial comes from its place: no key
/// repeats.
pub(super) fn small_entry() -> impl Strategy<Value = Entry> {
    let key = (0..TASKS, 1..5_u32, 0..2_u128).prop_map(|(number, epoch, owner)| OnceKey {
        task: task(number),
        epoch: Epoch(epoch),
        owner: OwnerId(owner),
        serial: 0,
    });
    let key = key.boxed();
    prop_oneof![
        4 => (key.clone(), any_kind(), 0..4_u8).prop_map(|(key, kind, base)| {
            let base = (base == 0 && kind == ClaimKind::Run).then_some(Base { created_ms: 1 });
            Entry::Claim(Claim { base, ..Claim::plain(key, key.epoch.0, kind) })
        }),
        4 => (key.clone(), any_outcome()).prop_map(|(key, outcome)| {
            Entry::Done(Done { key, attempt: key.epoch.0, outcome, writer: None })
        }),
        1 => key.clone().prop_map(Entry::Checkpoint),
        1 => key.prop_map(|key| {
            let key = OnceKey { serial: RENEWAL_SERIAL, ..key };
            Entry::Renewal(Renewal { key, lease_ms: LeaseMs::MIN, by: key.owner })
        }),
        1 => (0..TASKS).prop_map(|number| Entry::Cancel(task(number))),
    ]
}

/// The required content of an entry's body.
#[must_use]
pub const fn content_of(entry: &Entry) -> &'static [u8] {
    if matches!(entry, Entry::Claim(Claim { kind: ClaimKind::Park | ClaimKind::Offer(_), .. })) {
        b"run "
    } else {
        b""
    }
}

/// A ledger of a small world: two tasks, no key twice.
pub fn ledger() -> impl Strategy<Value = Vec<Entry>> {
    vec(small_entry(), 0..24).prop_map(|mut log| {
        for (entry, place) in log.iter_mut().zip(0..) {
            match entry {
                Entry::Claim(claim) => claim.key.serial = place,
                Entry::Done(done) => done.key.serial = place,
                Entry::Checkpoint(key) => key.serial = place,
                Entry::Renewal(_)
                | Entry::Cancel(_)
                | Entry::Heartbeat(_)
                | Entry::Seal(_)
                | Entry::Config(_)
                | Entry::Tombstone(_) => {}
            }
        }
        log
    })
}

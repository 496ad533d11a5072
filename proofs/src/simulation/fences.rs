//! The reads of workers and their consequences. No late claim runs; a worker stops a cancelled
//! processor; a worker that has missed something or stood still begins afresh, and nothing from
//! before survives that.

use super::checks::{Book, Evidence, at};
use super::ledger::Logged;
use super::report::Totals;
use super::retries::adopted;
use super::script::{Returned, Start};
use super::setting::{Course, Forgetting};
use super::timely::{SOON, shrunk, stretched};
use longhaul::Position;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::invariants as ids;
use longhaul_core::protocol::key::OwnerId;
use longhaul_memory::Happening;
use longhaul_transport::moment::Moment;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A sent entry leaves within a millisecond, and a sound broker takes no longer for any operation.
const BRIEFLY: Duration = Duration::from_millis(20);
/// The time given to a stopped processor.
const STOPPED_WITHIN: Duration = Duration::from_secs(2);
/// The most reads of one task by one worker in a second: unreadable messages are retried with
/// growing pauses.
const READS_PER_SECOND_MAX: usize = 12;

/// The reads of one worker on one partition of the ledger.
#[derive(Default)]
pub(super) struct Reading {
    /// The entries read, in order.
    pub(super) read: Vec<(Moment, Position)>,
    /// The times at which it asked for all entries from the start.
    starts: Vec<Moment>,
    /// Whether nothing has come since the last start. Until then a failed request is repeated.
    waits: bool,
    /// The entries that did not come.
    missed: Vec<(Moment, Position)>,
}

impl Reading {
    fn note(&mut self, what: &Happening, at: Moment) {
        if let Happening::Received { position, .. } = what {
            self.read.push((at, *position));
            self.waits = false;
        } else if let Happening::Missed { position, .. } = what {
            self.missed.push((at, *position));
        } else if !std::mem::replace(&mut self.waits, true) {
            self.starts.push(at);
        }
    }
}

/// The reads by worker name and partition.
pub(super) type Readings = BTreeMap<(Arc<str>, i32), Reading>;

pub(super) fn check(
    evidence: &Evidence<'_>,
    book: &Book,
    readings: &Readings,
    found: &mut Vec<String>,
) -> Totals {
    let mut totals = Totals { retries_adopted: adopted(evidence, book), ..Totals::default() };
    check_reads(evidence, found);
    check_late(evidence, book, readings, found, &mut totals);
    for ((worker, partition), reading) in readings {
        let Some(log) = book.logs.get(partition) else { continue };
        let one = One { evidence, worker, partition: *partition, reading, log };
        if evidence.setting.forgetting == Forgetting::Never {
            // The reads of the log in place of the view would look like further beginnings.
            one.check_queue(found, &mut totals);
        }
        if evidence.setting.course != Course::Rough {
            one.check_stops(book, found, &mut totals);
            one.check_missed(found);
            one.check_standstills(found, &mut totals);
        }
    }
    totals
}

pub(super) fn readings(evidence: &Evidence<'_>) -> Readings {
    let ledger = |partition: &i32| {
        (Arc::from(at(&evidence.names.ledger, *partition).to_string()), *partition)
    };
    let partitions: BTreeMap<Arc<str>, i32> = evidence.partitions.iter().map(ledger).collect();
    let mut readings = Readings::new();
    evidence.broker.with_history(|history| {
        for event in history.events() {
            let (by, partition) = match &event.what {
                Happening::Received { by, partition, subscription: None, .. }
                | Happening::Followed { by, partition, from_start: true }
                | Happening::Missed { by, partition, .. } => (by, partition),
                Happening::Received { .. }
                | Happening::Sent { .. }
                | Happening::Followed { .. }
                | Happening::Stored { .. }
                | Happening::Fetched { .. }
                | Happening::Unread { .. }
                | Happening::Acked { .. }
                | Happening::Note(_) => continue,
            };
            if let Some(partition) = partitions.get(partition) {
                let reading = readings.entry((Arc::clone(by), *partition)).or_default();
                reading.note(&event.what, event.at);
            }
        }
    });
    readings
}

/// Checks that reads of an unreadable payload are retried with growing pauses.
fn check_reads(evidence: &Evidence<'_>, found: &mut Vec<String>) {
    let mut reads: BTreeMap<(Arc<str>, Arc<str>, Position), Vec<Moment>> = BTreeMap::new();
    evidence.broker.with_history(|history| {
        for event in history.events() {
            if let Happening::Fetched { by, partition, position } = &event.what {
                let key = (Arc::clone(by), Arc::clone(partition), *position);
                reads.entry(key).or_default().push(event.at);
            }
        }
    });
    for ((by, partition, position), times) in reads {
        let near = |pair: &[Moment]| match pair {
            [first, .., last] => last.since(*first) < Duration::from_secs(1),
            _ => false,
        };
        if times.windows(READS_PER_SECOND_MAX + 1).any(near) {
            found.push(format!("{by} reads {position:?} of {partition} again and again"));
        }
    }
}

/// Checks that a claim does not run if its worker reads it back more than one heartbeat interval
/// after sending it, and that no processor begins later than that.
fn check_late(
    evidence: &Evidence<'_>,
    book: &Book,
    readings: &Readings,
    found: &mut Vec<String>,
    totals: &mut Totals,
) {
    let starts = &evidence.fleet.deeds.lock().starts;
    let slowest = stretched(evidence.setting.heartbeat) + BRIEFLY;
    for (id, story) in &book.stories {
        for claim in story.claims.iter().filter(|claim| claim.attempt.is_some()) {
            let started = |it: &&Start| it.task == *id && it.epoch == claim.epoch;
            let Some(start) = starts.iter().find(started) else {
                let reading = readings.get(&(Arc::clone(&claim.by), id.partition));
                let came = |it: &&(Moment, Position)| it.1 == claim.position;
                let came = reading.and_then(|reading| reading.read.iter().find(came));
                let late = came.is_some_and(|(read, _)| read.since(claim.sent) > slowest);
                totals.late_claims += usize::from(late);
                continue;
            };
            let late = start.at.since(claim.sent);
            let still = evidence.fleet.troubles.iter().any(|trouble| {
                let until = trouble.until.unwrap_or(start.at);
                trouble.stood_still && *trouble.worker == *claim.by && until >= claim.sent
            });
            if late > slowest && !still {
                let (by, epoch) = (&claim.by, claim.epoch);
                let what =
                    format!("{by} began epoch {epoch} of task {id} {late:?} after its claim");
                found.push(format!("{}: {what}", ids::START));
            }
        }
    }
}

/// One worker on one partition of the ledger.
struct One<'a> {
    evidence: &'a Evidence<'a>,
    worker: &'a Arc<str>,
    partition: i32,
    reading: &'a Reading,
    log: &'a BTreeMap<Position, Logged>,
}

impl One<'_> {
    fn own(&self) -> impl Iterator<Item = (&Position, &Logged)> {
        self.log.iter().filter(|(_, logged)| *logged.stored.by == **self.worker)
    }

    /// The owner ids of the worker, and the first use of each.
    fn owners(&self) -> BTreeMap<OwnerId, Moment> {
        let mut owners = BTreeMap::new();
        for (_, logged) in self.own() {
            let Some(owner) = logged.owner else { continue };
            let first = owners.entry(owner).or_insert(logged.stored.sent);
            *first = (*first).min(logged.stored.sent);
        }
        owners
    }

    /// The worker's owner id at a moment.
    fn owner_at(owners: &BTreeMap<OwnerId, Moment>, at: Moment) -> Option<OwnerId> {
        let known = owners.iter().filter(|(_, since)| **since <= at);
        known.max_by_key(|(_, since)| **since).map(|(owner, _)| *owner)
    }

    /// The first time after `after` at which the worker had read the ledger to its end: its own
    /// heartbeat, sent after `after` under its current id, came back.
    fn whole_after(&self, owners: &BTreeMap<OwnerId, Moment>, after: Moment) -> Option<Moment> {
        let reads = self.reading.read.iter().filter(|(at, _)| *at >= after);
        let whole = |(at, position): &&(Moment, Position)| {
            let logged = self.log.get(position)?;
            let own = *logged.stored.by == **self.worker && logged.stored.sent >= after;
            let current = Self::owner_at(owners, *at) == logged.owner;
            (own && current && matches!(logged.entry, Entry::Heartbeat(_))).then_some(*at)
        };
        reads.filter_map(|read| whole(&read)).next()
    }

    /// The last time before a moment at which the worker began afresh.
    fn fresh_before(&self, before: Moment) -> Option<Moment> {
        self.reading.starts.iter().copied().rfind(|at| *at + BRIEFLY < before)
    }

    /// Checks that a worker that begins afresh drops its waiting publishes. Under an old id it
    /// publishes only for tasks that it still owns by the ledger as read again.
    fn check_queue(&self, found: &mut Vec<String>, totals: &mut Totals) {
        let owners = self.owners();
        for (position, logged) in self.own() {
            let sent = logged.stored.sent;
            let (Some(owner), Some(fresh)) = (logged.owner, self.fresh_before(sent)) else {
                continue;
            };
            if owners.get(&owner).is_none_or(|since| *since >= fresh) {
                continue;
            }
            let may = match &logged.entry {
                Entry::Done(_) | Entry::Checkpoint(_) | Entry::Renewal(_) => {
                    self.whole_after(&owners, fresh).is_some_and(|whole| whole <= sent)
                }
                Entry::Claim(_) | Entry::Seal(_) => false,
                Entry::Heartbeat(_) | Entry::Cancel(_) | Entry::Config(_) | Entry::Tombstone(_) => {
                    true
                }
            };
            totals.kept_outcomes += usize::from(may && matches!(logged.entry, Entry::Done(_)));
            if !may {
                let worker = self.worker;
                let what = format!("{worker} published {position:?} out of its queue");
                found.push(format!("{}: {what}: {:?}", ids::ORPHAN, logged.entry));
            }
        }
    }

    /// Whether the worker had a trouble in this time.
    fn was_troubled(&self, from: Moment, to: Moment) -> bool {
        self.evidence.fleet.troubles.iter().any(|trouble| {
            let over = trouble.until.is_some_and(|until| until <= from);
            *trouble.worker == **self.worker && trouble.at <= to && !over
        })
    }

    /// Checks that a worker that knows of a cancel stops the processor, also if it learned of the
    /// cancel when it began afresh.
    fn check_stops(&self, book: &Book, found: &mut Vec<String>, totals: &mut Totals) {
        let owners = self.owners();
        let deeds = self.evidence.fleet.deeds.lock();
        for (cancel, logged) in self.log {
            let Entry::Cancel(task) = logged.entry else { continue };
            let Some(story) = book.stories.get(&task) else { continue };
            let own = |start: &&Start| {
                let claim = story.claims.iter().find(|claim| claim.epoch == start.epoch);
                start.task == task && claim.is_some_and(|claim| claim.by == *self.worker)
            };
            for start in deeds.starts.iter().filter(own) {
                let Some(knew) = self.knew(&owners, *cancel, start.at) else { continue };
                let end = |it: &&Returned| it.task == task && it.epoch == start.epoch;
                let Some(end) = deeds.returned.iter().find(end) else {
                    totals.stopped += 1;
                    continue;
                };
                if end.at > knew + STOPPED_WITHIN && !self.was_troubled(knew, end.at) {
                    let late = end.at.since(knew);
                    let (worker, epoch) = (self.worker, start.epoch);
                    let what = format!("{worker} ran epoch {epoch} of task {task} to its end");
                    found.push(format!("{}: {what}, {late:?} after its cancel", ids::CANCEL));
                }
            }
        }
    }

    /// The time at which the worker, running since `since`, must have known the entry at
    /// `position`: its own heartbeat from after the entry came back.
    fn knew(
        &self,
        owners: &BTreeMap<OwnerId, Moment>,
        position: Position,
        since: Moment,
    ) -> Option<Moment> {
        let recent = shrunk(self.evidence.setting.self_fence);
        let reads = self.reading.read.iter();
        let known = reads.filter(|(at, read)| *at >= since && *read > position);
        let knows = |(at, read): &(Moment, Position)| {
            let logged = self.log.get(read)?;
            let own = *logged.stored.by == **self.worker
                && matches!(logged.entry, Entry::Heartbeat(_))
                && Self::owner_at(owners, *at) == logged.owner;
            (own && at.since(logged.stored.sent) < recent).then_some(*at)
        };
        known.filter_map(knows).next()
    }

    /// Checks that a worker that has missed an entry begins afresh when the owner has said how many
    /// there are.
    fn check_missed(&self, found: &mut Vec<String>) {
        let heartbeat = self.evidence.setting.heartbeat;
        for (at, position) in &self.reading.missed {
            let Some(missed) = self.log.get(position) else { continue };
            let sent = missed.stored.sent;
            // The worker counts an owner's entries from a heartbeat that it read when it was ready.
            let ready = self.fresh_before(*at).is_some_and(|fresh| fresh + 4 * heartbeat < sent);
            let of_owner = |logged: &Logged| {
                logged.owner == missed.owner && matches!(logged.entry, Entry::Heartbeat(_))
            };
            let counted = self.log.range(..*position).any(|(_, logged)| {
                let stored = &logged.stored;
                of_owner(logged) && stored.at + 3 * heartbeat > sent && stored.at + BRIEFLY < sent
            });
            // An entry in flight at a heartbeat may have been read already, and offsets one that
            // was not.
            let sure = |logged: &Logged| matches!(&logged.entry, Entry::Heartbeat(beat) if beat.underway == 0);
            let told = self.reading.read.iter().find(|(read, place)| {
                let logged = self.log.get(place).filter(|it| of_owner(it) && sure(it));
                *read > *at && logged.is_some_and(|it| it.stored.sent > sent + BRIEFLY)
            });
            let Some((told, _)) = told.filter(|_| ready && counted) else { continue };
            let fresh = |fresh: &&Moment| **fresh > *at && **fresh <= *told + SOON;
            if !self.reading.starts.iter().any(|it| fresh(&it)) && !self.was_troubled(*at, *told) {
                let worker = self.worker;
                let what = format!("{worker} missed {position:?} and went on");
                found.push(format!("{}: {what}: {:?}", ids::FOLLOWERS, missed.entry));
            }
        }
    }

    /// Checks that a worker whose machine and clock stood still for long begins afresh when it
    /// reads others' uptimes.
    fn check_standstills(&self, found: &mut Vec<String>, totals: &mut Totals) {
        let setting = &self.evidence.setting;
        let noticed = stretched(setting.self_fence + 2 * setting.heartbeat);
        for trouble in &self.evidence.fleet.troubles {
            let Some(until) = trouble.until.filter(|until| until.since(trouble.at) > noticed)
            else {
                continue;
            };
            if !trouble.stood_still || *trouble.worker != **self.worker {
                continue;
            }
            let ready = self.fresh_before(trouble.at);
            let ready = ready.is_some_and(|fresh| fresh + 7 * setting.heartbeat < trouble.at);
            // Another worker is read before and after.
            let heard = |from: Moment, to: Moment| {
                let mut reads =
                    self.reading.read.iter().filter(move |(at, _)| *at >= from && *at < to);
                reads.find_map(|(at, position)| {
                    let logged = self.log.get(position)?;
                    let other = *logged.stored.by != **self.worker
                        && matches!(logged.entry, Entry::Heartbeat(_))
                        && logged.stored.sent >= from;
                    other.then(|| (*at, logged.owner, Arc::clone(&logged.stored.by)))
                })
            };
            let before =
                heard(trouble.at - 6 * setting.heartbeat, trouble.at - 4 * setting.heartbeat);
            let after = heard(until - BRIEFLY, until + 4 * setting.heartbeat);
            let (Some((_, one, by)), Some((at, other, _))) = (before, after) else { continue };
            // Another worker that stood still itself leads by less since then. That is known only
            // if all compared heartbeats are from after its standstill.
            let told = !self.evidence.fleet.troubles.iter().any(|it| {
                let recent = trouble.at - 10 * setting.heartbeat;
                *it.worker == *by
                    && it.stood_still
                    && it.until.is_none_or(|end| end > recent)
                    && it.at < until
            });
            if !ready || one != other || !told {
                continue;
            }
            totals.standstills += 1;
            let fresh = |fresh: &Moment| *fresh >= until && *fresh <= at + SOON;
            if !self.reading.starts.iter().any(fresh) {
                let (worker, partition) = (self.worker, self.partition);
                let time = until.since(trouble.at);
                let what = format!("{worker} stood still for {time:?} and went on");
                found.push(format!("{}: {what} with partition {partition}", ids::FOLLOWERS));
            }
        }
    }
}

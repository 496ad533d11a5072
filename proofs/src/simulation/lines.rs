//! Queues with an order: the keys of their tasks, and the checks of each key against the ledger and
//! the starts of processors.

use super::checks::{Book, Evidence, at};
use super::script::{Script, Start};
use super::setting::Order;
use crate::checkers::order::{Compared, OrderJudge, Submitted};
use longhaul::{EntryId, TaskId};
use longhaul_core::protocol::entry::{self, Claim};
use longhaul_core::protocol::invariants::ORDER;
use longhaul_core::protocol::key::{Key, OnceKey, OwnerId};
use longhaul_core::protocol::register::{
    Document, DocumentKey, DocumentName, RegisterEntry, Stamp,
};
use longhaul_core::register;
use longhaul_memory::{Happening, MemoryBroker};
use longhaul_transport::TopicPartition;
use longhaul_transport::clock::as_millis;
use longhaul_transport::moment::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Keys of a queue with an order. They are few, so that lines are long.
const KEYS: [&str; 3] = ["red", "green", "blue"];
/// The number of tasks in 16 that have no key, and so no order.
const WITHOUT: u8 = 2;

/// Attempts of a task in a line take a tenth of the time, and its payload is either readable or
/// damaged: a line that is longer than the run leaves nothing to check.
const BRIEFER: u32 = 10;

/// The most time between a worker's look at its clock and the entry that it publishes.
const SOON: Duration = Duration::from_secs(1);

/// Writes to the register that the queue has an order.
pub(super) fn settle(broker: &MemoryBroker, topic: &str) {
    let (name, stamp) = (DocumentName::queue_settings(), Stamp { writer: OwnerId(77), serial: 1 });
    let key = DocumentKey { name, version: 1, stamp };
    let document = Document { key, content: br#"{"order":"key"}"#.as_slice().into() };
    let register = at(topic, -1);
    broker.publish(&register, register::message(&RegisterEntry::Document(document)));
}

pub(super) fn draw_key(rng: &mut fastrand::Rng) -> Option<&'static str> {
    if rng.u8(..16) < WITHOUT { None } else { rng.choice(KEYS) }
}

/// The partition to which a producer sends messages with this key.
pub(super) fn partition_of(key: &str, partitions: &[i32]) -> i32 {
    let sum: usize = key.bytes().map(usize::from).sum();
    partitions[sum % partitions.len()]
}

pub(super) fn shorten(script: &mut Script) {
    script.works /= BRIEFER;
    script.delay = script.delay.map(|delay| delay / 2);
    script.broken = script.damaged;
    script.budget = None;
}

/// Returns the counts of compared pairs of tasks.
pub(super) fn check(
    evidence: &Evidence<'_>,
    book: &Book,
    starts: &[Start],
    found: &mut Vec<String>,
) -> Compared {
    let mut compared = Compared::default();
    if evidence.setting.order == Order::None {
        return compared;
    }
    for partition in &evidence.partitions {
        let tasks = submitted(evidence, &at(&evidence.names.task, *partition));
        let dealt = dealt(evidence, &at(&evidence.names.task, *partition));
        let ledger = at(&evidence.names.ledger, *partition);
        let (sends, followed) = (sends(evidence, &ledger), followed(evidence, &ledger));
        let begun = Begun { evidence, dealt: &dealt, sends, followed };
        check_starts(&begun, book, &tasks, starts, found);
        let mut judge = OrderJudge::new(tasks);
        for logged in book.logs.get(partition).into_iter().flat_map(BTreeMap::values) {
            let stored = &logged.stored;
            let anew = |task: TaskId| {
                let times = dealt.get(&task.entry_id()).into_iter().flatten();
                times
                    .filter(|dealt| dealt.at <= stored.at)
                    .map(|dealt| dealt.session)
                    .collect::<BTreeSet<_>>()
                    .len()
                    > 1
            };
            let decided_ms = if let entry::Entry::Claim(Claim { key, .. }) = &logged.entry {
                begun.decided_ms(&stored.by, (key.task, key.epoch.0), stored.sent)
            } else {
                decided_ms(evidence, &stored.by, stored.sent)
            };
            judge.read(&logged.entry, decided_ms, anew);
        }
        let (violations, of_partition) = judge.end();
        found.extend(violations);
        compared += of_partition;
    }
    compared
}

/// A delivery of an entry to a worker.
struct Dealt {
    at: Moment,
    by: Arc<str>,
    session: u64,
}

/// The deliveries of each entry of the task topic, in order.
type Deals = BTreeMap<EntryId, Vec<Dealt>>;

fn dealt(evidence: &Evidence<'_>, topic: &TopicPartition) -> Deals {
    let name = topic.to_string();
    let mut dealt = Deals::new();
    evidence.broker.with_history(|history| {
        for event in history.events() {
            if let Happening::Received { partition, position, subscription: Some(_), session, by } =
                &event.what
                && **partition == *name
            {
                let dealt = dealt.entry(position.entry_id()).or_default();
                dealt.push(Dealt { at: event.at, by: Arc::clone(by), session: *session });
            }
        }
    });
    dealt
}

/// The times at which each worker sent an entry on an epoch of a task, whatever its fate.
type Sends = BTreeMap<(Arc<str>, TaskId, u32), Vec<Moment>>;

fn sends(evidence: &Evidence<'_>, ledger: &TopicPartition) -> Sends {
    let name = ledger.to_string();
    let mut sends = Sends::new();
    evidence.broker.with_history(|history| {
        for event in history.events() {
            let Happening::Sent { by, partition, keys } = &event.what else { continue };
            let keys = keys.iter().filter(|_| **partition == *name);
            for key in keys.filter_map(|key| key.parse().ok()) {
                let Key::Once(OnceKey { task, epoch, .. }) = key else { continue };
                sends.entry((Arc::clone(by), task, epoch.0)).or_default().push(event.at);
            }
        }
    });
    sends
}

/// The times at which each worker opened a follower of the ledger.
fn followed(evidence: &Evidence<'_>, ledger: &TopicPartition) -> BTreeSet<(Arc<str>, Moment)> {
    let name = ledger.to_string();
    evidence.broker.with_history(|history| {
        let follows = history.events().iter().filter_map(|event| {
            let Happening::Followed { by, partition, .. } = &event.what else { return None };
            (**partition == *name).then(|| (Arc::clone(by), event.at))
        });
        follows.collect()
    })
}

/// The times from which workers treated tasks as begun.
struct Begun<'a> {
    evidence: &'a Evidence<'a>,
    dealt: &'a Deals,
    sends: Sends,
    followed: BTreeSet<(Arc<str>, Moment)>,
}

impl Begun<'_> {
    /// Like [`decided_ms`], for the worker that sent the claim of this epoch. A claim whose fate is
    /// unknown may still be stored, so its worker treats the task as begun. It claims the task
    /// again, even if the time of another one has come meanwhile. Entries sent before the task was
    /// last dealt to the worker do not count.
    ///
    /// While the ledger is away, a claim may expire before it is sent, and the worker does not know
    /// that. So the delivery counts if the worker had to follow its ledger again before it sent the
    /// claim.
    fn decided_ms(&self, worker: &str, (task, epoch): (TaskId, u32), sent: Moment) -> u64 {
        let dealt = self.dealt.get(&task.entry_id()).into_iter().flatten();
        let dealt = dealt.filter(|dealt| *dealt.by == *worker && dealt.at <= sent);
        let since = dealt.map(|dealt| dealt.at).max();
        let sends = self.sends.get(&(Arc::from(worker), task, epoch)).into_iter().flatten();
        let first = sends.copied().filter(|at| Some(*at) >= since).min();
        let first = first.map_or(sent, |first| first.min(sent));
        let unsent = since.filter(|since| {
            let worker: Arc<str> = worker.into();
            self.followed.range((Arc::clone(&worker), *since)..=(worker, first)).next().is_some()
        });
        decided_ms(self.evidence, worker, unsent.unwrap_or(first))
    }
}

/// The tasks of the order checks, from the messages on the task topic.
fn submitted(evidence: &Evidence<'_>, topic: &TopicPartition) -> BTreeMap<TaskId, Submitted> {
    let log = evidence.broker.full_log(topic).into_iter();
    let tasks = log.filter_map(|message| {
        let id = TaskId::new(message.position, topic.partition);
        let (_, published) = evidence.submitted.get(&id)?;
        let from = evidence.script(id)?.delay.map(|delay| *published + delay);
        let key = message.order_key().map(<[u8]>::to_vec);
        Some((id, Submitted { key, from_ms: from.map(|from| as_millis(from.0)) }))
    });
    tasks.collect()
}

/// The latest time that a worker's clock showed when it decided on the entry that it sent at
/// `sent`.
fn decided_ms(evidence: &Evidence<'_>, worker: &str, sent: Moment) -> u64 {
    let still = evidence.fleet.troubles.iter().filter(|trouble| trouble.stood_still);
    let still = still.filter(|trouble| *trouble.worker == *worker && trouble.at <= sent);
    let still: Duration = still
        .map(|trouble| trouble.until.map_or(Duration::ZERO, |until| until.since(trouble.at)))
        .sum();
    as_millis(sent.0.saturating_sub(still + SOON))
}

/// Checks that no processor begins before the earlier tasks of its key are over: a worker that has
/// read the ledger up to the claim has read their ends.
fn check_starts(
    begun: &Begun<'_>,
    book: &Book,
    tasks: &BTreeMap<TaskId, Submitted>,
    starts: &[Start],
    found: &mut Vec<String>,
) {
    for Start { task, epoch, at, .. } in starts {
        let Some(Submitted { key: Some(key), .. }) = tasks.get(task) else { continue };
        let claim = book.stories.get(task).and_then(|story| story.claims.first());
        let decided =
            claim.map(|claim| begun.decided_ms(&claim.by, (*task, claim.epoch), claim.sent));
        for (first, Submitted { key: other, from_ms }) in tasks.range(..task) {
            let has_place = from_ms.is_none_or(|from| Some(from) <= decided);
            let ended = book.stories.get(first).and_then(|story| story.ended.as_ref());
            let is_over = ended.is_some_and(|(ended, ..)| ended <= at);
            if other.as_ref() == Some(key) && has_place && !is_over {
                found.push(format!(
                    "{ORDER}: task {task} epoch {epoch} started at {at:?}, before {first} of the same key was over"
                ));
            }
        }
    }
}

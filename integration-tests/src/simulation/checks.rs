//! What must hold after a run, by the numbers of `longhaul::protocol::invariants`.

use super::{ATTEMPTS_MAX, Start};
use longhaul::ledger;
use longhaul::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome};
use longhaul::protocol::entry_set::EntrySet;
use longhaul::protocol::fold::{Phase, TaskFold, Verdict};
use longhaul::protocol::invariants as ids;
use longhaul::protocol::invariants::KeysUsed;
use longhaul::protocol::key::{Key, OnceKey};
use longhaul::topics::TopicNames;
use longhaul::transport::memory::MemoryBroker;
use longhaul::transport::{Message, TopicPartition};
use longhaul::{TaskId, TaskMetadata, TaskState};
use std::collections::{BTreeMap, BTreeSet};

/// What a run left behind.
pub(super) struct Evidence<'a> {
    pub(super) broker: &'a MemoryBroker,
    pub(super) names: &'a TopicNames,
    pub(super) partitions: Vec<i32>,
    pub(super) submitted: &'a BTreeSet<TaskId>,
    pub(super) starts: &'a [Start],
    /// All tasks are acknowledged.
    pub(super) over: bool,
}

/// The accepted history of one task.
#[derive(Default)]
struct Told {
    fold: TaskFold,
    /// Accepted RUN claims: epoch and attempt.
    claims: BTreeMap<u32, u32>,
    /// Epochs whose attempt was given back.
    released: BTreeSet<u32>,
    /// Keys of its claims and outcomes.
    keys: BTreeSet<OnceKey>,
    /// Some of those are tombstoned.
    evicted: bool,
    /// The task was terminal when this many entries had been accepted.
    terminals: usize,
}

/// All violations, as text.
pub(super) fn check(evidence: &Evidence<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let mut told = BTreeMap::new();
    for partition in &evidence.partitions {
        let at = TopicPartition { topic: evidence.names.ledger.clone(), partition: *partition };
        let log = evidence.broker.full_log(&at);
        fold(&log, &mut told, &mut found);
        compare_compacted(evidence, &at, &told, &mut found);
    }
    for task in evidence.submitted {
        let fold = told.get(task).map(|told| told.fold).unwrap_or_default();
        if !fold.phase.is_terminal() {
            found.push(format!("{}: task {task} never ended: {fold:?}", ids::PROGRESS));
        }
    }
    for task in told.keys().filter(|task| !evidence.submitted.contains(task)) {
        found.push(format!("{}: the ledger knows a task that nobody submitted: {task}", ids::KEYS));
    }
    if !evidence.over {
        found.push(format!("{}: not all tasks are acknowledged", ids::PROGRESS));
    }
    check_starts(evidence, &told, &mut found);
    check_acks(evidence, &told, &mut found);
    check_view(evidence, &told, &mut found);
    found
}

/// Whether M shows the end of every task that has ended.
pub(super) fn view_agrees(evidence: &Evidence<'_>) -> bool {
    let (mut told, mut found) = (BTreeMap::new(), Vec::new());
    for partition in &evidence.partitions {
        let at = TopicPartition { topic: evidence.names.ledger.clone(), partition: *partition };
        fold(&evidence.broker.full_log(&at), &mut told, &mut found);
    }
    found.clear();
    check_view(evidence, &told, &mut found);
    found.is_empty()
}

fn read(message: &Message) -> Option<Entry> {
    ledger::read(message).ok()
}

fn fold(log: &[Message], told: &mut BTreeMap<TaskId, Told>, found: &mut Vec<String>) {
    let mut keys = KeysUsed::default();
    for entry in log.iter().filter_map(read) {
        found.extend(keys.published(&entry).map(|violation| violation.to_string()));
        if let Entry::Seal(seal) = &entry {
            for (id, task) in told.iter() {
                let named = seal.entries.get(id.entry_id()).is_some();
                if named && !task.fold.phase.is_terminal() {
                    found.push(format!("{}: task {id} was sealed before its end", ids::SEAL));
                }
            }
        }
        let Some(id) = entry.task() else { continue };
        let task = told.entry(id).or_default();
        let before = task.fold;
        match &entry {
            Entry::Claim(Claim { key, .. }) | Entry::Done(Done { key, .. }) => {
                task.keys.insert(*key);
            }
            Entry::Tombstone(Key::Once(key)) => task.evicted |= task.keys.contains(key),
            Entry::Tombstone(_)
            | Entry::Cancel(_)
            | Entry::Heartbeat(_)
            | Entry::Checkpoint(_)
            | Entry::Seal(_)
            | Entry::Config(_) => {}
        }
        let accepted = task.fold.apply(&entry) == Verdict::Accepted;
        if before.phase.is_terminal() && task.fold.phase != before.phase {
            found.push(format!("{}: task {id} left its terminal state", ids::TERMINAL));
        }
        if !accepted {
            continue;
        }
        match entry {
            Entry::Claim(Claim { key, attempt, kind: ClaimKind::Run, .. })
                if task.claims.insert(key.epoch.0, attempt).is_some() =>
            {
                found.push(format!("{}: task {id} has two owners of one epoch", ids::OWNER));
            }
            Entry::Done(Done { key, outcome: Outcome::Released(_), .. }) => {
                task.released.insert(key.epoch.0);
            }
            Entry::Claim(_)
            | Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Heartbeat(_)
            | Entry::Checkpoint(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => {}
        }
        task.terminals += usize::from(task.fold.phase.is_terminal() && !before.phase.is_terminal());
    }
    for (id, task) in told.iter().filter(|(_, task)| task.terminals > 1) {
        found.push(format!("{}: task {id} ended {} times", ids::TERMINAL, task.terminals));
    }
}

/// A bootstrap of the ledger as it is now folds the same; of a sealed task it knows that it is over.
fn compare_compacted(
    evidence: &Evidence<'_>,
    at: &TopicPartition,
    told: &BTreeMap<TaskId, Told>,
    found: &mut Vec<String>,
) {
    let mut folds: BTreeMap<TaskId, TaskFold> = BTreeMap::new();
    let mut sealed = EntrySet::default();
    for entry in evidence.broker.view(at, true).iter().filter_map(read) {
        if let Entry::Seal(seal) = &entry {
            sealed = sealed.union(&seal.entries);
        }
        if let Some(id) = entry.task() {
            folds.entry(id).or_default().apply(&entry);
        }
    }
    for (id, task) in told.iter().filter(|(id, _)| id.partition == at.partition) {
        let fold = folds.get(id).copied().unwrap_or_default();
        let over = sealed.get(id.entry_id()).is_some();
        let same = if over { task.fold.phase.is_terminal() } else { fold == task.fold };
        if !same {
            let whole = task.fold;
            found.push(format!(
                "{}: task {id}: {fold:?} compacted (sealed: {over}), {whole:?} whole",
                ids::COMPACTION
            ));
        }
    }
}

fn check_starts(evidence: &Evidence<'_>, told: &BTreeMap<TaskId, Told>, found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    let mut attempts: BTreeMap<(TaskId, u32), u32> = BTreeMap::new();
    for start in evidence.starts {
        let Start { task, epoch, attempt } = start;
        if !seen.insert((*task, *epoch)) {
            found.push(format!("{}: task {task} epoch {epoch} started twice", ids::START));
        }
        if *attempt > ATTEMPTS_MAX {
            found.push(format!("{}: task {task} started attempt {attempt}", ids::START));
        }
        let told = told.get(task);
        let claimed = told.and_then(|told| told.claims.get(epoch));
        if claimed != Some(attempt) {
            found.push(format!("{}: task {task} epoch {epoch} had no accepted claim", ids::START));
        }
        if let Some(earlier) = attempts.insert((*task, *attempt), *epoch)
            && !told.is_some_and(|told| told.released.contains(&earlier))
        {
            found.push(format!("{}: task {task} attempt {attempt} ran again", ids::START));
        }
    }
}

fn check_acks(evidence: &Evidence<'_>, told: &BTreeMap<TaskId, Told>, found: &mut Vec<String>) {
    for task in evidence.submitted {
        let at = TopicPartition { topic: evidence.names.task.clone(), partition: task.partition };
        let ended = told.get(task).is_some_and(|told| told.fold.phase.is_terminal());
        if evidence.broker.is_acked(&at, "longhaul", task.entry_id()) && !ended {
            found.push(format!("{}: task {task} was acknowledged before its end", ids::ACK));
        }
    }
}

/// The last entry of each task on M says what the ledger says, also where workers were killed that had read an entry of a zombie.
fn check_view(evidence: &Evidence<'_>, told: &BTreeMap<TaskId, Told>, found: &mut Vec<String>) {
    let mut last: BTreeMap<String, Option<TaskMetadata>> = BTreeMap::new();
    for partition in &evidence.partitions {
        let at = TopicPartition { topic: evidence.names.metadata.clone(), partition: *partition };
        for message in evidence.broker.full_log(&at) {
            let Some(key) = message.key else { continue };
            let shown =
                if message.null { None } else { serde_json::from_slice(&message.payload).ok() };
            last.insert(key, shown);
        }
    }
    // What lands on M after the ledger has forgotten the task stays there: R is far above the time that a publish takes.
    let known = |told: &Told| told.fold.phase.is_terminal() && !told.evicted;
    for (id, told) in told.iter().filter(|(_, told)| known(told)) {
        let shown = last.get(&id.to_string()).and_then(Option::as_ref);
        let completed = told.fold.phase == Phase::Completed;
        let agrees = shown.is_some_and(|shown| {
            shown.is_terminal() && (shown.state != TaskState::Completed || completed)
        });
        if !agrees {
            let state = shown.map(|shown| shown.state);
            let phase = told.fold.phase;
            found.push(format!("{}: M shows {state:?} for task {id}, C {phase:?}", ids::VIEW));
        }
    }
}

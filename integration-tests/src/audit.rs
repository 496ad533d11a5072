//! Reads the ledger and the metadata topic from start to end and checks what must hold after any
//! run.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use longhaul::TaskId;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::fold::{Phase, TaskFold, Verdict};
use longhaul_core::protocol::invariants::{LogJudge, phase_shown, showing};
use longhaul_core::protocol::key::{Epoch, OwnerId};
use longhaul_session::PulsarTransport;
use longhaul_transport::{Follow, Message, Start, TopicPartition, Transport};
use tokio::time::timeout;

use crate::view::{LIMIT, Shown};

/// The audited record of one task.
#[derive(Clone, Debug, Default)]
pub struct Audited {
    /// The state of the task in the ledger.
    pub fold: TaskFold,
    /// The owner of each epoch.
    pub owners: BTreeMap<Epoch, OwnerId>,
    /// Number of the task's ledger entries that changed nothing.
    pub ignored: usize,
    /// The task's entries on the metadata topic, in order.
    pub shown: Vec<Shown>,
}

/// Checks the ledger and compares the metadata topic with it. The topics must be at rest.
///
/// # Errors
/// A key was used twice, an epoch has two owners, an entry is malformed, or the last entry of a
/// task on the metadata topic differs from the ledger.
pub async fn audit(
    transport: &PulsarTransport,
    ledger: &[TopicPartition],
    metadata: &[TopicPartition],
) -> Result<BTreeMap<TaskId, Audited>> {
    let mut tasks: BTreeMap<TaskId, Audited> = BTreeMap::new();
    for part in ledger {
        let mut judge = LogJudge::default();
        for message in read_whole(transport, part).await? {
            fold(&mut tasks, &mut judge, &message)
                .with_context(|| format!("{part}: {message:?}"))?;
        }
    }
    for part in metadata {
        for message in read_whole(transport, part).await? {
            let shown = Shown::read(&message)?;
            tasks.entry(shown.task).or_default().shown.push(shown);
        }
    }
    for (id, task) in &tasks {
        let agrees = agrees(&task.fold, task.shown.last());
        ensure!(agrees, "{id}: the ledger says {:?}, shown is {:?}", task.fold, task.shown.last());
    }
    Ok(tasks)
}

/// All messages that are on a partition now, not compacted.
///
/// # Errors
/// The partition cannot be read.
pub async fn read_whole(
    transport: &PulsarTransport,
    part: &TopicPartition,
) -> Result<Vec<Message>> {
    let follow = Follow { start: Start::Earliest, compacted: false };
    let mut follower = transport.follower(part, follow).await?;
    let Some(end) = follower.last_position().await? else { return Ok(Vec::new()) };
    let mut messages = Vec::new();
    loop {
        let next = timeout(LIMIT, follower.next()).await;
        let message = next.with_context(|| format!("{part} ends before {end:?}"))??;
        let position = message.position;
        messages.push(message);
        if position >= end {
            return Ok(messages);
        }
    }
}

fn fold(
    tasks: &mut BTreeMap<TaskId, Audited>,
    judge: &mut LogJudge,
    message: &Message,
) -> Result<()> {
    let entry = ledger::read(message)?;
    let content = ledger::content(message).unwrap_or_default();
    judge.read(message.position, &entry, &content, message.publish_time_ms);
    let found = judge.take_findings();
    ensure!(found.is_empty(), "{found:?}");
    let Some(id) = entry.task() else { return Ok(()) };
    let task = tasks.entry(id).or_default();
    match (task.fold.apply(&entry), &entry) {
        (Verdict::Accepted, Entry::Claim(claim)) => {
            task.owners.insert(claim.key.epoch, claim.key.owner);
        }
        (Verdict::Ignored(_), Entry::Claim(_) | Entry::Done(_) | Entry::Checkpoint(_)) => {
            task.ignored += 1;
        }
        _ => {}
    }
    Ok(())
}

/// Whether the last entry on the metadata topic agrees with the ledger.
fn agrees(fold: &TaskFold, last: Option<&Shown>) -> bool {
    let Some(last) = last else { return !fold.phase.is_terminal() };
    let Some(metadata) = &last.metadata else { return fold.phase.is_terminal() };
    let shown = phase_shown(metadata);
    if fold.phase == Phase::Retry && shown == Phase::Running {
        // A released attempt shows nothing.
        return true;
    }
    let owner = last.properties.get("owner").cloned();
    showing(fold, shown).is_ok()
        && metadata.attempts == fold.attempt
        && last.epoch() == fold.epoch.0
        && owner == Some(fold.owner.to_string())
}

//! Running tasks of a queue that is moved: wait for them, or take them from their workers.

use super::exporting::Export;
use super::ledgers::Ledger;
use super::{CLOSED_AT_ONCE, MoveError, OpenLevel};
use crate::client::Client;
use crate::clock::runtime_now;
use crate::transport::Outgoing;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, Done, Entry, NextAttempt, Outcome};
use longhaul_core::protocol::fold::Verdict;
use longhaul_core::protocol::key::OnceKey;
use longhaul_core::protocol::operator::OperatorAction;
use longhaul_core::task::TaskId;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::timeout_at;

impl Export {
    /// The number of running tasks, as far as the ledgers were read.
    #[must_use]
    pub fn running(&self) -> usize {
        self.levels.iter().flat_map(|level| &level.ledgers).map(Ledger::running).sum()
    }

    /// Waits until no task runs, up to this limit. Returns how many still run. Unless the queue is
    /// paused, more tasks may start.
    ///
    /// # Errors
    /// When a ledger cannot be read.
    pub async fn until_idle(&mut self, limit: Duration) -> Result<usize, MoveError> {
        let until = runtime_now() + limit;
        for level in &mut self.levels {
            for ledger in &mut level.ledgers {
                while ledger.running() > 0 {
                    match timeout_at(until, ledger.read()).await {
                        Ok(read) => read?,
                        Err(_) => return Ok(self.running()),
                    }
                }
            }
        }
        Ok(self.running())
    }

    /// Takes running tasks from their workers, like [`force_release`](crate::Queue::force_release):
    /// their attempts count, and the next attempts start from their checkpoints. Returns how many
    /// were taken. Unless the queue is paused, they start again.
    ///
    /// # Errors
    /// When a ledger cannot be read or written.
    pub async fn take_running(&mut self) -> Result<u64, MoveError> {
        let (client, mut taken) = (self.client.clone(), 0);
        for OpenLevel { ledgers, .. } in &mut self.levels {
            for ledger in ledgers {
                let mut running: Vec<TaskId> = ledger.running_tasks().collect();
                running.sort_unstable();
                for tasks in running.chunks(CLOSED_AT_ONCE) {
                    let entries = tasks.iter().filter_map(|id| release(&client, ledger, *id));
                    let entries: Vec<_> = entries.flatten().collect();
                    let verdicts = ledger.write(&client, entries).await?;
                    // If the worker ended the task first, both entries are ignored.
                    let released: HashSet<TaskId> = verdicts
                        .into_iter()
                        .filter(|(_, verdict)| *verdict == Verdict::Accepted)
                        .map(|(key, _)| key.task)
                        .collect();
                    taken += released.len() as u64;
                }
            }
        }
        Ok(taken)
    }
}

/// The entries that take a task from its worker.
fn release(client: &Client, ledger: &Ledger, id: TaskId) -> Option<[(OnceKey, Outgoing); 2]> {
    let action = OperatorAction::ForceRelease;
    let known = ledger.tasks.get(&id)?;
    let next = action.claim(&known.fold, None).ok()?;
    let [claim_key, key] = [(); 2].map(|()| client.inner.operator.key(id, next.epoch));
    let claim = Claim::plain(claim_key, next.attempt, next.kind);
    let claim = known.claim.map_or(claim, |last| claim.repeating(&last));
    let outcome = Outcome::Released(NextAttempt::default());
    let done = Done { key, attempt: next.attempt, outcome, writer: None };
    let reason = format!("{} by {}: its queue is moved", action.participle(), client.operator);
    let message = |entry| ledger::by_operator(entry, &reason, &client.operator, action.word());
    Some([(claim_key, message(&Entry::Claim(claim))), (key, message(&Entry::Done(done)))])
}

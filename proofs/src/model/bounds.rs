//! The bounds of a scenario's world.

use super::tamper::Fault;
use longhaul_core::protocol::dead_letters::DeadLetterKinds;
use longhaul_core::protocol::limits::Limits;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The bounds of a scenario. Budgets count over the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each switches one independent part of the world"
)]
pub struct Bounds {
    /// Number of concurrent workers.
    pub workers: u8,
    /// Number of tasks.
    pub tasks: u8,
    /// Maximum attempts of a task.
    pub attempts: u8,
    /// Whether attempts may fail.
    pub fail: bool,
    /// Whether workers without a delivery claim, too.
    pub adopt: bool,
    /// Whether no worker takes over a claim that its live owner still waits for, as the protocol's
    /// clocks ensure.
    pub timely: bool,
    /// Whether all tasks came in one batch.
    pub batch: bool,
    /// Whether the body of task 0 never ends; the goal does not require its end.
    pub hang: bool,
    /// Task 1 waits until task 0 is over.
    pub park: bool,
    /// Whether nothing is requested from the broker, so that no message is delivered.
    pub unasked: bool,
    /// Whether all tasks have one order key: then the subscription is Key_Shared.
    pub ordered: bool,
    /// Number of crashes; a worker restarts at once, under a new owner id.
    pub crash: u8,
    /// Number of compactions, each up to any position.
    pub compact: u8,
    /// Number of deliveries that the broker takes away without the worker's knowledge.
    pub redeliver: u8,
    /// Number of consumer sessions that end, to the worker's knowledge.
    pub session: u8,
    /// Number of live owners that are treated as stale.
    pub spurious: u8,
    /// Number of publishes that fail, with an unknown result or with all in flight lost.
    pub giveup: u8,
    /// Number of cancel requests.
    pub cancel: u8,
    /// Number of operators' actions on a task.
    pub operate: u8,
    /// Whether expired tasks get a dead letter, too.
    pub letters: bool,
    /// Number of tasks that their holders offer to all workers, for any reason.
    pub offers: u8,
    /// Number of workers that stop stepping while they keep their deliveries.
    pub freeze: u8,
    /// Number of frozen workers that continue.
    pub thaw: u8,
    /// Whether the broker notices that a worker is frozen.
    pub brokerto: bool,
    /// Whether tasks expire, at any time that a worker's clock may show, and have their own maximum
    /// of attempts: the workers' maximum is one less.
    pub expires: bool,
    /// Number of workers that drain and leave.
    pub drain: u8,
    /// Number of self-fences at any time, as after a long outage.
    pub fences: u8,
    /// Whether finished tasks are sealed, and their keys removed from the ledger.
    pub seal: bool,
    /// Number of keys of a task from which on its next claim has a base, and its older keys are
    /// removed; 0: never.
    pub keys: u8,
    /// Whether tombstones are published one at a time, in any allowed order; otherwise all
    /// removable ones at once.
    pub single: bool,
    /// Number of published unions of seals.
    pub merges: u8,
    /// Whether the broker stores its mark-delete position only now and then.
    pub marked: bool,
    /// Number of broker restarts that forget the acks above the stored mark-delete position.
    pub forgets: u8,
    /// Whether reading the payload takes time, and acknowledged messages are trimmed.
    pub fetch: bool,
    /// Whether deliveries wait in a queue before the worker knows of them.
    pub queue: bool,
    /// Number of optional steps after the first key of a sealed task was removed: faults of all
    /// kinds that the other budgets allow, and repeated seals. See
    /// [`Move::counts_after`](super::Move::counts_after).
    pub after: u8,
    /// Which steps before an ack take time: none (0), the ack (1), the view and the dead letter as
    /// well (2).
    pub receipts: u8,
    /// Overlap of bodies: not checked (0), checked (1), checked while owners end their own bodies
    /// in time (2).
    pub lease: u8,
    /// The broken rule.
    pub fault: Fault,
    /// Maximum number of visited states.
    pub cap: usize,
}

/// The bounds have no such field, or it has no such value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField(pub String);

/// Sets fields of bounds by a text such as `crash=0,seal=1,fault=LateClaimRun`. A flag is 0 or 1.
///
/// # Errors
/// The first part that is not `field=value`, or could not be set.
pub(super) fn set_fields<B: Serialize + DeserializeOwned>(
    mut bounds: B,
    text: &str,
) -> Result<B, UnknownField> {
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let set = part.split_once('=').and_then(|(name, value)| with_field(&bounds, name, value));
        bounds = set.ok_or_else(|| UnknownField(part.to_owned()))?;
    }
    Ok(bounds)
}

/// The bounds with another value of this field. `None` if there is no such field or value.
fn with_field<B: Serialize + DeserializeOwned>(bounds: &B, name: &str, value: &str) -> Option<B> {
    let mut fields = serde_json::to_value(bounds).ok()?;
    let field = fields.get_mut(name)?;
    *field = match field {
        Value::Bool(_) => Value::from(value.parse::<u8>().ok()? > 0),
        Value::Number(_) => Value::from(value.parse::<usize>().ok()?),
        _ => Value::from(value),
    };
    serde_json::from_value(fields).ok()
}

impl Bounds {
    /// The batch size in each task's message.
    #[must_use]
    pub fn batch_size(&self) -> Option<u32> {
        self.batch.then_some(u32::from(self.tasks))
    }

    /// The limits in each task's message.
    #[must_use]
    pub fn limits(&self) -> Limits {
        if !self.expires {
            return Limits::NONE;
        }
        let max_attempts = Some(u32::from(self.attempts));
        Limits { max_attempts, expires_at_ms: Some(1), ..Limits::NONE }
    }

    /// Which outcomes get a dead letter.
    #[must_use]
    pub const fn letters(&self) -> DeadLetterKinds {
        DeadLetterKinds { failed: true, expired: self.letters }
    }

    /// The workers' maximum of attempts for a task without its own.
    #[must_use]
    pub fn workers_attempts(&self) -> u32 {
        u32::from(self.attempts) - u32::from(self.expires)
    }
}

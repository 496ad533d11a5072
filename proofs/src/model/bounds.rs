//! What a scenario's world may do, and how often.

use super::tamper::Fault;
use longhaul_core::protocol::dead_letters::DeadLetterKinds;
use longhaul_core::protocol::limits::Limits;

/// The bounds of a scenario. Budgets count over the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each switches one independent part of the world"
)]
pub struct Bounds {
    /// Workers at the same time.
    pub workers: u8,
    /// Tasks.
    pub tasks: u8,
    /// Attempts that a task has.
    pub attempts: u8,
    /// Attempts may fail.
    pub fail: bool,
    /// Workers without a delivery claim, too.
    pub adopt: bool,
    /// Nobody takes over a claim that its live owner still waits for: what the protocol gets from
    /// its clocks.
    pub timely: bool,
    /// All tasks came in one batch.
    pub batch: bool,
    /// The body of task 0 never ends, and the goal does not ask for it.
    pub hang: bool,
    /// Task 1 waits until task 0 is over.
    pub park: bool,
    /// Nobody asks the broker for anything: no message is delivered.
    pub unasked: bool,
    /// All tasks have one order key: the subscription is Key_Shared.
    pub ordered: bool,
    /// Crashes; a worker starts again at once, under a new owner id.
    pub crash: u8,
    /// Compactions, each up to any position.
    pub compact: u8,
    /// Deliveries that the broker takes away without the worker's knowledge.
    pub redeliver: u8,
    /// Consumer sessions that end, to the worker's knowledge.
    pub session: u8,
    /// Live owners that are taken for stale.
    pub spurious: u8,
    /// Publishes that fail, with their fate unknown or all in flight lost.
    pub giveup: u8,
    /// Requests to cancel a task.
    pub cancel: u8,
    /// Actions of operators upon a task.
    pub operate: u8,
    /// Tasks that expired get a dead letter, too.
    pub letters: bool,
    /// Tasks that whoever holds them offers to anybody: workers that do not want them decide so for
    /// reasons of their own.
    pub offers: u8,
    /// Workers that stop stepping, keeping their deliveries.
    pub freeze: u8,
    /// Frozen workers that go on.
    pub thaw: u8,
    /// The broker notices that a worker is frozen.
    pub brokerto: bool,
    /// Tasks expire, at any time that a worker's clock may show, and have their own number of
    /// attempts: workers give one less.
    pub expires: bool,
    /// Workers that drain and leave.
    pub drain: u8,
    /// Self-fences at any time, as after a long outage.
    pub fences: u8,
    /// Finished tasks are sealed, and their keys leave the ledger.
    pub seal: bool,
    /// From so many keys of a task on its next claim has a base, and its older keys go; 0: none
    /// has.
    pub keys: u8,
    /// Tombstones are published one at a time, in any order that the rules allow; else all that may
    /// go at once.
    pub single: bool,
    /// Unions of seals that are published.
    pub merges: u8,
    /// The broker stores its mark-delete position only now and then.
    pub marked: bool,
    /// Broker restarts that forget the acks above the stored mark-delete position.
    pub forgets: u8,
    /// Reading the payload takes time, and acknowledged messages are trimmed.
    pub fetch: bool,
    /// Deliveries wait in a queue before the worker knows of them.
    pub queue: bool,
    /// Steps after the first key of a sealed task has gone that nothing needs: troubles of all that
    /// the other budgets allow, and seals of what is sealed. See
    /// [`Move::counts_after`](super::Move::counts_after).
    pub after: u8,
    /// What takes time on the way to an ack: nothing (0), the ack (1), the view and the dead letter
    /// as well (2).
    pub receipts: u8,
    /// Overlap of bodies: not looked at (0), looked at (1), looked at while owners end their own
    /// bodies in time (2).
    pub lease: u8,
    /// The rule that is broken.
    pub fault: Fault,
    /// States that are visited at most.
    pub cap: usize,
}

/// The bounds have no such field, or it has no such value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField(pub String);

/// Reads `name=value,…`, and has each field set; `None` says that there is no such field, or that
/// it takes no such value.
///
/// # Errors
/// Names the first part that is not `field=value`, or could not be set.
pub(super) fn each_field(
    text: &str,
    mut set: impl FnMut(&str, &str) -> Option<()>,
) -> Result<(), UnknownField> {
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let fields = part.split_once('=');
        let done = fields.and_then(|(name, value)| set(name, value));
        done.ok_or_else(|| UnknownField(part.to_owned()))?;
    }
    Ok(())
}

impl Bounds {
    /// How many tasks came in the batch of each task's message, as that says.
    #[must_use]
    pub fn batch_size(&self) -> Option<u32> {
        self.batch.then_some(u32::from(self.tasks))
    }

    /// What each task's message allows it.
    #[must_use]
    pub fn limits(&self) -> Limits {
        if !self.expires {
            return Limits::NONE;
        }
        let max_attempts = Some(u32::from(self.attempts));
        Limits { max_attempts, expires_at_ms: Some(1), ..Limits::NONE }
    }

    /// Which ends get a dead letter.
    #[must_use]
    pub const fn letters(&self) -> DeadLetterKinds {
        DeadLetterKinds { failed: true, expired: self.letters }
    }

    /// How many attempts workers give a task that does not say it.
    #[must_use]
    pub fn workers_attempts(&self) -> u32 {
        u32::from(self.attempts) - u32::from(self.expires)
    }

    /// Changes fields by a text such as `crash=0,thaw=1,fault=LateClaimRun`.
    ///
    /// # Errors
    /// Names the first part that is not `field=number`.
    pub fn set(mut self, text: &str) -> Result<Self, UnknownField> {
        each_field(text, |name, value| {
            if name == "fault" {
                self.fault = Fault::named(value)?;
                return Some(());
            }
            self.set_one(name, value.parse().ok()?)
        })?;
        Ok(self)
    }

    fn set_one(&mut self, name: &str, value: usize) -> Option<()> {
        if name == "cap" {
            self.cap = value;
            return Some(());
        }
        let value = u8::try_from(value).ok()?;
        if let Some(flag) = self.flag(name) {
            *flag = value > 0;
            return Some(());
        }
        let number = match name {
            "workers" => &mut self.workers,
            "tasks" => &mut self.tasks,
            "attempts" => &mut self.attempts,
            "crash" => &mut self.crash,
            "compact" => &mut self.compact,
            "redeliver" => &mut self.redeliver,
            "session" => &mut self.session,
            "spurious" => &mut self.spurious,
            "giveup" => &mut self.giveup,
            "cancel" => &mut self.cancel,
            "operate" => &mut self.operate,
            "offers" => &mut self.offers,
            "freeze" => &mut self.freeze,
            "thaw" => &mut self.thaw,
            "drain" => &mut self.drain,
            "fences" => &mut self.fences,
            "forgets" => &mut self.forgets,
            "merges" => &mut self.merges,
            "keys" => &mut self.keys,
            "after" => &mut self.after,
            "receipts" => &mut self.receipts,
            "lease" => &mut self.lease,
            _ => return None,
        };
        *number = value;
        Some(())
    }

    fn flag(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "fail" => &mut self.fail,
            "adopt" => &mut self.adopt,
            "timely" => &mut self.timely,
            "batch" => &mut self.batch,
            "hang" => &mut self.hang,
            "park" => &mut self.park,
            "unasked" => &mut self.unasked,
            "ordered" => &mut self.ordered,
            "brokerto" => &mut self.brokerto,
            "seal" => &mut self.seal,
            "single" => &mut self.single,
            "marked" => &mut self.marked,
            "fetch" => &mut self.fetch,
            "expires" => &mut self.expires,
            "letters" => &mut self.letters,
            "queue" => &mut self.queue,
            _ => return None,
        })
    }
}

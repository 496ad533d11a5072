//! Tasks that need a slot and a token of a rate. A slot must not stand unused while its task waits
//! for a token, and tokens must not pile up while their tasks wait for slots. Otherwise the rate of
//! one key takes the slots of all others, or its tasks begin all at once later.
//!
//! So a task lines up for slots only when its rates have a token within [`SLOT_AHEAD_MS`], and
//! takes the token when it has its slots. If another worker has taken the token by then, the task
//! gives the slots back and waits in a line of this worker, first come, first served. A token is
//! good for [`TOKEN_KEEPS_MS`]; after that the task takes another one, as if it had none.

use super::{QueueContext, QueueCore, Wake, remove_from};
use crate::protocol::register::{Gate, Gates, QueueTask};
use std::collections::{BTreeMap, BTreeSet};

/// A task holds slots at most this long before its token's instant.
pub(super) const SLOT_AHEAD_MS: u64 = 1_000;

/// How long after its instant a token may be used. After this token the task may wait for at most
/// one other rate's token, which takes [`SLOT_AHEAD_MS`].
pub(super) const TOKEN_KEEPS_MS: u64 = 2_000;

/// The tasks of this worker that need a token and have none.
#[derive(Debug, Default)]
pub(super) struct RateWaitList {
    /// Tasks that may take a token as soon as they have their slots.
    setting_out: BTreeMap<Gate, BTreeSet<QueueTask>>,
    /// Tasks that wait for a token, by their places.
    lines: BTreeMap<Gate, BTreeMap<u64, QueueTask>>,
    parked: BTreeMap<QueueTask, (Gate, u64)>,
    count: u64,
}

impl RateWaitList {
    /// When a task would have its token, behind all others of this worker that may take one, in ms
    /// since the epoch.
    pub(super) fn opens_at(
        &self,
        gate: &Gate,
        task: QueueTask,
        gates: &Gates,
        wall_ms: u64,
    ) -> u64 {
        let all = self.setting_out.get(gate);
        let others = all.map_or(0, |all| all.len() - usize::from(all.contains(&task)));
        gates.opens_at(gate, others, wall_ms)
    }

    /// Notes a task that may take a token here.
    pub(super) fn set_out(&mut self, gate: &Gate, task: QueueTask) {
        self.setting_out.entry(gate.clone()).or_default().insert(task);
    }

    pub(super) fn has_set_out(&self, gate: &Gate, task: QueueTask) -> bool {
        self.setting_out.get(gate).is_some_and(|all| all.contains(&task))
    }

    /// Notes that the task has its token, or needs none any more.
    pub(super) fn arrive(&mut self, gate: &Gate, task: QueueTask) -> bool {
        remove_from(&mut self.setting_out, gate, task)
    }

    /// Makes a task wait for a token. A task that waits already keeps its place.
    fn park(&mut self, gate: &Gate, task: QueueTask) {
        if self.parked.get(&task).is_some_and(|(at, _)| at == gate) {
            return;
        }
        self.unpark(task);
        self.count += 1;
        self.parked.insert(task, (gate.clone(), self.count));
        self.lines.entry(gate.clone()).or_default().insert(self.count, task);
    }

    pub(super) fn unpark(&mut self, task: QueueTask) {
        let Some((gate, place)) = self.parked.remove(&task) else { return };
        if let Some(line) = self.lines.get_mut(&gate) {
            line.remove(&place);
            if line.is_empty() {
                self.lines.remove(&gate);
            }
        }
    }

    fn first_at(&self, gate: &Gate) -> Option<QueueTask> {
        self.lines.get(gate)?.first_key_value().map(|(_, task)| *task)
    }

    pub(super) fn clear(&mut self) {
        (self.setting_out, self.lines, self.parked) = Default::default();
    }
}

impl QueueCore {
    /// Gives back the slots of a task, which waits here for a token.
    pub(super) fn park_at_rate(
        &mut self,
        task: QueueTask,
        gate: &Gate,
        at_ms: u64,
        cx: &QueueContext<'_>,
    ) {
        self.give_back_slots(task);
        self.take_no_token(task, cx);
        self.tickets.rates.park(gate, task);
        self.check_rate(gate, at_ms, cx);
    }

    /// Forgets a task that needs no token any more.
    pub(super) fn leave_rates(&mut self, task: QueueTask, cx: &QueueContext<'_>) {
        self.take_no_token(task, cx);
        self.tickets.rates.unpark(task);
    }

    /// Lets another task of this worker have the token that this one was about to take.
    fn take_no_token(&mut self, task: QueueTask, cx: &QueueContext<'_>) {
        let rates = &mut self.tickets.rates;
        let at: Vec<Gate> = rates.setting_out.keys().cloned().collect();
        for gate in at.into_iter().filter(|gate| rates.arrive(gate, task)).collect::<Vec<_>>() {
            self.check_rate(&gate, 0, cx);
        }
    }

    /// Plans a check of a gate's line at this time (ms since the epoch), if any task waits there.
    fn check_rate(&mut self, gate: &Gate, at_ms: u64, cx: &QueueContext<'_>) {
        if self.tickets.rates.lines.contains_key(gate) {
            self.agenda.set_by(Wake::Rate(gate.clone()), cx.at_wall_ms(at_ms));
        }
    }

    /// Handles the time at which a token may be available.
    pub(super) fn rate_is_due(&mut self, gate: &Gate, cx: &mut QueueContext<'_>) {
        let mut before = None;
        while let Some(task) = self.tickets.rates.first_at(gate)
            && before != Some(task)
        {
            self.pass_gates(task, cx);
            before = Some(task);
        }
    }
}

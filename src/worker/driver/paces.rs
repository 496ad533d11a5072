//! Tasks that need a slot and a token of a rate. A slot must not stand unused while its task waits
//! for a token, and tokens must not pile up while their tasks wait for slots: else one key's rate
//! takes the slots of all others, or its tasks begin all at once later.
//!
//! So a task lines up for slots only when its rates have a token within [`SLOT_AHEAD_MS`], and
//! takes the token when it has its slots. If somebody else has the token then, it gives the slots
//! back and waits in a line of this worker, first come, first served. A token is good for
//! [`TOKEN_KEEPS_MS`]; after that the task takes another one, as if it had none.

use super::lanes::LaneId;
use super::{Driver, Event};
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::{Gate, Gates};
use longhaul_core::task::TaskId;
use std::collections::{BTreeMap, BTreeSet};

/// For so long at most before its token's instant a task holds slots.
pub(super) const SLOT_AHEAD_MS: u64 = 1_000;

/// How long after its instant a token may be used. Behind the token there is at most another
/// rate's, which takes [`SLOT_AHEAD_MS`].
pub(super) const TOKEN_KEEPS_MS: u64 = 2_000;

type Of = (LaneId, TaskId);

/// The tasks of this worker that need a token and have none.
#[derive(Debug, Default)]
pub(super) struct Paces {
    /// Those that may take one as soon as they have their slots.
    setting_out: BTreeMap<Gate, BTreeSet<Of>>,
    /// Those that wait until there is one.
    lines: BTreeMap<Gate, Line>,
    parked: BTreeMap<Of, (Gate, u64)>,
    count: u64,
}

#[derive(Debug, Default)]
struct Line {
    tasks: BTreeMap<u64, Of>,
    /// When it is looked at: in ms since the epoch.
    due_ms: Option<u64>,
}

impl Paces {
    /// When a task would have its token, behind all others of this worker that may take one.
    pub(super) fn opens_at(&self, gate: &Gate, of: Of, gates: &Gates, wall_ms: u64) -> u64 {
        let others =
            self.setting_out.get(gate).map_or(0, |all| all.len() - usize::from(all.contains(&of)));
        gates.opens_at(gate, others, wall_ms)
    }

    /// A task may take a token here.
    pub(super) fn set_out(&mut self, gate: &Gate, of: Of) {
        self.setting_out.entry(gate.clone()).or_default().insert(of);
    }

    pub(super) fn has_set_out(&self, gate: &Gate, of: Of) -> bool {
        self.setting_out.get(gate).is_some_and(|all| all.contains(&of))
    }

    /// It has one, or needs none any more.
    pub(super) fn arrive(&mut self, gate: &Gate, of: Of) -> bool {
        let Some(all) = self.setting_out.get_mut(gate) else { return false };
        let was_there = all.remove(&of);
        if all.is_empty() {
            self.setting_out.remove(gate);
        }
        was_there
    }

    /// A task waits until a token is there. It keeps its place if it waits already.
    fn park(&mut self, gate: &Gate, of: Of) {
        if self.parked.get(&of).is_some_and(|(at, _)| at == gate) {
            return;
        }
        self.unpark(of);
        self.count += 1;
        self.parked.insert(of, (gate.clone(), self.count));
        self.lines.entry(gate.clone()).or_default().tasks.insert(self.count, of);
    }

    pub(super) fn unpark(&mut self, of: Of) {
        let Some((gate, place)) = self.parked.remove(&of) else { return };
        if let Some(line) = self.lines.get_mut(&gate) {
            line.tasks.remove(&place);
            if line.tasks.is_empty() {
                self.lines.remove(&gate);
            }
        }
    }

    fn first_at(&self, gate: &Gate) -> Option<Of> {
        self.lines.get(gate)?.tasks.first_key_value().map(|(_, of)| *of)
    }

    /// Whether the line is to be looked at then and would not be otherwise.
    fn is_first_look(&mut self, gate: &Gate, at_ms: u64) -> bool {
        let Some(line) = self.lines.get_mut(gate) else { return false };
        let first = line.due_ms.is_none_or(|due| at_ms < due);
        if first {
            line.due_ms = Some(at_ms);
        }
        first
    }

    pub(super) fn clear(&mut self) {
        (self.setting_out, self.lines, self.parked) = Default::default();
    }
}

impl Driver {
    /// A task gives back its slots and waits here until a token is there.
    pub(super) fn park_at_pace(&mut self, number: usize, of: Of, gate: &Gate, at_ms: u64) {
        self.give_back_slots(number, of);
        self.take_no_token(number, of);
        let Some(register) = self.registers.get_mut(number) else { return };
        register.tickets.paces.park(gate, of);
        self.look_at_pace(number, gate, at_ms);
    }

    /// A task needs no token any more.
    pub(super) fn leave_paces(&mut self, number: usize, of: Of) {
        self.take_no_token(number, of);
        if let Some(register) = self.registers.get_mut(number) {
            register.tickets.paces.unpark(of);
        }
    }

    /// What a task was about to take others of this worker may have.
    fn take_no_token(&mut self, number: usize, of: Of) {
        let Some(register) = self.registers.get_mut(number) else { return };
        let paces = &mut register.tickets.paces;
        let at: Vec<Gate> = paces.setting_out.keys().cloned().collect();
        let left: Vec<Gate> = at.into_iter().filter(|gate| paces.arrive(gate, of)).collect();
        for gate in left {
            self.look_at_pace(number, &gate, 0);
        }
    }

    /// Has the line at a gate looked at then.
    fn look_at_pace(&mut self, number: usize, gate: &Gate, at_ms: u64) {
        let at_ms = at_ms.max(self.env.clock.wall_ms());
        let Some(register) = self.registers.get_mut(number) else { return };
        if register.tickets.paces.is_first_look(gate, at_ms) {
            self.at_wall_ms(at_ms, Event::PaceDue { register: number, gate: gate.clone() });
        }
    }

    /// A token may be there.
    pub(super) fn handle_pace_due(&mut self, number: usize, gate: &Gate, now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        if let Some(line) = register.tickets.paces.lines.get_mut(gate) {
            line.due_ms = None;
        }
        let mut before = None;
        while let Some(register) = self.registers.get(number)
            && let Some(of) = register.tickets.paces.first_at(gate)
            && before != Some(of)
        {
            self.pass_gates(of.0, of.1, now);
            before = Some(of);
        }
    }
}

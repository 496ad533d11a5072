//! Whether the holder of an exclusive place still lives.
//!
//! A client that lost its connection without the broker noticing comes back and finds its own place
//! taken, by itself. So whoever holds a place that somebody else wants is asked for a sign of life
//! first: if it gives none its connection ends, and the place is free. Until then the newcomer
//! waits.

use super::BrokerMachine;
use super::effect::RequestRefusal;
use longhaul_wire::messages::{Command, CommandPing};
use std::collections::BTreeSet;

/// How long a holder has for a sign of life: as on Pulsar.
pub(super) const PATIENCE_MS: u64 = 5000;
/// Newcomers that may wait; further ones are refused at once.
pub(super) const PROBES_MAX: usize = 1000;

/// A newcomer that waits for the answer of a holder.
#[derive(Debug)]
pub(super) struct Probe {
    holder: u64,
    newcomer: u64,
    /// What it asked for, and what it is told if the holder lives.
    command: Command,
    request_id: u64,
    refusal: RequestRefusal,
    deadline: u64,
}

impl BrokerMachine {
    /// Refuses a request, after a look whether whoever is in its way still lives.
    pub(super) fn refuse_or_probe(
        &mut self,
        conn: u64,
        request_id: u64,
        command: Command,
        refusal: RequestRefusal,
    ) {
        let holder =
            refusal.holder.filter(|&holder| holder != conn && self.probes.len() < PROBES_MAX);
        let Some(holder) = holder else { return self.error(conn, request_id, &refusal) };
        self.send(holder, CommandPing {});
        let deadline = self.up + PATIENCE_MS;
        self.probes.push(Probe { holder, newcomer: conn, command, request_id, refusal, deadline });
    }

    /// The connection has given a sign of life.
    pub(super) fn heard_of(&mut self, conn: u64) {
        for probe in self.probes.extract_if(.., |probe| probe.holder == conn).collect::<Vec<_>>() {
            self.error(probe.newcomer, probe.request_id, &probe.refusal);
        }
    }

    /// The client does not want any more what it had asked for.
    pub(super) fn probes_end(&mut self, conn: u64, is_asked: impl Fn(&Command) -> bool) {
        self.probes.retain(|probe| probe.newcomer != conn || !is_asked(&probe.command));
    }

    /// The connection has ended: what it held is free, and what it waited for is of no interest any
    /// more. Returns who waited for it, each with what it asked for.
    pub(super) fn take_waiting_for(&mut self, conn: u64) -> Vec<(u64, Command)> {
        self.probes.retain(|probe| probe.newcomer != conn);
        let free = self.probes.extract_if(.., |probe| probe.holder == conn);
        free.map(|probe| (probe.newcomer, probe.command)).collect()
    }

    /// Holders that have said nothing in time. Several newcomers may wait for one.
    pub(super) fn silent_holders(&self) -> BTreeSet<u64> {
        self.probes
            .iter()
            .filter(|probe| probe.deadline <= self.up)
            .map(|probe| probe.holder)
            .collect()
    }

    /// When the next holder's time is over.
    pub(super) fn next_probe(&self) -> Option<u64> {
        self.probes.iter().map(|probe| probe.deadline).min()
    }
}

//! Checks whether the holder of an exclusive place is still alive.
//!
//! A client that lost its connection without the broker noticing finds its own place taken when it
//! reconnects. So the broker pings the holder of a place that a newcomer wants. If the holder does
//! not answer, its connection ends and the place is free. Until then the newcomer waits.

use super::BrokerMachine;
use super::effect::RequestRefusal;
use longhaul_wire::messages::{Command, CommandPing};
use std::collections::BTreeSet;

/// Time for a holder to answer, as on Pulsar, in ms in which answers are read.
pub(super) const PATIENCE_MS: u64 = 5000;
/// Newcomers that may wait; further ones are refused at once.
pub(super) const PROBES_MAX: usize = 1000;

/// A newcomer that waits for the answer of a holder.
#[derive(Debug)]
pub(super) struct Probe {
    holder: u64,
    newcomer: u64,
    /// Its request, and the refusal if the holder is alive.
    command: Command,
    request_id: u64,
    refusal: RequestRefusal,
    /// By the clock for the answers of clients.
    deadline: u64,
}

impl BrokerMachine {
    /// Refuses a request, after checking whether the holder in its way is still alive.
    pub(super) fn refuse_or_probe(
        &mut self,
        conn: u64,
        request_id: u64,
        command: Command,
        refusal: RequestRefusal,
    ) {
        let holder = refusal.holder.filter(|holder| *holder != conn);
        let holder = holder.filter(|_| self.probes.len() < PROBES_MAX);
        let Some(holder) = holder else { return self.error(conn, request_id, &refusal) };
        self.send(holder, CommandPing {});
        let deadline = self.heard.deadline(PATIENCE_MS);
        self.probes.push(Probe { holder, newcomer: conn, command, request_id, refusal, deadline });
    }

    /// Notes that the client of a connection is alive.
    pub(super) fn heard_of(&mut self, conn: u64) {
        for probe in self.probes.extract_if(.., |probe| probe.holder == conn).collect::<Vec<_>>() {
            self.error(probe.newcomer, probe.request_id, &probe.refusal);
        }
    }

    /// Ends the waits for requests that the client has withdrawn.
    pub(super) fn probes_end(&mut self, conn: u64, is_asked: impl Fn(&Command) -> bool) {
        self.probes.retain(|probe| probe.newcomer != conn || !is_asked(&probe.command));
    }

    /// Notes that a connection has ended: its places are free, and its own waits end. Returns the
    /// newcomers that waited for it, with their requests.
    pub(super) fn take_waiting_for(&mut self, conn: u64) -> Vec<(u64, Command)> {
        self.probes.retain(|probe| probe.newcomer != conn);
        let free = self.probes.extract_if(.., |probe| probe.holder == conn);
        free.map(|probe| (probe.newcomer, probe.command)).collect()
    }

    /// Holders that did not answer in time. Several newcomers may wait for one.
    pub(super) fn silent_holders(&self) -> BTreeSet<u64> {
        self.probes
            .iter()
            .filter(|probe| probe.deadline <= self.heard.ms())
            .map(|probe| probe.holder)
            .collect()
    }

    /// The next deadline of a holder, by the monotonic clock.
    pub(super) fn next_probe(&self) -> Option<u64> {
        let next = self.probes.iter().map(|probe| probe.deadline).min()?;
        self.heard.until(next).map(|ms| self.up.saturating_add(ms))
    }
}

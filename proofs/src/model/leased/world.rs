//! The world around the gateways.

use super::super::fingerprint::Part;
use super::super::show::entry as show_entry;
use super::super::world::{Record, small};
use super::bounds::LeasedBounds;
use super::tamper::LeaseFault;
use crate::judge::Judge;
use longhaul::TaskId;
use longhaul_core::lease::ReportedOutcome;
use longhaul_core::machine::{Machine, Stage};
use longhaul_core::protocol::entry::{Done, Entry, Outcome};
use longhaul_core::protocol::fold::{TaskFold, Verdict};
use longhaul_core::protocol::key::{Epoch, OwnerId};

/// The only task.
pub(super) const TASK: TaskId = TaskId { ledger: 0, entry: 0, partition: 0, batch_index: None };

/// Identifies a lease.
pub(super) type Token = (Epoch, OwnerId);

/// A state of the world.
#[derive(Clone, Debug, Hash)]
pub struct LeasedWorld {
    pub(super) log: Part<Vec<Record>>,
    pub(super) gateways: Vec<Part<Gateway>>,
    /// Entries in flight whose publisher no longer waits for them.
    pub(super) ghosts: Vec<Entry>,
    /// The gateway that has the delivery.
    pub(super) at: Option<u8>,
    pub(super) acked: bool,
    /// The leases that were granted. Their holders never forget them.
    pub(super) tokens: Vec<Token>,
    pub(super) budget: Budget,
    pub(super) next_owner: u8,
    pub(super) history: Part<Judge>,
}

/// The remaining budgets, as in [`LeasedBounds`].
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Budget {
    pub(super) reports: u8,
    pub(super) keeps: u8,
    pub(super) late: u8,
    pub(super) giveup: u8,
    pub(super) crash: u8,
    pub(super) fences: u8,
    pub(super) redeliver: u8,
    pub(super) compact: u8,
}

/// A machine and its surroundings.
#[derive(Clone, Debug, Hash)]
pub(super) struct Gateway {
    pub(super) machine: Machine,
    /// `cursor`: index of the next record to read. `end`: where the bootstrap ends.
    pub(super) cursor: u8,
    pub(super) end: u8,
    pub(super) out: Vec<Entry>,
    /// Reports that wait for the confirmation of their end.
    pub(super) reporters: Vec<(Epoch, ReportedOutcome)>,
    /// The lease that was silent for too long; its end is being prepared.
    pub(super) over: Option<Epoch>,
    /// The reasons for which the gateway may end leases.
    pub(super) reasons: Vec<(Epoch, Why)>,
}

/// A reason to end a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Why {
    /// The holder reported this outcome.
    Said(ReportedOutcome),
    /// The gateway read nothing of the lease for too long.
    Silence,
}

impl Gateway {
    pub(super) fn new(bounds: &LeasedBounds, owner: u8, end: u8) -> Self {
        let mut machine = Machine::new(owner_id(owner), u32::from(bounds.attempts));
        let apart = if bounds.fault == LeaseFault::SameSeed { 0 } else { u64::from(owner) };
        machine.grant_leases((apart + 1) << 32);
        machine.set_keys_max(usize::MAX);
        if end == 0 {
            machine.bootstrap_ended();
        }
        let (out, reporters, reasons) = (Vec::new(), Vec::new(), Vec::new());
        Self { machine, cursor: 0, end, out, reporters, over: None, reasons }
    }

    pub(super) fn stage(&self) -> Stage {
        self.machine.task(TASK).map(|task| task.stage).unwrap_or_default()
    }

    /// The lease that the gateway looks after.
    pub(super) fn attends(&self) -> Option<Token> {
        match self.stage() {
            Stage::Running(run) if run.ended.is_none() => Some((run.epoch, run.owner)),
            _ => None,
        }
    }

    /// Whether the gateway waits for the claim of this lease.
    pub(super) fn awaits_claim(&self, (of, owner): Token) -> bool {
        matches!(self.stage(), Stage::Claiming { epoch, serial, .. }
            if epoch == of && self.machine.owner().of_lease(serial) == owner)
    }
}

impl LeasedWorld {
    pub(super) fn new(bounds: &LeasedBounds) -> Self {
        let gateways = (0..bounds.gateways).map(|owner| Part::new(Gateway::new(bounds, owner, 0)));
        Self {
            log: Part::new(Vec::new()),
            gateways: gateways.collect(),
            ghosts: Vec::new(),
            at: None,
            acked: false,
            tokens: Vec::new(),
            budget: Budget {
                reports: bounds.reports,
                keeps: bounds.keeps,
                late: bounds.late,
                giveup: bounds.giveup,
                crash: bounds.crash,
                fences: bounds.fences,
                redeliver: bounds.redeliver,
                compact: bounds.compact,
            },
            next_owner: bounds.gateways,
            history: Part::new(Judge::new(u32::from(bounds.attempts))),
        }
    }

    pub(super) fn end(&self) -> u8 {
        small(self.log.len())
    }

    /// The next record for a reader at `cursor`.
    pub(super) fn next_record(&self, cursor: u8) -> Option<usize> {
        let rest = self.log.iter().enumerate().skip(usize::from(cursor));
        rest.into_iter().find(|(_, record)| !record.removed).map(|(index, _)| index)
    }

    /// A follower's fold of the log. `compacted`: without the entries that compaction removed.
    pub(super) fn fold(&self, compacted: bool) -> TaskFold {
        let mut fold = TaskFold::default();
        for record in self.log.iter().filter(|record| !(compacted && record.removed)) {
            fold.apply(&record.entry);
        }
        fold
    }

    /// The accepted ends of this epoch. More than one is a violation.
    pub(super) fn ends(&self, epoch: Epoch) -> Vec<Outcome> {
        let mut fold = TaskFold::default();
        let accepted = self.log.iter().filter(|it| fold.apply(&it.entry) == Verdict::Accepted);
        let ends = accepted.filter_map(|record| match record.entry {
            Entry::Done(Done { key, outcome, .. }) if key.epoch == epoch => Some(outcome),
            _ => None,
        });
        ends.collect()
    }

    /// All entries published so far that are or may come to be in the log. Includes the entries
    /// that this gateway has in flight in the middle of its step.
    pub(super) fn published<'a>(
        &'a self,
        number: u8,
        out: &'a [Entry],
    ) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let numbered = self.gateways.iter().enumerate();
        let others = numbered.filter(move |(index, _)| *index != usize::from(number));
        let others = others.flat_map(|(_, gateway)| &gateway.out);
        self.log.iter().map(|record| &record.entry).chain(others).chain(out).chain(&self.ghosts)
    }

    pub(super) fn show(&self) -> String {
        let list = |entries: &[Entry]| entries.iter().map(show_entry).collect::<Vec<_>>().join(" ");
        let log: Vec<Entry> = self.log.iter().map(|record| record.entry.clone()).collect();
        let mut text = format!("       ledger: {}\n", list(&log));
        for (number, gateway) in self.gateways.iter().enumerate() {
            let (out, fold) = (list(&gateway.out), gateway.machine.fold(TASK));
            text += &format!(
                "       gateway {number}: reads {}/{}, out [{out}], e{} a{} {:?} {:?}, over {:?}, waits {:?}\n",
                gateway.cursor,
                gateway.end,
                fold.epoch,
                fold.attempt,
                fold.phase,
                gateway.stage(),
                gateway.over,
                gateway.reporters,
            );
        }
        let (ghosts, at, tokens) = (list(&self.ghosts), self.at, &self.tokens);
        text + &format!("       ghosts [{ghosts}], at {at:?}, granted {tokens:?}")
    }
}

pub(super) fn owner_id(owner: u8) -> OwnerId {
    // The upper halves of these ids belong to no lease.
    OwnerId(u128::from(owner) + 1)
}

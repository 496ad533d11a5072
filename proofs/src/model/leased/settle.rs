//! Performs the machines' actions at once, and judges them.

use super::super::check::tell_history;
use super::super::fingerprint::Part;
use super::super::world::Record;
use super::bounds::LeasedBounds;
use super::tamper::LeaseFault;
use super::world::{Gateway, LeasedWorld, TASK, Token, Why};
use crate::judge::Judge;
use longhaul_core::lease::ReportedOutcome;
use longhaul_core::machine::{Action, Stop};
use longhaul_core::protocol::entry::{Done, Entry, NextAttempt, Outcome};
use longhaul_core::protocol::invariants::{KEYS, LEASE_SILENCE, OUTCOME, Violation};
use longhaul_core::protocol::key::{Epoch, Key};

/// A world in the middle of a step.
pub(super) struct Settle<'a> {
    pub(super) bounds: &'a LeasedBounds,
    pub(super) world: LeasedWorld,
    pub(super) violations: &'a mut Vec<Violation>,
    /// Whether the entry read in this step is a renewal by another gateway.
    pub(super) renewed: bool,
}

impl Settle<'_> {
    /// Lets a gateway step, and performs its machine's actions.
    pub(super) fn gateway(&mut self, number: u8, act: impl FnOnce(&mut Self, &mut Gateway)) {
        let index = usize::from(number);
        let mut gateway = Gateway::clone(&self.world.gateways[index]);
        act(self, &mut gateway);
        while let Some(action) = gateway.machine.poll_action() {
            self.act(&mut gateway, number, action);
        }
        self.world.gateways[index] = Part::new(gateway);
    }

    pub(super) fn history(&mut self, tell: impl FnOnce(&mut Judge)) {
        tell_history(&mut self.world.history, self.violations, tell);
    }

    pub(super) fn violated(&mut self, id: &'static str, what: &'static str) {
        self.violations.push(Violation { id, what, task: Some(TASK) });
    }

    pub(super) fn append(&mut self, entry: Entry) {
        self.world.log.change(|log| log.push(Record { entry, removed: false }));
    }

    pub(super) fn haunt(&mut self, entries: impl IntoIterator<Item = Entry>) {
        self.world.ghosts.extend(entries);
        self.world.ghosts.sort_by_key(|entry| (entry.key(), matches!(entry, Entry::Tombstone(_))));
    }

    fn act(&mut self, gateway: &mut Gateway, number: u8, action: Action) {
        match action {
            Action::Publish(entry) => self.publish(gateway, number, entry),
            Action::Start { epoch, attempt, .. } => self.grant(gateway, epoch, attempt),
            Action::Stop { why: Stop::LetGo, .. } if !self.renewed => {
                self.violated(LEASE_SILENCE, "a lease is let go of that nobody else has renewed");
            }
            Action::DeadLetter(id) => {
                self.history(|history| history.dead_letter_stored(id));
                gateway.machine.dead_letter_stored(id);
            }
            Action::ShowOutcome(id) => {
                let fold = gateway.machine.fold(id);
                self.history(|history| history.view_shown(id, fold.phase, &fold));
                gateway.machine.metadata_stored(id);
            }
            Action::Ack(entry) => {
                self.world.at = None;
                if !std::mem::replace(&mut self.world.acked, true) {
                    self.history(|history| history.acked(TASK));
                }
                gateway.machine.acked(entry);
            }
            Action::HandBack(_) => {
                if self.world.at == Some(number) {
                    self.world.at = None;
                }
            }
            Action::Tombstone(keys) => gateway.out.extend(keys.into_iter().map(Entry::Tombstone)),
            Action::SetAside { violation, .. } => self.violations.push(violation),
            Action::Attend { .. }
            | Action::Stop { .. }
            | Action::ReadPayload(_)
            | Action::DropPayload(_)
            | Action::ShowRetry(_) => {}
        }
    }

    fn grant(&mut self, gateway: &Gateway, epoch: Epoch, attempt: u32) {
        let fold = gateway.machine.fold(TASK);
        let token: Token = (epoch, fold.owner);
        self.history(|history| history.started(TASK, token, attempt, &fold));
        if !self.world.tokens.contains(&token) {
            self.world.tokens.push(token);
        }
    }

    fn publish(&mut self, gateway: &mut Gateway, number: u8, entry: Entry) {
        let entry = match entry {
            Entry::Done(done) => {
                if self.bounds.fault == LeaseFault::NoRelease
                    && matches!(done.outcome, Outcome::Released(_))
                {
                    return;
                }
                let silent = gateway.reasons.contains(&(done.key.epoch, Why::Silence));
                let owner = gateway.machine.owner();
                let done = if silent { self.bounds.fault.tampered(done, owner) } else { done };
                self.judge_end(gateway, &done);
                Entry::Done(done)
            }
            entry => entry,
        };
        let shared = matches!(entry, Entry::Renewal(_) | Entry::Tombstone(_));
        let same =
            |other: &Entry| other.key() == entry.key() && !matches!(other, Entry::Tombstone(_));
        if !shared
            && matches!(entry.key(), Key::Once(_))
            && self.world.published(number, &gateway.out).any(same)
        {
            self.violated(KEYS, "a write-once key was used again");
        }
        gateway.out.push(entry);
    }

    /// Checks that an end may be published: it is in the name of the lease, and the holder has
    /// reported it or was silent for too long.
    fn judge_end(&mut self, gateway: &Gateway, done: &Done) {
        let token = (done.key.epoch, done.key.owner);
        let is_claim = |entry: &Entry| {
            matches!(entry, Entry::Claim(claim)
            if (claim.key.epoch, claim.key.owner) == token)
        };
        if !self.world.log.iter().any(|record| is_claim(&record.entry)) {
            return self.violated(OUTCOME, "an end is published that is in no lease's name");
        }
        if !self.world.tokens.contains(&token) && matches!(done.outcome, Outcome::Released(_)) {
            return;
        }
        let is_reason = |(epoch, why): &(_, Why)| {
            *epoch == done.key.epoch
                && match why {
                    Why::Said(ReportedOutcome::Success) => done.outcome == Outcome::Completed,
                    Why::Said(ReportedOutcome::Release) => {
                        matches!(done.outcome, Outcome::Released(_))
                    }
                    Why::Said(ReportedOutcome::Failure { .. }) | Why::Silence => {
                        matches!(done.outcome, Outcome::Failed(_) | Outcome::Final)
                    }
                }
        };
        if !gateway.reasons.iter().any(is_reason) {
            let what = "a lease is ended whose holder has not said so, and was not silent";
            self.violated(LEASE_SILENCE, what);
        }
    }

    /// Breaks the rule that a gateway lets go of a lease only after it read another one's renewal.
    pub(super) fn let_go_unread(&mut self, by: u8, (epoch, _): Token) {
        if self.bounds.fault != LeaseFault::LetGoUnread {
            return;
        }
        for other in (0..self.bounds.gateways).filter(|other| *other != by) {
            self.gateway(other, |_, gateway| gateway.machine.let_go_of_lease(TASK, epoch));
        }
    }

    /// Breaks the rule that a granted lease is not given back.
    pub(super) fn release_granted(&mut self, gateway: &mut Gateway) {
        let fold = gateway.machine.fold(TASK);
        if let Some((epoch, _)) = gateway.attends() {
            let outcome = Outcome::Released(NextAttempt::default());
            gateway.machine.finished(TASK, epoch, outcome);
        } else {
            let outcome = Outcome::Released(NextAttempt::default());
            gateway.machine.end_lease(TASK, fold.epoch, outcome);
        }
    }
}

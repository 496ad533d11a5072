//! The effects of a step on the world.

use super::super::fingerprint::Part;
use super::super::world::{position, small};
use super::bounds::LeasedBounds;
use super::check::is_told_rightly;
use super::moves::LeasedMove;
use super::settle::Settle;
use super::tamper::LeaseFault;
use super::world::{Gateway, LeasedWorld, TASK, Token, Why, owner_id};
use longhaul_core::lease::ReportedOutcome;
use longhaul_core::machine::ReadEntry;
use longhaul_core::protocol::claim::Decision;
use longhaul_core::protocol::entry::{Done, Entry, NextAttempt, Outcome, Renewal};
use longhaul_core::protocol::fold::Verdict;
use longhaul_core::protocol::invariants::{LEASE_END, LEASE_SILENCE, Violation};
use longhaul_core::protocol::key::Key;

/// The world after a step.
pub(super) fn step(
    bounds: &LeasedBounds,
    world: &LeasedWorld,
    step: LeasedMove,
    violations: &mut Vec<Violation>,
) -> LeasedWorld {
    let mut after = Settle { bounds, world: world.clone(), violations, renewed: false };
    after.take(step);
    after.world
}

impl Settle<'_> {
    fn take(&mut self, step: LeasedMove) {
        match step {
            LeasedMove::Deliver { to } => {
                self.world.at = Some(to);
                self.gateway(to, |_, gateway| gateway.machine.delivered(TASK, None));
            }
            LeasedMove::Redeliver => {
                self.world.budget.redeliver -= 1;
                self.world.at = None;
            }
            LeasedMove::Take { gateway } => self.gateway(gateway, Self::claim),
            LeasedMove::Land { gateway } => self.land(gateway),
            LeasedMove::Read { gateway, late } => {
                self.world.budget.late -= u8::from(late);
                self.gateway(gateway, |after, gateway| after.read(gateway, late));
            }
            LeasedMove::Report { gateway, token, said } => {
                self.world.budget.reports -= 1;
                let token = self.world.tokens[usize::from(token)];
                self.gateway(gateway, |after, gateway| after.report(gateway, token, said));
            }
            LeasedMove::Keep { gateway, token } => {
                self.world.budget.keeps -= 1;
                let token = self.world.tokens[usize::from(token)];
                self.gateway(gateway, |after, gateway| after.keep(gateway, token));
                self.let_go_unread(gateway, token);
            }
            LeasedMove::Over { gateway } => self.gateway(gateway, Self::judge_silent),
            LeasedMove::End { gateway } => self.gateway(gateway, Self::end_silent),
            _ => self.trouble(step),
        }
    }

    fn trouble(&mut self, step: LeasedMove) {
        match step {
            LeasedMove::GiveUp { gateway } => {
                self.world.budget.giveup -= 1;
                self.gateway(gateway, |after, gateway| {
                    let entry = gateway.out.remove(0);
                    if let Key::Once(key) = entry.key()
                        && !matches!(entry, Entry::Tombstone(_) | Entry::Renewal(_))
                    {
                        gateway.machine.publish_failed(key);
                    }
                    after.haunt([entry]);
                });
            }
            LeasedMove::Crash { gateway, landing } => {
                self.world.budget.crash -= 1;
                let index = usize::from(gateway);
                let out = self.world.gateways[index].out.clone();
                self.haunt(out.into_iter().take(usize::from(landing)));
                let new = Gateway::new(self.bounds, self.world.next_owner, self.world.end());
                self.world.next_owner += 1;
                self.world.gateways[index] = Part::new(new);
                self.drop_delivery(gateway);
            }
            LeasedMove::Fence { gateway, landing } => {
                self.world.budget.fences -= 1;
                self.drop_delivery(gateway);
                self.gateway(gateway, |after, gateway| after.fence(gateway, landing));
            }
            LeasedMove::GhostLand { ghost } => {
                let entry = self.world.ghosts.remove(usize::from(ghost));
                self.append(entry);
            }
            LeasedMove::GhostLost { ghost } => {
                self.world.ghosts.remove(usize::from(ghost));
            }
            LeasedMove::Compact => {
                self.world.budget.compact -= 1;
                self.compact();
            }
            _ => {}
        }
    }

    fn claim(&mut self, gateway: &mut Gateway) {
        if gateway.machine.decide(TASK, true, None) == Decision::ReadPayload {
            gateway.machine.read_payload(TASK);
            gateway.machine.payload_read(TASK, true);
        }
        if let Decision::Claim(claim) = gateway.machine.decide(TASK, true, None) {
            gateway.machine.claim(TASK, claim);
        }
    }

    fn land(&mut self, number: u8) {
        let mut landed = None;
        self.gateway(number, |_, gateway| {
            let entry = gateway.out.remove(0);
            let tombstone = |entry: &Entry| matches!(entry, Entry::Tombstone(_));
            if tombstone(&entry) && !gateway.out.iter().any(tombstone) {
                gateway.machine.tombstoned(true);
            }
            landed = Some(entry);
        });
        if let Some(entry) = landed {
            self.append(entry.clone());
            if let Entry::Renewal(renewal) = &entry {
                self.told_kept(renewal);
            }
        }
    }

    fn read(&mut self, gateway: &mut Gateway, late: bool) {
        if let Some(index) = self.world.next_record(gateway.cursor) {
            gateway.cursor = small(index + 1);
            let entry = self.world.log[index].entry.clone();
            self.renewed = matches!(&entry, Entry::Renewal(renewal)
                if !gateway.machine.is_own(renewal.by));
            let read =
                ReadEntry { position: position(index), entry: &entry, publish_time_ms: 0, late };
            let verdict = gateway.machine.read(read);
            if verdict == Some(Verdict::Accepted) {
                self.accepted(gateway, &entry);
            }
        } else {
            gateway.cursor = self.world.end();
        }
        if !gateway.machine.is_ready() && gateway.cursor >= gateway.end {
            gateway.machine.bootstrap_ended();
        }
    }

    fn accepted(&mut self, gateway: &mut Gateway, entry: &Entry) {
        let fold = gateway.machine.fold(TASK);
        self.history(|history| history.accepted(entry, &fold));
        match entry {
            Entry::Renewal(renewal) => {
                // The renewal voids an earlier judgement of silence.
                gateway.over = None;
                let silent = (renewal.key.epoch, Why::Silence);
                gateway.reasons.retain(|reason| *reason != silent);
            }
            Entry::Claim(claim) => {
                let current = claim.key.epoch;
                gateway.reporters.retain(|(epoch, _)| *epoch >= current);
            }
            Entry::Done(Done { key, outcome, .. }) => {
                let waiting = std::mem::take(&mut gateway.reporters);
                for (epoch, said) in waiting {
                    if epoch != key.epoch {
                        gateway.reporters.push((epoch, said));
                    } else if self.confirms(said, outcome)
                        && !is_told_rightly(&self.world, epoch, said)
                    {
                        self.violated(LEASE_END, "an end is confirmed that does not count");
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether this end confirms the report.
    fn confirms(&self, said: ReportedOutcome, end: &Outcome) -> bool {
        if self.bounds.fault == LeaseFault::AnyEndConfirms {
            return (said == ReportedOutcome::Success) == (*end == Outcome::Completed);
        }
        said.counts_as(end)
    }

    /// Makes the gateway look after the lease. False if it cannot.
    fn attend(gateway: &mut Gateway, token: Token) -> bool {
        if gateway.attends() == Some(token) {
            return true;
        }
        gateway.machine.read_payload(TASK);
        gateway.machine.payload_read(TASK, true);
        gateway.machine.attend(TASK)
    }

    fn report(&mut self, gateway: &mut Gateway, token: Token, said: ReportedOutcome) {
        if !Self::attend(gateway, token) {
            return;
        }
        gateway.reporters.push((token.0, said));
        gateway.reasons.push((token.0, Why::Said(said)));
        let outcome = match said {
            ReportedOutcome::Success => Outcome::Completed,
            ReportedOutcome::Failure { .. } => self.failure(gateway),
            ReportedOutcome::Release => Outcome::Released(NextAttempt::default()),
        };
        gateway.machine.finished(TASK, token.0, outcome);
    }

    fn keep(&mut self, gateway: &mut Gateway, token: Token) {
        let Some((.., lease_ms)) = gateway.machine.lease(TASK) else { return };
        if Self::attend(gateway, token)
            && let Some(key) = gateway.machine.renewal_key(TASK, token.0, token.1)
        {
            let renewal = Renewal { key, lease_ms, by: gateway.machine.owner() };
            gateway.out.push(Entry::Renewal(renewal));
            if self.bounds.fault == LeaseFault::KeptUnstored {
                self.told_kept(&renewal);
            }
        }
    }

    /// Checks that the renewal is stored when its holder is told that the lease goes on.
    fn told_kept(&mut self, renewal: &Renewal) {
        let stored =
            |record: &super::super::world::Record| record.entry == Entry::Renewal(*renewal);
        if !self.world.log.iter().any(stored) {
            self.violated(LEASE_SILENCE, "a lease is said to go on, and that is not in the log");
        }
    }

    fn judge_silent(&mut self, gateway: &mut Gateway) {
        let Some((epoch, ..)) = gateway.machine.lease(TASK) else { return };
        if self.bounds.fault == LeaseFault::GrantedReleased {
            return self.release_granted(gateway);
        }
        if self.bounds.fault != LeaseFault::SilenceInsisted {
            gateway.machine.record_silence(TASK, epoch);
        }
        gateway.over = Some(epoch);
        if !gateway.reasons.contains(&(epoch, Why::Silence)) {
            gateway.reasons.push((epoch, Why::Silence));
        }
    }

    fn end_silent(&mut self, gateway: &mut Gateway) {
        let Some(mut epoch) = gateway.over.take() else { return };
        if self.bounds.fault == LeaseFault::EpochUnchecked {
            epoch = gateway.machine.fold(TASK).epoch;
        }
        let outcome = self.failure(gateway);
        if gateway.attends().is_some_and(|(at, _)| at == epoch) {
            gateway.machine.finished(TASK, epoch, outcome);
        } else {
            gateway.machine.end_lease(TASK, epoch, outcome);
        }
    }

    fn failure(&self, gateway: &Gateway) -> Outcome {
        if gateway.machine.fold(TASK).attempt < u32::from(self.bounds.attempts) {
            Outcome::Failed(NextAttempt::default())
        } else {
            Outcome::Final
        }
    }

    fn fence(&mut self, gateway: &mut Gateway, landing: u8) {
        let out = std::mem::take(&mut gateway.out);
        self.haunt(out.into_iter().take(usize::from(landing)));
        gateway.machine.fence(owner_id(self.world.next_owner));
        self.world.next_owner += 1;
        (gateway.cursor, gateway.end, gateway.over) = (0, self.world.end(), None);
        gateway.reasons.retain(|(_, why)| *why != Why::Silence);
        if gateway.end == 0 {
            gateway.machine.bootstrap_ended();
        }
    }

    fn drop_delivery(&mut self, gateway: u8) {
        if self.world.at == Some(gateway) {
            self.world.at = None;
        }
    }

    fn compact(&mut self) {
        self.world.log.change(|log| {
            for index in 0..log.len() {
                let key = log[index].entry.key();
                let later = log[index + 1..].iter().any(|record| record.entry.key() == key);
                log[index].removed |= later || matches!(log[index].entry, Entry::Tombstone(_));
            }
        });
    }
}

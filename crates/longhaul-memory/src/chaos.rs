//! Draws faults from the seed, at the rates of the plan.

use super::agenda::{
    Chaos, ConnectionId, PartitionId, PlannedEffect, SessionAttachment, SessionId,
};
use super::faults::{DurationRange, Every, Faults, Loss};
use super::session::{MemoryConnection, SessionRole};
use super::state::MemoryBrokerState;
use std::sync::Arc;
use std::time::Duration;

const KINDS: [Chaos; 12] = [
    Chaos::ConnectionLost,
    Chaos::Unload,
    Chaos::Restart,
    Chaos::Hang,
    Chaos::PublishStall,
    Chaos::TopicOutage,
    Chaos::Compaction,
    Chaos::Trim,
    Chaos::SubscriptionStall,
    Chaos::Cut,
    Chaos::BlackHole,
    Chaos::Suspension,
];
/// Minimum time between two faults of a kind, whatever the plan: otherwise time would stand still.
const EVERY_MIN: Duration = Duration::from_millis(1);

impl MemoryBrokerState {
    /// Sets the plan that applies from now on.
    pub(super) fn set_faults(&mut self, faults: Faults) {
        self.plan += 1;
        self.faults = faults;
        for kind in KINDS {
            self.plan_next(kind);
        }
        if let Some(until) = self.faults.until {
            self.after(until, PlannedEffect::Chaos { kind: Chaos::Calm, plan: self.plan });
        }
    }

    fn plan_next(&mut self, kind: Chaos) {
        if let Some(Every { every, .. }) = self.rate_of(kind) {
            let wait = self.draw(every).max(EVERY_MIN);
            self.after(wait, PlannedEffect::Chaos { kind, plan: self.plan });
        }
    }

    const fn rate_of(&self, kind: Chaos) -> Option<Every> {
        let faults = &self.faults;
        match kind {
            Chaos::ConnectionLost => faults.connection_lost,
            Chaos::Unload => faults.unload,
            Chaos::Restart => faults.restart,
            Chaos::Hang => faults.hang,
            Chaos::PublishStall => faults.publish_stall,
            Chaos::TopicOutage => faults.topic_outage,
            Chaos::Compaction => faults.compaction,
            Chaos::Trim => faults.trim,
            Chaos::SubscriptionStall => faults.subscription_stall,
            Chaos::Cut => faults.cut,
            Chaos::BlackHole => faults.black_hole,
            Chaos::Suspension => faults.suspension,
            Chaos::Calm => None,
        }
    }

    pub(super) fn chaos(&mut self, kind: Chaos, plan: u32) {
        if plan != self.plan {
            return;
        }
        let lasts = self.rate_of(kind).map_or(DurationRange::ZERO, |it| it.lasts);
        let time = self.draw(lasts);
        match kind {
            Chaos::ConnectionLost => self.lose_any(),
            Chaos::Unload => self.on_any_partition(|state, id| state.unload(id, None)),
            Chaos::Restart => {
                let forget = self.chance(self.faults.restart_forgets_acks);
                self.restart(time, forget, None);
            }
            Chaos::Hang => self.hang(time),
            Chaos::PublishStall => {
                for id in self.live() {
                    self.stall_publishes(id, time);
                }
            }
            Chaos::TopicOutage => {
                let topics: Vec<String> = self.topics.keys().cloned().collect();
                let topic = self.pick(topics.len()).and_then(|at| topics.get(at));
                if let Some(topic) = topic {
                    self.take_away(topic, time, None);
                }
            }
            Chaos::Compaction => self.on_any_partition(|state, id| state.compact(id, None)),
            Chaos::Trim => self.on_any_partition(Self::trim),
            Chaos::SubscriptionStall => self.stall_any_subscription(),
            Chaos::Cut => self.on_any_process(|state, id| {
                state.cut(id, None);
                state.after(time, PlannedEffect::Restore(id));
            }),
            Chaos::BlackHole => self.on_any_process(|state, id| _ = state.freeze_for(id, time)),
            Chaos::Suspension => self.on_any_process(|state, id| _ = state.suspend_for(id, time)),
            Chaos::Calm => {
                self.note("calm".to_owned());
                self.set_faults(self.faults.calm());
            }
        }
        self.plan_next(kind);
    }

    fn on_any_partition(&mut self, fault: impl FnOnce(&mut Self, PartitionId)) {
        let live = self.live();
        let at = self.pick(live.len());
        if let Some(id) = at.and_then(|at| live.get(at)) {
            fault(self, *id);
        }
    }

    fn lose_any(&mut self) {
        let sessions = self.attached(|_| true);
        let at = self.pick(sessions.len());
        if let Some(id) = at.and_then(|at| sessions.get(at)) {
            self.lose(*id, None, "the connection was lost");
        }
    }

    fn stall_any_subscription(&mut self) {
        let subscriptions: Vec<(PartitionId, Arc<str>)> = self
            .partitions
            .iter()
            .flat_map(|(id, it)| it.subscriptions.keys().map(|name| (*id, Arc::clone(name))))
            .collect();
        let at = self.pick(subscriptions.len());
        if let Some((id, name)) = at.and_then(|at| subscriptions.get(at)) {
            self.stall_subscription(*id, name);
        }
    }

    /// Applies the fault to a process without an active fault.
    fn on_any_process(&mut self, fault: impl FnOnce(&mut Self, ConnectionId)) {
        let free = |it: &MemoryConnection| !(it.killed || it.frozen || it.cut);
        let free = self.connections.iter().filter(|(_, connection)| free(connection));
        let free: Vec<ConnectionId> = free.map(|(id, _)| *id).collect();
        let at = self.pick(free.len());
        if let Some(id) = at.and_then(|at| free.get(at)) {
            fault(self, *id);
        }
    }

    pub(super) fn lose_drawn(&mut self, link: SessionAttachment) {
        if self.sessions.get(&link.session).is_some_and(|it| it.link(link.session) == link) {
            self.lose(link.session, None, "the connection was lost");
        }
    }

    /// Draws how a session ends.
    pub(super) fn draw_loss(&mut self, id: SessionId) -> Loss {
        let losses = self.faults.losses;
        let follower =
            self.sessions.get(&id).is_some_and(|it| matches!(it.role, SessionRole::Follower(_)));
        let replay = if follower { losses.replay } else { losses.hidden_reconnect };
        let silence = self.draw(losses.silence);
        let choices = [
            (losses.error, Loss::Error),
            (losses.error_then_silence, Loss::ErrorThenSilence),
            (losses.silence_then_error, Loss::SilenceThenError(silence)),
            (replay, Loss::Replay(silence)),
        ];
        let sum: u32 = choices.iter().map(|(weight, _)| weight).sum();
        let mut left = if sum > 0 { self.rng.u32(..sum) } else { 0 };
        for (weight, loss) in choices {
            if left < weight {
                return loss;
            }
            left -= weight;
        }
        Loss::Error
    }
}

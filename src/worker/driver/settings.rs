//! The settings of a queue, as its register says: they take effect when they are read.

use super::Driver;
use super::lane::TaskPayload;
use super::lanes::LaneId;
use bytes::Bytes;
use longhaul_core::partition::ClaimLimits;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::{DocumentName, Register};
use longhaul_core::settings::{DeadLetterSettings, QueueSettings};
use std::sync::Arc;

/// What stands of them now.
#[derive(Debug, Default)]
pub(super) struct OwnSettings {
    claims: ClaimLimits,
    /// What applies to tasks that do not say it; `None`: the worker's settings do.
    defaults: Option<Arc<QueueSettings>>,
    dead_letters: DeadLetterSettings,
    /// Its tasks are run in the order of their keys.
    by_key: bool,
}

impl OwnSettings {
    fn of(register: &Register) -> Self {
        let (name, documents) = (DocumentName::queue_settings(), register.documents());
        let read = |document: Option<&Bytes>| {
            QueueSettings::read(document.map(AsRef::as_ref).unwrap_or_default())
        };
        if let Err(error) = read(documents.get(&name)) {
            let version = documents.version(&name);
            tracing::error!(%error, version, "the settings of the queue cannot be read: those before them stand");
        }
        let settings = read(documents.readable(&name)).unwrap_or_default();
        let (tickets, by_key) = (register.gates().any(), register.gates().any_of_keys());
        let claims = ClaimLimits { paused: settings.paused, tickets, by_key };
        let (dead_letters, by_key) = (settings.dead_letters, settings.order.is_some());
        let defaults = settings.has_terms().then(|| Arc::new(settings));
        Self { claims, defaults, dead_letters, by_key }
    }
}

impl Driver {
    /// Other settings of the queue stand, or none any more.
    pub(super) fn take_up_settings(&mut self, number: usize, now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        let said =
            |settings: &OwnSettings| (settings.claims, settings.dead_letters, settings.by_key);
        let before = said(&register.settings);
        register.settings = OwnSettings::of(&register.fold);
        let claims = register.settings.claims;
        let is_other = before != said(&register.settings);
        if before.0.paused != claims.paused {
            let what = if claims.paused { "paused" } else { "resumed" };
            tracing::info!(register = %register.topic(), "the queue is {what}");
        }
        if is_other {
            let lanes: Vec<LaneId> = self.lanes.keys().collect();
            for id in lanes {
                self.apply_settings(id, now);
            }
        }
        self.look_at_gate(number, None, now);
    }

    /// Tells a lane what limits its claims, and which dead letters are kept.
    pub(super) fn apply_settings(&mut self, id: LaneId, now: Moment) {
        let Some(settings) = self.register_of(id).map(|register| &register.settings) else {
            return;
        };
        let (claims, dead_letters) = (settings.claims, settings.dead_letters);
        let by_key = settings.by_key;
        let Self { lanes, env, services, .. } = self;
        if let Some(lane) = lanes.get_mut(&id) {
            lane.core.limit_claims(claims, now);
            let policy = lane.config.dead_letters.within(&dead_letters);
            lane.change_letters(policy, env, services);
            lane.change_order(by_key);
            self.without_credit.insert(id);
        }
    }

    /// What the queue says of tasks whose messages do not say it.
    pub(super) fn defaults_of(&self, id: LaneId) -> Option<Arc<QueueSettings>> {
        self.register_of(id)?.settings.defaults.clone()
    }
}

impl TaskPayload {
    /// Completes what the task's message says.
    pub(super) fn complete_terms(&mut self, defaults: Option<&QueueSettings>) {
        if let Some(defaults) = defaults {
            let own = self.terms.as_deref().cloned().unwrap_or_default();
            self.terms = Some(Arc::new(own.completed_by(defaults, self.published_ms)));
        }
    }
}

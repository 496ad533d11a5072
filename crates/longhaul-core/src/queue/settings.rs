//! The settings of a queue from its register. They take effect when they are read.

use super::{QueueContext, QueueCore, QueueEffect, Remark};
use crate::partition::ClaimLimits;
use crate::protocol::register::{DocumentName, Register};
use crate::settings::{DeadLetterSettings, QueueSettings};
use std::sync::Arc;

/// The settings of a queue in terms of a worker.
#[derive(Debug, Default)]
pub struct TakenSettings {
    /// The limits on claims.
    pub claims: ClaimLimits,
    /// Default terms for tasks that do not set them; `None`: the worker's settings apply.
    pub defaults: Option<Arc<QueueSettings>>,
    /// Which dead letters are kept.
    pub dead_letters: DeadLetterSettings,
    /// Whether tasks run in the order of their keys.
    pub by_key: bool,
    /// The URLs that are called at the end of each task.
    pub webhooks: Arc<[String]>,
}

impl TakenSettings {
    fn of(register: &Register) -> Self {
        let settings = register.settings();
        let (tickets, by_key) = (register.gates().any(), register.gates().any_of_keys());
        let claims = ClaimLimits { paused: settings.paused, tickets, by_key };
        let (dead_letters, by_key) = (settings.dead_letters, settings.order.is_some());
        let webhooks = settings.webhooks.as_slice().into();
        let defaults = settings.has_terms().then(|| Arc::new(settings));
        Self { claims, defaults, dead_letters, by_key, webhooks }
    }
}

impl QueueCore {
    /// Applies the settings that are on the register now.
    pub(super) fn take_settings(&mut self, cx: &mut QueueContext<'_>) {
        let (name, documents) = (DocumentName::queue_settings(), self.register.documents());
        let standing = documents.get(&name).map(|content| QueueSettings::read(content));
        if let Some(Err(error)) = standing {
            let version = documents.version(&name);
            self.log(Remark::SettingsUnreadable(version, error.to_string()));
        }
        let told =
            |settings: &TakenSettings| (settings.claims, settings.dead_letters, settings.by_key);
        let before = told(&self.settings);
        self.settings = TakenSettings::of(&self.register);
        let now = told(&self.settings);
        if before.0.paused != now.0.paused {
            self.log(Remark::Paused(now.0.paused));
        }
        if before != now {
            self.effects.push_back(QueueEffect::SettingsChanged);
        }
        self.recheck_gate(None, cx);
    }
}

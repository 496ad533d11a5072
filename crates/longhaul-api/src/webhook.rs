//! The calls of webhooks, as tasks.

pub use longhaul_core::webhook::{WEBHOOKS_QUEUE, WebhookCall};

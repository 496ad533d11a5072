//! Where brokers have said that a topic goes: asked first when it is opened again.

use super::machine::call::Moved;
use super::options::Endpoint;
use crate::clock::Clock;
use crate::protocol::moment::Moment;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Topics of which we remember it. What is forgotten costs a lookup.
const DETOURS_MAX: usize = 10_000;
/// How long a broker is believed that has named another one: by then a lookup finds it, too.
const ASSIGNED_TIME_MAX: Duration = Duration::from_secs(60);

/// Where a topic goes, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Detour {
    pub(super) moved: Moved,
    /// The other end of the connection on which it was said.
    pub(super) by: Endpoint,
    /// That is a proxy.
    pub(super) proxied: bool,
}

/// By topic, with the time at which it was said.
#[derive(Debug, Default)]
pub(super) struct Detours(Mutex<HashMap<String, (Detour, Moment)>>);

impl Detours {
    pub(super) fn note(&self, detour: Detour) {
        let mut detours = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if detours.len() < DETOURS_MAX || detours.contains_key(&detour.moved.topic) {
            detours.insert(detour.moved.topic.clone(), (detour, Clock::System.now()));
        }
    }

    /// Where to go for a topic. It is said once: whoever finds it good notes it again.
    pub(super) fn take(&self, topic: &str) -> Option<Detour> {
        let mut detours = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (detour, at) = detours.remove(topic)?;
        let is_fresh = detour.moved.migrated || Clock::System.now() < at + ASSIGNED_TIME_MAX;
        is_fresh.then_some(detour)
    }
}

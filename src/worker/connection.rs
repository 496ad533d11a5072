//! Whether a worker's sessions with the broker are open: publishers, followers and consumers of all its partitions together.

use crate::clock::Clock;
use crate::protocol::moment::Moment;
use crate::transport::TransportError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a worker stands with its broker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Every session is open.
    Connected,
    /// Something cannot be reached; it is tried again, with growing waits of up to 5 s, until it can. Running tasks go on.
    Reconnecting {
        /// For how long.
        elapsed: Duration,
        /// What went wrong last.
        cause: TransportError,
    },
}

/// The sessions of one worker.
#[derive(Debug)]
pub(super) struct Connections {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Sessions that are not open, and what went wrong with them last.
    down: BTreeMap<u64, TransportError>,
    since: Moment,
    lost: u64,
    stalled: u64,
}

/// One session, in the hands of the service that keeps it open.
#[derive(Debug)]
pub(super) struct Monitor {
    id: u64,
    connections: Arc<Connections>,
}

impl Connections {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    pub(super) fn state(&self) -> ConnectionState {
        let state = self.lock();
        match state.down.values().next() {
            None => ConnectionState::Connected,
            Some(cause) => ConnectionState::Reconnecting {
                elapsed: self.clock.now().since(state.since),
                cause: cause.clone(),
            },
        }
    }

    /// Sessions that were open and have been lost.
    pub(super) fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Consumers to whom the broker delivered nothing although it had something.
    pub(super) fn stalled(&self) -> u64 {
        self.lock().stalled
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says so once, when the first session goes and when the last one is back.
    fn tell(&self, state: &State, before: usize) {
        let elapsed = self.clock.now().since(state.since);
        match (before, state.down.values().next()) {
            (0, Some(cause)) => tracing::warn!(%cause, "connection lost: reconnecting"),
            (1.., None) => tracing::info!(?elapsed, "connected again"),
            _ => {}
        }
    }
}

impl Monitor {
    pub(super) fn new(connections: &Arc<Connections>) -> Self {
        let mut state = connections.lock();
        state.next += 1;
        Self { id: state.next, connections: Arc::clone(connections) }
    }

    /// The session is open.
    pub(super) fn opened(&self) {
        let mut state = self.connections.lock();
        let before = state.down.len();
        state.down.remove(&self.id);
        self.connections.tell(&state, before);
    }

    /// The session, which was open, is over.
    pub(super) fn lost(&self, cause: &TransportError) {
        self.connections.lock().lost += 1;
        self.failed(cause);
    }

    /// The session, a consumer, was given up because nothing came although there is something.
    pub(super) fn stalled(&self) {
        self.connections.lock().stalled += 1;
    }

    /// The session cannot be opened.
    pub(super) fn failed(&self, cause: &TransportError) {
        let mut state = self.connections.lock();
        let before = state.down.len();
        if before == 0 {
            state.since = self.connections.clock.now();
        }
        state.down.insert(self.id, cause.clone());
        self.connections.tell(&state, before);
    }
}

impl Drop for Monitor {
    /// Nobody wants it open any more.
    fn drop(&mut self) {
        self.opened();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::TransportErrorKind;

    #[test]
    fn a_worker_is_connected_when_all_its_sessions_are_open() {
        let connections = Arc::new(Connections::new(Clock::System));
        let (first, second) = (Monitor::new(&connections), Monitor::new(&connections));
        let is_connected = || matches!(connections.state(), ConnectionState::Connected);
        assert!(is_connected());
        let cause = TransportError::new(TransportErrorKind::Unreachable, "here", "gone");
        first.lost(&cause);
        second.failed(&cause);
        assert!(!is_connected());
        first.opened();
        match connections.state() {
            ConnectionState::Reconnecting { cause, .. } => assert_eq!(cause.cause, "gone"),
            ConnectionState::Connected => panic!("one is not open"),
        }
        // A service that ends is not waited for.
        drop(second);
        assert!(is_connected());
        assert_eq!(connections.lost(), 1);
    }
}

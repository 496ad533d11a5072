//! The state of the sessions of a worker, or of a client, with the broker: publishers, followers
//! and consumers of all partitions together. Each outage and its end is logged once.

use crate::clock::Clock;
use crate::telemetry;
use crate::transport::{TransportError, TransportErrorKind};
use longhaul_core::protocol::moment::Moment;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The state of a worker's connections to its broker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Every session is open.
    Connected,
    /// A session cannot be opened; it is retried, with growing waits of up to 5 s, until it can.
    /// Running tasks go on.
    Reconnecting {
        /// How long it has lasted.
        elapsed: Duration,
        /// The last error.
        cause: TransportError,
    },
    /// The broker refuses a session or an operation until something is changed: a permission, a
    /// policy, a topic that was deleted. It is retried meanwhile, as above.
    Refused {
        /// How long not all sessions have been open and working.
        elapsed: Duration,
        /// The refusal and its reason.
        cause: TransportError,
    },
}

/// The sessions of one worker, or of one client.
#[derive(Debug)]
pub(crate) struct Connections {
    clock: Clock,
    /// Their owner, for the log.
    of: Option<&'static str>,
    state: Mutex<SessionHealth>,
}

#[derive(Debug, Default)]
struct SessionHealth {
    next: u64,
    /// Sessions that are not open, with their last errors.
    down: BTreeMap<u64, TransportError>,
    /// Sessions that can be opened, but in which the broker has been refusing an operation.
    refused: BTreeMap<u64, TransportError>,
    /// The error that was last logged.
    told: Option<TransportError>,
    since: Moment,
    lost: u64,
    stalled: u64,
    refusals: u64,
    deletions: u64,
}

impl SessionHealth {
    /// The current error; one that does not pass by itself comes first.
    fn cause(&self) -> Option<&TransportError> {
        let mut causes = self.down.values().chain(self.refused.values());
        let lasting = causes.clone().find(|cause| cause.kind.is_permanent());
        lasting.or_else(|| causes.next())
    }
}

/// Whether both would be logged in the same words. The reason why a broker cannot be reached
/// changes with every try.
fn is_same(one: &TransportError, other: &TransportError) -> bool {
    let words = |error: &TransportError| (error.address.clone(), error.cause.clone());
    one.kind == other.kind && (!one.kind.is_permanent() || words(one) == words(other))
}

/// One session, as seen by the service that keeps it open.
#[derive(Debug)]
pub(crate) struct Monitor {
    id: u64,
    connections: Arc<Connections>,
}

impl Connections {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, of: Some("worker"), state: Mutex::default() }
    }

    pub(crate) fn of_client() -> Self {
        Self { clock: Clock::System, of: Some("client"), state: Mutex::default() }
    }

    /// Sessions whose state is not logged, because their user is told otherwise.
    pub(crate) fn untold() -> Self {
        Self { of: None, ..Self::of_client() }
    }

    pub(crate) fn state(&self) -> ConnectionState {
        let state = self.lock();
        let elapsed = self.clock.now().since(state.since);
        match state.cause().cloned() {
            None => ConnectionState::Connected,
            Some(cause) if cause.kind.is_permanent() => ConnectionState::Refused { elapsed, cause },
            Some(cause) => ConnectionState::Reconnecting { elapsed, cause },
        }
    }

    /// Number of open sessions that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Number of consumers and followers that received nothing despite a backlog.
    pub(crate) fn stalled(&self) -> u64 {
        self.lock().stalled
    }

    /// Number of times that the broker began to refuse something, or something else than before.
    pub(crate) fn refusals(&self) -> u64 {
        self.lock().refusals
    }

    /// Number of times that a session has found its topic deleted.
    pub(crate) fn deletions(&self) -> u64 {
        self.lock().deletions
    }

    fn lock(&self) -> MutexGuard<'_, SessionHealth> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and logs it if the current error has changed or is gone.
    fn change(&self, change: impl FnOnce(&mut SessionHealth)) {
        let mut state = self.lock();
        change(&mut state);
        let Some(of) = self.of else { return };
        let now = self.clock.now();
        match (state.told.take(), state.cause().cloned()) {
            (None, None) => {}
            (Some(_), None) => {
                tracing::info!(of, elapsed = ?now.since(state.since), "connected again");
            }
            (Some(told), Some(cause)) if is_same(&told, &cause) => state.told = Some(told),
            (told, Some(cause)) => {
                if told.is_none() {
                    state.since = now;
                }
                state.refusals += u64::from(cause.kind.is_permanent());
                if cause.kind == TransportErrorKind::Terminated {
                    tracing::error!(of, %cause, "the topic was terminated and accepts no more messages: was it migrated to a scalable topic? Stop the workers, and create another queue; still trying");
                } else if cause.kind.is_permanent() {
                    tracing::error!(of, %cause, "refused until a permission or a setting is changed; still trying");
                } else {
                    tracing::warn!(of, %cause, "connection lost: reconnecting");
                }
                state.told = Some(cause);
            }
        }
    }
}

impl Monitor {
    pub(crate) fn new(connections: &Arc<Connections>) -> Self {
        let mut state = connections.lock();
        state.next += 1;
        Self { id: state.next, connections: Arc::clone(connections) }
    }

    /// Notes that the session is open.
    pub(crate) fn opened(&self) {
        self.connections.change(|state| drop(state.down.remove(&self.id)));
    }

    /// Notes that the session was open and is lost.
    pub(crate) fn lost(&self, cause: &TransportError) {
        self.connections.lock().lost += 1;
        telemetry::reconnects(self.connections.of.unwrap_or("client"));
        self.failed(cause);
    }

    /// Notes a refusal in the open session. The broker will refuse a repetition, too, in this
    /// session and the next ones, until [`accepted`](Self::accepted) is called.
    pub(crate) fn refused(&self, cause: &TransportError) {
        if cause.kind.is_permanent() {
            self.connections.change(|state| drop(state.refused.insert(self.id, cause.clone())));
        }
    }

    /// Notes that the broker has accepted an operation that it may have refused before.
    pub(crate) fn accepted(&self) {
        let is_known = self.connections.lock().refused.contains_key(&self.id);
        if is_known {
            self.connections.change(|state| drop(state.refused.remove(&self.id)));
        }
    }

    /// Notes that the session, of a consumer or follower, was given up because nothing came despite
    /// a backlog.
    pub(crate) fn stalled(&self) {
        self.connections.lock().stalled += 1;
    }

    /// Notes that the session's topic was deleted.
    pub(crate) fn deleted(&self) {
        self.connections.lock().deletions += 1;
    }

    /// Notes that the session cannot be opened, or was lost.
    pub(crate) fn failed(&self, cause: &TransportError) {
        self.connections.change(|state| drop(state.down.insert(self.id, cause.clone())));
    }

    /// Notes the result of a repeated operation without a session of its own: an error, or success.
    pub(crate) fn tell(&self, cause: Option<&TransportError>) {
        match cause {
            None => self.opened(),
            Some(cause) => self.failed(cause),
        }
    }
}

impl Drop for Monitor {
    /// Removes a session that is not wanted any more. This alone is not logged as a recovery.
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        state.down.remove(&self.id);
        state.refused.remove(&self.id);
        if state.cause().is_none() {
            state.told = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SimulatedClock;
    use std::sync::atomic::{AtomicU64, Ordering};

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
        let state = connections.state();
        let ConnectionState::Reconnecting { cause, .. } = state else { panic!("{state:?}") };
        assert_eq!(cause.cause, "gone");
        // A service that ends is not waited for.
        drop(second);
        assert!(is_connected());
        assert_eq!(connections.lost(), 1);
    }

    /// Earlier, a permanent refusal looked like an outage, was logged at debug level, and was not
    /// counted.
    #[test]
    fn what_is_refused_for_good_is_told_apart_and_once() {
        let connections = Arc::new(Connections::new(Clock::System));
        let (first, second) = (Monitor::new(&connections), Monitor::new(&connections));
        let error = |kind, cause| TransportError::new(kind, "here", cause);
        let refused = |cause| error(TransportErrorKind::Unauthorized, cause);
        let state = || match connections.state() {
            ConnectionState::Connected => String::new(),
            ConnectionState::Reconnecting { cause, .. } => format!("passes: {}", cause.cause),
            ConnectionState::Refused { cause, .. } => format!("lasts: {}", cause.cause),
        };
        first.lost(&error(TransportErrorKind::Unreachable, "gone"));
        assert_eq!((state().as_str(), connections.refusals()), ("passes: gone", 0));
        for _ in 0..3 {
            second.failed(&refused("no permission"));
            assert_eq!((state().as_str(), connections.refusals()), ("lasts: no permission", 1));
        }
        second.failed(&refused("no token"));
        assert_eq!((state().as_str(), connections.refusals()), ("lasts: no token", 2));
        second.opened();
        assert_eq!((state().as_str(), connections.refusals()), ("passes: gone", 2));
        first.opened();
        // A refused ack ends a session, and again in the next one.
        first.refused(&refused("no acks"));
        first.lost(&refused("no acks"));
        first.opened();
        assert_eq!((state().as_str(), connections.refusals()), ("lasts: no acks", 3));
        first.accepted();
        assert_eq!((state().as_str(), connections.refusals()), ("", 3));
    }

    /// Earlier, no test failed when an outage counted as a refusal, and when a service that had
    /// ended still counted as refused.
    #[test]
    fn what_passes_is_not_refused_and_what_has_ended_is_not_either() {
        let connections = Arc::new(Connections::new(Clock::System));
        let monitor = Monitor::new(&connections);
        let is_connected = || matches!(connections.state(), ConnectionState::Connected);
        monitor.refused(&TransportError::new(TransportErrorKind::Unreachable, "here", "gone"));
        assert!(is_connected());
        monitor.refused(&TransportError::new(TransportErrorKind::Unauthorized, "here", "no"));
        assert!(!is_connected());
        drop(monitor);
        assert!(is_connected());
    }

    /// Earlier, no test failed when errors without a session were not reported.
    #[test]
    fn what_is_done_again_and_again_tells_what_came_of_it() {
        let connections = Arc::new(Connections::new(Clock::System));
        let monitor = Monitor::new(&connections);
        let is_connected = || matches!(connections.state(), ConnectionState::Connected);
        let cause = TransportError::new(TransportErrorKind::Unreachable, "here", "gone");
        for (cause, connected) in [(Some(&cause), false), (None, true)] {
            monitor.tell(cause);
            assert_eq!(is_connected(), connected);
        }
    }

    /// Earlier, no test failed when the refusal of a service that had ended still counted as
    /// logged, so that the same one of the next service was not logged.
    #[test]
    fn the_end_of_a_refused_service_is_forgotten_if_nothing_else_stands_in_the_way() {
        for (others, refusals) in [(0, 2), (1, 1)] {
            let connections = Arc::new(Connections::new(Clock::System));
            let refused = TransportError::new(TransportErrorKind::Unauthorized, "here", "no");
            let fail = || {
                let monitor = Monitor::new(&connections);
                monitor.failed(&refused);
                monitor
            };
            let others: Vec<_> = (0..others).map(|_| fail()).collect();
            drop(fail());
            drop(fail());
            assert_eq!(connections.refusals(), refusals, "{} others", others.len());
        }
    }

    /// A clock that stands where it was set, in seconds.
    #[derive(Debug)]
    struct Standing(AtomicU64);

    impl SimulatedClock for Standing {
        fn now(&self) -> Moment {
            Moment(self.wall())
        }

        fn wall(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::Relaxed))
        }

        fn sleep_for(&self, time: Duration) -> Duration {
            time
        }
    }

    /// Earlier, no test failed when an outage was counted from the start of the machine, or only
    /// from its last change of cause.
    #[test]
    fn an_outage_lasts_since_the_first_of_its_causes() {
        static CLOCK: Standing = Standing(AtomicU64::new(100));
        let connections = Arc::new(Connections::new(Clock::Simulated(&CLOCK)));
        let monitor = Monitor::new(&connections);
        monitor.failed(&TransportError::new(TransportErrorKind::Unreachable, "here", "gone"));
        CLOCK.0.store(130, Ordering::Relaxed);
        monitor.failed(&TransportError::new(TransportErrorKind::Unauthorized, "here", "no"));
        CLOCK.0.store(150, Ordering::Relaxed);
        let state = connections.state();
        let ConnectionState::Refused { elapsed, .. } = state else { panic!("{state:?}") };
        assert_eq!(elapsed, Duration::from_secs(50));
    }
}

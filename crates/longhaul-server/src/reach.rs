//! Whether the gateway reaches its broker, as its client tells: requests and probes are answered by
//! that, without trying the broker each time.

use crate::clock::{self, Stopwatch};
use crate::telemetry;
use longhaul::ops::ConnectionState;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Whether the gateway reaches its broker.
#[derive(Debug)]
pub(crate) struct BrokerReachability {
    outage: watch::Sender<Option<ConnectionOutage>>,
    /// How long after the loss of the connection requests wait for it to come back.
    grace: Duration,
}

/// The broker is away.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionOutage {
    began: Stopwatch,
    pub(crate) why: String,
    /// The broker is there and keeps the gateway out: who asks it is told so at once.
    pub(crate) refused: bool,
}

impl ConnectionOutage {
    fn new(state: ConnectionState) -> Option<Self> {
        let began = clock::stopwatch();
        match state {
            ConnectionState::Connected => None,
            ConnectionState::Refused { cause, .. } => {
                Some(Self { began, why: cause.to_string(), refused: true })
            }
            ConnectionState::Reconnecting { cause, .. } => {
                Some(Self { began, why: cause.to_string(), refused: false })
            }
            other => Some(Self { began, why: format!("{other:?}"), refused: false }),
        }
    }
}

impl BrokerReachability {
    pub(crate) fn new(grace: Duration) -> Self {
        let (outage, _) = watch::channel(None);
        Self { outage, grace }
    }

    /// Notes what the client tells, until the gateway ends.
    pub(crate) async fn follow(&self, mut told: longhaul::ops::Reach, end: CancellationToken) {
        self.note(told.state());
        while let Some(Some(state)) = end.run_until_cancelled(told.changed()).await {
            self.note(state);
        }
    }

    /// The client tells how it stands.
    pub(crate) fn note(&self, state: ConnectionState) {
        self.outage.send_modify(|outage| {
            let is = ConnectionOutage::new(state);
            match (outage.as_ref(), &is) {
                (None, None) => telemetry::broker_connected(true),
                (None, Some(now)) => {
                    telemetry::broker_connected(false);
                    tracing::warn!(
                        event = "broker_lost",
                        why = now.why,
                        "the gateway has lost its broker"
                    );
                }
                (Some(before), None) => {
                    telemetry::broker_connected(true);
                    let elapsed = before.began.read();
                    tracing::info!(
                        event = "broker_back",
                        ?elapsed,
                        "the gateway has its broker again"
                    );
                }
                (Some(before), Some(now)) if now.refused && !before.refused => {
                    tracing::warn!(
                        event = "broker_refused",
                        why = now.why,
                        "the broker is there and keeps the gateway out"
                    );
                }
                (Some(_), Some(_)) => {}
            }
            let began = outage.as_ref().map(|before| before.began);
            *outage = is.map(|now| ConnectionOutage { began: began.unwrap_or(now.began), ..now });
        });
    }

    /// The outage that lasts now.
    pub(crate) fn outage(&self) -> Option<ConnectionOutage> {
        self.outage.borrow().clone()
    }

    /// Waits for the broker, as long after its loss as requests may. The broker that keeps the
    /// gateway out says so itself.
    pub(crate) async fn admit(&self) -> Result<(), ConnectionOutage> {
        if self.outage.borrow().as_ref().is_none_or(|it| it.refused) {
            return Ok(());
        }
        tokio::select! {
            biased;
            outage = self.cut_off() => Err(outage),
            () = self.back() => Ok(()),
        }
    }

    /// Resolves when the broker has been away for longer than requests wait for it. One that keeps
    /// the gateway out is not away.
    pub(crate) async fn cut_off(&self) -> ConnectionOutage {
        self.out_for_long(|it| !it.refused).await
    }

    /// Resolves when nothing has come from the broker for as long, whether it is away or keeps the
    /// gateway out.
    pub(crate) async fn lost(&self) -> ConnectionOutage {
        self.out_for_long(|_| true).await
    }

    async fn out_for_long(&self, counts: fn(&ConnectionOutage) -> bool) -> ConnectionOutage {
        let mut told = self.outage.subscribe();
        loop {
            let outage = told.borrow_and_update().clone().filter(counts);
            let changed = async {
                // It lives as long as this.
                told.changed().await.ok();
            };
            let Some(outage) = outage else {
                changed.await;
                continue;
            };
            let left = self.grace.saturating_sub(outage.began.read());
            if left.is_zero() {
                return outage;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep(left) => return outage,
            }
        }
    }

    /// Resolves when the gateway has its broker.
    pub(crate) async fn connected(&self) {
        let mut told = self.outage.subscribe();
        // It lives as long as this.
        told.wait_for(Option::is_none).await.ok();
    }

    /// Resolves when the broker is there, or keeps the gateway out.
    async fn back(&self) {
        let mut told = self.outage.subscribe();
        // It lives as long as this.
        told.wait_for(|outage| outage.as_ref().is_none_or(|it| it.refused)).await.ok();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use futures::poll;
    use longhaul::{TransportError, TransportErrorKind};

    /// What the client tells while the broker is away.
    pub(crate) fn away(kind: TransportErrorKind) -> ConnectionState {
        let (elapsed, cause) = (Duration::ZERO, TransportError::new(kind, "pulsar://b:6650", "no"));
        if kind.is_permanent() {
            return ConnectionState::Refused { elapsed, cause };
        }
        ConnectionState::Reconnecting { elapsed, cause }
    }

    /// Time is tokio's, which passes at once here.
    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_a_while_and_are_refused_then() {
        let reach = BrokerReachability::new(Duration::from_secs(3_600));
        assert!(reach.admit().await.is_ok() && reach.outage().is_none());
        let mut cut_off = Box::pin(reach.cut_off());
        assert!(poll!(&mut cut_off).is_pending());
        reach.note(away(TransportErrorKind::Unreachable));
        let mut waiting = Box::pin(reach.admit());
        assert!(poll!(&mut waiting).is_pending() && poll!(&mut cut_off).is_pending());
        // It came back in time.
        reach.note(ConnectionState::Connected);
        assert!(waiting.await.is_ok() && poll!(&mut cut_off).is_pending());

        reach.note(away(TransportErrorKind::Unreachable));
        let mut waiting = Box::pin(reach.admit());
        assert!(poll!(&mut waiting).is_pending());
        // Another try to connect has failed: the outage goes on.
        reach.note(away(TransportErrorKind::Unreachable));
        let refused = waiting.await.unwrap_err();
        assert!(refused.why.contains("pulsar://b:6650"), "{refused:?}");
        assert!(cut_off.await.why.contains("pulsar://b:6650"));
        let mut back = Box::pin(reach.back());
        assert!(poll!(&mut back).is_pending());
        reach.note(ConnectionState::Connected);
        back.await;
        assert!(reach.admit().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_keeps_the_gateway_out_is_asked_and_says_so() {
        let reach = BrokerReachability::new(Duration::ZERO);
        reach.note(away(TransportErrorKind::Unauthorized));
        assert!(reach.outage().is_some_and(|it| it.refused));
        assert!(reach.admit().await.is_ok());
        assert!(poll!(Box::pin(reach.cut_off())).is_pending());
        reach.note(away(TransportErrorKind::Unreachable));
        assert!(reach.admit().await.is_err());
    }

    /// A stream of events said that the broker was back when it had begun to refuse the gateway:
    /// nothing came.
    #[tokio::test(start_paused = true)]
    async fn a_broker_that_keeps_the_gateway_out_is_not_back() {
        let reach = BrokerReachability::new(Duration::ZERO);
        reach.note(away(TransportErrorKind::Unreachable));
        assert!(!reach.lost().await.refused);
        let mut connected = Box::pin(reach.connected());
        assert!(poll!(&mut connected).is_pending());
        reach.note(away(TransportErrorKind::Unauthorized));
        assert!(poll!(&mut connected).is_pending());
        assert!(reach.lost().await.refused, "who begins to listen now is told, too");
        reach.note(ConnectionState::Connected);
        connected.await;
        assert!(poll!(Box::pin(reach.lost())).is_pending());
    }

    /// An outage lasts since the first of its causes: who comes late need not wait as long again.
    #[tokio::test]
    async fn who_comes_late_does_not_wait_as_long_again() {
        let reach = BrokerReachability::new(Duration::from_millis(20));
        reach.note(away(TransportErrorKind::Unreachable));
        assert!(reach.admit().await.is_err());
        reach.note(away(TransportErrorKind::Unreachable));
        assert!(poll!(Box::pin(reach.admit())).is_ready());
    }
}

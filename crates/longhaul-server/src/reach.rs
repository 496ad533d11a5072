//! Whether the gateway reaches its broker, as reported by its client: requests and probes use this
//! state instead of trying the broker each time.

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
    /// How long after the loss of the connection requests wait for its return.
    grace: Duration,
}

/// An outage of the broker.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionOutage {
    began: Stopwatch,
    pub(crate) why: String,
    /// The broker is there and refuses the gateway: requests get that error at once.
    pub(crate) refused: bool,
}

impl ConnectionOutage {
    fn new(state: ConnectionState) -> Option<Self> {
        let (why, refused) = match state {
            ConnectionState::Connected => return None,
            ConnectionState::Refused { cause, .. } => (cause.to_string(), true),
            ConnectionState::Reconnecting { cause, .. } => (cause.to_string(), false),
            other => (format!("{other:?}"), false),
        };
        Some(Self { began: clock::stopwatch(), why, refused })
    }
}

impl BrokerReachability {
    pub(crate) fn new(grace: Duration) -> Self {
        let (outage, _) = watch::channel(None);
        Self { outage, grace }
    }

    /// Records the client's reports until the gateway ends.
    pub(crate) async fn follow(&self, mut told: longhaul::ops::Reach, end: CancellationToken) {
        self.note(told.state());
        while let Some(Some(state)) = end.run_until_cancelled(told.changed()).await {
            self.note(state);
        }
    }

    /// Records a report of the client.
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
                        "connection to the broker lost"
                    );
                }
                (Some(before), None) => {
                    telemetry::broker_connected(true);
                    let elapsed = before.began.read();
                    tracing::info!(
                        event = "broker_back",
                        ?elapsed,
                        "connection to the broker restored"
                    );
                }
                (Some(before), Some(now)) if now.refused && !before.refused => {
                    tracing::warn!(
                        event = "broker_refused",
                        why = now.why,
                        "the broker refuses the gateway"
                    );
                }
                (Some(_), Some(_)) => {}
            }
            let began = outage.as_ref().map(|before| before.began);
            *outage = is.map(|now| ConnectionOutage { began: began.unwrap_or(now.began), ..now });
        });
    }

    /// The current outage.
    pub(crate) fn outage(&self) -> Option<ConnectionOutage> {
        self.outage.borrow().clone()
    }

    /// Waits for the broker, up to the grace after its loss. A broker that refuses the gateway
    /// answers requests itself.
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

    /// Resolves when the broker has been away for longer than the grace. A broker that refuses the
    /// gateway does not count as away.
    pub(crate) async fn cut_off(&self) -> ConnectionOutage {
        self.out_for_long(|it| !it.refused).await
    }

    /// Resolves when the broker has been away, or has refused the gateway, for longer than the
    /// grace.
    pub(crate) async fn lost(&self) -> ConnectionOutage {
        self.out_for_long(|_| true).await
    }

    async fn out_for_long(&self, counts: fn(&ConnectionOutage) -> bool) -> ConnectionOutage {
        let mut told = self.outage.subscribe();
        loop {
            let outage = told.borrow_and_update().clone().filter(counts);
            let changed = async {
                // The sender lives as long as `self`.
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

    /// Resolves when the gateway is connected.
    pub(crate) async fn connected(&self) {
        let mut told = self.outage.subscribe();
        // The sender lives as long as `self`.
        told.wait_for(Option::is_none).await.ok();
    }

    /// Resolves when the broker is there, even if it refuses the gateway.
    async fn back(&self) {
        let mut told = self.outage.subscribe();
        // The sender lives as long as `self`.
        told.wait_for(|outage| outage.as_ref().is_none_or(|it| it.refused)).await.ok();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use futures::poll;
    use longhaul::{TransportError, TransportErrorKind};

    /// The client's report while the broker is away.
    pub(crate) fn away(kind: TransportErrorKind) -> ConnectionState {
        let (elapsed, cause) = (Duration::ZERO, TransportError::new(kind, "pulsar://b:6650", "no"));
        if kind.is_permanent() {
            return ConnectionState::Refused { elapsed, cause };
        }
        ConnectionState::Reconnecting { elapsed, cause }
    }

    /// Time is tokio's paused clock, which passes at once.
    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_a_while_and_are_refused_then() {
        let reach = BrokerReachability::new(Duration::from_secs(3_600));
        assert!(reach.admit().await.is_ok() && reach.outage().is_none());
        let mut cut_off = Box::pin(reach.cut_off());
        assert!(poll!(&mut cut_off).is_pending());
        reach.note(away(TransportErrorKind::Unreachable));
        let mut waiting = Box::pin(reach.admit());
        assert!(poll!(&mut waiting).is_pending() && poll!(&mut cut_off).is_pending());
        // The broker is back in time.
        reach.note(ConnectionState::Connected);
        assert!(waiting.await.is_ok() && poll!(&mut cut_off).is_pending());

        reach.note(away(TransportErrorKind::Unreachable));
        let mut waiting = Box::pin(reach.admit());
        assert!(poll!(&mut waiting).is_pending());
        // Another failed attempt to connect does not restart the outage.
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

    /// A stream must not report the broker as back when it starts to refuse the gateway.
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

    /// An outage lasts since its first cause: a later request does not wait the whole grace again.
    #[tokio::test]
    async fn who_comes_late_does_not_wait_as_long_again() {
        let reach = BrokerReachability::new(Duration::from_millis(20));
        reach.note(away(TransportErrorKind::Unreachable));
        assert!(reach.admit().await.is_err());
        reach.note(away(TransportErrorKind::Unreachable));
        assert!(poll!(Box::pin(reach.admit())).is_ready());
    }
}

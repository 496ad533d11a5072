//! Runs the worker of the queue `webhooks` as long as the gateway runs.

use super::calling::{CALL_TIME_MAX, WebhookProcessor};
use crate::core::{GatewayService, ServiceError};
use longhaul::WorkerHandle;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Pause before the worker is started again.
const START_AGAIN: Duration = Duration::from_secs(5);

/// Attempts of a call: with the pauses below, the last one is up to 2.4 h after the first.
const ATTEMPTS: u32 = 12;

/// The first and the longest pause between attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));

/// Runs the worker until the gateway drains.
pub(crate) async fn run(
    service: Arc<GatewayService>,
    calls: WebhookProcessor,
    drain: CancellationToken,
) {
    let mut told = String::new();
    loop {
        let ended = match drain.run_until_cancelled(start(&service, calls.clone())).await {
            None => return,
            Some(Ok(worker)) => {
                told.clear();
                let ended = worker.run_until(drain.cancelled(), CALL_TIME_MAX).await;
                if ended.is_ok() && !drain.is_cancelled() {
                    tracing::warn!(
                        event = "webhooks_drained",
                        "the worker of the webhooks was drained: this gateway calls no webhooks \
                         until it is restarted"
                    );
                }
                ended.map_err(|error| error.to_string())
            }
            Some(Err(error)) => Err(error.to_string()),
        };
        let Err(cause) = ended else { return };
        if cause != told {
            tracing::warn!(event = "webhooks_ended", cause, "calls of webhooks stopped; retrying");
            told = cause;
        }
        if drain.run_until_cancelled(tokio::time::sleep(START_AGAIN)).await.is_none() {
            return;
        }
    }
}

/// Creates the queue unless it exists, and starts the worker.
async fn start(
    service: &GatewayService,
    calls: WebhookProcessor,
) -> Result<WorkerHandle, ServiceError> {
    let topic = service.make_webhooks().await?;
    let worker = service.client().worker(topic, calls);
    let worker = worker.max_attempts(ATTEMPTS).backoff(BACKOFF.0, BACKOFF.1).name("webhooks");
    worker.start().await.map_err(|error| ServiceError::Leases(Arc::new(error)))
}

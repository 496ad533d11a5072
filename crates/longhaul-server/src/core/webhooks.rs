//! The queue of the calls of webhooks, and the URLs that the gateway allows.

use super::{GatewayService, QueueName, ServiceError};
use longhaul::Client;
use longhaul::ops::QueueSettings;
use longhaul::topics::SetupError;
use longhaul_api::queue::NewQueue;
use longhaul_api::webhook::WEBHOOKS_QUEUE;

impl GatewayService {
    /// Refuses tasks, leases and changed replays of the queue of the calls: the gateway would sign
    /// what a caller has written.
    pub(super) fn check_not_webhooks(&self, queue: &QueueName) -> Result<(), ServiceError> {
        if queue.as_str() == WEBHOOKS_QUEUE && !self.config.as_clients_do {
            return Err(ServiceError::Reserved(queue.clone()));
        }
        Ok(())
    }

    /// Refuses new webhooks that this gateway does not allow. Present ones may stay, so that other
    /// settings can be changed at any gateway.
    pub(super) fn check_webhooks(
        &self,
        before: &QueueSettings,
        after: &QueueSettings,
    ) -> Result<(), ServiceError> {
        let new = after.webhooks.iter().filter(|url| !before.webhooks.contains(url));
        for url in new.filter(|_| !self.config.as_clients_do) {
            let Some(allowed) = &self.webhooks else {
                let problem = "this gateway calls no webhooks; start it with `--webhook-allow \
                    ORIGIN` and `--webhook-secret-file FILE`";
                return Err(ServiceError::Webhook(problem.to_owned()));
            };
            allowed.check(url).map_err(|problem| {
                ServiceError::Webhook(format!("{problem}; allow it with `--webhook-allow ORIGIN`"))
            })?;
        }
        Ok(())
    }

    /// Creates the queue of the calls unless it exists. Returns its task topic.
    pub(crate) async fn make_webhooks(&self) -> Result<String, ServiceError> {
        let queue = QueueName::parse(WEBHOOKS_QUEUE)?;
        match self.create_queue(&queue, NewQueue::default(), None).await {
            // Without the admin API the broker creates the topics that are used.
            Ok(_) | Err(ServiceError::Setup(SetupError::NoAdminUrl)) => Ok(self.topic(&queue)),
            Err(error) => Err(error),
        }
    }

    /// The client, for the worker of the calls.
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }
}

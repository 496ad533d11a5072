//! Drains workers on behalf of a caller.

use super::{ActionOrigin, GatewayService, QueueName, ServiceError, ViewedTasks};
use longhaul::ActionError;
use longhaul::WorkerIdentity;
use std::sync::Arc;

impl GatewayService {
    /// Drains a worker, wherever it runs; returns its identity.
    pub(crate) async fn drain_worker(
        &self,
        queue: &QueueName,
        name: &str,
        said: ActionOrigin<'_>,
    ) -> Result<Arc<WorkerIdentity>, ServiceError> {
        self.check_queue(queue).await?;
        let topic = self.topic(queue);
        let view = self.views.of(&topic, ViewedTasks::Claimed).await?;
        let client = self.acting(said.name);
        let told = client.queue(&topic).with_view(&view).drain_worker(name, said.reason).await;
        if matches!(told, Err(ActionError::Read(_))) {
            self.views.close(&topic);
        }
        let told = told?;
        tracing::info!(
            target: "longhaul::tasks",
            event = "worker_action",
            action = "drain",
            %queue,
            worker = told.name,
            operator = said.name,
            reason = said.reason,
        );
        Ok(told)
    }
}

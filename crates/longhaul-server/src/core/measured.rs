//! Counts the tasks of queues for the metrics.

use super::{GatewayService, QueueName, ServiceError};
use longhaul::Priority;
use longhaul::ops::TaskView;
use std::time::Duration;

/// How long a reader of the metrics waits for the counts. A view that is read for the first time
/// may take longer, and is read on for the next reader.
const COUNT_TIME: Duration = Duration::from_secs(5);

impl GatewayService {
    /// Sets the gauges of the queues that are to be measured. One that cannot be counted keeps the
    /// values that it had, because an autoscaler must not take silence for an empty queue.
    pub(crate) async fn measure(&self) {
        let counted = self.measured.iter().map(|queue| async move {
            match tokio::time::timeout(COUNT_TIME, self.measure_queue(queue)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%queue, %error, "the queue is not measured"),
                Err(_) => tracing::info!(%queue, "the queue is still being read"),
            }
        });
        futures::future::join_all(counted).await;
    }

    async fn measure_queue(&self, queue: &QueueName) -> Result<(), ServiceError> {
        let levels: &[Priority] = if self.check_queue(queue).await? {
            &[Priority::High, Priority::Normal, Priority::Low]
        } else {
            &[Priority::Normal]
        };
        for level in levels {
            self.ask(queue, *level, TaskView::measure).await?;
        }
        Ok(())
    }
}

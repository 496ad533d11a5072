//! Counts the tasks of queues for metrics.

use super::ViewedTasks;
use super::{GatewayService, QueueLevel, QueueName, ServiceError};
use longhaul::Priority;
use longhaul::ops::TaskView;
use std::time::Duration;

/// How long a scrape waits for the counts. The first read of a view may take longer; it continues
/// for the next scrape.
const COUNT_TIME: Duration = Duration::from_secs(5);

impl GatewayService {
    /// Sets the gauges of the measured queues. A queue that cannot be counted keeps its last
    /// values, because an autoscaler must not take an error for an empty queue.
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
        let has_levels = self.check_queue(queue).await?;
        for level in QueueLevel::all(queue) {
            if has_levels || level.level() == Priority::Normal {
                self.ask(&level, ViewedTasks::All, TaskView::measure).await?;
            }
        }
        Ok(())
    }
}

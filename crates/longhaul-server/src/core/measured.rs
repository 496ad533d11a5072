//! Counts the tasks of queues for metrics.

use super::ViewedTasks;
use super::{GatewayService, QueueLevel, QueueName, ServiceError};
use longhaul::Priority;
use longhaul::ops::TaskView;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a scrape waits for the counts. The first read of a view may take longer; it continues
/// for the next scrape.
const COUNT_TIME: Duration = Duration::from_secs(5);

/// A queue that is counted for metrics.
#[derive(Debug)]
pub(super) struct MeasuredQueue {
    name: QueueName,
    /// The last count failed, and the log says so. Scrapes come too often for a line each.
    failed: AtomicBool,
}

impl MeasuredQueue {
    /// `None` for a name that no queue can have.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(Self { name: QueueName::parse(name).ok()?, failed: AtomicBool::new(false) })
    }
}

impl GatewayService {
    /// Sets the gauges of the measured queues. A queue that cannot be counted keeps its last
    /// values, because an autoscaler must not take an error for an empty queue.
    pub(crate) async fn measure(&self) {
        let counted =
            self.measured.iter().map(|MeasuredQueue { name: queue, failed }| async move {
                match tokio::time::timeout(COUNT_TIME, self.measure_queue(queue)).await {
                    Ok(Ok(())) => failed.store(false, Ordering::Relaxed),
                    Ok(Err(error)) => {
                        if !failed.swap(true, Ordering::Relaxed) {
                            tracing::warn!(%queue, %error, "the queue is not measured");
                        }
                    }
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

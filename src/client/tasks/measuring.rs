//! The metrics of a view, recorded through the facade crate `metrics`.

use super::{Tables, TaskCounts, TaskStatus, TaskView};
use crate::client::ReadError;
use crate::telemetry;
use std::time::Duration;

impl TaskView {
    /// As [`counts`](Self::counts), and sets the queue's gauges `longhaul_tasks`,
    /// `longhaul_oldest_ready_seconds` and `longhaul_demand`. A view of the past sets none.
    ///
    /// It looks at every task: call it once per collection of your metrics, from one program per
    /// queue.
    ///
    /// ```no_run
    /// # use longhaul::ReadError;
    /// # use longhaul::Client;
    /// # use std::time::Duration;
    /// # async fn measure(client: Client) -> Result<(), ReadError> {
    /// let tasks = client.queue("tasks").tasks().await?;
    /// loop {
    ///     tasks.measure()?;
    ///     tokio::time::sleep(Duration::from_secs(15)).await;
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn measure(&self) -> Result<TaskCounts, ReadError> {
        let counts = self.counts()?;
        if let Tables::Followed(partitions, _) = &self.tables {
            let queue = &partitions.names.task;
            // A status without tasks is recorded, too, or its last value would stay.
            for status in TaskStatus::ALL {
                telemetry::tasks(queue, status.word(), counts.of(status));
            }
            let since_ms = counts.oldest_ready.map_or(u64::MAX, |(_, since_ms)| since_ms);
            let waits = Duration::from_millis(self.now_ms().saturating_sub(since_ms));
            telemetry::wanted(queue, counts.demand(), waits);
        }
        Ok(counts)
    }
}

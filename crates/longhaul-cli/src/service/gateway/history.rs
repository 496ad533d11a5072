//! The history of a task.

use super::address::QueueAddress;
use super::{GatewayClient, GatewayRoute, found};
use longhaul::TaskRef;
use longhaul_api::history::HistoryBody;

impl GatewayClient {
    /// The history of a task; without entries if nothing is known of it.
    pub(crate) async fn history(&self, task: &TaskRef) -> anyhow::Result<HistoryBody> {
        let route = GatewayRoute::of_task(task, &["history"])?;
        let told: Option<HistoryBody> = found(self.get(&route).await)?;
        let (of, mut history) = (QueueAddress::of(&task.topic)?, told.unwrap_or_default());
        of.rename(&mut history.task);
        for waits_for in history.entries.iter_mut().flat_map(|it| &mut it.waits_for) {
            of.rename(waits_for);
        }
        Ok(history)
    }
}

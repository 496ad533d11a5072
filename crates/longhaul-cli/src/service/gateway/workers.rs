//! Workers.

use super::GatewayClient;
use super::address::QueueAddress;
use crate::service::workers::{WorkerProcess, by_process};
use longhaul_api::action::ReasonBody;
use longhaul_api::worker::{ToldToDrain, WorkerList};

impl GatewayClient {
    /// The workers of a queue, one per process, by name.
    pub(crate) async fn workers(&self, queue: &str) -> anyhow::Result<Vec<WorkerProcess>> {
        let of = QueueAddress::of(queue)?;
        let mut told: WorkerList = self.get(&of.below(&["workers"])).await?;
        for task in told.workers.iter_mut().flat_map(|it| &mut it.running) {
            of.rename(task);
        }
        Ok(by_process(told.workers.into_iter()))
    }

    /// Drains the worker of this name. Returns its instance.
    pub(crate) async fn drain(
        &self,
        queue: &str,
        name: &str,
        reason: &str,
    ) -> anyhow::Result<String> {
        let to = QueueAddress::of(queue)?.below(&["workers", name]).verb("drain");
        let told: ToldToDrain = self.post(&to, &ReasonBody::of(reason)).await?;
        Ok(told.worker.instance)
    }
}

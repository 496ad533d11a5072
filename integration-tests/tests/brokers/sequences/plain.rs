//! A plain producer: it sends messages through the session and knows nothing of tasks.

use anyhow::{Context, Result, ensure};
use integration_tests::bench::Bench;
use longhaul::TaskId;
use longhaul_transport::{
    Batching, OnReceipt, Outgoing, Publisher, Receipt, TopicPartition, TopicSchema, Transport,
};

/// A producer on one partition of a topic.
pub(crate) struct Plain {
    publisher: Box<dyn Publisher>,
    partition: i32,
}

impl Plain {
    /// A producer of tasks, one message each.
    pub(crate) async fn tasks(bench: &Bench) -> Result<Self> {
        let part = bench.parts(&bench.names().task).swap_remove(0);
        Self::open(bench, &part, Batching::Off).await
    }

    /// A producer on this partition.
    pub(crate) async fn open(
        bench: &Bench,
        part: &TopicPartition,
        batching: Batching,
    ) -> Result<Self> {
        let publisher = bench.transport().publisher(part, batching, TopicSchema::None).await?;
        Ok(Self { publisher, partition: part.partition })
    }

    /// Sends a task and returns its id.
    pub(crate) async fn submit(&mut self, payload: &str) -> Result<TaskId> {
        self.submit_with(payload.as_bytes(), &[]).await
    }

    pub(crate) async fn submit_with(
        &mut self,
        payload: &[u8],
        properties: &[(&str, &str)],
    ) -> Result<TaskId> {
        let receipt = self.send(None, payload, properties).await?;
        Ok(TaskId::new(receipt.await?, self.partition))
    }

    /// Sends these tasks as one batch, and returns their ids.
    pub(crate) async fn submit_batch(bench: &Bench, payloads: &[&str]) -> Result<Vec<TaskId>> {
        let part = bench.parts(&bench.names().task).swap_remove(0);
        let mut plain = Self::open(bench, &part, Batching::On).await?;
        let mut receipts = Vec::new();
        // Nothing is awaited in between, so that the session finds all of them in its queue.
        for payload in payloads {
            let (on_receipt, receipt) = OnReceipt::awaited();
            plain.publisher.put(outgoing(None, payload.as_bytes(), &[]), on_receipt);
            receipts.push(receipt);
        }
        let mut ids = Vec::new();
        for receipt in receipts {
            ids.push(TaskId::new(receipt.await?, part.partition));
        }
        let is_next = |(index, id): (usize, &TaskId)| {
            id.entry_id() == ids[0].entry_id() && id.batch_index == u32::try_from(index).ok()
        };
        ensure!(ids.iter().enumerate().all(is_next), "not one batch: {ids:?}");
        Ok(ids)
    }

    /// Requests the end of a task, as any client that may write to the ledger can. The body
    /// contains only its form: compaction takes an empty one for a tombstone.
    pub(crate) async fn cancel(bench: &Bench, task: TaskId) -> Result<()> {
        let parts = bench.parts(&bench.names().ledger);
        let part = parts.iter().find(|part| part.partition == task.partition).context("none")?;
        let mut plain = Self::open(bench, part, Batching::Off).await?;
        let properties = [("k", "cancel"), ("t", &task.to_string())];
        plain.send(Some(format!("{task}/cancel")), b"\x01", &properties).await?.await?;
        Ok(())
    }

    /// Shows an entry for a task, on a producer of the metadata topic.
    pub(crate) async fn show(&mut self, key: &str, entry: &[u8]) -> Result<()> {
        self.send(Some(key.to_owned()), entry, &[]).await?.await?;
        Ok(())
    }

    async fn send(
        &mut self,
        key: Option<String>,
        payload: &[u8],
        properties: &[(&str, &str)],
    ) -> Result<Receipt> {
        Ok(self.publisher.send(outgoing(key, payload, properties)).await?)
    }
}

fn outgoing(key: Option<String>, payload: &[u8], properties: &[(&str, &str)]) -> Outgoing {
    let properties = properties.iter().copied().collect();
    Outgoing { key, properties, payload: payload.to_vec().into(), ..Outgoing::default() }
}

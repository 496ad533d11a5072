//! A plain Pulsar producer that knows nothing of longhaul: the client crate alone.

use anyhow::{Context, Result, ensure};
use integration_tests::bench::Bench;
use longhaul::TaskId;
use longhaul_transport::TopicPartition;
use pulsar::producer::{Message, SendFuture};
use pulsar::{Producer, ProducerOptions, Pulsar, TokioExecutor};
use std::collections::HashMap;

/// A producer on one partition of a topic.
pub(crate) struct Plain {
    producer: Producer<TokioExecutor>,
    partition: i32,
}

impl Plain {
    /// A producer of tasks, one message each.
    pub(crate) async fn tasks(bench: &Bench) -> Result<Self> {
        let part = bench.parts(&bench.names().task).swap_remove(0);
        Self::open(bench, &part, ProducerOptions::default()).await
    }

    /// A producer on this partition.
    pub(crate) async fn open(
        bench: &Bench,
        part: &TopicPartition,
        options: ProducerOptions,
    ) -> Result<Self> {
        let client = Pulsar::builder(bench.service_url(), TokioExecutor).build().await?;
        let builder = client.producer().with_topic(part.to_string()).with_options(options);
        Ok(Self { producer: Box::pin(builder.build()).await?, partition: part.partition })
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
        let sent = self.send(None, payload, properties).await?;
        self.id(sent).await
    }

    /// Sends these tasks as one batch, and returns their ids.
    pub(crate) async fn submit_batch(bench: &Bench, payloads: &[&str]) -> Result<Vec<TaskId>> {
        let part = bench.parts(&bench.names().task).swap_remove(0);
        let size = u32::try_from(payloads.len())?;
        let options = ProducerOptions { batch_size: Some(size), ..ProducerOptions::default() };
        let mut plain = Self::open(bench, &part, options).await?;
        let mut sent = Vec::new();
        for payload in payloads {
            sent.push(plain.send(None, payload.as_bytes(), &[]).await?);
        }
        let mut ids = Vec::new();
        for (index, sent) in sent.into_iter().enumerate() {
            let id = plain.id(sent).await?;
            ids.push(TaskId { batch_index: Some(u32::try_from(index)?), ..id });
        }
        let entries: Vec<_> = ids.iter().map(|id| id.entry_id()).collect();
        ensure!(entries.iter().all(|entry| *entry == entries[0]), "not one batch: {ids:?}");
        Ok(ids)
    }

    /// Asks for the end of a task, as anybody can who may write to the ledger. The body says its
    /// form and nothing else: compaction takes an empty one for a tombstone.
    pub(crate) async fn cancel(bench: &Bench, task: TaskId) -> Result<()> {
        let parts = bench.parts(&bench.names().ledger);
        let part = parts.iter().find(|part| part.partition == task.partition).context("none")?;
        let mut plain = Self::open(bench, part, ProducerOptions::default()).await?;
        let properties = [("k", "cancel"), ("t", &task.to_string())];
        plain.send(Some(format!("{task}/cancel")), b"\x01", &properties).await?.await?;
        Ok(())
    }

    async fn send(
        &mut self,
        key: Option<String>,
        payload: &[u8],
        properties: &[(&str, &str)],
    ) -> Result<SendFuture> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let message = Message {
            payload: payload.to_vec(),
            properties: properties.iter().map(own).collect::<HashMap<_, _>>(),
            partition_key: key,
            ..Message::default()
        };
        Ok(Box::pin(self.producer.send_non_blocking(message)).await?)
    }

    async fn id(&self, sent: SendFuture) -> Result<TaskId> {
        let id = sent.await?.message_id.context("a receipt without id")?;
        let (ledger, entry) = (id.ledger_id, id.entry_id);
        Ok(TaskId { ledger, entry, partition: self.partition, batch_index: None })
    }
}

//! A broker, a gateway, and worker processes.

use crate::languages::language::Program;
use crate::support::{Worker, soon};
use longhaul::topics::TopicSettings;
use longhaul::{Client, TaskMetadata, TaskRef, Text, Watch};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_server::{Server, ServerConfig};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;

const QUEUE: &str = "books";

pub(crate) struct Stage {
    pub(crate) client: Client,
    server: Server,
    _broker: Broker,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let broker = Broker::start(BrokerConfig::default()).unwrap();
        let client = Client::builder(broker.service_url()).admin_url(broker.admin_url().unwrap());
        let client = client.connect().await.unwrap();
        client.queue(QUEUE).setup_topics(TopicSettings::default()).await.unwrap();
        let mut config = ServerConfig::default();
        config.listen = "127.0.0.1:0".parse().unwrap();
        let server = Server::start(client.clone(), config).await.unwrap();
        Self { client, server, _broker: broker }
    }

    /// A ready worker with leases of this many seconds.
    pub(crate) async fn worker(&self, program: &Program, name: &str, lease_time: &str) -> Worker {
        let mut command = program.command();
        command.args([
            "--url",
            &self.server.url(),
            "--name",
            name,
            "--lease-time",
            lease_time,
            QUEUE,
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let lines = process.stdout.take().unwrap();
        let mut worker = Worker::new(process, lines);
        worker.line_with("ready").await;
        worker
    }

    pub(crate) async fn submit(&self, order: &Value) -> TaskRef {
        self.client.submit(QUEUE, &Text(order.to_string())).await.unwrap()
    }

    /// The final entry of a task.
    pub(crate) async fn end(&self, task: &TaskRef) -> TaskMetadata {
        soon("the end of a task", self.client.wait_metadata(task)).await.unwrap()
    }

    pub(crate) async fn watch(&self) -> Watch {
        self.client.watch(QUEUE).await.unwrap()
    }
}

/// A gateway with the queue used in the packages' pages.
pub(crate) struct Gateway {
    pub(crate) url: String,
    _stage: Stage,
}

pub(crate) async fn gateway() -> Gateway {
    let stage = Stage::new().await;
    stage.client.queue("mails").setup_topics(TopicSettings::default()).await.unwrap();
    Gateway { url: stage.server.url(), _stage: stage }
}

/// Terminates a worker, and waits for its end. A killed worker may just have been granted a lease,
/// which would cost its task an attempt.
pub(crate) async fn leaves(worker: Worker) {
    worker.signal(Signal::TERM);
    ends(worker).await;
}

/// Waits for a worker to end successfully.
pub(crate) async fn ends(worker: Worker) {
    let (status, lines) = worker.ended().await;
    assert!(status.success(), "{status}: {lines:#?}");
}

//! A broker with a worker for one transcript.

use longhaul::{Client, ClientBuilder, TaskContext, TaskError, Text, WorkerHandle, processor_fn};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_server::{Server, ServerConfig};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The worker's queue.
const QUEUE: &str = "tasks";

pub(crate) struct Stage {
    pub(crate) folder: TempDir,
    pub(crate) broker: Broker,
    runtime: Runtime,
    worker: Option<WorkerHandle>,
    gateway: Option<Server>,
}

/// The worker's processor: it converts to capitals, unless the task says to fail or to be slow.
async fn shout(task: Text, context: TaskContext) -> Result<Text, TaskError> {
    match task.0.as_str() {
        "fail" => Err(TaskError::fatal("the customer \u{1b}[2Jdoes not exist")),
        "flaky" if context.attempt() < 3 => {
            context.log("asks the other side");
            let reason = format!("no luck at attempt {}", context.attempt());
            Err(TaskError::retry_after(Duration::ZERO, reason))
        }
        "slow" => {
            context.progress(1, 4, "the first quarter");
            context.cancelled().await;
            Err(TaskError::retry("told to end"))
        }
        text => Ok(Text(text.to_uppercase())),
    }
}

impl Stage {
    /// A broker without workers.
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let broker = start_broker(&folder, BrokerConfig::default());
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        Self { folder, broker, runtime, worker: None, gateway: None }
    }

    /// With a queue without workers.
    pub(crate) fn with_queue(queue: &str) -> Self {
        let stage = Self::new();
        stage.told(&["topic", "setup", queue]);
        stage
    }

    /// With a worker on the queue `tasks`, which has set up its topics.
    pub(crate) fn with_worker() -> Self {
        let mut stage = Self::new();
        let url = stage.broker.service_url().to_owned();
        let admin = stage.broker.admin_url().unwrap();
        stage.worker = Some(stage.runtime.block_on(async {
            let client = Client::builder(url).admin_url(admin).connect().await.unwrap();
            let worker = client.worker(QUEUE, processor_fn(shout)).name("shouter");
            let worker = worker.backoff(Duration::from_millis(1), Duration::from_millis(2));
            let worker = worker.start().await.unwrap();
            worker.ready().await;
            worker
        }));
        stage
    }

    /// Ends the broker. It can be started again.
    pub(crate) fn stop_broker(&self) {
        self.broker.stop();
        self.runtime.block_on(self.broker.ended()).unwrap();
    }

    /// Starts the broker again, with its data and at its addresses.
    pub(crate) fn restart_broker(&mut self) {
        let admin = self.broker.admin_url().unwrap();
        let admin = Some(admin.trim_start_matches("http://").parse().unwrap());
        let listen = self.broker.address();
        let config = BrokerConfig { listen, admin, ..BrokerConfig::default() };
        self.broker = start_broker(&self.folder, config);
    }

    /// As `with_worker`, with a gateway.
    pub(crate) fn with_gateway() -> Self {
        let mut stage = Self::with_worker();
        stage.start_gateway("127.0.0.1:0".parse().unwrap());
        stage
    }

    /// Starts the gateway at this address.
    pub(crate) fn start_gateway(&mut self, listen: SocketAddr) {
        let admin = self.broker.admin_url().unwrap();
        self.start_gateway_with(listen, |client| client.admin_url(admin));
    }

    /// Starts a gateway without the admin API.
    pub(crate) fn start_gateway_without_admin(&mut self) {
        self.start_gateway_with("127.0.0.1:0".parse().unwrap(), |client| client);
    }

    fn start_gateway_with(
        &mut self,
        listen: SocketAddr,
        change: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) {
        let url = self.broker.service_url().to_owned();
        self.gateway = Some(self.runtime.block_on(async {
            let client = change(Client::builder(url).operator("gateway"));
            let client = client.connect().await.unwrap();
            let mut config = ServerConfig::default();
            config.listen = listen;
            Server::start(client, config).await.unwrap()
        }));
    }

    /// Ends the gateway like a crash; returns its address.
    pub(crate) fn kill_gateway(&mut self) -> SocketAddr {
        let _entered = self.runtime.enter();
        self.gateway.take().unwrap().address()
    }

    /// The URL of the gateway.
    pub(crate) fn gateway(&self) -> String {
        self.gateway.as_ref().unwrap().url()
    }

    /// The program's variables: they exclude the machine's own settings.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let config = self.folder.path().join("config.toml");
        vec![
            ("LONGHAUL_SERVICE_URL", self.broker.service_url().to_owned()),
            ("LONGHAUL_ADMIN_URL", self.broker.admin_url().unwrap()),
            ("LONGHAUL_CONFIG", config.display().to_string()),
            ("LONGHAUL_OPERATOR", "ann".to_owned()),
            ("LONGHAUL_TIMEOUT", "1m".to_owned()),
            ("RUST_LOG", String::new()),
            ("PULSAR_SERVICE_URL", String::new()),
        ]
    }

    /// Runs the program.
    pub(crate) fn longhaul(&self, arguments: &[&str]) -> Output {
        let mut command = longhaul(arguments, self.folder.path());
        command.envs(self.variables()).output().unwrap()
    }

    /// The output of a successful command.
    #[track_caller]
    pub(crate) fn told(&self, arguments: &[&str]) -> String {
        let output = self.longhaul(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn end(self) {
        if let Some(gateway) = self.gateway {
            assert!(self.runtime.block_on(gateway.drain(Duration::from_secs(10))));
        }
        if let Some(worker) = self.worker {
            self.runtime.block_on(worker.drain(Duration::from_secs(10))).unwrap();
        }
        self.broker.shutdown().unwrap();
    }
}

fn start_broker(folder: &TempDir, config: BrokerConfig) -> Broker {
    let data = Some(folder.path().join("broker"));
    Broker::start(BrokerConfig { data, ..config }).unwrap()
}

/// The program with these arguments in this folder.
pub(crate) fn longhaul(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(arguments).current_dir(folder);
    command
}

//! The services of the Compose files as processes: each file's commands, variables and health checks
//! with addresses and folders of this machine. In the files for Pulsar, our own broker takes its
//! place.

use super::stage::longhaul;
use crate::support::Worker;
use longhaul_broker::{Broker, BrokerConfig};
use serde::Deserialize;
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The file, with its anchors and merges resolved.
fn services(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docker").join(path);
    let text = std::fs::read_to_string(path).unwrap();
    let document = serde_yaml_ng::Deserializer::from_str(&text).next().unwrap();
    let mut file = serde_yaml_ng::Value::deserialize(document).unwrap();
    (0..3).for_each(|_| file.apply_merge().unwrap());
    serde_json::to_value(file).unwrap()["services"].take()
}

fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A file's services on this machine.
struct Composed {
    services: Value,
    folder: TempDir,
    /// Texts of the file, and what stands here in their place; the first that fits counts.
    places: Vec<(String, String)>,
}

impl Composed {
    fn of(file: &str, places: &[(&str, &str)]) -> Self {
        let places = places.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
        let mut this = Self {
            services: services(file),
            folder: TempDir::new().unwrap(),
            places: places.collect(),
        };
        for folder in ["keys", "var/lib/longhaul"] {
            let here = this.folder.path().join(folder);
            std::fs::create_dir_all(&here).unwrap();
            this.places.push((format!("/{folder}"), here.display().to_string()));
        }
        this
    }

    fn here(&self, text: &str) -> String {
        self.places.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    fn words(&self, words: &Value) -> Vec<String> {
        words.as_array().unwrap().iter().map(|word| self.here(word.as_str().unwrap())).collect()
    }

    /// The program with the variables of a service.
    fn command(&self, service: &str, words: &[&str]) -> Command {
        let mut command = longhaul(words, self.folder.path());
        command.env_clear().env("PATH", std::env::var("PATH").unwrap());
        let variables = self.services[service]["environment"].as_object().unwrap();
        for (name, value) in variables {
            command.env(name, self.here(value.as_str().unwrap()));
        }
        command
    }

    /// Starts a service, and waits until it is ready and healthy.
    async fn start(&self, service: &str) -> Worker {
        let words = self.words(&self.services[service]["command"]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = tokio::process::Command::from(self.command(service, &words));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let lines = process.stderr.take().unwrap();
        let mut process = Worker::new(process, lines);
        process
            .line_with(if words.starts_with(&["worker"]) { "working on" } else { "ready" })
            .await;
        // Without a check of its own, a service has that of the image.
        let image = ["server", "check"].map(str::to_owned).to_vec();
        let test = &self.services[service]["healthcheck"]["test"];
        let test = if test.is_null() { image } else { self.words(test).split_off(2) };
        let test: Vec<&str> = test.iter().map(String::as_str).collect();
        let mut health = self.command(service, &test);
        if self.services[service]["environment"].get("LONGHAUL_HTTP").is_none() {
            // The default address, which each container has for itself.
            health.env("LONGHAUL_HTTP", self.here("127.0.0.1:7070"));
        }
        let health = health.output().unwrap();
        assert!(health.status.success(), "{service} is not healthy: {health:?}");
        process
    }

    /// Runs a task in the container of this service, as the head of the file says.
    fn runs_a_task(&self, service: &str) {
        let submit = ["task", "submit", "hello", "Hello", "--wait"];
        let told = self.command(service, &submit).output().unwrap();
        assert!(told.status.success(), "{told:?}");
        assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), "HELLO");
    }
}

#[tokio::test]
async fn the_services_of_one_machine_run_a_task() {
    let (http, broker, admin, metrics) = (free(), free(), free(), free());
    let (pulsar, api) = (format!("pulsar://{broker}"), format!("http://{admin}"));
    let mut composed = Composed::of(
        "compose.yaml",
        &[
            ("pulsar://longhaul:6650", &pulsar),
            ("http://longhaul:7071", &api),
            ("0.0.0.0:7070", &http),
            ("0.0.0.0:6650", &broker),
            ("0.0.0.0:7071", &admin),
            ("127.0.0.1:7070", &metrics),
        ],
    );
    let program = Path::new(env!("CARGO_BIN_EXE_longhaul")).parent().unwrap();
    let script = composed.words(&composed.services["keys"]["command"]).remove(0);
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let keys = Command::new("sh").args(["-euc", &script]).env("PATH", path).output().unwrap();
    assert!(keys.status.success(), "{keys:?}");
    // The name of the container.
    let host = &mut composed.services["longhaul"]["environment"];
    (host["LONGHAUL_BROKER_HOST"], host["LONGHAUL_ADMIN_HOSTS"]) =
        ("127.0.0.1".into(), "127.0.0.1".into());
    let _gateway = composed.start("longhaul").await;
    let _worker = composed.start("worker").await;
    composed.runs_a_task("longhaul");
}

#[tokio::test]
async fn the_services_before_a_pulsar_run_a_task() {
    for (file, service, admin) in [
        ("compose.pulsar.yaml", "pulsar://pulsar:6650", "http://pulsar:8080"),
        (
            "compose.cluster.yaml",
            "pulsar://broker-1:6650,broker-2:6650",
            "http://broker-1:8080,broker-2:8080",
        ),
    ] {
        let data = TempDir::new().unwrap();
        let config = BrokerConfig { data: Some(data.path().to_owned()), ..BrokerConfig::default() };
        let broker = Broker::start(config).unwrap();
        let (http, metrics) = (free(), free());
        let places = [
            (service, broker.service_url()),
            (admin, &*broker.admin_url().unwrap()),
            ("0.0.0.0:7070", &*http),
            ("127.0.0.1:7070", &*metrics),
        ];
        let composed = Composed::of(file, &places);
        let gateway = composed.start("gateway").await;
        let worker = composed.start("worker").await;
        composed.runs_a_task("gateway");
        drop((gateway, worker));
        broker.shutdown().unwrap();
    }
}

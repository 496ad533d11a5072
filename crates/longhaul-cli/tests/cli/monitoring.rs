//! Monitoring: health, and the metric names used by alerts and the dashboard.

use super::dev::{Service, ask};
use super::stage::longhaul;
use regex::Regex;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, Command, Stdio};
use tempfile::TempDir;

const RULES: &str = include_str!("../../../../packaging/prometheus/longhaul.rules.yaml");
const RULE_TESTS: &str = include_str!("../../../../packaging/prometheus/longhaul.test.yaml");
const DASHBOARD: &str = include_str!("../../../../packaging/grafana/longhaul.json");
const SCALED_OBJECT: &str = include_str!("../../../../packaging/kubernetes/keda/scaledobject.yaml");
const PAGES: [&str; 2] =
    [include_str!("../../../../docs/telemetry.md"), include_str!("../../../../docs/broker.md")];

/// These metrics appear only with their events, which do not occur here: dead or frozen workers,
/// network failures, a full disk. The documentation lists them.
const OF_MISHAPS: [&str; 5] = [
    "longhaul_takeover_seconds",
    "longhaul_fenced_writes_total",
    "longhaul_claims_lost_total",
    "longhaul_engine_reconnects_total",
    "longhaul_broker_disk_full_in_seconds",
];

/// A worker that ends with the test.
struct Worker {
    child: Child,
    /// Its standard error, which has to stay open.
    notes: BufReader<ChildStderr>,
}

impl Worker {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let notes = BufReader::new(child.stderr.take().unwrap());
        Self { child, notes }
    }

    /// Waits for a line with these words.
    fn line_with(&mut self, words: &str) -> String {
        let mut lines = self.notes.by_ref().lines().map(Result::unwrap);
        lines.find(|line| line.contains(words)).unwrap_or_else(|| panic!("no line with `{words}`"))
    }

    fn ended(mut self) -> bool {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().success()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn get(address: &str, path: &str) -> String {
    ask(&format!("http://{address}"), "GET", path, "").unwrap()
}

/// The metric names of a page; for histograms without suffix.
fn shown(page: &str) -> BTreeSet<String> {
    let heads = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    heads.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// The metric names in a text.
fn used(text: &str) -> BTreeSet<String> {
    let name = Regex::new(r"\b(longhaul|pulsar)_[a-z0-9_]+").unwrap();
    let base = |name: &str| {
        let endings = ["_bucket", "_sum"].iter().find_map(|ending| name.strip_suffix(ending));
        let counted = name.strip_suffix("_seconds_count").map(|rest| format!("{rest}_seconds"));
        counted.unwrap_or_else(|| endings.unwrap_or(name).to_owned())
    };
    name.find_iter(text).map(|found| base(found.as_str())).collect()
}

fn port(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

struct Fleet {
    folder: TempDir,
    dev: Service,
    worker: Worker,
    worker_page: String,
}

impl Fleet {
    /// Starts a gateway and a broker with the samples, and a worker.
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let variables = [
            ("LONGHAUL_MEASURE", "demo,absent"),
            ("LONGHAUL_BROKER_BACKUP", "backup"),
            ("LONGHAUL_BROKER_SCRUB_EVERY", "1s"),
        ];
        let arguments = ["dev", "--demo", "--data", "data"];
        let dev = Service::start_with(&variables, &arguments, folder.path());
        let arguments =
            ["worker", "run", "shout", "--exec", "tr a-z A-Z", "--metrics", "127.0.0.1:0"];
        let mut worker = longhaul(&arguments, folder.path());
        worker.env("LONGHAUL_CONFIG", "none.toml").env("LONGHAUL_SERVICE_URL", &dev.broker);
        worker.env("LONGHAUL_ADMIN_URL", dev.admin.as_ref().unwrap());
        let mut worker = Worker::start(&mut worker);
        let line = worker.line_with("metrics at http://");
        let page = line.split("http://").nth(1).unwrap().trim_end_matches("/metrics").to_owned();
        let run = ["task", "submit", "shout", "hello", "--wait"];
        assert_eq!(dev.told(&run, folder.path()), "HELLO");
        Self { folder, dev, worker, worker_page: page }
    }

    fn check(&self, http: &str, more: &[&str]) -> Option<i32> {
        let arguments = [&["server", "check", "--http", http], more].concat();
        let mut command = longhaul(&arguments, self.folder.path());
        command.env("LONGHAUL_CONFIG", "none.toml").output().unwrap().status.code()
    }
}

/// An alert on a name that does not exist never fires.
///
/// Regression: each scrape logged a line for a queue that cannot be counted. The scrapes of this test
/// filled the pipe of the log, which nobody reads, and the gateway stood still.
#[test]
fn what_alerts_and_dashboards_ask_for_is_shown_by_gateway_worker_or_broker() {
    let fleet = Fleet::start();
    // A heartbeat comes every 10 s, and the second one sets the gap metric.
    let until = |address: &str, words: &str| loop {
        let page = get(address, "/metrics");
        if page.contains(words) {
            break page;
        }
        std::thread::yield_now();
    };
    let gateway = until(port(&fleet.dev.http), "longhaul_keepalive_gap_seconds_count{queue");
    let worker = until(&fleet.worker_page, "longhaul_keepalive_gap_seconds_count{queue");
    assert!(get(&fleet.worker_page, "/livez").ends_with("ok\n"));
    // A worker's page said that a broker was lost.
    assert!(shown(&gateway).contains("longhaul_broker_connected"), "{gateway}");
    assert!(!shown(&worker).contains("longhaul_broker_connected"), "{worker}");
    let admin = port(fleet.dev.admin.as_ref().unwrap());
    let broker = until(admin, "longhaul_broker_damaged_files 0");
    for name in ["longhaul_attempts_total", "longhaul_worker_slots", "longhaul_queue_wait_seconds"]
    {
        assert!(shown(&worker).contains(name), "{worker}");
    }
    let demand = "longhaul_demand{queue=\"persistent://public/default/demo\"}";
    assert!(gateway.contains(demand), "{gateway}");
    let known: BTreeSet<_> =
        [&gateway, &worker, &broker].into_iter().flat_map(|page| shown(page)).collect();
    let documented = used(&PAGES.concat());
    let asked = used(&[RULES, RULE_TESTS, DASHBOARD, SCALED_OBJECT].concat());
    assert!(asked.len() > 25, "{asked:?}");
    for name in &asked {
        let is_of_mishaps = OF_MISHAPS.contains(&name.as_str());
        assert!(
            known.contains(name) || is_of_mishaps,
            "{name} is shown nowhere; shown are {known:#?}"
        );
    }
    for name in OF_MISHAPS {
        assert!(!known.contains(name), "{name} is shown, and need not be excused");
        assert!(documented.contains(name), "{name} is not documented");
    }
    assert!(fleet.worker.ended());
    assert_eq!(fleet.dev.end(Signal::TERM), Some(0));
}

#[test]
fn a_check_tells_by_its_exit_code_whether_the_gateway_is_ready() {
    let fleet = Fleet::start();
    let http = port(&fleet.dev.http).to_owned();
    let everywhere = http.replace("127.0.0.1", "0.0.0.0");
    assert_eq!(fleet.check(&http, &[]), Some(0));
    assert_eq!(fleet.check(&everywhere, &["--live"]), Some(0));
    assert_eq!(
        fleet.check(&fleet.worker_page, &["--live"]),
        Some(0),
        "a worker has a sign of life"
    );
    assert_eq!(fleet.check(&fleet.worker_page, &[]), Some(5), "but takes no requests");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    assert_eq!(fleet.check(&nobody, &[]), Some(5));
    assert_eq!(fleet.check("nowhere", &[]), Some(2));
    // One that is ready at the second question.
    let starting = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = starting.local_addr().unwrap().to_string();
    let answers = std::thread::spawn(move || {
        for status in ["503 Service Unavailable", "200 OK"] {
            let (mut socket, _) = starting.accept().unwrap();
            let read = socket.read(&mut [0; 1024]).unwrap();
            assert!(read > 0);
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            socket.write_all(head.as_bytes()).unwrap();
        }
    });
    assert_eq!(fleet.check(&at, &["--wait", "1m"]), Some(0));
    answers.join().unwrap();
}

#[test]
fn a_worker_shows_its_metrics_beyond_this_machine_only_when_it_is_told_to() {
    let folder = TempDir::new().unwrap();
    let arguments = ["worker", "run", "shout", "--exec", "cat", "--metrics", "0.0.0.0:0"];
    let output = longhaul(&arguments, folder.path()).env("LONGHAUL_CONFIG", "none.toml").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("LONGHAUL_INSECURE") && told.contains("other machines"), "{told}");
}

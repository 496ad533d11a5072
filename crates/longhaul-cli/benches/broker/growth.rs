//! The cost of many retained entries: memory, concurrent publishes, a start with the indices of
//! segments, and a start that has to read everything.

use super::{BenchBroker, directory, pipeline, plain, quantile};
use bytes::Bytes;
use longhaul_wire::messages::MessageMetadata;
use longhaul_wire::payload::Payload;

pub(super) fn run() {
    let count = std::env::var("LONGHAUL_BENCH_ENTRIES").ok();
    let count = count.map_or(5_000_000, |text| text.parse().expect("a number of entries"));
    let folder = directory();
    let broker = BenchBroker::start(folder.path());
    // By default a backlog may take at most half of the disk, and the entries would wait for room
    // for ever.
    let quota = r#"{"limitSize":-1,"policy":"producer_request_hold"}"#;
    let answer = broker.http("POST", "/admin/v2/namespaces/public/default/backlogQuota", quota);
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    let before = broker.memory_kb();
    let per_entry = |kb: u64| {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let bytes = kb.saturating_sub(before) as f64 * 1024.0 / count as f64;
        format!("{bytes:.1} bytes of memory per entry")
    };
    let beside = |broker: &BenchBroker, when: &str| {
        let (_, latencies) = pipeline(&broker.address, "beside", 50_000, 10, &plain(100));
        println!(
            "publish {when}, 10 in flight: p50 {:.3}, p99 {:.3}, at most {:.1} ms",
            quantile(&latencies, 0.5),
            quantile(&latencies, 0.99),
            quantile(&latencies, 1.0)
        );
    };
    beside(&broker, "before there are any");
    let mut left: u64 = count;
    while left > 0 {
        // Several producers in turn, so that the client's state per message is dropped.
        let some = left.min(1_000_000);
        pipeline(&broker.address, "retained", some, 10_000, &clocked(100));
        left -= some;
    }
    println!("{count} retained entries of 100 bytes: {}", per_entry(broker.memory_kb()));
    beside(&broker, "beside them");
    broker.kill();
    for what in ["", "", " without the indices of segments"] {
        if !what.is_empty() {
            remove_indices(folder.path());
        }
        let broker = BenchBroker::start(folder.path());
        println!(
            "restart{what} {:.0} ms, of which {:.0} of processor time, {}",
            broker.started_in.as_secs_f64() * 1e3,
            broker.cpu() * 1e3,
            per_entry(broker.memory_kb())
        );
        beside(&broker, "beside them after the restart");
        broker.kill();
    }
}

fn remove_indices(data: &std::path::Path) {
    for file in std::fs::read_dir(data.join("log")).expect("a data directory") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|extension| extension == "idx") {
            std::fs::remove_file(path).expect("a file");
        }
    }
}

/// Messages with their publish time.
fn clocked(size: usize) -> impl Fn(u64) -> Bytes {
    move |_| {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        let metadata = MessageMetadata {
            producer_name: "bench".into(),
            publish_time: u64::try_from(now).unwrap_or_default(),
            ..Default::default()
        };
        Payload::new(&metadata, &vec![7; size]).bytes().clone()
    }
}

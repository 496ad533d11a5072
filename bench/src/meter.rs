//! Time, CPU and memory of a run. CPU and memory are read from `/proc`, so there are none elsewhere
//! than on Linux.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use integration_tests::stopwatch;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The unit of CPU time in `/proc/*/stat`: the same on all Linux systems of today.
const TICKS_PER_S: f64 = 100.0;

/// Named figures, in the order of the table's columns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures(pub(crate) Vec<(String, f64)>);

impl Figures {
    pub(crate) fn put(&mut self, name: &str, value: f64) {
        self.0.push((name.to_owned(), value));
    }

    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(it, _)| it == name).map(|(_, value)| *value)
    }

    /// Figures of a part of what is measured, by its name.
    pub(crate) fn put_all(&mut self, part: &str, figures: Self) {
        self.0.extend(figures.0.into_iter().map(|(name, value)| (format!("{part} {name}"), value)));
    }

    /// Median and 99th percentile, in ms.
    pub(crate) fn put_times(&mut self, name: &str, times: &Times) {
        for (part, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            self.put(&format!("{name} {part} ms"), times.millis(quantile));
        }
    }
}

/// Durations of many things.
pub(crate) struct Times(Histogram<u64>);

impl Times {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Histogram::new(3)?))
    }

    pub(crate) fn record(&mut self, took: Duration) -> Result<()> {
        Ok(self.0.record(u64::try_from(took.as_micros())?)?)
    }

    pub(crate) fn millis(&self, quantile: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a time in microseconds")]
        let micros = self.0.value_at_quantile(quantile) as f64;
        micros / 1_000.0
    }
}

/// A part of what is measured, such as `worker`: its processes, and what they had used at the
/// start.
struct Part {
    name: &'static str,
    processes: Vec<u32>,
    cpu_s: f64,
}

/// Started with a run and read at its end.
pub(crate) struct Meter {
    elapsed: Box<dyn Fn() -> Duration + Send>,
    parts: Vec<Part>,
}

impl Meter {
    /// Starts to measure the CPU time of these processes, by the names of what they are.
    pub(crate) fn start(parts: impl IntoIterator<Item = (&'static str, Vec<u32>)>) -> Result<Self> {
        let part = |(name, processes): (_, Vec<u32>)| {
            let cpu_s = sum_of(&processes)?;
            Ok(Part { name, processes, cpu_s })
        };
        let parts = parts.into_iter().filter(|(_, processes)| !processes.is_empty()).map(part);
        let parts = parts.collect::<Result<_>>()?;
        Ok(Self { elapsed: Box::new(stopwatch()), parts })
    }

    /// How much was done per second, and what one of it cost each of the parts in microseconds of
    /// CPU; `unit` names it.
    pub(crate) fn read(&self, unit: &str, count: usize) -> Result<Figures> {
        let took = (self.elapsed)().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let count = count as f64;
        let mut figures = Figures::default();
        figures.put(&format!("{unit}/s"), count / took);
        for part in &self.parts {
            let used_s = sum_of(&part.processes)? - part.cpu_s;
            figures.put(&format!("{} µs", part.name), used_s / count * 1e6);
        }
        Ok(figures)
    }
}

fn sum_of(processes: &[u32]) -> Result<f64> {
    processes.iter().map(|id| cpu_s(*id)).sum()
}

/// CPU time of a process.
pub(crate) fn cpu_s(id: u32) -> Result<f64> {
    if id == std::process::id() {
        return Ok(seconds(ClockId::ProcessCPUTime));
    }
    Ok(read_stat(&format!("/proc/{id}/stat"))?.1)
}

/// CPU time of each thread of a process that still runs, by the threads' names without their
/// numbers.
pub(crate) fn thread_cpu_s(id: u32) -> Result<BTreeMap<String, f64>> {
    let mut threads = BTreeMap::new();
    for thread in std::fs::read_dir(format!("/proc/{id}/task"))? {
        // A thread may end meanwhile.
        let Ok((name, cpu_s)) = read_stat(&thread?.path().join("stat").to_string_lossy()) else {
            continue;
        };
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').to_owned();
        *threads.entry(name).or_default() += cpu_s;
    }
    Ok(threads)
}

/// Name and CPU time in a `stat` file.
fn read_stat(path: &str) -> Result<(String, f64)> {
    let stat = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
    // The name, in parentheses, may contain anything.
    let (head, fields) = stat.rsplit_once(')').context("a name")?;
    let (_, name) = head.split_once('(').context("a name")?;
    let ticks = |index| -> Result<f64> {
        Ok(fields.split_whitespace().nth(index).context("too few fields")?.parse()?)
    };
    Ok((name.to_owned(), (ticks(11)? + ticks(12)?) / TICKS_PER_S))
}

/// Nanoseconds of a clock that all processes of the machine share.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or_default();
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// Seconds between two times of [`now_ns`].
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn seconds_between(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    #[expect(clippy::cast_precision_loss, reason = "microseconds are enough")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}

/// A figure of this process's memory.
pub(crate) fn own_memory_mib(field: &str) -> Result<f64> {
    memory_mib(std::process::id(), field)
}

/// A figure of a process's memory: `VmRSS` for what is in RAM, `VmHWM` for the most that ever was,
/// `RssAnon` without files.
pub(crate) fn memory_mib(process: u32, field: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.with_context(|| field.to_owned())?.parse::<f64>()? / 1024.0)
}

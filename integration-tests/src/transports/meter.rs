//! Time, CPU and memory of a run. CPU and memory are read from `/proc`, so there are none elsewhere than on Linux.

use crate::stopwatch;
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The unit of CPU time in `/proc/*/stat`: the same on all Linux systems of today.
const TICKS_PER_S: f64 = 100.0;

/// Named figures, in the order of the table's columns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Figures(pub(super) Vec<(String, f64)>);

impl Figures {
    pub(super) fn put(&mut self, name: &str, value: f64) {
        self.0.push((name.to_owned(), value));
    }

    /// Median and 99th percentile, in ms.
    pub(super) fn put_times(&mut self, name: &str, times: &Times) {
        for (part, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            let name = format!("{name} {part} ms");
            #[expect(clippy::cast_precision_loss, reason = "a time in microseconds")]
            self.put(&name, times.0.value_at_quantile(quantile) as f64 / 1_000.0);
        }
    }
}

/// Durations of many things.
pub(super) struct Times(Histogram<u64>);

impl Times {
    pub(super) fn new() -> Result<Self> {
        Ok(Self(Histogram::new(3)?))
    }

    pub(super) fn record(&mut self, took: Duration) -> Result<()> {
        Ok(self.0.record(u64::try_from(took.as_micros())?)?)
    }
}

/// Started with a run and read at its end.
pub(super) struct Meter {
    elapsed: Box<dyn Fn() -> Duration + Send>,
    cpu_s: f64,
    broker: Option<(u32, f64)>,
}

impl Meter {
    pub(super) fn start(broker: Option<u32>) -> Result<Self> {
        let broker = broker.map(|id| Ok::<_, anyhow::Error>((id, cpu_s_of(id)?))).transpose()?;
        Ok(Self { elapsed: Box::new(stopwatch()), cpu_s: cpu_s(), broker })
    }

    /// How much was done per second, and what 10,000 of it cost us and the broker; `unit` names it.
    pub(super) fn read(&self, unit: &str, count: usize) -> Result<Figures> {
        let (took, cpu_s) = ((self.elapsed)().as_secs_f64(), cpu_s() - self.cpu_s);
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let count = count as f64;
        let mut figures = Figures::default();
        figures.put(&format!("{unit}/s"), count / took);
        figures.put("CPU client", cpu_s / count * 10_000.0);
        if let Some((id, before)) = self.broker {
            figures.put("CPU broker", (cpu_s_of(id)? - before) / count * 10_000.0);
        }
        figures.put("peak RSS MiB", own_memory_mib("VmHWM")?);
        Ok(figures)
    }
}

/// CPU time of this process.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "microseconds are enough")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}

/// CPU time of another process.
fn cpu_s_of(id: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')').context("a name")?;
    let ticks = |index| -> Result<f64> {
        Ok(fields.split_whitespace().nth(index).context("too few fields")?.parse()?)
    };
    Ok((ticks(11)? + ticks(12)?) / TICKS_PER_S)
}

/// A figure of this process's memory.
pub(super) fn own_memory_mib(field: &str) -> Result<f64> {
    memory_mib("self", field)
}

/// A figure of a process's memory.
pub(super) fn memory_mib(process: &str, field: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.with_context(|| field.to_owned())?.parse::<f64>()? / 1024.0)
}

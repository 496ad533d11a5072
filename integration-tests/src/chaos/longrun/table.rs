//! What a long run has to say.

use std::fmt;
use std::time::Duration;

/// A tenth of a run.
#[derive(Clone, Debug, Default)]
pub struct Tenth {
    /// Tasks that ended, per second.
    pub tasks_per_s: f64,
    /// The most memory of any worker, in KiB.
    pub resident_kib: u64,
    /// How long each worker that was started took from its start until it took tasks, in ms.
    pub starts_ms: Vec<u64>,
    /// Entries of the ledger's compacted view at the end, without what came after the last compaction.
    pub view_entries: u64,
    /// The same in bytes, as the broker counts them.
    pub view_bytes: u64,
}

impl Tenth {
    fn start_ms(&self) -> String {
        self.starts_ms.iter().max().map_or_else(|| "-".to_owned(), u64::to_string)
    }
}

/// The ledger's compacted view when all is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Left {
    /// Its entries.
    pub entries: usize,
    /// Bytes of keys, properties and bodies.
    pub bytes: usize,
    /// How long after the last task that was.
    pub after: Duration,
}

/// A run, as Markdown tables.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In order.
    pub tenths: Vec<Tenth>,
    /// What is left at the end.
    pub end: Left,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| tenth | tasks/s | RSS MiB | slowest start ms | view entries | view KiB |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for (number, tenth) in (1..).zip(&self.tenths) {
            let Tenth { tasks_per_s, resident_kib, view_entries, view_bytes, .. } = tenth;
            let (start, mib, kib) = (tenth.start_ms(), resident_kib / 1024, view_bytes / 1024);
            writeln!(
                f,
                "| {number} | {tasks_per_s:.0} | {mib} | {start} | {view_entries} | {kib} |"
            )?;
        }
        if let (Some(first), Some(last)) = (self.tenths.first(), self.tenths.last()) {
            writeln!(f, "\n| | first tenth | last tenth |\n|---|---|---|")?;
            writeln!(f, "| tasks/s | {:.0} | {:.0} |", first.tasks_per_s, last.tasks_per_s)?;
            let mib = |tenth: &Tenth| tenth.resident_kib / 1024;
            writeln!(f, "| RSS of the largest worker, MiB | {} | {} |", mib(first), mib(last))?;
            let (before, after) = (first.start_ms(), last.start_ms());
            writeln!(f, "| slowest start of a worker, ms | {before} | {after} |")?;
            let kib = |tenth: &Tenth| tenth.view_bytes / 1024;
            writeln!(f, "| compacted view of the ledger, KiB | {} | {} |", kib(first), kib(last))?;
        }
        let Left { entries, bytes, after } = self.end;
        write!(
            f,
            "\n{:.0} s after the last task the compacted view of the ledger has {entries} entries with {bytes} bytes.",
            after.as_secs_f64()
        )
    }
}

//! Metrics of the log and its disk.

use super::page::MetricKind::{Counter, Gauge};
use super::page::MetricsText;
use super::{LogMetrics, Totals, UpkeepFigures};
use std::time::Duration;

pub(super) fn log(page: &mut MetricsText, totals: &Totals, log: &LogMetrics) {
    let counters = [
        ("longhaul_broker_log_groups_total", "Groups of records committed.", totals.groups),
        ("longhaul_broker_log_records_total", "Records written to the log.", totals.records),
        ("longhaul_broker_log_syncs_total", "Disk syncs.", log.sync_times.count()),
        (
            "longhaul_broker_log_written_bytes_total",
            "Bytes written to the log.",
            totals.bytes_logged,
        ),
    ];
    for (name, help, value) in counters {
        page.single(name, Counter, help, value);
    }
    let name = "longhaul_broker_log_sync_seconds_total";
    page.single(name, Counter, "Total duration of disk syncs.", log.sync_times.total.as_secs_f64());
    page.times("longhaul_broker_log_sync_seconds", "Duration of a disk sync.", &log.sync_times);
    page.times(
        "longhaul_broker_checkpoint_seconds",
        "Duration of checkpoints.",
        &totals.checkpoint_times,
    );
    page.single(
        "longhaul_broker_log_group_age_seconds",
        Gauge,
        "Age of the group of records that is not on disk yet; 0 if there is none.",
        Duration::from_millis(log.group_age_ms).as_secs_f64(),
    );
    upkeep(page, &log.upkeep);
    disk(page, log);
}

fn upkeep(page: &mut MetricsText, upkeep: &UpkeepFigures) {
    let ages = [
        (
            "longhaul_broker_backup_age_seconds",
            "Age of the last complete pass of the backup. Before the first one, the time since the start.",
            upkeep.backup_age,
        ),
        ("longhaul_broker_scrub_age_seconds", "Age of the last scrub.", upkeep.scrub_age),
    ];
    for (name, help, age) in ages {
        if let Some(age) = age {
            page.single(name, Gauge, help, age.as_secs_f64());
        }
    }
    if let Some(files) = upkeep.damaged_files {
        let help = "Files that did not match their checksums in the last scrub.";
        page.single("longhaul_broker_damaged_files", Gauge, help, files as u64);
    }
}

fn disk(page: &mut MetricsText, log: &LogMetrics) {
    let gauges = [
        ("longhaul_broker_log_segments", "Segments of the log.", Some(log.segments)),
        (
            "longhaul_broker_disk_used_bytes",
            "Bytes of all files in the data directory.",
            log.usage.map(|usage| usage.all()),
        ),
        (
            "longhaul_broker_disk_limit_bytes",
            "Limit for the bytes of the log's segments.",
            log.disk_limit_bytes,
        ),
        (
            "longhaul_broker_disk_left_bytes",
            "Bytes that the log may still take.",
            log.disk_left_bytes,
        ),
        (
            "longhaul_broker_disk_full_in_seconds",
            "Time until the broker refuses publishes, at the rate of the last minutes; 0 while it refuses them. Absent in the first minute, and while the free space does not shrink.",
            log.disk_full_in_s,
        ),
        (
            "longhaul_broker_disk_full",
            "1 while the broker refuses publishes for lack of disk space.",
            Some(log.is_disk_full.into()),
        ),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            page.single(name, Gauge, help, value);
        }
    }
    let Some(usage) = log.usage else { return };
    let name = "longhaul_broker_disk_kind_bytes";
    page.head(name, Gauge, "Bytes of the files in the data directory, by kind.");
    for (kind, bytes) in usage.kinds() {
        page.sample(name, &format!("{{kind=\"{kind}\"}}"), bytes);
    }
}

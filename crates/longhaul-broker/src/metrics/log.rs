//! Metrics of the log and its disk.

use super::page::MetricKind::{Counter, Gauge};
use super::page::MetricsText;
use super::{LogMetrics, Totals};
use std::time::Duration;

pub(super) fn log(page: &mut MetricsText, totals: &Totals, log: &LogMetrics) {
    let counters = [
        ("longhaul_broker_log_groups_total", "Groups of records committed.", totals.groups),
        ("longhaul_broker_log_records_total", "Records written.", totals.records),
        (
            "longhaul_broker_log_syncs_total",
            "Times the disk was made to keep what was written.",
            log.sync_times.count(),
        ),
        ("longhaul_broker_log_written_bytes_total", "Bytes written.", totals.bytes_logged),
    ];
    for (name, help, value) in counters {
        page.single(name, Counter, help, value);
    }
    let name = "longhaul_broker_log_sync_seconds_total";
    page.single(
        name,
        Counter,
        "Time spent making the disk keep what was written.",
        log.sync_times.total.as_secs_f64(),
    );
    page.times(
        "longhaul_broker_log_sync_seconds",
        "How long the disk took to keep what was written.",
        &log.sync_times,
    );
    page.times(
        "longhaul_broker_checkpoint_seconds",
        "How long checkpoints took.",
        &totals.checkpoint_times,
    );
    page.single(
        "longhaul_broker_log_group_age_seconds",
        Gauge,
        "How long the records have been written that the disk has not confirmed; 0 if there are none.",
        Duration::from_millis(log.group_age_ms).as_secs_f64(),
    );
    if let Some(age) = log.backup_age {
        page.single(
            "longhaul_broker_backup_age_seconds",
            Gauge,
            "Age of the last pass of the backup that has stored everything; before the first one, time since the start.",
            age.as_secs_f64(),
        );
    }
    disk(page, log);
}

fn disk(page: &mut MetricsText, log: &LogMetrics) {
    let gauges = [
        ("longhaul_broker_log_segments", "Segments of the log.", Some(log.segments)),
        (
            "longhaul_broker_disk_used_bytes",
            "Bytes of all files of the data directory.",
            log.usage.map(|usage| usage.all()),
        ),
        (
            "longhaul_broker_disk_limit_bytes",
            "Bytes that the segments of the log may have.",
            log.disk_limit_bytes,
        ),
        (
            "longhaul_broker_disk_left_bytes",
            "Bytes that the log may still take.",
            log.disk_left_bytes,
        ),
        (
            "longhaul_broker_disk_full_in_seconds",
            "Time until none are left, at the pace of the last minutes, 0 when publishes are refused; absent in the first minute, and while they do not get fewer.",
            log.disk_full_in_s,
        ),
        (
            "longhaul_broker_disk_full",
            "1 while publishes are refused for want of room on the disk.",
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
    page.head(name, Gauge, "Bytes of the files of the data directory, by what they are for.");
    for (kind, bytes) in usage.kinds() {
        page.sample(name, &format!("{{kind=\"{kind}\"}}"), bytes);
    }
}

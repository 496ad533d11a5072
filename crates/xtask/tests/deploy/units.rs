//! The units of `packaging/systemd`.

use super::read;

/// The values of a setting, in order.
fn values<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

/// What both units hold back; `systemd-analyze security` of `.ci/run` looks at the rest.
const HELD: [&str; 6] = [
    "NoNewPrivileges",
    "PrivateTmp",
    "ProtectHome",
    "ProtectControlGroups",
    "RestrictNamespaces",
    "RestrictSUIDSGID",
];

/// A unit that is killed in its drain loses what it runs.
#[test]
fn units_have_the_time_to_drain() {
    for (path, drain, more) in [
        ("packaging/systemd/longhaul.service", 30, 10),
        ("packaging/systemd/longhaul-worker@.service", 3600, 20),
    ] {
        let text = read(path);
        let [stop] = values(&text, "TimeoutStopSec")[..] else { panic!("{path}") };
        assert!(stop.parse::<u64>().unwrap() >= drain + more, "{path}: {stop}");
        assert_eq!(values(&text, "KillSignal"), ["SIGTERM"], "{path}");
        assert_eq!(values(&text, "ProtectSystem"), ["strict"], "{path}");
        assert_eq!(values(&text, "CapabilityBoundingSet"), [""], "{path}");
        for name in HELD {
            assert_eq!(values(&text, name), ["yes"], "{path}: {name}");
        }
        let [start] = values(&text, "ExecStart")[..] else { panic!("{path}") };
        assert!(start.starts_with("/usr/bin/longhaul "), "{path}: {start}");
        assert!(!text.contains("--insecure"), "{path}");
    }
    let worker = read("packaging/systemd/longhaul-worker@.service");
    assert!(
        worker.contains("LONGHAUL_DRAIN=1h") && worker.contains("KillMode=mixed"),
        "programs get no SIGTERM of systemd's"
    );
}

/// What the package installs is there, and what it asks people to set exists.
#[test]
fn the_package_has_its_parts() {
    let script = read("packaging/debian/build");
    let parts = script.split("$top/").skip(1).filter_map(|rest| rest.split('"').next());
    let mut count = 0;
    for part in parts.filter(|part| part.starts_with("packaging/") && !part.contains('$')) {
        read(part);
        count += 1;
    }
    assert!(count >= 7, "{count} parts were looked for");
    let settings = read("crates/longhaul-cli/src/settings/mod.rs");
    for line in
        read("packaging/debian/default").lines().filter_map(|line| line.strip_prefix("#LONGHAUL_"))
    {
        let name = line.split('=').next().unwrap().to_lowercase().replace('_', "-");
        assert!(settings.contains(&format!("(\"{name}\"")), "no setting {name}");
    }
}

//! File descriptors: each connection takes one, and the log needs some at any time.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is left for the next segments, checkpoints, compacted files, and the program that the broker is part of.
const RESERVED: usize = 128;

/// Connections that are let in though the log may lack descriptors for its next segments then, if it has as many besides.
const LEAST: usize = 64;

/// Raises the process's soft limit to its hard one, as many programs do at their start.
pub(super) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}

/// How many connections there may be at a time of those that are wanted: of clients, and of the admin interface. So many files are open for the log.
pub(super) fn connections(files: usize, clients: usize, admin: usize) -> (usize, usize) {
    let limit = getrlimit(Resource::Nofile).current;
    let (clients_may, admin_may) = shared(limit, files, clients, admin);
    if clients_may < clients {
        tracing::warn!(
            wanted = clients,
            allowed = clients_may,
            needed = files + clients + admin + RESERVED,
            "the limit on open files (ulimit -n) allows fewer connections"
        );
    }
    (clients_may, admin_may)
}

/// An eighth at most for the admin interface; none is no limit.
fn shared(limit: Option<u64>, files: usize, clients: usize, admin: usize) -> (usize, usize) {
    let Some(limit) = limit else { return (clients, admin) };
    // What was enough for a few clients before others were limited lets them in still.
    let rest = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(files);
    let room = rest.saturating_sub(RESERVED).max(LEAST.min(rest / 2));
    let admin = admin.min(room / 8).max(1);
    (clients.min(room.saturating_sub(admin)).max(1), admin)
}

#[test]
fn connections_leave_some_for_the_log() {
    assert_eq!(shared(None, 50, 10_000, 512), (10_000, 512));
    assert_eq!(shared(Some(1_000_000), 50, 10_000, 512), (10_000, 512));
    assert_eq!(shared(Some(1024), 0, 10_000, 512), (784, 112));
    assert_eq!(shared(Some(1024), 400, 10_000, 512), (434, 62));
    assert_eq!(shared(Some(1024), 400, 100, 10), (100, 10));
    assert_eq!(shared(Some(64), 400, 10_000, 512), (1, 1));
    assert_eq!(shared(Some(1024), 900, 10_000, 512), (55, 7), "a log of 57 GB");
    assert_eq!(shared(Some(256), 130, 10_000, 512), (56, 7));
}

//! Limits connections by file descriptors: each connection takes one, and the log always needs
//! some.

use crate::log::Storage;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Descriptors reserved for the next segments, checkpoints, compacted files, and the program that
/// the broker is part of.
const RESERVED: usize = 128;

/// Connections that are admitted even if the log may then lack descriptors for its next segments,
/// provided that as many are left.
const LEAST: usize = 64;

/// Raises this process's soft limit on open files to the hard limit, as many programs do. Returns
/// the resulting limit: [`usize::MAX`] if unlimited.
#[must_use]
pub fn open_files_max() -> usize {
    raise();
    current()
}

pub(super) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}

fn current() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Kind of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionClass {
    /// A client's.
    Clients,
    /// The admin interface's.
    Admin,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crowded {
    /// The connection limit is reached.
    Connections,
    /// The process has no file descriptor for it.
    Descriptors,
}

/// Limits the number of connections. The limit is computed anew for each connection, because the
/// number of the log's open files varies.
#[derive(Debug)]
pub(crate) struct DescriptorBudget {
    /// The limit on open files, which may change at runtime.
    limit: fn() -> usize,
    storage: Arc<dyn Storage>,
    /// Descriptors for the rest of the process.
    elsewhere: usize,
    wanted: (usize, usize),
    clients: Arc<Semaphore>,
    admin: Arc<Semaphore>,
}

impl DescriptorBudget {
    /// Limits for this many connections of clients and of the admin interface. Warns the operator
    /// if the limit on open files allows fewer.
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        elsewhere: usize,
        clients: usize,
        admin: usize,
    ) -> Arc<Self> {
        let semaphore = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        let wanted = (clients, admin);
        let (clients, admin) = (semaphore(clients), semaphore(admin));
        let room = Self { limit: current, storage, elsewhere, wanted, clients, admin };
        let allowed = room.allowed().0;
        if allowed < wanted.0 {
            tracing::warn!(
                wanted = wanted.0,
                allowed,
                needed = room.taken() + wanted.0 + wanted.1 + RESERVED,
                "the limit on open files (ulimit -n) allows fewer connections"
            );
        }
        Arc::new(room)
    }

    /// Pretends that the process has this limit on open files, and only the files of this storage
    /// open.
    #[cfg(test)]
    pub(crate) fn limited(
        limit: fn() -> usize,
        storage: Arc<dyn Storage>,
        clients: usize,
        admin: usize,
    ) -> Self {
        let slots = |count| Arc::new(Semaphore::new(count));
        let wanted = (clients, admin);
        Self { limit, storage, elsewhere: 0, wanted, clients: slots(clients), admin: slots(admin) }
    }

    /// Admits a connection for as long as it keeps the permit.
    pub(crate) fn enter(&self, door: ConnectionClass) -> Result<OwnedSemaphorePermit, Crowded> {
        let (clients, admin) = self.allowed();
        let (slots, wanted, allowed) = match door {
            ConnectionClass::Clients => (&self.clients, self.wanted.0, clients),
            ConnectionClass::Admin => (&self.admin, self.wanted.1, admin),
        };
        let permit = Arc::clone(slots).try_acquire_owned().map_err(|_| Crowded::Connections)?;
        let open = wanted.min(Semaphore::MAX_PERMITS) - slots.available_permits();
        if open > allowed { Err(Crowded::Descriptors) } else { Ok(permit) }
    }

    /// File descriptors that do not belong to connections.
    fn taken(&self) -> usize {
        self.storage.open_files().saturating_add(self.elsewhere)
    }

    fn allowed(&self) -> (usize, usize) {
        let (clients, admin) = self.wanted;
        shared((self.limit)(), self.taken(), clients, admin)
    }
}

/// The allowed numbers of connections, of clients and of the admin interface, out of those wanted.
/// `files` is the number of other open files. The admin interface gets at most 1/8.
fn shared(limit: usize, files: usize, clients: usize, admin: usize) -> (usize, usize) {
    // A limit that sufficed for a few clients must still admit them.
    let rest = limit.saturating_sub(files);
    let room = rest.saturating_sub(RESERVED).max(LEAST.min(rest / 2));
    let admin = admin.min(room / 8).max(1);
    (clients.min(room.saturating_sub(admin)).max(1), admin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{FileStorage, SimulatedStorage};

    #[test]
    fn connections_leave_some_for_the_log() {
        assert_eq!(shared(usize::MAX, 50, 10_000, 512), (10_000, 512));
        assert_eq!(shared(1_000_000, 50, 10_000, 512), (10_000, 512));
        assert_eq!(shared(1024, 0, 10_000, 512), (784, 112));
        assert_eq!(shared(1024, 400, 10_000, 512), (434, 62));
        assert_eq!(shared(1024, 400, 100, 10), (100, 10));
        assert_eq!(shared(64, 400, 10_000, 512), (1, 1));
        assert_eq!(shared(1024, 900, 10_000, 512), (55, 7), "a log of 57 GB");
        assert_eq!(shared(256, 130, 10_000, 512), (56, 7));
    }

    /// The files were only counted at the start.
    #[test]
    fn files_that_come_later_count_and_those_that_go_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let storage: Arc<dyn Storage> = Arc::new(FileStorage::new(folder.path()).unwrap());
        let room = DescriptorBudget::limited(|| 400, Arc::clone(&storage), 1000, 1000);
        let room = DescriptorBudget { elsewhere: 40, ..room };
        let folders = storage.open_files();
        let fill = |door| std::iter::from_fn(|| room.enter(door).ok()).collect::<Vec<_>>();
        let expected = |files: usize| shared(400, files + 40, 1000, 1000);
        assert_eq!(
            (fill(ConnectionClass::Clients).len(), fill(ConnectionClass::Admin).len()),
            expected(folders)
        );
        let files: Vec<_> =
            (0..100).map(|number| storage.create(&format!("log/{number}")).unwrap()).collect();
        let clients = fill(ConnectionClass::Clients);
        assert_eq!((clients.len(), fill(ConnectionClass::Admin).len()), expected(folders + 100));
        assert!(matches!(room.enter(ConnectionClass::Clients), Err(Crowded::Descriptors)));
        drop(files);
        let more = fill(ConnectionClass::Clients);
        assert_eq!(clients.len() + more.len(), expected(folders).0);
    }

    #[test]
    fn there_are_no_more_than_are_wanted() {
        let storage: Arc<dyn Storage> = Arc::new(SimulatedStorage::new(1));
        let room = DescriptorBudget::new(storage, 0, 2, 1);
        let clients = [ConnectionClass::Clients; 2].map(|door| room.enter(door).unwrap());
        assert!(matches!(room.enter(ConnectionClass::Clients), Err(Crowded::Connections)));
        let _admin = room.enter(ConnectionClass::Admin).unwrap();
        drop(clients);
        assert!(room.enter(ConnectionClass::Clients).is_ok());
    }
}

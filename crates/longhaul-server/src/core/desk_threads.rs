//! The threads of all desks. A desk runs on one thread, as every worker does, so that its state needs
//! no locks; the desks share as many threads as the machine has cores.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

/// Started with the first desk. They end when this is dropped, and with them all desks.
#[derive(Debug)]
pub(super) struct DeskThreads {
    runtimes: Vec<Handle>,
    next: AtomicUsize,
    _end: watch::Sender<()>,
}

impl DeskThreads {
    /// Starts the threads.
    pub(super) fn start() -> io::Result<Self> {
        let (end, _) = watch::channel(());
        let start = |_| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (handle, mut ended) = (runtime.handle().clone(), end.subscribe());
            let run = move || runtime.block_on(async { ended.changed().await.is_err() });
            std::thread::Builder::new().name("longhaul-desks".to_owned()).spawn(run)?;
            Ok(handle)
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtimes = (0..cores).map(start).collect::<io::Result<_>>()?;
        Ok(Self { runtimes, next: AtomicUsize::new(0), _end: end })
    }

    /// The thread for the next desk, in turn.
    pub(super) fn next(&self) -> Option<Handle> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.runtimes.get(number % self.runtimes.len().max(1)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::thread::current;
    use tokio::sync::oneshot;

    /// Each desk had a thread of its own.
    #[tokio::test]
    async fn desks_share_a_thread_per_core_and_end_with_them() {
        let threads = DeskThreads::start().unwrap();
        let cores = std::thread::available_parallelism().unwrap().get();
        let mut seen = HashSet::new();
        for _ in 0..3 * cores {
            let desk = async { (current().id(), current().name().map(str::to_owned)) };
            let (thread, name) = threads.next().unwrap().spawn(desk).await.unwrap();
            assert_eq!(name.as_deref(), Some("longhaul-desks"));
            seen.insert(thread);
        }
        assert_eq!(seen.len(), cores);
        let (held, ended) = oneshot::channel::<()>();
        let desk = async move {
            let _held = held;
            std::future::pending::<()>().await;
        };
        drop(threads.next().unwrap().spawn(desk));
        drop(threads);
        assert!(ended.await.is_err(), "the desk is dropped");
    }
}

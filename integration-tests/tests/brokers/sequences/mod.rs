//! Whole tasks through a real worker on a real broker: the entries of each on the metadata topic,
//! one by one, and its state in the ledger at the end.
//!
//! Each test has its own topics, and they run in parallel on one broker.

mod cancelling;
mod compacting;
mod crowds;
mod dependencies;
mod dismissing;
mod failures;
mod joining;
mod keyed;
mod large;
mod leaving;
mod losing;
mod operating;
mod plain;
mod raced;
mod reading;
mod reference;
mod schema;
mod soak;
mod terms;
mod tombstones;

use std::time::Duration;

use anyhow::Result;
use longhaul::WorkerHandle;

/// The time without an entry after which a test concludes that nothing more comes. The reference's
/// own tests wait for 10 s.
const SILENCE: Duration = Duration::from_secs(3);

/// The limit for the drain of a worker whose tasks have ended.
const DRAIN: Duration = Duration::from_secs(30);

async fn drain(workers: impl IntoIterator<Item = WorkerHandle>) -> Result<()> {
    for worker in workers {
        worker.drain(DRAIN).await?;
    }
    Ok(())
}

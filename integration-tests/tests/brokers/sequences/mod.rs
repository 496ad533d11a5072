//! Whole tasks through a real worker on a real broker: what each of them shows on the metadata
//! topic, entry by entry, and what the ledger says of it at the end.
//!
//! Each test has topics of its own and they run side by side against one broker.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests may fail as tests do"
)]

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
mod mixed;
mod operating;
mod plain;
mod reading;
mod reference;
mod schema;
mod terms;
mod tombstones;

use std::time::Duration;

use anyhow::Result;
use longhaul::WorkerHandle;

/// How long it is watched that nothing more comes. The reference's own tests watch for 10 s.
const SILENCE: Duration = Duration::from_secs(3);

/// How long a worker may take to drain when its tasks have ended.
const DRAIN: Duration = Duration::from_secs(30);

async fn drain(workers: impl IntoIterator<Item = WorkerHandle>) -> Result<()> {
    for worker in workers {
        worker.drain(DRAIN).await?;
    }
    Ok(())
}

//! Passes over the directory of a running broker.

use super::*;
use longhaul_broker::rescue::RescueError;
use longhaul_broker::{Broker, BrokerConfig};
use std::error::Error;
use tempfile::TempDir;

const KEPT: Duration = Duration::ZERO;

struct Bench {
    data: TempDir,
    store: TempDir,
    pass: BackupPass,
    _broker: Broker,
}

impl Bench {
    async fn new() -> Result<Self, Box<dyn Error>> {
        let (data, store) = (TempDir::new()?, TempDir::new()?);
        let listen = "127.0.0.1:0".parse()?;
        let directory = Some(data.path().to_owned());
        let config =
            BrokerConfig { data: directory, listen, admin: None, ..BrokerConfig::default() };
        let broker = Broker::start(config)?;
        let place = store.path().to_str().ok_or("a path is a text")?;
        let folder = BackupFolder::open(place, true)?.within("0-0");
        let stop = CancellationToken::new();
        let pass = BackupPass::new(data.path().to_owned(), folder, KEPT, 1, stop).await?;
        Ok(Self { data, store, pass, _broker: broker })
    }

    async fn stored(&self) -> Result<Catalog, BackupError> {
        self.pass.folder.catalog().await
    }
}

/// A directory without a log was taken for one that has nothing more to store: all was well, and
/// when the time that is kept had passed, the whole backup expired.
#[tokio::test]
async fn a_backup_outlives_a_directory_that_is_emptied() -> Result<(), Box<dyn Error>> {
    let mut bench = Bench::new().await?;
    assert!(bench.pass.run().await?);
    let stored = bench.stored().await?;
    assert!(stored.last() > 0, "{stored:?}");
    for entry in fs::read_dir(bench.data.path())? {
        let path = entry?.path();
        if path.is_dir() {
            fs::remove_dir_all(path)?
        } else {
            fs::remove_file(path)?
        };
    }
    for _ in 0..2 {
        let refused = bench.pass.run().await;
        assert!(matches!(refused, Err(BackupError::Rescue(RescueError::NoLog { .. }))));
        bench.pass.find_expired();
        bench.pass.tidy().await?;
    }
    assert_eq!(bench.stored().await?, stored);
    Ok(())
}

/// The store was listed at the start only. If a rule of the store removed the beginning of a
/// segment, nothing noticed, and no restore was possible any more.
#[tokio::test]
async fn what_the_store_loses_is_stored_again() -> Result<(), Box<dyn Error>> {
    let mut bench = Bench::new().await?;
    assert!(bench.pass.run().await?);
    let stored = bench.stored().await?;
    for entry in fs::read_dir(bench.store.path())? {
        fs::remove_dir_all(entry?.path())?;
    }
    assert_ne!(bench.stored().await?, stored);
    bench.pass.list_again().await?;
    assert!(bench.pass.run().await?);
    let now = bench.stored().await?;
    let plan = |of: &Catalog| of.plan(u64::MAX);
    let numbers = |of: &Catalog| plan(of).segments.into_keys().collect::<Vec<_>>();
    assert_eq!(numbers(&now), numbers(&stored));
    assert!(plan(&now).as_of() > plan(&stored).as_of());
    // The broker may have written its first ones meanwhile.
    assert!(plan(&now).inventory.is_some() >= plan(&stored).inventory.is_some());
    assert!(plan(&now).checkpoint.is_some() >= plan(&stored).checkpoint.is_some());
    assert_eq!(now, bench.pass.catalog);
    Ok(())
}

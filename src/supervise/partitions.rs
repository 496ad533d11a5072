//! Counts the partitions of topics: at the start, and every minute from then on.

use super::{Monitor, persistently};
use crate::clock::Clock;
use crate::transport::{Transport, TransportError};
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the partitions of a topic are counted again.
const COUNTED_EVERY: Duration = Duration::from_secs(60);

/// Counts the partitions of a topic; retries for a while if the broker cannot be reached.
pub(crate) async fn count(
    transport: &Arc<dyn Transport>,
    topic: &str,
) -> Result<Option<u32>, TransportError> {
    persistently(topic, || {
        let (transport, topic) = (Arc::clone(transport), topic.to_owned());
        async move { transport.partitions(&topic).await }
    })
    .await
}

/// Counts the partitions of some topics a minute from now, or at the next minute at which the
/// broker answers for all of them. Never ends for topics whose number of partitions cannot change.
pub(crate) async fn recount<const N: usize>(
    transport: Arc<dyn Transport>,
    clock: Clock,
    topics: [String; N],
    monitor: Option<&Monitor>,
) -> [Option<u32>; N] {
    if !transport.partitions_may_grow() {
        std::future::pending::<()>().await;
    }
    loop {
        clock.sleep_until(clock.now() + COUNTED_EVERY).await;
        let counted = count_all(&*transport, &topics).await;
        if let Some(monitor) = monitor {
            monitor.tell(counted.as_ref().err());
        }
        if let Ok(counted) = counted {
            return counted;
        }
    }
}

async fn count_all<const N: usize>(
    transport: &dyn Transport,
    topics: &[String; N],
) -> Result<[Option<u32>; N], TransportError> {
    let mut counts = [None; N];
    for (topic, count) in topics.iter().zip(&mut counts) {
        *count = transport.partitions(topic).await?;
    }
    Ok(counts)
}

//! Divides the open files of a process between gateway and broker.

/// The files of the gateway besides its connections and its broker clients, of which each leased
/// queue has one.
const OWN: usize = 64;

/// The number of connections for the gateway, and the number of files for everything except the
/// broker, in a process with this limit. The gateway's connections get at most a quarter, and the
/// broker with its log at least half.
pub(super) fn share(limit: usize, connections: usize, leased_queues: usize) -> (usize, usize) {
    let connections = connections.min(limit / 4).max(1);
    (connections, connections.saturating_add(leased_queues + OWN).min(limit / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_has_at_least_half() {
        assert_eq!(share(usize::MAX, 16_384, 256), (16_384, 16_704));
        assert_eq!(share(1_048_576, 16_384, 256), (16_384, 16_704));
        assert_eq!(share(4096, 16_384, 256), (1024, 1344));
        assert_eq!(share(1024, 16_384, 256), (256, 512));
        assert_eq!(share(1024, 100, 10), (100, 174));
        assert_eq!(share(2, 16_384, 256), (1, 1));
    }
}

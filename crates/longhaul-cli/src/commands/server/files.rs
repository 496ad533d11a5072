//! The open files of a process that is gateway and broker at once: who may have how many.

/// What the gateway opens besides its connections, and its clients of the broker, of which each
/// queue that it leases tasks of has one.
const OWN: usize = 64;

/// How many connections the gateway may have, and how many files all that is not the broker may
/// open, in a process that may have so many. A quarter at most is for the gateway's connections,
/// and half at least for the broker with its log.
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

//! The default addresses of `longhaul dev` and `longhaul server start`, with all ports of this
//! program in one place, so that none is used twice. Metrics have no ports of their own: the
//! gateway serves its own under `/metrics` of its port, the broker under that of its admin API.

/// For Pulsar clients: Pulsar's own port, so that they find it.
pub(crate) const BROKER: &str = "127.0.0.1:6650";

/// The gateway.
pub(crate) const HTTP: &str = "127.0.0.1:7070";

/// The embedded broker's admin API and metrics. Not Pulsar's 8080, which is in use on most
/// developer machines.
pub(crate) const ADMIN: &str = "127.0.0.1:7071";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::SocketAddr;

    #[test]
    fn they_differ_and_are_for_this_machine_alone() {
        let all = [BROKER, HTTP, ADMIN];
        let addresses: Vec<SocketAddr> = all.iter().map(|it| it.parse().unwrap()).collect();
        assert!(addresses.iter().all(|it| it.ip().is_loopback()));
        let ports: BTreeSet<_> = addresses.iter().map(SocketAddr::port).collect();
        assert_eq!(ports.len(), all.len());
        assert!(ports.contains(&longhaul_server::DEFAULT_PORT), "the gateway has one default");
    }
}

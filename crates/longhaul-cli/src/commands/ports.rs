//! The ports of this program, all in one place so that none is named twice. Metrics have none of
//! their own: those of the gateway are under `/metrics` of its port, those of the broker under that
//! of its admin API.

/// Where `longhaul dev` and `longhaul server start` listen, unless they are told otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DefaultPorts {
    /// Clients of Pulsar: Pulsar's own port, so that each of them finds it.
    pub(crate) broker: &'static str,
    /// The gateway.
    pub(crate) http: &'static str,
    /// The embedded broker's admin API and its metrics. Not Pulsar's 8080, which something else has
    /// on most machines of developers.
    pub(crate) admin: &'static str,
}

/// The defaults.
pub(crate) const DEFAULT: DefaultPorts =
    DefaultPorts { broker: "127.0.0.1:6650", http: "127.0.0.1:7070", admin: "127.0.0.1:7071" };

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::SocketAddr;

    #[test]
    fn they_differ_and_are_for_this_machine_alone() {
        let all = [DEFAULT.broker, DEFAULT.http, DEFAULT.admin];
        let addresses: Vec<SocketAddr> = all.iter().map(|it| it.parse().unwrap()).collect();
        assert!(addresses.iter().all(|it| it.ip().is_loopback()));
        let ports: BTreeSet<_> = addresses.iter().map(SocketAddr::port).collect();
        assert_eq!(ports.len(), all.len());
        assert!(ports.contains(&longhaul_server::DEFAULT_PORT), "the gateway has one default");
    }
}

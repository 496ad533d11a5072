//! A limit on the open connections of each address, so that one address cannot take all of them.

use super::rate::network;
use crate::problem::ProblemDetails;
use crate::telemetry;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;

/// The connections of one address.
#[derive(Debug, Default)]
struct AddressUse {
    open: usize,
    /// Whether the log has the refusal. It is logged again once the address had at most half of its
    /// connections.
    is_logged: bool,
}

/// The open connections by address; for IPv6, by /64 network.
#[derive(Debug)]
pub(super) struct AddressLimit {
    limit: usize,
    /// A proxy on this machine has the connections of all its clients.
    exempts_loopback: bool,
    uses: Mutex<HashMap<IpAddr, AddressUse>>,
    /// The answer on a refused connection.
    refusal: Vec<u8>,
}

/// The place of an open connection, until it is dropped.
#[derive(Debug)]
pub(super) struct AddressPermit(Option<(Arc<AddressLimit>, IpAddr)>);

impl AddressLimit {
    pub(super) fn new(limit: usize, exempts_loopback: bool) -> Self {
        let uses = Mutex::default();
        Self { limit, exempts_loopback, uses, refusal: refusal(limit) }
    }

    /// Admits a connection, unless its address has as many as it may.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<AddressPermit> {
        let address = network(peer);
        if self.exempts_loopback && address.is_loopback() {
            return Some(AddressPermit(None));
        }
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = uses.entry(address).or_default();
        if of_address.open < self.limit {
            of_address.open += 1;
            return Some(AddressPermit(Some((Arc::clone(self), address))));
        }
        if !std::mem::replace(&mut of_address.is_logged, true) {
            let limit = self.limit;
            tracing::warn!(event = "connections_refused", %address, limit, "too many connections of an address");
        }
        None
    }

    /// Counts a refused connection. A client without TLS gets the reason, as much of it as the
    /// socket takes at once.
    pub(super) fn refuse(&self, stream: &TcpStream, has_tls: bool) {
        telemetry::connection_refused();
        if !has_tls && let Err(error) = stream.try_write(&self.refusal) {
            tracing::debug!(%error, "refused connection closed");
        }
    }

    fn leave(&self, address: IpAddr) {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_address) = uses.get_mut(&address) else { return };
        of_address.open -= 1;
        of_address.is_logged &= of_address.open > self.limit / 2;
        if of_address.open == 0 {
            uses.remove(&address);
        }
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        if let Some((limit, address)) = self.0.take() {
            limit.leave(address);
        }
    }
}

fn refusal(limit: usize) -> Vec<u8> {
    let detail = format!(
        "this address has {limit} connections, its limit; nothing was done. Close some, or raise \
         the limit of the gateway (`limits.connections_per_address`, \
         `--http-connections-per-address`)"
    );
    let problem = ProblemDetails::unavailable("too_many_connections", detail);
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let length = body.len();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(limit: &Arc<AddressLimit>, peer: &str) -> Option<AddressPermit> {
        limit.admit(peer.parse().unwrap())
    }

    #[test]
    fn an_address_has_its_share_and_no_more() {
        let limit = Arc::new(AddressLimit::new(2, true));
        for (one, same, other) in [
            ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"),
            ("2001:db8::1", "2001:db8::2:3", "2001:db8:0:1::1"),
        ] {
            let held = [admit(&limit, one), admit(&limit, same)];
            assert!(held.iter().all(Option::is_some));
            assert!(admit(&limit, one).is_none() && admit(&limit, same).is_none(), "{one}");
            assert!(admit(&limit, other).is_some(), "{other}");
            drop(held);
            assert!(admit(&limit, one).is_some(), "the connections are closed");
        }
        assert!(limit.uses.lock().unwrap().is_empty(), "who has no connection is forgotten");
    }

    #[test]
    fn a_proxy_on_this_machine_has_no_limit() {
        for peer in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            let limit = Arc::new(AddressLimit::new(1, true));
            let held = [admit(&limit, peer), admit(&limit, peer)];
            assert!(held.iter().all(Option::is_some), "{peer}");
        }
    }

    #[test]
    fn a_refusal_is_logged_once_until_there_was_room_again() {
        let limit = Arc::new(AddressLimit::new(4, true));
        let is_logged = || limit.uses.lock().unwrap().values().any(|it| it.is_logged);
        let mut held: Vec<_> = (0..4).map(|_| admit(&limit, "10.0.0.1")).collect();
        assert!(admit(&limit, "10.0.0.1").is_none() && is_logged());
        held.pop();
        assert!(is_logged());
        held.pop();
        assert!(!is_logged());
    }
}

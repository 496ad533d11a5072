//! Time limits for opening a connection, and their parts.

use super::*;
use crate::TlsOptions;
use crate::keys::Authority;

async fn open_within(
    options: &ConnectOptions,
    budget: &Budget,
) -> Result<ConnectionHandle, ConnectFailure> {
    let endpoint = options.prepare().unwrap().swap_remove(0);
    let place = ConnectionTarget { endpoint, behind_proxy: None, purpose: Purpose::Records };
    open(options, place, budget.clone(), TaskTracker::new(), Arc::default()).await
}

/// The time for reading a token was taken from the later hosts.
#[tokio::test]
async fn what_credentials_took_is_noted() {
    let hosts = Hosts::new(&[Host::Serving]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "one").unwrap();
    let options = options(&[hosts.place(0)]).credentials(Credentials::token_file(&path));
    let budget = Budget::new((LONG, LONG), 1);
    assert!(open_within(&options, &budget).await.is_ok());
    assert!(budget.spent_on_credentials() > Duration::ZERO);
}

/// A host that is slow to connect still has some time for the handshake.
#[tokio::test]
async fn a_part_of_the_time_is_kept_for_the_greeting() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ca_certificate_pem = Some(Authority::new("ours").pem().into_bytes());
    let tls = TlsOptions { ca_certificate_pem, ..TlsOptions::default() };
    let url = format!("pulsar+ssl://{}", silent.local_addr().unwrap());
    let options = ConnectOptions::new(url).tls(tls);
    let failed = open_within(&options, &Budget::new((Duration::ZERO, LONG), 1)).await;
    let Err(ConnectFailure::Host(error)) = failed else { panic!("{failed:?}") };
    let (_, within) = error.cause.split_once("no TLS handshake within ").unwrap();
    let within: u64 = within.trim_end_matches(" ms").parse().unwrap();
    let max = SHARE_MIN - SHARE_MIN / GREETING_PARTS;
    assert!(u128::from(within) <= max.as_millis(), "{error}");
}

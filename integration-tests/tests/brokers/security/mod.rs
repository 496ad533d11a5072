//! Tokens and TLS: with the right ones tasks run, and everything else is reported soon and with its
//! cause.
//!
//! One broker serves all tests: it requires a token on every port and has a second service port
//! with TLS, with a certificate of an authority that this suite creates.
//!
//! `transport/connect.rs` tests ports without a listener and hosts without an address.

mod guarded;
mod identities;
pub(crate) mod keys;

use anyhow::{Result, bail, ensure};
use guarded::{Guarded, ROLE, check_error, check_refused};
use integration_tests::sandbox::BrokerKind;
use integration_tests::script::Scripted;
use keys::{ADDRESS, Authority, Certified, Secret};
use longhaul::{Client, SubmitError, Text, WorkerError};
use longhaul_transport::TransportErrorKind::{Invalid, Refused, Unauthorized, Unreachable};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

#[tokio::test]
async fn a_token_opens_the_plain_port() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    // As read from a file: with a line end.
    let token = format!("{}\n", guarded.token());
    let client = Client::builder(guarded.url()).token(token).connect().await?;
    guarded.run_tasks(&client, "token").await
}

#[tokio::test]
async fn a_token_and_our_own_authority_open_the_port_with_tls() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    let client = guarded.client().connect().await?;
    guarded.run_tasks(&client, "tls").await
}

/// A file of authorities may contain more than the one that is needed.
#[tokio::test]
async fn one_of_several_authorities_is_enough() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    let both = Authority::new("another")?.pem() + &guarded.authority.pem();
    let client = guarded.client().ca_certificate(both).connect().await?;
    guarded.run_tasks(&client, "authorities").await
}

#[tokio::test]
async fn a_token_that_is_wrong_or_missing_is_refused_at_the_start() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    let authority = guarded.authority.pem();
    let forged = Secret::new().token(ROLE);
    let (wrong, missing) = ("AuthenticationError", "no token was given");
    for url in [guarded.url(), guarded.url_tls()] {
        let client = || Client::builder(url).ca_certificate(authority.clone());
        check_refused(client(), url, Unauthorized, missing).await?;
        for token in [forged.clone(), guarded.expired_token(), "not-a-token".to_owned()] {
            let text = check_refused(client().token(&token), url, Unauthorized, wrong).await?;
            ensure!(!text.contains(&token), "the token is shown: {text}");
            ensure!(!text.contains(missing), "{text}");
        }
    }
    Ok(())
}

/// The token is valid, but its role has no permissions. That shows only when a topic is used.
#[tokio::test]
async fn a_role_without_permission_is_told_which_topic_it_may_not_use() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    let names = guarded.topics("stranger").await?;
    let stranger = guarded.client().token(guarded.secret.token("stranger")).connect().await?;
    let address = format!("{} {}", guarded.url_tls(), names.task);

    let started = stranger.worker(&names.task, Scripted::default()).start().await;
    let Err(WorkerError::Connect(error)) = started else { bail!("{started:?}") };
    check_error(&error, &address, Unauthorized, "AuthorizationError")?;

    let submitted = stranger.submit(&names.task, &Text("0|ok bar".to_owned())).await;
    let Err(SubmitError::Transport(error)) = submitted else { bail!("{submitted:?}") };
    check_error(&error, &address, Unauthorized, "AuthorizationError")?;
    Ok(())
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    let url = guarded.url_tls();
    let client = || Client::builder(url).token(guarded.token());
    // The public authorities only; another private authority; one that only has the right one's
    // name.
    check_refused(client(), url, Refused, "UnknownIssuer").await?;
    for name in ["another", "longhaul tests"] {
        let other = Authority::new(name)?.pem();
        check_refused(client().ca_certificate(other), url, Refused, "certificate").await?;
    }
    check_refused(client().ca_certificate("no PEM"), url, Invalid, "no certificate").await?;
    Ok(())
}

/// The broker's certificate names only an address, so the host's name leads to the right broker
/// with the wrong certificate.
#[tokio::test]
async fn a_certificate_of_another_name_is_refused() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    let url = guarded.url_tls().replace(ADDRESS, "localhost");
    let client = Client::builder(&url).token(guarded.token());
    let client = client.ca_certificate(guarded.authority.pem());
    check_refused(client, &url, Refused, "localhost").await?;
    Ok(())
}

/// Needs no Pulsar, which would have to be started for this test only: the handshake fails before
/// its first byte.
#[tokio::test]
async fn a_certificate_from_the_past_is_refused() -> Result<()> {
    let authority = Authority::new("longhaul tests")?;
    let listener = TcpListener::bind((ADDRESS, 0)).await?;
    let url = format!("pulsar+ssl://{}", listener.local_addr()?);
    let acceptor = acceptor(&authority.certify_the_past(ADDRESS)?)?;
    let serve = async {
        let (stream, _) = listener.accept().await?;
        let refused = acceptor.accept(stream).await;
        ensure!(refused.is_err(), "the handshake was finished");
        Ok(())
    };
    let client = Client::builder(&url).ca_certificate(authority.pem());
    let (served, refused) = tokio::join!(serve, check_refused(client, &url, Refused, "expired"));
    refused?;
    served
}

#[tokio::test]
async fn the_wrong_scheme_for_a_port_is_told_at_once() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    let plain = guarded.url_tls().replace("pulsar+ssl:", "pulsar:");
    let client = Client::builder(&plain).token(guarded.token());
    // Pulsar closes the connection; the embedded broker says that it expects TLS.
    let embedded = BrokerKind::from_env()? == Some(BrokerKind::Embedded);
    let kind = if embedded { Refused } else { Unreachable };
    check_refused(client, &plain, kind, "pulsar+ssl://").await?;
    // A broker closes the connection; a web server answers.
    let encrypted =
        |url: &str| format!("pulsar+ssl{}", url.trim_start_matches(char::is_alphabetic));
    for (url, kind) in
        [(encrypted(guarded.url()), Unreachable), (encrypted(guarded.url_of_admin()), Refused)]
    {
        let client = Client::builder(&url).token(guarded.token());
        let client = client.ca_certificate(guarded.authority.pem());
        check_refused(client, &url, kind, "a port with TLS?").await?;
    }
    Ok(())
}

/// The server's side of TLS.
fn acceptor(certified: &Certified) -> Result<TlsAcceptor> {
    let chain = vec![CertificateDer::from_pem_slice(certified.certificate_pem.as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(certified.key_pem.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

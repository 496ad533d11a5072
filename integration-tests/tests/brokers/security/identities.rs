//! Other credentials than the text of a token: token files, passwords, certificates, an OAuth2
//! issuer.
//!
//! Passwords and certificates need a real Pulsar: the embedded broker supports tokens only.

use crate::security::guarded::{Guarded, PASSWORD, PATIENCE, ROLE, check_error, check_refused};
use crate::security::keys::{Authority, Certified};
use anyhow::{Context, Result, bail, ensure};
use integration_tests::sandbox::BrokerKind;
use integration_tests::skip;
use longhaul::auth::{Credentials, OAuth2};
use longhaul::topics::{Admin, AdminErrorKind, AdminOptions};
use longhaul::{Client, ClientBuilder, SubmitError, Text};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::TransportErrorKind::{Invalid, Refused, Unauthorized, Unreachable};
use longhaul_transport::{Batching, Outgoing, TopicPartition, TopicSchema, Transport};
use std::fs;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// A broker that supports more than tokens; `None` if there is none: then the test is skipped.
async fn pulsar_from_env() -> Result<Option<&'static Guarded>> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(None) };
    if BrokerKind::from_env()? == Some(BrokerKind::Embedded) {
        skip("the embedded broker knows tokens alone");
        return Ok(None);
    }
    Ok(Some(guarded))
}

/// The token is read for each connection: open connections continue, new ones use the new token.
#[tokio::test]
async fn a_rotated_token_is_used_by_new_connections() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    let names = guarded.topics("rotated").await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("token");
    let builder = || Client::builder(guarded.url()).token_file(&path);
    let task = Text("0|ok bar".to_owned());

    fs::write(&path, format!("{}\n", guarded.token()))?;
    let old = builder().connect().await?;
    old.submit(&names.task, &task).await?;

    fs::write(&path, guarded.expired_token())?;
    old.submit(&names.task, &task).await?;
    check_refused(builder(), guarded.url(), Unauthorized, "AuthenticationError").await?;

    fs::write(&path, guarded.token())?;
    builder().connect().await?.submit(&names.task, &task).await?;
    old.submit(&names.task, &task).await?;
    Ok(())
}

#[tokio::test]
async fn a_token_file_lets_tasks_run() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("token");
    fs::write(&path, guarded.token())?;
    let client = Client::builder(guarded.url()).token_file(&path);
    let client = client.admin_url(guarded.url_of_admin()).connect().await?;
    guarded.run_tasks(&client, "token-file").await
}

/// A broker asks again when a token expires. A client with a new token keeps the connection and all
/// that is open on it.
#[tokio::test]
async fn a_token_that_ends_is_renewed_without_a_new_connection() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    let names = guarded.topics("renewed").await?;
    let topic = TopicPartition { topic: names.task, partition: -1 };
    let folder = tempfile::tempdir()?;
    let [renewed, forgotten] = ["renewed", "forgotten"].map(|name| folder.path().join(name));
    let short_lived = guarded.token_for(Duration::from_secs(3))?;
    let mut transports = Vec::new();
    for path in [&renewed, &forgotten] {
        fs::write(path, &short_lived)?;
        let mut options = ConnectOptions::new(guarded.url());
        options.credentials = Credentials::token_file(path);
        transports.push(PulsarTransport::connect(options).await?);
    }
    let [keeper, loser] = &transports[..] else { bail!("two transports") };
    let mut publisher = keeper.publisher(&topic, Batching::Off, TopicSchema::None).await?;
    let mut kept = keeper.consumer(&topic, "kept").await?;
    let mut lost = loser.consumer(&topic, "lost").await?;
    fs::write(&renewed, guarded.token())?;

    // Both tokens expired at the same time: the broker asked the client that lost its connection no
    // earlier than the one that did not.
    let end = timeout(PATIENCE, lost.next()).await.context("the old token is good for ever")?;
    ensure!(end.is_err(), "a delivery");
    let message = Outgoing { payload: "still here".into(), ..Outgoing::default() };
    publisher.send(message).await?.await?;
    let delivered = timeout(PATIENCE, kept.next()).await.context("nothing is delivered")??;
    ensure!(delivered.payload == "still here", "{delivered:?}");
    Ok(())
}

/// The broker is not contacted: the file is read before anything is sent.
#[tokio::test]
async fn a_token_file_that_holds_none_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("token");
    let builder = || Client::builder("pulsar://127.0.0.1:1").token_file(&path);
    let address = path.display().to_string();
    check_refused(builder(), &address, Invalid, "token: ").await?;
    fs::write(&path, "\n")?;
    check_refused(builder(), &address, Invalid, "empty").await?;
    Ok(())
}

#[tokio::test]
async fn a_password_lets_tasks_run() -> Result<()> {
    let Some(guarded) = pulsar_from_env().await? else { return Ok(()) };
    let client = Client::builder(guarded.url_tls()).basic(ROLE, PASSWORD);
    let client = client.ca_certificate(guarded.authority.pem()).connect().await?;
    guarded.run_tasks(&client, "password").await
}

#[tokio::test]
async fn a_wrong_password_is_refused_at_the_start() -> Result<()> {
    let Some(guarded) = pulsar_from_env().await? else { return Ok(()) };
    for (user, password) in [(ROLE, "wrong words"), ("nobody", PASSWORD)] {
        let client = Client::builder(guarded.url()).basic(user, password);
        let refused = check_refused(client, guarded.url(), Unauthorized, "AuthenticationError");
        let text = refused.await?;
        ensure!(!text.contains(password), "the password is shown: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn the_admin_api_takes_the_same_password() -> Result<()> {
    let Some(guarded) = pulsar_from_env().await? else { return Ok(()) };
    let names = guarded.topics("password-admin").await?;
    let admin = |password: &str| {
        let credentials = Credentials::basic(ROLE, password);
        let options = AdminOptions { credentials, ..AdminOptions::default() };
        Admin::new(guarded.url_of_admin(), &options)
    };
    ensure!(admin(PASSWORD)?.partitions(&names.task).await?.is_none());
    let Err(refused) = admin("wrong words")?.partitions(&names.task).await else {
        bail!("a wrong password is taken");
    };
    ensure!(refused.kind == AdminErrorKind::Unauthorized, "{refused:?}");
    Ok(())
}

fn certified_client(guarded: &Guarded, certified: Certified) -> ClientBuilder {
    Client::builder(guarded.url_tls())
        .ca_certificate(guarded.authority.pem())
        .client_certificate(certified.certificate_pem, certified.key_pem)
}

#[tokio::test]
async fn a_client_certificate_lets_tasks_run() -> Result<()> {
    let Some(guarded) = pulsar_from_env().await? else { return Ok(()) };
    let certified = guarded.authority.certify_role(ROLE)?;
    let client = certified_client(guarded, certified).connect().await?;
    guarded.run_tasks(&client, "certificate").await
}

/// The certificate is valid, but its role has no permissions.
#[tokio::test]
async fn a_client_certificate_of_another_role_opens_no_topic() -> Result<()> {
    let Some(guarded) = pulsar_from_env().await? else { return Ok(()) };
    let names = guarded.topics("certified-stranger").await?;
    let certified = guarded.authority.certify_role("stranger")?;
    let client = certified_client(guarded, certified).connect().await?;
    let submitted = client.submit(&names.task, &Text("0|ok bar".to_owned())).await;
    let Err(SubmitError::Transport(error)) = submitted else { bail!("{submitted:?}") };
    let address = format!("{} {}", guarded.url_tls(), names.task);
    check_error(&error, &address, Unauthorized, "AuthorizationError")?;
    Ok(())
}

#[tokio::test]
async fn a_client_certificate_that_proves_nothing_is_refused() -> Result<()> {
    let Some(guarded) = pulsar_from_env().await? else { return Ok(()) };
    let url = guarded.url_tls();
    let past = certified_client(guarded, guarded.authority.certify_role_of_the_past(ROLE)?);
    check_refused(past, url, Unauthorized, "our client certificate").await?;
    // Pulsar does not say what is wrong with these. The second one's authority only has the right
    // one's name.
    for authority in ["another", "longhaul tests"] {
        let certified = Authority::new(authority)?.certify_role(ROLE)?;
        let client = certified_client(guarded, certified);
        check_refused(client, url, Refused, "if a client certificate is shown").await?;
    }
    Ok(())
}

/// With a token the certificate is used for the handshake only: the token determines the identity.
#[tokio::test]
async fn a_token_counts_more_than_a_client_certificate() -> Result<()> {
    let Some(guarded) = pulsar_from_env().await? else { return Ok(()) };
    let certified = || guarded.authority.certify_role(ROLE);
    certified_client(guarded, certified()?).token(guarded.token()).connect().await?;
    let client = certified_client(guarded, certified()?).token(guarded.expired_token());
    check_refused(client, guarded.url_tls(), Unauthorized, "AuthenticationError").await?;
    Ok(())
}

/// Certificates are shown in handshakes only, and a key belongs to one certificate.
#[tokio::test]
async fn client_certificates_that_cannot_work_are_told_before_anything_is_sent() -> Result<()> {
    let authority = Authority::new("longhaul tests")?;
    let (one, other) = (authority.certify_role(ROLE)?, authority.certify_role(ROLE)?);
    let client = |url: &str, certificate: &str, key: &str| {
        Client::builder(url).client_certificate(certificate, key)
    };
    let (plain, encrypted) = ("pulsar://127.0.0.1:1", "pulsar+ssl://127.0.0.1:1");
    let good = client(plain, &one.certificate_pem, &one.key_pem);
    check_refused(good, plain, Invalid, "pulsar+ssl://").await?;
    let mixed = client(encrypted, &one.certificate_pem, &other.key_pem);
    check_refused(mixed, encrypted, Invalid, "does not match its key").await?;
    let empty = client(encrypted, "no PEM", &one.key_pem);
    check_refused(empty, encrypted, Invalid, "no certificate").await?;
    Ok(())
}

/// An issuer that gives every client the same token. It serves while the future is polled.
async fn issue(listener: TcpListener, token: String) -> Result<()> {
    let url = format!("http://{}", listener.local_addr()?);
    loop {
        let (mut stream, _) = listener.accept().await?;
        // Both requests are small, and the form of the second may come late.
        let mut request = Vec::new();
        while !request.windows(4).any(|it| it == b"\r\n\r\n")
            || (request.starts_with(b"POST") && !request.ends_with(b"=end"))
        {
            ensure!(stream.read_buf(&mut request).await? > 0, "the request broke off");
        }
        let answer = if request.starts_with(b"POST") {
            serde_json::json!({"access_token": token, "expires_in": 600})
        } else {
            serde_json::json!({"token_endpoint": format!("{url}/token")})
        };
        let answer = answer.to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n", answer.len());
        stream.write_all(format!("{head}connection: close\r\n\r\n{answer}").as_bytes()).await?;
    }
}

#[tokio::test]
async fn a_token_of_an_issuer_lets_tasks_run() -> Result<()> {
    let Some(guarded) = Guarded::from_env().await? else { return Ok(()) };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let issuer = format!("http://{}", listener.local_addr()?);
    let key = serde_json::json!({"type": "client_credentials", "client_id": ROLE,
        "client_secret": "secret", "issuer_url": issuer});
    let options = OAuth2::key_json(key.to_string()).scope("end");
    let client = Client::builder(guarded.url()).oauth2(options);
    let run = async {
        let client = client.admin_url(guarded.url_of_admin()).connect().await?;
        guarded.run_tasks(&client, "oauth2").await
    };
    tokio::select! {
        issued = issue(listener, guarded.token()) => issued,
        run = run => run,
    }
}

/// The broker is not contacted, because the client has no token to show.
#[tokio::test]
async fn an_issuer_that_is_not_there_is_named() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let issuer = format!("http://{}/", listener.local_addr()?);
    drop(listener);
    let key = r#"{"client_id": "a", "client_secret": "secret"}"#;
    let options = OAuth2::key_json(key).issuer_url(&issuer);
    let client = Client::builder("pulsar://127.0.0.1:1").oauth2(options);
    let text = check_refused(client, &issuer, Unreachable, "discovery").await?;
    ensure!(!text.contains("secret"), "{text}");
    Ok(())
}

//! A guarded Pulsar asks for a new token when the old one ends: this is the one command that it
//! sends only to such clients.

use crate::oracle::connection::{Connection, Event};
use crate::oracle::proxy::{Proxy, Treatment};
use crate::oracle::recording::Recording;
use crate::security::keys::{Authority, Secret};
use anyhow::{Context, Result, bail};
use integration_tests::sandbox::{Broker, BrokerKind, Security};
use longhaul_wire::messages::{
    AuthData, Command, CommandAuthResponse, CommandConnect, CommandPing, FeatureFlags,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a first token is valid. The broker looks every second.
const VALID: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(20);

/// The frames that are exchanged when a token ends and another one is given.
pub(crate) async fn recorded(kind: BrokerKind) -> Result<Recording> {
    let secret = Secret::new();
    let config = Authority::new("longhaul tests")?.broker(&secret, String::new())?;
    let broker = Broker::launch(kind, config).await?;
    let proxy = Proxy::start(broker.service_url(), Treatment::Keep).await?;
    let mut connection = Connection::open(proxy.url()).await?;
    let ends = now()? + VALID;
    let connect = CommandConnect {
        client_version: "oracle".to_owned(),
        protocol_version: Some(21),
        feature_flags: Some(FeatureFlags {
            supports_auth_refresh: Some(true),
            ..FeatureFlags::default()
        }),
        auth_method_name: Some("token".to_owned()),
        auth_data: Some(secret.token_until(Security::SUPERUSER, ends.as_secs()).into()),
        ..CommandConnect::default()
    };
    connection.send(connect.into(), None).await;
    until(&mut connection, |it| matches!(it, Command::Connected(_))).await?;
    until(&mut connection, |it| matches!(it, Command::AuthChallenge(_))).await?;
    let response = AuthData {
        auth_method_name: Some("token".to_owned()),
        auth_data: Some(secret.token(Security::SUPERUSER).into()),
    };
    let answer = CommandAuthResponse { response: Some(response), ..CommandAuthResponse::default() };
    connection.send(answer.into(), None).await;
    connection.send(CommandPing {}.into(), None).await;
    // Without a new token the PING would get no answer.
    until(&mut connection, |it| matches!(it, Command::Pong(_))).await?;
    proxy.finish()
}

async fn until(connection: &mut Connection, wanted: impl Fn(&Command) -> bool) -> Result<()> {
    loop {
        match connection.next(PATIENCE).await?.context("nothing comes any more")? {
            Event::Frame(frame) if wanted(&frame.command) => return Ok(()),
            Event::Frame(_) => {}
            Event::Closed | Event::Garbage(_) => bail!("the broker hangs up"),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a token ends by the clock on the wall")]
fn now() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

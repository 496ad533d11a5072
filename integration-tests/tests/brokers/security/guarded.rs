//! The broker of this suite: one for all its tests, with credentials required on every port and TLS
//! on one.

use anyhow::{Context, Result, anyhow, ensure};
use integration_tests::sandbox::{Broker, Security};
use integration_tests::script::Scripted;
use longhaul::auth::Credentials;
use longhaul::topics::{Admin, AdminOptions, TopicNames, TopicSettings, setup};
use longhaul::{Client, ClientBuilder, ConnectError, SubmitError, TaskRef, Text};
use longhaul_transport::{TransportError, TransportErrorKind};
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::security::keys::{Authority, Secret};
use crate::support::note;

/// The role that may use topics, and nothing else.
pub(crate) const ROLE: &str = "tasks";
/// Its password, and the hash that `htpasswd` makes of it.
pub(crate) const PASSWORD: &str = "open sesame";
const PASSWORD_HASH: &str = "$apr1$longhaul$ec4PKrbRezmsvgpHuTcT00";
/// The limit for everything that is expected to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The limit for the report of a failure.
const SOON: Duration = Duration::from_secs(15);

/// A failed start is kept too, because otherwise each test would wait for it again. Statics are
/// never dropped; the broker's own guard ends it.
static SHARED: OnceCell<Result<Option<Guarded>, String>> = OnceCell::const_new();

/// A broker that requires a token.
pub(crate) struct Guarded {
    broker: Broker,
    /// The authority behind the broker's certificate.
    pub(crate) authority: Authority,
    pub(crate) secret: Secret,
}

impl Guarded {
    /// Returns `None`, and reports it once, when the environment does not permit to start a broker.
    pub(crate) async fn from_env() -> Result<Option<&'static Self>> {
        let start = || async { Self::start().await.map_err(|e| format!("{e:#}")) };
        let guarded = SHARED.get_or_init(start).await.as_ref();
        Ok(guarded.map_err(|cause| anyhow!("no broker: {cause}"))?.as_ref())
    }

    async fn start() -> Result<Option<Self>> {
        let (authority, secret) = (Authority::new("longhaul tests")?, Secret::new());
        let config = authority.broker(&secret, format!("{ROLE}:{PASSWORD_HASH}\n"))?;
        let Some(broker) = Broker::from_env(config).await? else { return Ok(None) };
        // The permissions that an operator grants to the role that runs tasks.
        let path = format!("namespaces/public/default/permissions/{ROLE}");
        let granted = json!(["produce", "consume"]);
        broker.admin().call(reqwest::Method::POST, &path, Some(&granted)).await?;
        Ok(Some(Self { broker, authority, secret }))
    }

    /// URL of the port without TLS.
    pub(crate) fn url(&self) -> &str {
        self.broker.service_url()
    }

    /// URL of the port with TLS.
    pub(crate) fn url_tls(&self) -> &str {
        self.broker.service_url_tls().expect("a guarded broker has a port with TLS")
    }

    /// URL of the admin interface, without TLS.
    pub(crate) fn url_of_admin(&self) -> &str {
        self.broker.admin().url()
    }

    /// A token that opens all topics of the namespace.
    pub(crate) fn token(&self) -> String {
        self.secret.token(ROLE)
    }

    /// As `token`, valid for this time.
    #[expect(clippy::disallowed_methods, reason = "a token ends by the clock on the wall")]
    pub(crate) fn token_for(&self, valid: Duration) -> Result<String> {
        // Whole seconds: the broker does not count a second that has only begun.
        let end = SystemTime::now().duration_since(UNIX_EPOCH)? + valid;
        Ok(self.secret.token_until(ROLE, end.as_secs()))
    }

    /// A token that has expired.
    pub(crate) fn expired_token(&self) -> String {
        self.secret.expired_token(ROLE)
    }

    /// A client with everything that it needs, on the port with TLS.
    pub(crate) fn client(&self) -> ClientBuilder {
        Client::builder(self.url_tls()).token(self.token()).ca_certificate(self.authority.pem())
    }

    /// Topics of one test, set up by an operator.
    pub(crate) async fn topics(&self, test: &str) -> Result<TopicNames> {
        let names: TopicNames = self.broker.sandbox().topic(test).parse()?;
        let credentials = Credentials::token(self.secret.token(Security::SUPERUSER));
        let options = AdminOptions { credentials, ..AdminOptions::default() };
        setup(&Admin::new(self.url_of_admin(), &options)?, &names, &TopicSettings::default())
            .await?;
        Ok(names)
    }

    /// Starts a worker, submits a task and reads its result, all with this client; and again after
    /// the topics have moved, when everything has to be looked up and opened again.
    pub(crate) async fn run_tasks(&self, client: &Client, test: &str) -> Result<()> {
        let names = self.topics(test).await?;
        let run = async {
            let worker = client.worker(&names.task, Scripted::default()).start().await?;
            for result in ["before", "after"] {
                let task = submit(client, &names.task, result).await?;
                ensure!(client.wait::<Text>(&task).await?.0 == result);
                for topic in [&names.task, &names.ledger, &names.metadata] {
                    self.broker.admin().unload(topic).await?;
                }
            }
            worker.drain(PATIENCE).await?;
            Ok(())
        };
        timeout(PATIENCE, run)
            .await
            .context("the task was not run")?
            .with_context(|| format!("the broker's log ends with\n{}", self.broker.log_tail()))
    }
}

/// Submits a task that ends with this result.
///
/// A submit without a key is sent once: on a busy machine it once met the move of its topic, got no
/// receipt, and the test failed. With a key it is safe to submit again.
async fn submit(client: &Client, topic: &str, result: &str) -> Result<TaskRef, SubmitError> {
    let task = Text(format!("0|ok {result}"));
    loop {
        match client.submission(topic, &task).idempotency_key(result).send().await {
            Err(SubmitError::Unbound(_)) => {}
            submitted => return submitted,
        }
    }
}

/// Connects, which must fail soon and with all that a user needs: the kind, the address that was
/// tried, and words of the cause. Returns the text that the user reads.
pub(crate) async fn check_refused(
    client: ClientBuilder,
    address: &str,
    kind: TransportErrorKind,
    words: &str,
) -> Result<String> {
    let connected = timeout(SOON, client.connect()).await;
    let result = connected.with_context(|| format!("{address}: no answer within {SOON:?}"))?;
    let Err(ConnectError::Transport(error)) = result else {
        return Err(anyhow!("{address}: {words}: {result:?}"));
    };
    check_error(&error, address, kind, words)
}

/// Checks the contents of the error.
pub(crate) fn check_error(
    error: &TransportError,
    address: &str,
    kind: TransportErrorKind,
    words: &str,
) -> Result<String> {
    note(&error.to_string());
    ensure!(error.kind == kind, "{error:?}");
    ensure!(error.to_string().starts_with(address), "{address} is not named: {error}");
    ensure!(error.cause.contains(words), "{words} is not said: {error}");
    Ok(format!("{error} {error:?}"))
}

//! Certificates, the key for tokens and the roles, which are read again when their files change.
//!
//! A background task checks the files every second. It compares their stamps, so a check without
//! a change reads nothing.

use crate::auth::Authenticator;
use crate::clock;
use crate::config::BrokerConfig;
use crate::error::StartError;
use crate::throttle::WarningThrottle;
use longhaul_http::{FileStamps, TlsConfig};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Interval of the checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The authenticator and the TLS configuration.
pub(super) struct BrokerCredentials {
    pub(super) authenticator: Option<Arc<Authenticator>>,
    /// The present TLS configuration.
    pub(super) tls: Option<watch::Receiver<TlsAcceptor>>,
    /// The files of both, for [`watch`].
    pub(super) watched: Vec<WatchedFiles>,
}

impl BrokerCredentials {
    /// Reads the files for the first time.
    pub(super) fn open(config: &BrokerConfig) -> Result<Self, StartError> {
        let mut watched = Vec::new();
        let authenticator = config.auth.as_ref().map(Authenticator::new).transpose()?.map(Arc::new);
        let key_file = config.auth.as_ref().and_then(|auth| auth.key_file.clone());
        if let Some((known, file)) = authenticator.clone().zip(key_file) {
            let files = vec![file.clone()];
            watched.push(WatchedFiles::new(files, move || Ok(known.read_key(&file)?)));
        }
        let roles_file = config.auth.as_ref().and_then(|auth| auth.roles_file.clone());
        if let Some((known, file)) = authenticator.clone().zip(roles_file) {
            let files = vec![file.clone()];
            watched.push(WatchedFiles::new(files, move || Ok(known.read_roles(&file)?)));
        }
        let mut tls = None;
        if let Some(config) = config.tls.clone() {
            let (present, shown) = watch::channel(acceptor(&config)?);
            tls = Some(shown);
            let files = [&config.certificates, &config.key].into_iter();
            let files = files.chain(&config.client_authorities).cloned().collect();
            watched.push(WatchedFiles::new(files, move || {
                present.send_replace(acceptor(&config)?);
                Ok(())
            }));
        }
        Ok(Self { authenticator, tls, watched })
    }
}

fn acceptor(config: &TlsConfig) -> Result<TlsAcceptor, StartError> {
    Ok(TlsAcceptor::from(Arc::new(config.load()?)))
}

/// Files that belong together.
pub(super) struct WatchedFiles {
    files: Vec<PathBuf>,
    /// Before they were last read; `None` before the first check, which reads them: they may have
    /// changed since the start.
    read_at: Option<FileStamps>,
    read: Box<dyn Fn() -> Result<(), StartError> + Send>,
    failures: WarningThrottle,
}

impl WatchedFiles {
    fn new(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<(), StartError> + Send + 'static,
    ) -> Self {
        let failures = WarningThrottle::default();
        Self { files, read_at: None, read: Box::new(read), failures }
    }

    /// Reads the files if they have changed. A failed read is repeated by the next check, because
    /// a certificate and its key may be written one after the other.
    fn look(&mut self) -> Result<bool, StartError> {
        let now = Some(FileStamps::of(&self.files));
        if now == self.read_at {
            return Ok(false);
        }
        (self.read)()?;
        self.read_at = now;
        Ok(true)
    }

    /// Like `look`, with log entries.
    fn check(&mut self, now: Instant) {
        let is_first = self.read_at.is_none();
        match self.look() {
            Ok(true) if !is_first => tracing::info!(files = ?self.files, "changed files were read"),
            Ok(_) => {}
            Err(error) => {
                if let Some(times) = self.failures.note(now) {
                    let error: &(dyn Error + 'static) = &error;
                    tracing::warn!(
                        files = ?self.files,
                        error,
                        times,
                        "changed files cannot be used, and their former content stays in use: correct them; the broker retries every second"
                    );
                }
            }
        }
    }
}

/// Checks the files until the stop.
pub(super) async fn watch(mut watched: Vec<WatchedFiles>, stop: CancellationToken) {
    let checks = async {
        while !watched.is_empty() {
            sleep(LOOK_EVERY).await;
            // Reading a file may take long, and must not delay clients.
            let checked = spawn_blocking(move || {
                watched.iter_mut().for_each(|files| files.check(clock::monotonic()));
                watched
            });
            match checked.await {
                Ok(checked) => watched = checked,
                Err(error) => {
                    tracing::error!(%error, "changed certificates and keys are no longer noticed");
                    return;
                }
            }
        }
    };
    stop.run_until_cancelled(checks).await;
}

#[cfg(test)]
mod tests {
    use super::super::Broker;
    use super::super::broken_disk::client::Client;
    use super::*;
    use crate::auth::{AuthConfig, TokenKey};
    use longhaul_wire::messages::{
        AuthData, Command, CommandAuthResponse, CommandConnect, CommandPing,
    };
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use std::net::SocketAddr;
    use std::path::Path;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;

    fn any() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    /// Writes a new certificate and its key.
    fn certify(folder: &Path) -> (TlsConfig, CertificateDer<'static>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificates, key) = (folder.join("certificate"), folder.join("key"));
        std::fs::write(&certificates, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (TlsConfig { certificates, key, client_authorities: None }, made.cert.der().clone())
    }

    /// Connects, if the broker shows this certificate.
    async fn encrypted(
        address: SocketAddr,
        certificate: &CertificateDer<'static>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn is_soon(condition: impl AsyncFn() -> bool) -> bool {
        for _ in 0..200 {
            if condition().await {
                return true;
            }
            sleep(Duration::from_millis(100)).await;
        }
        false
    }

    /// A certificate was read at the start only, so that each renewal needed a restart.
    #[tokio::test]
    async fn new_connections_get_a_renewed_certificate_and_open_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (tls, former) = certify(folder.path());
        let broker = Broker::start(BrokerConfig {
            listen_tls: Some(any()),
            admin_tls: Some(any()),
            tls: Some(tls),
            ..BrokerConfig::default()
        })
        .unwrap();
        let admin = broker.admin_url_tls().unwrap();
        let admin = admin.trim_start_matches("https://").parse().unwrap();
        let mut open = encrypted(admin, &former).await.unwrap();
        let (_, renewed) = certify(folder.path());
        for address in [broker.address_tls().unwrap(), admin] {
            let shown = async || encrypted(address, &renewed).await.is_ok();
            assert!(is_soon(shown).await, "{address} still shows the former certificate");
            assert!(encrypted(address, &former).await.is_err());
        }
        open.write_all(b"GET /status.html HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = [0; 12];
        open.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }

    #[test]
    fn files_that_cannot_be_used_leave_the_former_ones_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let (tls, certificate) = certify(folder.path());
        let authorities = folder.path().join("authorities");
        std::fs::copy(&tls.certificates, &authorities).unwrap();
        let tls = TlsConfig { client_authorities: Some(authorities.clone()), ..tls };
        let config = BrokerConfig { tls: Some(tls.clone()), ..BrokerConfig::default() };
        let mut credentials = BrokerCredentials::open(&config).unwrap();
        let (mut shown, watched) = (credentials.tls.unwrap(), &mut credentials.watched[0]);
        let mut was_replaced = move || {
            let changed = shown.has_changed().unwrap();
            shown.mark_unchanged();
            changed
        };
        assert!(watched.look().unwrap() && was_replaced());
        assert!(!watched.look().unwrap() && !was_replaced(), "nothing has changed");
        for file in [&tls.certificates, &tls.key, &authorities] {
            let former = std::fs::read_to_string(file).unwrap();
            std::fs::write(file, "nonsense").unwrap();
            for _ in 0..2 {
                let error = watched.look().unwrap_err();
                let cause = error.source().unwrap().to_string();
                assert!(cause.contains(&file.display().to_string()), "{cause}");
            }
            std::fs::remove_file(file).unwrap();
            assert!(watched.look().is_err() && !was_replaced());
            // The size differs, in case the clock of the file system is too coarse for the time to.
            std::fs::write(file, former + "\n").unwrap();
            assert!(watched.look().unwrap() && was_replaced());
        }
        // A certificate whose key is not there yet.
        let key = std::fs::read(&tls.key).unwrap();
        assert_ne!(certify(folder.path()).1, certificate);
        let renewed = std::fs::read(&tls.key).unwrap();
        std::fs::write(&tls.key, key).unwrap();
        assert!(watched.look().is_err() && !was_replaced());
        std::fs::write(&tls.key, renewed).unwrap();
        assert!(watched.look().unwrap() && was_replaced());
    }

    async fn log_in(broker: &Broker, token: &str) -> Result<Client, String> {
        let mut client = Client::dial(broker.address()).await.unwrap();
        let connect = CommandConnect {
            protocol_version: Some(21),
            auth_method_name: Some("token".to_owned()),
            auth_data: Some(token.to_owned().into()),
            ..CommandConnect::default()
        };
        client.send(connect).await.unwrap();
        let answer = client.answer().await.unwrap().command;
        if let Command::Connected(_) = answer { Ok(client) } else { Err(format!("{answer:?}")) }
    }

    /// The status of a call of the admin interface.
    async fn call(broker: &Broker, token: &str) -> String {
        let url = broker.admin_url().unwrap();
        let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
        let head = "GET /admin/v2/tenants HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        let request = format!("{head}Authorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    /// Tokens could be revoked by a restart only.
    #[tokio::test]
    async fn a_new_key_ends_the_tokens_of_the_former_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let key = || TokenKey::Secret(TokenKey::new_secret().unwrap());
        let write = |key: &TokenKey| {
            let TokenKey::Secret(secret) = key else { return };
            std::fs::write(&file, secret).unwrap();
        };
        let token = |key: &TokenKey| key.create_token("admin", None, None).unwrap();
        let (former, renewed, own) = (key(), key(), key());
        write(&former);
        let auth = AuthConfig {
            key_file: Some(file.clone()),
            own_key: Some(own.clone()),
            ..AuthConfig::new(former.clone(), ["admin".to_owned()].into())
        };
        let config = BrokerConfig { auth: Some(auth), ..BrokerConfig::default() };
        let broker = Broker::start(config).unwrap();
        let mut open = log_in(&broker, &token(&former)).await.unwrap();
        assert_eq!(call(&broker, &token(&former)).await, "200");
        assert_eq!(call(&broker, &token(&renewed)).await, "401");
        std::fs::write(&file, "too short").unwrap();
        sleep(LOOK_EVERY * 2).await;
        assert_eq!(call(&broker, &token(&former)).await, "200", "the former key stays in use");
        write(&renewed);
        let is_read = async || log_in(&broker, &token(&renewed)).await.is_ok();
        assert!(is_soon(is_read).await, "the new key is not read");
        let refused = log_in(&broker, &token(&former)).await.err().unwrap_or_default();
        assert!(refused.contains("the token's signature is wrong"), "{refused}");
        assert_eq!(call(&broker, &token(&former)).await, "401");
        assert_eq!(call(&broker, &token(&own)).await, "200", "this process keeps its token");
        // A connection keeps its login until the token expires, and renews it by the new key only.
        open.send(CommandPing {}).await.unwrap();
        assert!(matches!(open.read().await.unwrap().command, Command::Pong(_)));
        let response = AuthData {
            auth_method_name: Some("token".to_owned()),
            auth_data: Some(token(&former).into()),
        };
        let renewal =
            CommandAuthResponse { response: Some(response), ..CommandAuthResponse::default() };
        open.send(renewal).await.unwrap();
        let refused = format!("{:?}", open.read().await.unwrap().command);
        assert!(refused.contains("the token's signature is wrong"), "{refused}");
    }

    /// Superusers were read at the start only, and a single token could not be revoked.
    #[tokio::test]
    async fn a_changed_file_of_roles_ends_what_is_revoked_and_what_has_other_rights() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roles.json");
        let key = TokenKey::Secret(TokenKey::new_secret().unwrap());
        let own = TokenKey::Secret(TokenKey::new_secret().unwrap());
        std::fs::write(&file, r#"{"superusers": ["ann", "bob"]}"#).unwrap();
        let auth = AuthConfig {
            roles_file: Some(file.clone()),
            own_key: Some(own.clone()),
            ..AuthConfig::new(key.clone(), ["us".to_owned()].into())
        };
        let config = BrokerConfig { auth: Some(auth), ..BrokerConfig::default() };
        let broker = Broker::start(config).unwrap();
        let token = |key: &TokenKey, role| key.create_token(role, None, None).unwrap();
        let [ann, bob, us] = [token(&key, "ann"), token(&key, "bob"), token(&own, "us")];
        let mut open = Vec::new();
        for token in [&ann, &bob, &us] {
            assert_eq!(call(&broker, token).await, "200");
            open.push(log_in(&broker, token).await.unwrap());
        }
        std::fs::write(&file, r#"{"superuser": []}"#).unwrap();
        sleep(LOOK_EVERY * 2).await;
        assert_eq!(call(&broker, &ann).await, "200", "a file with an error changes nothing");
        std::fs::write(&file, r#"{"revoked": ["ann", "us"]}"#).unwrap();
        let is_read = async || call(&broker, &ann).await == "401";
        assert!(is_soon(is_read).await, "ann is still let in");
        assert_eq!(call(&broker, &bob).await, "403", "bob is no superuser any more");
        assert_eq!(call(&broker, &us).await, "200", "this process keeps its token");
        let refused = log_in(&broker, &ann).await.err().unwrap_or_default();
        assert!(refused.contains("the token or its role is revoked"), "{refused}");
        for (at, why) in [(0, "is revoked"), (1, "the rights of the role have changed")] {
            let told = format!("{:?}", open[at].read().await.unwrap().command);
            assert!(told.contains(why), "{told}");
        }
        open[2].send(CommandPing {}).await.unwrap();
        assert!(matches!(open[2].read().await.unwrap().command, Command::Pong(_)));
        assert!(log_in(&broker, &bob).await.is_ok(), "whose grants count from now on");
    }
}

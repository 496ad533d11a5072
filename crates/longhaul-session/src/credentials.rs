//! Credentials for a broker and its admin API.
//!
//! Nothing that may change outside is cached: a token file is read again for every connection and
//! for every challenge of the broker. A rotated token is therefore picked up without a restart.
//!
//! Invariant: no secret appears in a `Debug` form or in an error.

use super::error;
#[cfg(feature = "oauth2")]
use super::oauth2::{OAuth2, TokenSource};
use bytes::Bytes;
use longhaul_transport::TransportError;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
#[cfg(feature = "oauth2")]
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Largest file that a secret is read from; tokens have at most a few kilobytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Longest time to read such a file, which may be on a network disk.
pub(super) const FILE_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest time to obtain credentials where no other limit applies. It includes waiting for other
/// connections that ask the same issuer.
pub(super) const DATA_TIME_MAX: Duration = Duration::from_secs(15);

/// Credentials for a broker.
///
/// ```
/// # mod longhaul { pub mod auth { pub use longhaul_session::Credentials; } }
/// use longhaul::auth::Credentials;
///
/// let credentials = Credentials::basic("tasks", "secret");
/// assert!(!format!("{credentials:?}").contains("secret"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Credentials(CredentialsKind);

#[derive(Clone, Debug, Default)]
enum CredentialsKind {
    #[default]
    None,
    Token(Secret),
    TokenFile(PathBuf),
    Basic {
        user: String,
        password: Secret,
    },
    /// The TLS handshake proves it.
    ClientCertificate,
    #[cfg(feature = "oauth2")]
    OAuth2(Arc<TokenSource>),
}

impl Credentials {
    /// No credentials, for brokers without authentication.
    #[must_use]
    pub fn none() -> Self {
        Self(CredentialsKind::None)
    }

    /// A token (usually a JWT). Surrounding white space is ignored.
    #[must_use]
    pub fn token(text: impl Into<String>) -> Self {
        Self(CredentialsKind::Token(Secret::new(text)))
    }

    /// A token in a file. The file is read for every connection, and again when the broker asks for
    /// a newer token.
    #[must_use]
    pub fn token_file(path: impl Into<PathBuf>) -> Self {
        Self(CredentialsKind::TokenFile(path.into()))
    }

    /// A user name and password.
    #[must_use]
    pub fn basic(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self(CredentialsKind::Basic { user: user.into(), password: Secret::new(password) })
    }

    /// The client certificate of [`TlsOptions::client`](super::TlsOptions::client): the broker uses
    /// its subject as the role (`AuthenticationProviderTls`).
    #[must_use]
    pub fn client_certificate() -> Self {
        Self(CredentialsKind::ClientCertificate)
    }

    /// Tokens of an OAuth2 issuer. Clones share the current token.
    #[cfg(feature = "oauth2")]
    #[must_use]
    pub fn oauth2(options: OAuth2) -> Self {
        Self(CredentialsKind::OAuth2(Arc::new(TokenSource::new(options))))
    }

    /// Whether there are no credentials.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self.0, CredentialsKind::None)
    }

    /// Whether the credentials are the client certificate.
    pub(super) fn is_client_certificate(&self) -> bool {
        matches!(self.0, CredentialsKind::ClientCertificate)
    }

    /// Whether an eavesdropper could use the credentials.
    #[must_use]
    pub fn are_secret(&self) -> bool {
        !matches!(self.0, CredentialsKind::None | CredentialsKind::ClientCertificate)
    }

    /// The broker's name for this authentication method.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self.0 {
            CredentialsKind::None => "none",
            CredentialsKind::Token(_) | CredentialsKind::TokenFile(_) => "token",
            CredentialsKind::Basic { .. } => "basic",
            CredentialsKind::ClientCertificate => "tls",
            #[cfg(feature = "oauth2")]
            CredentialsKind::OAuth2(_) => "token",
        }
    }

    /// The bytes to show to the broker, read anew for each connection and each challenge. Takes a
    /// limited time.
    ///
    /// # Errors
    /// A file cannot be read, or an issuer gives no token in time.
    pub async fn data(&self) -> Result<Option<Bytes>, TransportError> {
        self.data_within(DATA_TIME_MAX).await
    }

    /// As [`data`](Self::data), for callers that have less time.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    pub async fn data_within(&self, time_max: Duration) -> Result<Option<Bytes>, TransportError> {
        match &self.0 {
            CredentialsKind::TokenFile(path) => {
                let text = read_secret(path, "token", time_max.min(FILE_TIME_MAX)).await?;
                Ok(Some(Bytes::copy_from_slice(text.text().as_bytes())))
            }
            #[cfg(feature = "oauth2")]
            CredentialsKind::OAuth2(source) => source.token(time_max).await.map(Some),
            CredentialsKind::None
            | CredentialsKind::Token(_)
            | CredentialsKind::Basic { .. }
            | CredentialsKind::ClientCertificate => Ok(self.data_at_hand()),
        }
    }

    /// Forgets credentials that the broker has refused or considers outdated. Does nothing if newer
    /// ones are already known.
    pub(super) async fn forget(&self, shown: Option<&Bytes>) {
        #[cfg(feature = "oauth2")]
        if let (CredentialsKind::OAuth2(source), Some(token)) = (&self.0, shown) {
            source.forget(token).await;
        }
        #[cfg(not(feature = "oauth2"))]
        let _ = shown;
    }

    /// Like [`data`](Self::data), but only if nothing has to be read or requested.
    #[must_use]
    pub fn data_at_hand(&self) -> Option<Bytes> {
        match &self.0 {
            CredentialsKind::Token(token) => Some(Bytes::copy_from_slice(token.text().as_bytes())),
            CredentialsKind::Basic { user, password } => {
                Some(Bytes::from(format!("{user}:{}", password.verbatim())))
            }
            CredentialsKind::None
            | CredentialsKind::TokenFile(_)
            | CredentialsKind::ClientCertificate => None,
            #[cfg(feature = "oauth2")]
            CredentialsKind::OAuth2(_) => None,
        }
    }

    /// Checks without I/O whether every broker would refuse the credentials.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<(), &'static str> {
        match &self.0 {
            CredentialsKind::Token(token) if token.text().is_empty() => Err("the token is empty"),
            CredentialsKind::Basic { user, .. } if user.is_empty() => {
                Err("the user's name is empty")
            }
            // The broker splits user and password at the first colon.
            CredentialsKind::Basic { user, .. } if user.contains(':') => {
                Err("the user's name contains a colon")
            }
            CredentialsKind::None
            | CredentialsKind::Token(_)
            | CredentialsKind::TokenFile(_)
            | CredentialsKind::Basic { .. }
            | CredentialsKind::ClientCertificate => Ok(()),
            #[cfg(feature = "oauth2")]
            CredentialsKind::OAuth2(_) => Ok(()),
        }
    }
}

/// A text that its `Debug` form hides.
#[derive(Clone)]
pub(super) struct Secret(String);

impl Secret {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text without surrounding white space, as files have it.
    pub(super) fn text(&self) -> &str {
        self.0.trim()
    }

    /// The unchanged text: a password may begin or end with a blank.
    pub(super) fn verbatim(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Reads a file that holds one secret. The error names the file and shows none of its content.
pub(super) async fn read_secret(
    path: &Path,
    what: &'static str,
    time_max: Duration,
) -> Result<Secret, TransportError> {
    let invalid = |cause: String| error::invalid(path.display(), format_args!("{what}: {cause}"));
    let file = path.to_owned();
    let reading = spawn_blocking(move || read_file(&file, FILE_BYTES_MAX));
    match timeout(time_max, reading).await {
        Ok(Ok(Ok(text))) if text.trim().is_empty() => Err(invalid("the file is empty".to_owned())),
        Ok(Ok(Ok(text))) => Ok(Secret(text)),
        Ok(Ok(Err(cause))) => Err(invalid(cause.to_string())),
        Ok(Err(cause)) => Err(invalid(cause.to_string())),
        Err(_) => Err(invalid(format!("not read within {} ms", time_max.as_millis()))),
    }
}

pub(super) fn read_file(path: &Path, bytes_max: u64) -> io::Result<String> {
    // Reading a pipe could block, and a pipe can be read only once.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other("the file is too large"));
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other("the file is not text"))?;
    // Some editors begin a file with a byte order mark.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_transport::TransportErrorKind;
    use std::fs;

    async fn data(credentials: &Credentials) -> Option<String> {
        let data = credentials.data().await.unwrap();
        data.map(|data| String::from_utf8(data.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn each_kind_has_its_method_and_its_data() {
        for (credentials, method, expected) in [
            (Credentials::none(), "none", None),
            (Credentials::token(" a.b.c\n"), "token", Some("a.b.c")),
            (Credentials::basic("user", " pass:word "), "basic", Some("user: pass:word ")),
            (Credentials::client_certificate(), "tls", None),
        ] {
            assert_eq!(credentials.method(), method);
            assert_eq!(data(&credentials).await.as_deref(), expected);
            assert_eq!(credentials.check(), Ok(()));
        }
    }

    #[tokio::test]
    async fn a_rotated_token_is_picked_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let credentials = Credentials::token_file(&path);
        assert_eq!(credentials.method(), "token");
        // A byte order mark, which some editors write, was sent as a part of the token.
        for (token, mark) in [("one", ""), ("two", ""), ("three", "\u{feff}")] {
            fs::write(&path, format!("{mark}{token}\n")).unwrap();
            assert_eq!(data(&credentials).await.as_deref(), Some(token));
        }
    }

    #[tokio::test]
    async fn a_file_that_holds_no_token_is_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let limit = usize::try_from(FILE_BYTES_MAX).unwrap();
        for (name, contents, words) in [
            ("missing", None, "No such file"),
            ("empty", Some(b" \n".to_vec()), "empty"),
            ("binary", Some(b"secret\xff".to_vec()), "not text"),
            ("large", Some(vec![b'x'; limit + 1]), "too large"),
        ] {
            let path = folder.path().join(name);
            if let Some(contents) = contents {
                fs::write(&path, contents).unwrap();
            }
            let error = Credentials::token_file(&path).data().await.unwrap_err();
            assert_eq!(error.kind, TransportErrorKind::Invalid);
            assert_eq!(error.address, path.display().to_string());
            assert!(error.cause.contains(words) && !error.cause.contains("secret"), "{error}");
        }
        let error = Credentials::token_file(folder.path()).data().await.unwrap_err();
        assert!(error.cause.contains("not a file"), "{error}");
    }

    #[tokio::test]
    async fn the_largest_file_that_is_read_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let (path, limit) = (folder.path().join("token"), usize::try_from(FILE_BYTES_MAX).unwrap());
        fs::write(&path, vec![b'x'; limit]).unwrap();
        assert_eq!(data(&Credentials::token_file(&path)).await.unwrap().len(), limit);
    }

    /// Missing credentials need not be shown to the admin API, and an eavesdropper cannot use a
    /// certificate.
    #[test]
    fn what_kind_they_are_is_known() {
        for (credentials, none, certificate, secret) in [
            (Credentials::none(), true, false, false),
            (Credentials::token("a"), false, false, true),
            (Credentials::token_file("a"), false, false, true),
            (Credentials::basic("a", "b"), false, false, true),
            (Credentials::client_certificate(), false, true, false),
        ] {
            assert_eq!(credentials.is_none(), none, "{credentials:?}");
            assert_eq!(credentials.is_client_certificate(), certificate, "{credentials:?}");
            assert_eq!(credentials.are_secret(), secret, "{credentials:?}");
        }
    }

    #[test]
    fn what_no_broker_would_take_is_told() {
        for (credentials, words) in [
            (Credentials::token(" \n"), "token is empty"),
            (Credentials::basic("", "password"), "name is empty"),
            (Credentials::basic("a:b", "password"), "colon"),
        ] {
            assert!(credentials.check().unwrap_err().contains(words));
        }
    }

    #[test]
    fn debug_hides_every_secret() {
        for credentials in [Credentials::token("secret"), Credentials::basic("user", "secret")] {
            let shown = format!("{credentials:?}");
            assert!(!shown.contains("secret"), "{shown}");
        }
    }
}

//! Token authentication.
//!
//! Pulsar's tokens are JSON Web Tokens, signed with a secret (HS256, HS384, HS512) or a private key
//! (RS256, RS384, RS512, ES256). The claim `sub` is the client's role; `exp`, `nbf` and, if the
//! broker has an audience, `aud` are honoured. The kind of key decides which algorithms are
//! accepted, never the token alone. Neither tokens nor keys appear in errors or in `Debug`.

mod der;
mod refused;
mod sign;

use crate::policies::{AuthAction, Grants};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
pub(crate) use refused::{AuthRefusalReason, AuthRefusals};
use ring::{hmac, signature};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// Longest token in bytes: longer than any server's headers allow.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Shortest secret that HS256 allows, in bytes.
const SECRET_BYTES_MIN: usize = 32;
/// Accepted sizes of RSA keys, in bits.
const RSA_BITS_MIN: usize = 2048;
const RSA_BITS_MAX: usize = 8192;
/// Largest file that a key is read from, in bytes.
const KEY_BYTES_MAX: u64 = 64 * 1024;
/// Prefix of a location that is the key itself.
const KEY_TEXT: &str = "data:;base64,";

/// Authentication and authorization settings of a broker.
///
/// ```
/// use longhaul_broker::{AuthConfig, BrokerConfig, TokenKey};
///
/// let key = TokenKey::Secret(TokenKey::new_secret()?);
/// let token = key.create_token("admin", None, None)?;
/// let auth = AuthConfig::new(key, ["admin".to_owned()].into());
/// let config = BrokerConfig { auth: Some(auth), ..BrokerConfig::default() };
/// # drop((token, config));
/// # Ok::<(), longhaul_broker::AuthConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// Key that verifies tokens.
    pub key: TokenKey,
    /// File of this key. The broker reads it again within 2 s of a change, and refuses tokens of
    /// the former key then. `None`: the key does not change.
    pub key_file: Option<PathBuf>,
    /// The audience that tokens must name in their claim `aud`; `None`: any. For an issuer that
    /// signs tokens of several services with one key.
    pub audience: Option<String>,
    /// A second key, which does not change, for tokens of clients in this process. They need no
    /// audience.
    pub own_key: Option<TokenKey>,
    /// Roles that may do everything, administration included. Other roles may do in a namespace
    /// what they were granted there.
    pub superusers: BTreeSet<String>,
    /// Roles that may see the metrics of the whole broker and the statistics of all topics. Other
    /// roles see those of namespaces where they may do something.
    pub monitors: BTreeSet<String>,
    /// Whether every role may publish and consume in namespaces without any grants so far.
    pub open_namespaces: bool,
}

impl AuthConfig {
    /// Settings with these superusers and without monitors. Other roles need grants.
    #[must_use]
    pub const fn new(key: TokenKey, superusers: BTreeSet<String>) -> Self {
        Self {
            key,
            key_file: None,
            audience: None,
            own_key: None,
            superusers,
            monitors: BTreeSet::new(),
            open_namespaces: false,
        }
    }
}

/// The key that verifies tokens.
#[derive(Clone)]
#[non_exhaustive]
pub enum TokenKey {
    /// The secret that also signs them: at least 32 bytes.
    Secret(Vec<u8>),
    /// The public half of the key pair that signs tokens, RSA or P-256, as PEM or DER.
    Public(Vec<u8>),
}

impl TokenKey {
    /// Reads a secret in the syntax of Pulsar's `tokenSecretKey`: `file:///path`, a bare path, or
    /// `data:;base64,…`.
    ///
    /// # Errors
    /// The file cannot be read, or the text is not Base64.
    pub fn secret(location: &str) -> Result<Self, AuthConfigError> {
        read(location).map(Self::Secret)
    }

    /// Reads a public key in the syntax of Pulsar's `tokenPublicKey`: see [`TokenKey::secret`].
    ///
    /// # Errors
    /// As for [`TokenKey::secret`].
    pub fn public(location: &str) -> Result<Self, AuthConfigError> {
        read(location).map(Self::Public)
    }

    /// The file that [`TokenKey::secret`] and [`TokenKey::public`] read, for
    /// [`AuthConfig::key_file`]. `None` if the text itself is the key.
    #[must_use]
    pub fn file(location: &str) -> Option<PathBuf> {
        let is_key = location.starts_with(KEY_TEXT);
        (!is_key).then(|| location.strip_prefix("file://").unwrap_or(location).into())
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret(…)",
            Self::Public(_) => "Public(…)",
        })
    }
}

/// Why the authentication settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthConfigError {
    /// The key file cannot be read.
    #[error("cannot read the key for tokens from {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The text after `data:;base64,` is not Base64.
    #[error("the key for tokens is not Base64")]
    Base64,
    /// The secret is too short: an attacker could guess it.
    #[error("the secret for tokens has {0} bytes: at least {SECRET_BYTES_MIN} are needed")]
    Short(usize),
    /// The system provides no random numbers.
    #[error("the system gives no random numbers for a secret")]
    NoRandomness,
    /// A public key verifies tokens and cannot sign them.
    #[error("a secret is needed to sign tokens, not a public key")]
    NotASecret,
    /// A token without a role is never accepted.
    #[error("a token needs a role (claim `sub`)")]
    NoRole,
    /// The key is neither PEM nor DER of a supported kind.
    #[error(
        "the public key for tokens is neither PEM nor DER of a key of RSA or P-256 (uncompressed)"
    )]
    Key,
    /// The RSA key has a size whose signatures are not accepted.
    #[error(
        "the public key for tokens is of RSA with {0} bits: {RSA_BITS_MIN} to {RSA_BITS_MAX} are taken. `openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048` makes a key pair"
    )]
    RsaBits(usize),
}

/// Why a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The client showed no token.
    #[error("a token is needed")]
    Missing,
    /// The client used another authentication method.
    #[error("only tokens are taken (authentication method `token`)")]
    Method,
    /// The token is not a JSON Web Token, or is too long.
    #[error("what was given is not a token")]
    Malformed,
    /// The token's algorithm does not match the broker's key.
    #[error("the token is signed with an algorithm that does not go with the broker's key")]
    Algorithm,
    /// The signature does not verify with the broker's key.
    #[error("the token's signature is wrong")]
    Signature,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    Early,
    /// The token is for another audience, or for none.
    #[error("the token is not for this broker (claim `aud`)")]
    Audience,
    /// The token names no role.
    #[error("the token names no role (claim `sub`)")]
    NoRole,
    /// A connection belongs to the role that opened it.
    #[error("the new token is that of another role")]
    OtherRole,
}

/// The role of an accepted client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AuthRole {
    /// Subject of the token.
    pub name: String,
    /// Whether the role may do everything.
    pub superuser: bool,
    /// Whether the role may see all metrics.
    pub monitor: bool,
    /// Expiry of the token, in seconds since 1970.
    pub expires: Option<u64>,
}

impl AuthRole {
    /// The role of every client when no tokens are required.
    pub(crate) const fn trusted() -> Self {
        Self { name: String::new(), superuser: true, monitor: true, expires: None }
    }
}

/// Verifies tokens.
pub struct Authenticator {
    /// The machine and the admin interface share this, so that both refuse a former key at once.
    key: RwLock<VerificationKey>,
    own_key: Option<VerificationKey>,
    audience: Option<String>,
    superusers: BTreeSet<String>,
    monitors: BTreeSet<String>,
    open_namespaces: bool,
}

enum VerificationKey {
    Secret(Vec<u8>),
    Rsa(Vec<u8>),
    P256(Vec<u8>),
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator")
            .field("superusers", &self.superusers)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
}

#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    /// Seconds since 1970; some issuers send fractions.
    exp: Option<f64>,
    nbf: Option<f64>,
    aud: Option<Audience>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::One(it) => it == name,
            Self::Many(them) => them.iter().any(|it| it == name),
        }
    }
}

impl Authenticator {
    /// Prepares the key.
    ///
    /// # Errors
    /// The key cannot be used.
    pub fn new(config: &AuthConfig) -> Result<Self, AuthConfigError> {
        let key = RwLock::new(VerificationKey::new(&config.key)?);
        let own_key = config.own_key.as_ref().map(VerificationKey::new).transpose()?;
        let superusers = config.superusers.clone();
        let (monitors, open_namespaces) = (config.monitors.clone(), config.open_namespaces);
        let audience = config.audience.clone();
        Ok(Self { key, own_key, audience, superusers, monitors, open_namespaces })
    }

    /// Replaces the key by one of the same kind from this file. Tokens of the former key are
    /// refused from then on.
    pub(crate) fn read_key(&self, file: &Path) -> Result<(), AuthConfigError> {
        let bytes = read_file(file)?;
        let mut key = self.key.write().unwrap_or_else(PoisonError::into_inner);
        *key = VerificationKey::new(&match *key {
            VerificationKey::Secret(_) => TokenKey::Secret(bytes),
            VerificationKey::Rsa(_) | VerificationKey::P256(_) => TokenKey::Public(bytes),
        })?;
        Ok(())
    }

    /// Determines the role from the method and the data of CONNECT.
    ///
    /// # Errors
    /// See [`AuthError`].
    pub fn authenticate(
        &self,
        method: &str,
        data: &[u8],
        now_s: u64,
    ) -> Result<AuthRole, AuthError> {
        let token = data.trim_ascii();
        match method {
            "token" => {}
            "" | "none" if token.is_empty() => return Err(AuthError::Missing),
            _ => return Err(AuthError::Method),
        }
        if token.is_empty() {
            return Err(AuthError::Missing);
        }
        let (claims, is_own) = self.verify(token)?;
        if let Some(audience) = self.audience.as_deref().filter(|_| !is_own)
            && !claims.aud.is_some_and(|it| it.has(audience))
        {
            return Err(AuthError::Audience);
        }
        if claims.exp.is_some_and(|end| seconds(end) <= now_s) {
            return Err(AuthError::Expired);
        }
        if claims.nbf.is_some_and(|start| seconds(start) > now_s) {
            return Err(AuthError::Early);
        }
        let name = claims.sub.filter(|name| !name.is_empty()).ok_or(AuthError::NoRole)?;
        let superuser = self.superusers.contains(&name);
        let monitor = superuser || self.monitors.contains(&name);
        Ok(AuthRole { name, superuser, monitor, expires: claims.exp.map(seconds) })
    }

    /// Whether the role may do this, given the grants of the namespace and of the topic.
    pub(crate) fn allows(
        &self,
        role: &AuthRole,
        grants: [Option<&Grants>; 2],
        action: AuthAction,
    ) -> bool {
        let granted =
            grants.into_iter().flatten().filter_map(|grants| grants.allow(&role.name, action));
        role.superuser || granted.max().unwrap_or(self.open_namespaces)
    }

    /// Whether the role may produce or consume at all.
    pub(crate) fn allows_any(&self, role: &AuthRole, grants: [Option<&Grants>; 2]) -> bool {
        [AuthAction::Produce, AuthAction::Consume]
            .iter()
            .any(|&action| self.allows(role, grants, action))
    }

    /// Verifies the signature and then reads the claims. Also returns whether it was signed in this
    /// process.
    fn verify(&self, token: &[u8]) -> Result<(Claims, bool), AuthError> {
        let malformed = AuthError::Malformed;
        if token.len() > TOKEN_BYTES_MAX {
            return Err(malformed);
        }
        let text = std::str::from_utf8(token).map_err(|_| malformed)?;
        let (signed, signature) = text.rsplit_once('.').ok_or(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(malformed)?;
        let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed);
        let signature = decode(signature)?;
        let header: TokenHeader =
            serde_json::from_slice(&decode(header)?).map_err(|_| malformed)?;
        let claims = decode(claims)?;
        let verify = |key: &VerificationKey| key.verify(&header.alg, signed.as_bytes(), &signature);
        let verified = verify(&self.key.read().unwrap_or_else(PoisonError::into_inner));
        let is_own = verified.is_err();
        verified.or_else(|error| {
            let own = self.own_key.as_ref().ok_or(error)?;
            verify(own).map_err(|_| error)
        })?;
        Ok((serde_json::from_slice(&claims).map_err(|_| malformed)?, is_own))
    }
}

impl VerificationKey {
    fn new(key: &TokenKey) -> Result<Self, AuthConfigError> {
        match key {
            TokenKey::Secret(secret) if secret.len() < SECRET_BYTES_MIN => {
                Err(AuthConfigError::Short(secret.len()))
            }
            TokenKey::Secret(secret) => Ok(Self::Secret(secret.clone())),
            TokenKey::Public(key) => public_key(key),
        }
    }

    fn verify(&self, algorithm: &str, signed: &[u8], given: &[u8]) -> Result<(), AuthError> {
        // The comparison of ring takes constant time.
        let hmac = |secret: &[u8], algorithm| {
            hmac::verify(&hmac::Key::new(algorithm, secret), signed, given)
        };
        let public = |key: &[u8], algorithm: &'static dyn signature::VerificationAlgorithm| {
            signature::UnparsedPublicKey::new(algorithm, key).verify(signed, given)
        };
        let verified = match (self, algorithm) {
            (Self::Secret(secret), "HS256") => hmac(secret, hmac::HMAC_SHA256),
            (Self::Secret(secret), "HS384") => hmac(secret, hmac::HMAC_SHA384),
            (Self::Secret(secret), "HS512") => hmac(secret, hmac::HMAC_SHA512),
            (Self::Rsa(key), "RS256") => public(key, &signature::RSA_PKCS1_2048_8192_SHA256),
            (Self::Rsa(key), "RS384") => public(key, &signature::RSA_PKCS1_2048_8192_SHA384),
            (Self::Rsa(key), "RS512") => public(key, &signature::RSA_PKCS1_2048_8192_SHA512),
            (Self::P256(key), "ES256") => public(key, &signature::ECDSA_P256_SHA256_FIXED),
            _ => return Err(AuthError::Algorithm),
        };
        verified.map_err(|_| AuthError::Signature)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion ends at the limits, which is what a time out of range means"
)]
const fn seconds(time: f64) -> u64 {
    time as u64
}

fn public_key(bytes: &[u8]) -> Result<VerificationKey, AuthConfigError> {
    let der = match SubjectPublicKeyInfoDer::from_pem_slice(bytes) {
        Ok(key) => key.to_vec(),
        Err(_) => bytes.to_vec(),
    };
    match der::public_key(&der).ok_or(AuthConfigError::Key)? {
        (der::PublicKeyKind::Rsa, key) => {
            let bits = der::rsa_bits(key).ok_or(AuthConfigError::Key)?;
            if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) {
                return Err(AuthConfigError::RsaBits(bits));
            }
            Ok(VerificationKey::Rsa(key.to_vec()))
        }
        (der::PublicKeyKind::P256, key) => Ok(VerificationKey::P256(key.to_vec())),
    }
}

fn read(location: &str) -> Result<Vec<u8>, AuthConfigError> {
    match TokenKey::file(location) {
        Some(path) => read_file(&path),
        None => {
            let text = location.strip_prefix(KEY_TEXT).unwrap_or_default();
            BASE64_STANDARD.decode(text.trim()).map_err(|_| AuthConfigError::Base64)
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, AuthConfigError> {
    let fail = |source| AuthConfigError::File { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(fail)?.len();
    if size > KEY_BYTES_MAX {
        return Err(fail(std::io::Error::other("the file is too large for a key")));
    }
    std::fs::read(path).map_err(fail)
}

#[cfg(test)]
mod rsa_tests;
#[cfg(test)]
pub(crate) mod tests;

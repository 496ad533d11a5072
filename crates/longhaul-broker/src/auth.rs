//! Token authentication.
//!
//! Pulsar's tokens are JSON Web Tokens, signed with a secret (HS256, HS384, HS512) or a private key
//! (RS256, RS384, RS512, ES256). The claim `sub` is the client's role; `exp`, `nbf` and, if the
//! broker has an audience, `aud` are honoured. The kind of key decides which algorithms are
//! accepted, never the token alone. Neither tokens nor keys appear in errors or in `Debug`.

mod der;
mod error;
mod refused;
mod roles;
mod sign;

use crate::policies::{AuthAction, Grants};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
pub use error::{AuthConfigError, AuthError};
pub(crate) use refused::{AuthRefusalReason, AuthRefusals};
use ring::{hmac, signature};
use roles::RoleRights;
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
    /// A file with more superusers and monitors, and with revoked roles and tokens, as JSON:
    ///
    /// ```json
    /// {
    ///   "superusers": ["ops"],
    ///   "monitors": [],
    ///   "revoked": ["ann", "a token's claim jti"]
    /// }
    /// ```
    ///
    /// The broker reads it again within 2 s of a change, and closes connections of roles and tokens
    /// that are revoked or have other rights then.
    pub roles_file: Option<PathBuf>,
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
            roles_file: None,
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
    /// Id of the token, its claim `jti`.
    pub token_id: Option<String>,
    /// Whether the token is of [`AuthConfig::own_key`].
    pub is_own: bool,
}

impl AuthRole {
    /// The role of every client and every admin request when no tokens are required: it may do
    /// everything, and sees everything.
    pub(crate) const fn trusted() -> Self {
        Self {
            name: String::new(),
            superuser: true,
            monitor: true,
            expires: None,
            token_id: None,
            is_own: true,
        }
    }
}

/// Verifies tokens.
pub struct Authenticator {
    /// The machine and the admin interface share this, so that both refuse a former key at once.
    key: RwLock<VerificationKey>,
    own_key: Option<VerificationKey>,
    audience: Option<String>,
    rights: RoleRights,
    open_namespaces: bool,
}

enum VerificationKey {
    Secret(Vec<u8>),
    Rsa(Vec<u8>),
    P256(Vec<u8>),
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("rights", &self.rights).finish_non_exhaustive()
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
    jti: Option<String>,
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
        let (rights, open_namespaces) = (RoleRights::new(config)?, config.open_namespaces);
        let audience = config.audience.clone();
        Ok(Self { key, own_key, audience, rights, open_namespaces })
    }

    /// Replaces what was read of the file of roles.
    pub(crate) fn read_roles(&self, file: &Path) -> Result<(), AuthConfigError> {
        self.rights.read(file)
    }

    /// The role of an open connection with its present rights.
    ///
    /// # Errors
    /// [`AuthError::Revoked`].
    pub(crate) fn present(&self, role: &AuthRole) -> Result<AuthRole, AuthError> {
        self.rights.of(role.clone())
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
        let expires = claims.exp.map(seconds);
        let role = AuthRole { name, expires, token_id: claims.jti, is_own, ..AuthRole::default() };
        self.rights.of(role)
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
    read_up_to(path, KEY_BYTES_MAX).map_err(fail)
}

fn read_up_to(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.len() > bytes_max {
        let text = format!("the file is larger than {bytes_max} bytes");
        return Err(std::io::Error::other(text));
    }
    std::fs::read(path)
}

#[cfg(test)]
mod rsa_tests;
#[cfg(test)]
pub(crate) mod tests;

//! Creates secrets, and tokens signed with them.

use super::{AuthConfigError, SECRET_BYTES_MIN, TokenKey};
use crate::clock;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The token is signed with HMAC-SHA-256.
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

#[derive(Serialize)]
struct NewTokenClaims<'a> {
    sub: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
    /// Seconds since 1970.
    iat: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<u64>,
    jti: String,
}

/// The claim that [`TokenKey::token_id`] reads.
#[derive(Deserialize)]
struct TokenIdClaim {
    jti: String,
}

impl TokenKey {
    /// Creates a secret: 32 random bytes, for a file or for [`TokenKey::Secret`].
    ///
    /// # Errors
    /// [`AuthConfigError::NoRandomness`].
    pub fn new_secret() -> Result<Vec<u8>, AuthConfigError> {
        let mut secret = vec![0; SECRET_BYTES_MIN];
        SystemRandom::new().fill(&mut secret).map_err(|_| AuthConfigError::NoRandomness)?;
        Ok(secret)
    }

    /// Creates a token for this role and audience, valid for this time from now, or for ever.
    ///
    /// ```
    /// use longhaul_broker::TokenKey;
    /// use std::time::Duration;
    ///
    /// let key = TokenKey::Secret(TokenKey::new_secret()?);
    /// let token = key.create_token("worker", None, Some(Duration::from_secs(3600)))?;
    /// assert_eq!(token.split('.').count(), 3);
    /// # Ok::<(), longhaul_broker::AuthConfigError>(())
    /// ```
    ///
    /// # Errors
    /// The key is a public key or too short a secret, the role is empty, or the system has no
    /// random numbers.
    pub fn create_token(
        &self,
        role: &str,
        audience: Option<&str>,
        expires: Option<Duration>,
    ) -> Result<String, AuthConfigError> {
        let secret = match self {
            Self::Secret(secret) if secret.len() < SECRET_BYTES_MIN => {
                return Err(AuthConfigError::Short(secret.len()));
            }
            Self::Secret(secret) => secret,
            Self::Public(_) => return Err(AuthConfigError::NotASecret),
        };
        if role.is_empty() {
            return Err(AuthConfigError::NoRole);
        }
        let iat = clock::wall_ms() / 1000;
        let exp = expires.map(|time| iat.saturating_add(time.as_secs()));
        let mut id = [0; 8];
        SystemRandom::new().fill(&mut id).map_err(|_| AuthConfigError::NoRandomness)?;
        let jti = format!("{:016x}", u64::from_be_bytes(id));
        let claims =
            serde_json::to_vec(&NewTokenClaims { sub: role, aud: audience, iat, exp, jti });
        let claims = claims.map_err(|_| AuthConfigError::NoRole)?;
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!("{}.{}", encode(HEADER.as_bytes()), encode(&claims));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let signature = hmac::sign(&key, signed.as_bytes());
        Ok(format!("{signed}.{}", encode(signature.as_ref())))
    }

    /// The id of a token, its claim `jti`, by which [`AuthConfig::roles_file`] revokes it; `None`
    /// if it has none. The signature is not checked.
    ///
    /// [`AuthConfig::roles_file`]: super::AuthConfig::roles_file
    #[must_use]
    pub fn token_id(token: &str) -> Option<String> {
        let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
        serde_json::from_slice(&claims).ok().map(|TokenIdClaim { jti }| jti)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SECRET, token};
    use super::super::{AuthConfig, AuthError, Authenticator};
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_token_is_taken_by_the_broker_that_has_its_secret_until_it_expires() {
        let secret = TokenKey::new_secret().unwrap();
        assert_ne!(secret, TokenKey::new_secret().unwrap());
        let key = TokenKey::Secret(secret);
        let superusers = BTreeSet::from(["root".to_owned()]);
        let broker = Authenticator::new(&AuthConfig::new(key.clone(), superusers)).unwrap();
        let now = clock::wall_ms() / 1000;
        let token = key.create_token("root", None, None).unwrap();
        let other = key.create_token("root", None, None).unwrap();
        assert_ne!(TokenKey::token_id(&token).unwrap(), TokenKey::token_id(&other).unwrap());
        let role = broker.authenticate("token", token.as_bytes(), now + (1 << 40)).unwrap();
        assert!(role.superuser && role.name == "root");
        assert_eq!(role.token_id, TokenKey::token_id(&token), "the id that revokes it");
        let hour = Some(Duration::from_secs(3600));
        let token = key.create_token("a \"worker\"", None, hour).unwrap();
        let role = broker.authenticate("token", token.as_bytes(), now).unwrap();
        assert!(!role.superuser && role.name == "a \"worker\"");
        let late = broker.authenticate("token", token.as_bytes(), now + 3700);
        assert_eq!(late, Err(AuthError::Expired));
        let other = TokenKey::Secret(TokenKey::new_secret().unwrap());
        let foreign = other.create_token("root", None, None).unwrap();
        let refused = broker.authenticate("token", foreign.as_bytes(), now);
        assert_eq!(refused, Err(AuthError::Signature));
    }

    /// An issuer may sign tokens of several services with one key.
    #[test]
    fn a_token_for_another_audience_is_refused() {
        let key = || TokenKey::Secret(TokenKey::new_secret().unwrap());
        let (own, key) = (key(), key());
        let config = AuthConfig {
            audience: Some("broker".to_owned()),
            own_key: Some(own.clone()),
            ..AuthConfig::new(key.clone(), BTreeSet::new())
        };
        let broker = Authenticator::new(&config).unwrap();
        let ask = |key: &TokenKey, audience| {
            let token = key.create_token("ann", audience, None).unwrap();
            broker.authenticate("token", token.as_bytes(), 0).map(drop)
        };
        assert_eq!(ask(&key, None), Err(AuthError::Audience));
        assert_eq!(ask(&key, Some("mails")), Err(AuthError::Audience));
        assert_eq!(ask(&key, Some("broker")), Ok(()));
        assert_eq!(ask(&own, None), Ok(()), "a client in this process");
        let broker = AuthConfig::new(TokenKey::Secret(SECRET.to_vec()), BTreeSet::new());
        let broker = AuthConfig { audience: Some("broker".to_owned()), ..broker };
        let broker = Authenticator::new(&broker).unwrap();
        for (audience, expected) in [
            (r#"["mails","broker"]"#, Ok(())),
            ("[]", Err(AuthError::Audience)),
            ("null", Err(AuthError::Audience)),
            ("7", Err(AuthError::Malformed)),
        ] {
            let token = token(&format!(r#"{{"sub":"ann","aud":{audience}}}"#));
            let role = broker.authenticate("token", token.as_bytes(), 0).map(drop);
            assert_eq!(role, expected, "{audience}");
        }
    }

    #[test]
    fn what_cannot_sign_says_so() {
        let made =
            |key: TokenKey, role: &str| key.create_token(role, None, None).unwrap_err().to_string();
        assert!(made(TokenKey::Public(Vec::new()), "a").contains("a secret is needed"));
        assert!(made(TokenKey::Secret(vec![0; 31]), "a").contains("31 bytes"));
        assert!(made(TokenKey::Secret(vec![0; 32]), "").contains("role"));
    }
}

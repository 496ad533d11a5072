//! Certificates and tokens, created for each run.

use anyhow::Result;
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use integration_tests::sandbox::{BrokerConfig, Security};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use ring::hmac;

/// The only name in the certificates made here, unless a test passes another.
pub(crate) const ADDRESS: &str = "127.0.0.1";

/// A certificate authority for tests.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key, in PEM.
pub(crate) struct Certified {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// The certificate that clients are configured to trust.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Makes a certificate for a server with this host name or address.
    pub(crate) fn certify(&self, host: &str) -> Result<Certified> {
        self.sign(&CertificateParams::new([host.to_owned()])?)
    }

    /// As [`certify`](Self::certify), but the certificate has expired.
    pub(crate) fn certify_the_past(&self, host: &str) -> Result<Certified> {
        let mut params = CertificateParams::new([host.to_owned()])?;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        self.sign(&params)
    }

    /// Makes a certificate for a client with this role.
    pub(crate) fn certify_role(&self, role: &str) -> Result<Certified> {
        self.sign(&role_params(role)?)
    }

    /// As [`certify_role`](Self::certify_role), but the certificate has expired.
    pub(crate) fn certify_role_of_the_past(&self, role: &str) -> Result<Certified> {
        let mut params = role_params(role)?;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        self.sign(&params)
    }

    /// The configuration of a broker with a certificate of this authority, with tokens of this
    /// secret, and with these passwords, in the format of `htpasswd`.
    pub(crate) fn broker(&self, secret: &Secret, passwords: String) -> Result<BrokerConfig> {
        let certified = self.certify(ADDRESS)?;
        let security = Security {
            certificate_pem: certified.certificate_pem,
            key_pem: certified.key_pem,
            token_secret_base64: secret.base64(),
            superuser_token: secret.token(Security::SUPERUSER),
            client_authority_pem: self.pem(),
            passwords,
        };
        // With this setting a real Pulsar checks every second for expired tokens; the default is
        // once a minute.
        let extra = vec![("authenticationRefreshCheckSeconds".to_owned(), "1".to_owned())];
        Ok(BrokerConfig { extra, security: Some(security), ..BrokerConfig::default() })
    }

    fn sign(&self, params: &CertificateParams) -> Result<Certified> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Certified { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

fn role_params(role: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, role);
    Ok(params)
}

/// Signs tokens (HS256).
pub(crate) struct Secret([u8; 32]);

impl Secret {
    pub(crate) fn new() -> Self {
        let mut bytes = [0; 32];
        // The generator is seeded from the system; a secret for tests need not be stronger.
        fastrand::fill(&mut bytes);
        Self(bytes)
    }

    pub(crate) fn base64(&self) -> String {
        BASE64_STANDARD.encode(self.0)
    }

    /// A token for a role that does not expire.
    pub(crate) fn token(&self, role: &str) -> String {
        self.sign(&serde_json::json!({"sub": role}))
    }

    /// A token for a role that expired long ago.
    pub(crate) fn expired_token(&self, role: &str) -> String {
        self.token_until(role, 1)
    }

    /// A token for a role that is valid until `end`, in seconds since the epoch.
    pub(crate) fn token_until(&self, role: &str, end: u64) -> String {
        self.sign(&serde_json::json!({"sub": role, "exp": end}))
    }

    fn sign(&self, claims: &serde_json::Value) -> String {
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let (header, claims) =
            (encode(br#"{"alg":"HS256"}"#), encode(claims.to_string().as_bytes()));
        let text = format!("{header}.{claims}");
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        format!("{text}.{}", encode(hmac::sign(&key, text.as_bytes()).as_ref()))
    }
}

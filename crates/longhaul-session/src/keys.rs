//! Certificates for tests, generated in each run.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "only tests use it")]

use super::tls::{ClientCertificate, TlsOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

/// A certificate authority.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Creates an authority of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its certificate as PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a host, or for a client.
    #[must_use]
    pub fn certify(&self, name: &str) -> ClientCertificate {
        self.sign(&CertificateParams::new([name.to_owned()]).unwrap())
    }

    /// An expired certificate for a host or a client.
    #[must_use]
    pub fn certify_the_past(&self, name: &str) -> ClientCertificate {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> ClientCertificate {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        ClientCertificate::new(certificate.pem(), key.serialize_pem())
    }

    /// A client that trusts this authority.
    #[must_use]
    pub fn client(&self, client: Option<ClientCertificate>) -> Arc<ClientConfig> {
        let ca_certificate_pem = Some(self.pem().into_bytes());
        let options = TlsOptions { ca_certificate_pem, client, ..TlsOptions::default() };
        Arc::new(options.client_config().unwrap())
    }

    /// A server that requires clients certified by this authority.
    #[must_use]
    pub fn demanding_server(&self, certified: &ClientCertificate) -> ServerConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap());
        builder.with_single_cert(chain(certified), key(certified)).unwrap()
    }
}

/// A server that accepts all clients.
#[must_use]
pub fn server(certified: &ClientCertificate) -> ServerConfig {
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain(certified), key(certified))
        .unwrap()
}

fn chain(certified: &ClientCertificate) -> Vec<CertificateDer<'static>> {
    vec![CertificateDer::from_pem_slice(&certified.certificate_pem).unwrap()]
}

fn key(certified: &ClientCertificate) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(&certified.key_pem).unwrap()
}

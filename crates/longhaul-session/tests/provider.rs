//! A process of its own: the default provider of a process is installed once.

use longhaul_session::TlsOptions;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};

#[test]
fn the_provider_that_the_program_has_installed_comes_before_ring() {
    let suites = || {
        let config = TlsOptions::default().client_config().unwrap();
        config.crypto_provider().cipher_suites.len()
    };
    assert_eq!(suites(), default_provider().cipher_suites.len());
    let cipher_suites = vec![cipher_suite::TLS13_AES_256_GCM_SHA384];
    CryptoProvider { cipher_suites, ..default_provider() }.install_default().unwrap();
    assert_eq!(suites(), 1);
}

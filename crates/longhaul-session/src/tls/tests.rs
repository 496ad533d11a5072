use super::*;
use crate::keys::Authority;

#[track_caller]
fn check(options: &TlsOptions, words: &str) {
    let error = options.client_config().unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn what_is_no_certificate_is_told() {
    let authority = Authority::new("ours");
    let certified = authority.certify("client");
    let with_ca =
        |pem: &[u8]| TlsOptions { ca_certificate_pem: Some(pem.to_vec()), ..TlsOptions::default() };
    check(&with_ca(b"no PEM"), "authorities holds no certificate");
    check(&with_ca(&certified.key_pem), "authorities holds no certificate");
    check(&with_ca(b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"), "be read");
    check(&with_ca(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "be used");
}

#[test]
fn a_client_certificate_needs_its_own_key() {
    let authority = Authority::new("ours");
    let (one, other) = (authority.certify("one"), authority.certify("other"));
    let with_client = |certificate_pem: &[u8], key_pem: &[u8]| TlsOptions {
        client: Some(ClientCertificate::new(certificate_pem, key_pem)),
        ..TlsOptions::default()
    };
    assert!(with_client(&one.certificate_pem, &one.key_pem).client_config().is_ok());
    check(&with_client(&one.certificate_pem, &other.key_pem), "does not match its key");
    check(&with_client(&one.key_pem, &one.key_pem), "client certificate holds no certificate");
    check(&with_client(&one.certificate_pem, &one.certificate_pem), "holds no private key");
    let broken = b"-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n";
    check(&with_client(&one.certificate_pem, broken), "client certificate cannot be read");
    let locked =
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    check(&with_client(&one.certificate_pem, locked), "needs no passphrase");
}

#[test]
fn somebody_has_to_be_trusted() {
    let nobody = TlsOptions { ca_certificate_only: true, ..TlsOptions::default() };
    check(&nobody, "no certificate authority to trust");
    let ca_certificate_pem = Some(Authority::new("ours").pem().into_bytes());
    let own = TlsOptions { ca_certificate_pem, ca_certificate_only: true, ..TlsOptions::default() };
    assert!(own.client_config().is_ok());
}

/// Certificates were read once, at the start. Certificates that are valid for one day, as many
/// clusters use them, ended workers that ran for two.
#[test]
fn certificates_in_files_are_read_each_time() {
    let authority = Authority::new("ours");
    let (one, other) = (authority.certify("one"), authority.certify("other"));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("ca.pem"), authority.pem()).unwrap();
    std::fs::write(path("key.pem"), &one.key_pem).unwrap();
    let paths =
        ClientCertificatePaths { certificate: path("certificate.pem"), key: path("key.pem") };
    let options = TlsOptions {
        ca_certificate_path: Some(path("ca.pem")),
        ca_certificate_only: true,
        client_paths: Some(paths),
        ..TlsOptions::default()
    };
    check(&options, "certificate.pem: No such file");
    std::fs::write(path("certificate.pem"), &one.certificate_pem).unwrap();
    assert!(options.client_config().is_ok());
    std::fs::write(path("certificate.pem"), &other.certificate_pem).unwrap();
    check(&options, "does not match its key");
    std::fs::write(path("key.pem"), &other.key_pem).unwrap();
    assert!(options.client_config().is_ok());
    std::fs::write(path("ca.pem"), "rubbish").unwrap();
    check(&options, "authorities holds no certificate");
}

//! A broker that needs tokens, and every way to pass one.

use super::dev::Service;
use super::stage::longhaul;
use longhaul_broker::{AuthConfig, Broker, BrokerConfig, TlsConfig, TokenKey};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

struct Secured {
    folder: TempDir,
    broker: Broker,
    token: String,
}

impl Secured {
    fn new() -> Self {
        let key = TokenKey::Secret(TokenKey::new_secret().unwrap());
        let token = key.create_token("ann", None, None).unwrap();
        let auth = Some(AuthConfig::new(key, ["ann".to_owned()].into()));
        let broker = Broker::start(BrokerConfig { auth, ..BrokerConfig::default() }).unwrap();
        Self { folder: TempDir::new().unwrap(), broker, token }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn submit(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
        let all = [&["task", "submit", "tasks", "x", "-q", "--timeout", "30s"], arguments].concat();
        let mut command = longhaul(&all, self.folder.path());
        for name in ["LONGHAUL_SERVICE_URL", "PULSAR_SERVICE_URL"] {
            command.env_remove(name);
        }
        command.env("LONGHAUL_CONFIG", self.folder.path().join("config.toml"));
        command.envs(variables.iter().copied()).output().unwrap()
    }
}

/// Variables and arguments.
type Way<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);

#[test]
fn a_token_comes_from_each_place_that_may_have_it() {
    let it = Secured::new();
    let url = it.broker.service_url();
    let token = it.file("token", &format!("{}\n", it.token));
    let params = it.file("params", &format!("token:{}\n", it.token));
    let class = "org.apache.pulsar.client.impl.auth.AuthenticationToken";
    let text = format!("token:{}", it.token);
    let ways: [Way<'_>; 5] = [
        (&[], &["--service-url", url, "--token-file", &token]),
        (&[("LONGHAUL_TOKEN", &it.token)], &["--service-url", url]),
        (&[("LONGHAUL_SERVICE_URL", url), ("LONGHAUL_AUTH_PARAMS_FILE", &params)], &[]),
        (&[("LONGHAUL_SERVICE_URL", url)], &["--auth-plugin", class, "--auth-params", &text]),
        (&[("PULSAR_SERVICE_URL", url)], &["--token-file", &token]),
    ];
    for (variables, arguments) in ways {
        let output = it.submit(variables, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    // A relative path was kept as it stood, and the context was of use in one folder alone.
    let below = it.folder.path().join("below");
    fs::create_dir(&below).unwrap();
    let added =
        ["context", "add", "prod", "--service-url", url, "--token-file", "../token", "--select"];
    let mut add = longhaul(&added, &below);
    add.env("LONGHAUL_CONFIG", it.folder.path().join("config.toml"));
    assert!(add.output().unwrap().status.success());
    assert!(it.submit(&[], &[]).status.success(), "the selected context has the token");
}

#[test]
fn who_has_no_token_is_told_what_to_do_and_secrets_are_not_repeated() {
    let it = Secured::new();
    let url = it.broker.service_url();
    let wrong =
        TokenKey::Secret(TokenKey::new_secret().unwrap()).create_token("ann", None, None).unwrap();
    for variables in [&[][..], &[("LONGHAUL_TOKEN", wrong.as_str())]] {
        let output = it.submit(variables, &["--service-url", url]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("not authorized"), "{told}");
        assert!(told.contains("what to do: set credentials with --token-file"), "{told}");
        assert!(!told.contains(&wrong), "{told}");
    }
}

/// A self-signed certificate for this machine.
fn certificate(folder: &Path) -> TlsConfig {
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let (certificates, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    fs::write(&certificates, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    TlsConfig { certificates, key, client_authorities: None }
}

#[test]
fn who_trusts_the_authority_talks_to_a_broker_by_tls() {
    let folder = TempDir::new().unwrap();
    let tls = certificate(folder.path());
    let authority = tls.certificates.display().to_string();
    let listen_tls = Some("127.0.0.1:0".parse().unwrap());
    let config = BrokerConfig { tls: Some(tls), listen_tls, ..BrokerConfig::default() };
    let broker = Broker::start(config).unwrap();
    let url = broker.service_url_tls().unwrap();
    let submit = |more: &[&str]| {
        let arguments = [&["task", "submit", "tasks", "x"], more].concat();
        let mut command = longhaul(&arguments, folder.path());
        command.env("LONGHAUL_CONFIG", "none.toml").output().unwrap()
    };
    let trusting = ["--service-url", url, "--tls-trust-certs-file", &authority];
    let output = submit(&trusting);
    assert!(output.status.success(), "{output:?}");
    let stranger = submit(&["--service-url", url]);
    let told = String::from_utf8(stranger.stderr).unwrap();
    assert_eq!(stranger.status.code(), Some(1), "{told}");
    assert!(told.contains("certificate") && told.contains("with --tls-trust-certs-file"), "{told}");
}

#[test]
fn a_gateway_is_asked_with_its_token_by_tls() {
    let folder = TempDir::new().unwrap();
    let tls = certificate(folder.path());
    let authority = tls.certificates.display().to_string();
    // The output of `printf %s TOKEN | sha256sum`.
    let (token, hash) = (
        "a token for tests, thirty-two bytes",
        "f2a291dac085f1c3c7ba24ab2a9630ddfde3f6253a9239af8ec8518f0d8e4f18",
    );
    let tokens = folder.path().join("tokens.json");
    let text = format!(r#"{{"tokens":[{{"name":"ann","sha256":"{hash}","scopes":["read"]}}]}}"#);
    fs::write(&tokens, text).unwrap();
    let (tokens, key) = (tokens.to_str().unwrap(), tls.key.to_str().unwrap());
    let files = ["--http-certificate-file", &authority, "--http-key-file", key];
    let start = ["server", "start", "--data", "data", "--http-tokens", tokens];
    let service = Service::start(&[&start[..], &files].concat(), folder.path());
    let gateway = service.http.as_str();
    assert!(gateway.starts_with("https://"), "{gateway}");
    let ask = |token: &str, more: &[&str]| {
        let arguments = [&["queue", "list", "--gateway", gateway], more].concat();
        let mut command = longhaul(&arguments, folder.path());
        command.env("LONGHAUL_CONFIG", "none.toml").env("LONGHAUL_TOKEN", token);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let trusting = ["--tls-trust-certs-file", authority.as_str()];
    assert_eq!(ask(token, &trusting), (Some(0), "nothing to show\n".to_owned()));
    for wrong in ["", "another token, of thirty-two bytes"] {
        let (code, told) = ask(wrong, &trusting);
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("what to do: set a token of the gateway"), "{told}");
    }
    let (code, told) = ask(token, &[]);
    assert_eq!(code, Some(5), "{told}");
    assert!(told.contains("certificate") && !told.contains(token), "{told}");
    assert!(told.contains("with --tls-trust-certs-file"), "{told}");
}

/// The program ignored its certificate towards a gateway.
#[test]
fn a_gateway_that_wants_certificates_is_shown_one() {
    let folder = TempDir::new().unwrap();
    let tls = certificate(folder.path());
    let authority = tls.certificates.to_str().unwrap();
    let key = tls.key.to_str().unwrap();
    let files = ["--http-certificate-file", authority, "--http-key-file", key];
    let start = ["server", "start", "--data", "data"];
    let clients = ["--http-client-authorities", authority];
    let service = Service::start(&[&start[..], &files, &clients].concat(), folder.path());
    let gateway = service.http.as_str();
    let ask = |more: &[&str]| {
        let ask = ["queue", "list", "--gateway", gateway, "--tls-trust-certs-file", authority];
        let mut command = longhaul(&[&ask[..], &["--timeout", "5s"], more].concat(), folder.path());
        command.env("LONGHAUL_CONFIG", "none.toml");
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let shown = ["--tls-certificate-file", authority, "--tls-key-file", key];
    assert_eq!(ask(&shown), (Some(0), "nothing to show\n".to_owned()));
    assert_ne!(ask(&[]).0, Some(0));
    let (code, told) = ask(&shown[..2]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("both --tls-certificate-file and --tls-key-file"), "{told}");
}

#[test]
fn a_gateway_uses_the_embedded_broker_that_wants_tokens() {
    let folder = TempDir::new().unwrap();
    let secret = "data:;base64,YSBzZWNyZXQgb2YgMzIgYnl0ZXMgZm9yIHRlc3Rpbmc=";
    let server = Service::start_with(
        &[("LONGHAUL_BROKER_TOKEN_SECRET", secret)],
        &["server", "start", "--data", "data", "--broker-superusers", "ann"],
        folder.path(),
    );
    let url = server.broker.as_str();
    let token = TokenKey::secret(secret).unwrap().create_token("ann", None, None).unwrap();
    let submit = |variables: &[(&str, &str)]| {
        let arguments = ["task", "submit", "tasks", "x", "--service-url", url];
        let mut command = longhaul(&arguments, folder.path());
        let output = command.env("LONGHAUL_CONFIG", "none.toml").envs(variables.iter().copied());
        output.output().unwrap().status.code()
    };
    assert_eq!(submit(&[("LONGHAUL_TOKEN", &token)]), Some(0));
    assert_eq!(submit(&[]), Some(1));
    assert_eq!(server.end(Signal::TERM), Some(0));
}

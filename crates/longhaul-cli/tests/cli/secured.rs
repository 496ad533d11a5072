//! A broker that wants tokens, and each way to give it one.

use super::stage::longhaul;
use longhaul_broker::{AuthConfig, Broker, BrokerConfig, TokenKey};
use std::fs;
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
        let token = key.create_token("ann", None).unwrap();
        let auth = Some(AuthConfig { key, superusers: ["ann".to_owned()].into() });
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
        for name in ["LONGHAUL_SERVICE_URL", "PULSAR_SERVICE_URL", "PULSAR_CLIENT_CONF"] {
            command.env_remove(name);
        }
        command.env("LONGHAUL_CONFIG", self.folder.path().join("config.toml"));
        command.envs(variables.iter().copied()).output().unwrap()
    }
}

/// Variables, and arguments.
type Way<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);

#[test]
fn a_token_comes_from_each_place_that_may_have_it() {
    let it = Secured::new();
    let (url, admin) = (it.broker.service_url(), it.broker.admin_url().unwrap());
    let token = it.file("token", &format!("{}\n", it.token));
    let params = it.file("params", &format!("token:{}\n", it.token));
    let class = "org.apache.pulsar.client.impl.auth.AuthenticationToken";
    let conf = format!(
        "webServiceUrl={admin}/\nbrokerServiceUrl={url}/\nauthPlugin={class}\nauthParams=file://{token}\n"
    );
    let conf = it.file("client.conf", &conf);
    let text = format!("token:{}", it.token);
    let ways: [Way<'_>; 6] = [
        (&[], &["--service-url", url, "--token-file", &token]),
        (&[("LONGHAUL_TOKEN", &it.token)], &["--service-url", url]),
        (&[("LONGHAUL_SERVICE_URL", url), ("LONGHAUL_AUTH_PARAMS_FILE", &params)], &[]),
        (&[("LONGHAUL_SERVICE_URL", url)], &["--auth-plugin", class, "--auth-params", &text]),
        (&[("PULSAR_CLIENT_CONF", &conf)], &[]),
        (&[("PULSAR_CLIENT_CONF", &conf), ("PULSAR_SERVICE_URL", url)], &[]),
    ];
    for (variables, arguments) in ways {
        let output = it.submit(variables, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let added =
        ["context", "add", "prod", "--service-url", url, "--token-file", &token, "--select"];
    let mut add = longhaul(&added, it.folder.path());
    add.env("LONGHAUL_CONFIG", it.folder.path().join("config.toml"));
    assert!(add.output().unwrap().status.success());
    assert!(it.submit(&[], &[]).status.success(), "the selected context has the token");
}

#[test]
fn who_has_no_token_is_told_what_to_do_and_secrets_are_not_repeated() {
    let it = Secured::new();
    let url = it.broker.service_url();
    let wrong =
        TokenKey::Secret(TokenKey::new_secret().unwrap()).create_token("ann", None).unwrap();
    for variables in [&[][..], &[("LONGHAUL_TOKEN", wrong.as_str())]] {
        let output = it.submit(variables, &["--service-url", url]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("not authorized"), "{told}");
        assert!(told.contains("what to do: give credentials with --token-file"), "{told}");
        assert!(!told.contains(&wrong), "{told}");
    }
}

#[test]
fn a_gateway_uses_the_embedded_broker_that_wants_tokens() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let folder = TempDir::new().unwrap();
    let secret = "data:;base64,YSBzZWNyZXQgb2YgMzIgYnl0ZXMgZm9yIHRlc3Rpbmc=";
    let mut command = longhaul(
        &[
            "server",
            "start",
            "--data",
            "data",
            "--http",
            "127.0.0.1:0",
            "--broker",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--broker-superusers",
            "ann",
            "-o",
            "jsonl",
        ],
        folder.path(),
    );
    command.env("LONGHAUL_BROKER_TOKEN_SECRET", secret).env("LONGHAUL_CONFIG", "none.toml");
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    let url = told["broker"].as_str().unwrap();
    let token = TokenKey::secret(secret).unwrap().create_token("ann", None).unwrap();
    let submit = |variables: &[(&str, &str)]| {
        let arguments = ["task", "submit", "tasks", "x", "--service-url", url];
        let mut command = longhaul(&arguments, folder.path());
        let output = command.env("LONGHAUL_CONFIG", "none.toml").envs(variables.iter().copied());
        output.output().unwrap().status.code()
    };
    assert_eq!(submit(&[("LONGHAUL_TOKEN", &token)]), Some(0));
    assert_eq!(submit(&[]), Some(1));
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

//! Builds a client from settings: address, credentials, TLS.

use crate::exit::CommandFailure;
use crate::settings::CliSettings;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longhaul::auth::{Credentials, OAuth2};
use longhaul::{Client, ClientBuilder};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// A client builder with the address and the credentials.
///
/// # Errors
/// When the credentials cannot be read.
pub(crate) fn builder(settings: &CliSettings) -> Result<ClientBuilder, CommandFailure> {
    let mut builder = Client::builder(settings.text("service-url").unwrap_or_default());
    if let Some(url) = settings.text("admin-url") {
        builder = builder.admin_url(url);
    }
    if let Some(name) = settings.text("subscription") {
        builder = builder.subscription(name);
    }
    if let Some(name) = settings.text("listener-name") {
        builder = builder.listener_name(name);
    }
    if let Some(name) = settings.text("operator") {
        builder = builder.operator(name);
    }
    if let Some(path) = settings.path("tls-trust-certs-file") {
        builder = builder.ca_certificate_file(path);
    }
    let auth = AuthSettings::of(settings)?;
    let files = certificate_files(settings)?;
    if let Some((certificate, key)) = auth.certificate.or(files) {
        builder = builder.client_certificate_files(certificate, key);
    }
    Ok(match auth.credentials {
        Some(credentials) => builder.credentials(credentials),
        None => builder,
    })
}

/// The files of the certificate that identifies the program, and of its key.
///
/// # Errors
/// When only one of the two is given.
pub(crate) fn certificate_files(
    settings: &CliSettings,
) -> Result<Option<(PathBuf, PathBuf)>, CommandFailure> {
    match (settings.path("tls-certificate-file"), settings.path("tls-key-file")) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => {
            Err(CommandFailure::usage("a client certificate needs its key")
                .help("set both --tls-certificate-file and --tls-key-file"))
        }
    }
}

/// The credentials from `auth-plugin` and `auth-params`, or from a token.
#[derive(Debug, Default)]
struct AuthSettings {
    credentials: Option<Credentials>,
    certificate: Option<(PathBuf, PathBuf)>,
}

impl AuthSettings {
    fn of(settings: &CliSettings) -> Result<Self, CommandFailure> {
        if let Some(path) = settings.path("token-file") {
            return Ok(Self::with(Credentials::token_file(path)));
        }
        if let Some(token) = settings.text("token") {
            return Ok(Self::with(Credentials::token(token)));
        }
        let params = settings.text("auth-params").unwrap_or_default();
        match settings.text("auth-plugin") {
            Some(plugin) => Self::read(plugin, params),
            None if params.is_empty() => Ok(Self::default()),
            None if is_token(params) => Self::read("token", params),
            None => Err(CommandFailure::usage("auth-params is set without auth-plugin")
                .help("set --auth-plugin to token, tls, basic or oauth2")),
        }
    }

    const fn with(credentials: Credentials) -> Self {
        Self { credentials: Some(credentials), certificate: None }
    }

    /// Parses parameters like the plugins of Pulsar's clients. Errors do not repeat them.
    fn read(plugin: &str, params: &str) -> Result<Self, CommandFailure> {
        let failed = |problem: &str| {
            Err(CommandFailure::usage(format!("auth-params of the plugin `{plugin}`: {problem}")))
        };
        let fields = AuthParams::read(params);
        // A short name, or a class of Pulsar's Java client.
        match plugin.rsplit_once('.').map_or(plugin, |(_, class)| class) {
            "token" | "AuthenticationToken" => match token(params, &fields) {
                Some(credentials) => Ok(Self::with(credentials)),
                None => failed("expected token:TEXT or file:///PATH"),
            },
            "tls" | "AuthenticationTls" => {
                match (fields.get(&["tlsCertFile"]), fields.get(&["tlsKeyFile"])) {
                    (Some(certificate), Some(key)) => {
                        let certificate = Some((path(certificate), path(key)));
                        Ok(Self { credentials: None, certificate })
                    }
                    _ => failed("expected tlsCertFile:PATH,tlsKeyFile:PATH"),
                }
            }
            "basic" | "AuthenticationBasic" => {
                let user = fields.get(&["userId", "username"]);
                let whole = params.split_once(':').filter(|_| fields.is_empty());
                match user.zip(fields.get(&["password"])).or(whole) {
                    Some((user, password)) => Ok(Self::with(Credentials::basic(user, password))),
                    None => failed(r#"expected {"userId":"…","password":"…"} or USER:PASSWORD"#),
                }
            }
            "oauth2" | "AuthenticationOAuth2" => match oauth2(&fields) {
                Some(options) => Ok(Self::with(Credentials::oauth2(options))),
                None => failed(
                    r#"expected {"privateKey":"file:///PATH","issuerUrl":"https://…","audience":"…"}"#,
                ),
            },
            _ => {
                let what = format!("the authentication `{plugin}` is not supported");
                let help = "use token, tls, basic or oauth2, or the name of such a class of \
                    Pulsar's Java client";
                Err(CommandFailure::usage(what).help(help))
            }
        }
    }
}

fn is_token(params: &str) -> bool {
    params.starts_with("token:") || params.starts_with("file:")
}

fn token(params: &str, fields: &AuthParams) -> Option<Credentials> {
    if let Some(text) = params.strip_prefix("token:") {
        return Some(Credentials::token(text));
    }
    if params.starts_with("file:") {
        return Some(Credentials::token_file(path(params)));
    }
    if let Some(text) = fields.get(&["token"]) {
        return Some(Credentials::token(text));
    }
    // Pulsar accepts a bare token, too.
    let is_bare = fields.is_empty() && !params.is_empty() && !params.contains([' ', '{']);
    is_bare.then(|| Credentials::token(params))
}

fn oauth2(fields: &AuthParams) -> Option<OAuth2> {
    let key = fields.get(&["privateKey"])?;
    let mut options = match key.strip_prefix("data:").and_then(|it| it.split_once("base64,")) {
        Some((_, encoded)) => {
            let json = STANDARD.decode(encoded).ok().and_then(|it| String::from_utf8(it).ok())?;
            OAuth2::key_json(json)
        }
        None => OAuth2::key_file(path(key)),
    };
    if let Some(url) = fields.get(&["issuerUrl", "issuer_url"]) {
        options = options.issuer_url(url);
    }
    if let Some(audience) = fields.get(&["audience"]) {
        options = options.audience(audience);
    }
    if let Some(scope) = fields.get(&["scope"]) {
        options = options.scope(scope);
    }
    Some(options)
}

/// A path, plain or as a `file:` URL.
fn path(text: &str) -> PathBuf {
    let text = text.strip_prefix("file:").unwrap_or(text);
    PathBuf::from(text.strip_prefix("//").unwrap_or(text))
}

/// Named parameters: JSON, or `name:value` separated by commas.
#[derive(Debug, Default)]
struct AuthParams(Map<String, Value>);

impl AuthParams {
    fn read(params: &str) -> Self {
        if let Ok(Value::Object(fields)) = serde_json::from_str(params) {
            return Self(fields);
        }
        let names = ["tlsCertFile", "tlsKeyFile", "userId", "username", "password"];
        let named = |part: &str| {
            let (name, value) = part.trim().split_once(':')?;
            names.contains(&name).then(|| (name.to_owned(), Value::from(value)))
        };
        Self(params.split(',').map(named).collect::<Option<_>>().unwrap_or_default())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn get(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.0.get(*name)?.as_str()).filter(|it| !it.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(plugin: &str, params: &str) -> String {
        match AuthSettings::read(plugin, params) {
            Ok(AuthSettings { credentials, certificate }) => {
                format!("{credentials:?} {certificate:?}")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn plugins_have_short_names_and_those_of_their_classes() {
        let class = "org.apache.pulsar.client.impl.auth.Authentication";
        for (plugin, params, kind) in [
            ("token", "token:abc", "Some(Credentials(Token("),
            ("token", "file:///t", r#"Some(Credentials(TokenFile("/t"))"#),
            ("token", "file:/t", r#"Some(Credentials(TokenFile("/t"))"#),
            ("token", r#"{"token":"abc"}"#, "Some(Credentials(Token("),
            ("token", "a.b.c", "Some(Credentials(Token("),
            ("tls", "tlsCertFile:/c,tlsKeyFile:/k", r#"None Some(("/c", "/k"))"#),
            ("tls", r#"{"tlsCertFile":"/c","tlsKeyFile":"/k"}"#, r#"None Some(("/c", "/k"))"#),
            (
                "basic",
                r#"{"userId":"ann","password":"p"}"#,
                r#"Some(Credentials(Basic { user: "ann""#,
            ),
            ("basic", "ann:p:q", r#"Some(Credentials(Basic { user: "ann""#),
            (
                "oauth2",
                r#"{"privateKey":"file:///k.json","audience":"a"}"#,
                "Some(Credentials(OAuth2(",
            ),
        ] {
            let found = shown(plugin, params);
            assert!(found.starts_with(kind), "{plugin} {params}: {found}");
            let long = match plugin {
                "token" => format!("{class}Token"),
                "tls" => format!("{class}Tls"),
                "basic" => format!("{class}Basic"),
                _ => "org.apache.pulsar.client.impl.auth.oauth2.AuthenticationOAuth2".to_owned(),
            };
            assert!(shown(&long, params).starts_with(kind), "{long}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_without_the_secret() {
        for (plugin, params) in [
            ("token", ""),
            ("tls", "tlsCertFile:/secret"),
            ("basic", "secret"),
            ("oauth2", "secret"),
            ("oauth2", r#"{"privateKey":"data:application/json;base64,secret!"}"#),
            ("kerberos", "secret"),
        ] {
            let told = shown(plugin, params);
            assert!(told.starts_with("auth") || told.starts_with("the auth"), "{told}");
            assert!(!told.contains("secret"), "{told}");
        }
    }
}

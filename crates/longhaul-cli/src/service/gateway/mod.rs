//! The services of the commands, by the gateway's API: that of a gateway at an address, or the same
//! routes in this process, on a client of the broker.

mod address;
mod events;
mod in_process;
mod letters;
mod queues;
mod schedules;
mod tasks;
mod way;
mod workers;

use crate::connect::certificate_files;
use crate::exit::{CREDENTIALS, Code, CommandFailure, MISTRUST, code_of, is_mistrust, with_causes};
use crate::service::{no_levels, no_queue};
use crate::settings::CliSettings;
use address::{NAMESPACE, QueueAddress};
use anyhow::Context as _;
use bytes::Bytes;
use in_process::InProcess;
use longhaul::{Client, TaskRef};
use longhaul_api::Priority;
use reqwest::header::RETRY_AFTER;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
pub(crate) use tasks::{name_in_queue, priority_of};
pub(crate) use way::Patience;
use way::{Way, is_local};

/// The time limit for connecting.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// The time limit of an answer that is not a long poll. A view of a large queue takes long.
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// The time limit of a purge or a replay: the gateway works as long as its caller waits.
const WORK_TIME: Duration = Duration::from_secs(24 * 3600);

/// The maximum size of an answer.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The API's codes for a queue that does not exist, and for one without topics for priorities.
const NO_QUEUE: &str = "queue_not_found";
const NO_LEVELS: &str = "queue_has_no_levels";

/// How often a rate-limited request is repeated, and the longest pause before that.
const PAUSES_MAX: u32 = 5;
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A request without a query.
const NO_QUERY: &[(&str, String)] = &[];

/// A gateway.
#[derive(Clone)]
pub(crate) struct GatewayClient {
    /// The routes in this process; without them, requests go over the network.
    routes: Option<InProcess>,
    /// Builds all requests, also those to `routes`.
    http: reqwest::Client,
    way: Arc<Way>,
    token: Option<String>,
}

/// An error in a gateway's answer.
#[derive(Debug, Deserialize)]
struct ProblemResponse {
    #[serde(default)]
    code: String,
    #[serde(default)]
    detail: String,
}

/// What a request is about: a path of the API in a namespace, and the level whose tasks are meant.
/// The level goes with every request about a queue: the gateway refuses it where it is about the
/// whole queue.
#[derive(Clone, Debug)]
struct GatewayRoute {
    namespace: String,
    path: Vec<String>,
    level: Priority,
}

impl GatewayRoute {
    fn new(namespace: &str, path: &[&str]) -> Self {
        let path = path.iter().map(|&segment| segment.to_owned()).collect();
        Self { namespace: namespace.to_owned(), path, level: Priority::Normal }
    }

    /// A path below a task, whose name has the level.
    fn of_task(task: &TaskRef, rest: &[&str]) -> Result<Self, CommandFailure> {
        let (of, name) = QueueAddress::of_task(task)?;
        Ok(of.whole(&[&["tasks", &*name.to_string()], rest].concat()))
    }

    /// Adds a verb to the last segment.
    fn verb(mut self, verb: &str) -> Self {
        if let Some(last) = self.path.last_mut() {
            last.push(':');
            last.push_str(verb);
        }
        self
    }
}

impl GatewayClient {
    /// The gateway in the settings, if there is one.
    ///
    /// # Errors
    /// When its URL, token or authorities are invalid.
    pub(crate) fn of(
        settings: &CliSettings,
        patience: Patience,
    ) -> Result<Option<Self>, CommandFailure> {
        let parse = |text: &str| {
            let url = Url::parse(text).map_err(|error| error.to_string())?;
            let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
            if is_http { Ok(url) } else { Err("expected http://HOST:PORT".to_owned()) }
        };
        let Some(base) = settings.parsed("gateway", parse)? else { return Ok(None) };
        let mut client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIME)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")));
        let failed = |name: &str, path: &Path, why: &dyn Error| {
            CommandFailure::usage(format!("{name}: {}: {why}", path.display()))
        };
        let read = |name: &str, path: &Path| {
            std::fs::read(path).map_err(|error| failed(name, path, &error))
        };
        if let Some(path) = settings.path("tls-trust-certs-file") {
            let name = "tls-trust-certs-file";
            let authority = reqwest::Certificate::from_pem(&read(name, &path)?);
            client =
                client.tls_certs_merge([authority.map_err(|error| failed(name, &path, &error))?]);
        }
        if let Some((certificate, key)) = certificate_files(settings)? {
            let name = "tls-certificate-file";
            let both = [read(name, &certificate)?, read("tls-key-file", &key)?].join(&b'\n');
            let identity = reqwest::Identity::from_pem(&both);
            client = client.identity(identity.map_err(|error| failed(name, &certificate, &error))?);
        }
        let http = client.build().map_err(|error| CommandFailure::usage(with_causes(&error)))?;
        let token = token(settings)?;
        let way = Arc::new(Way::new(base, patience));
        Ok(Some(Self { routes: None, http, way, token }))
    }

    /// The API in this process, on a client of the broker.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub(crate) fn in_process(client: Client, patience: Patience) -> anyhow::Result<Self> {
        // It sends nothing, and so needs no certificates, which take long to read.
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
        let way = Arc::new(Way::in_process(Url::parse("http://localhost/")?, patience));
        Ok(Self { routes: Some(InProcess::new(client)), http, way, token: None })
    }

    /// The host to which the token would be sent unencrypted.
    pub(crate) fn eavesdropped(&self) -> Option<&str> {
        let base = &self.way.url;
        let is_overheard = base.scheme() == "http" && !is_local(base);
        base.host_str().filter(|_| self.token.is_some() && is_overheard)
    }

    /// Records a successful answer.
    pub(crate) fn back(&self) {
        self.way.back();
    }

    /// Waits until a retry after this failure makes sense.
    ///
    /// # Errors
    /// The failure itself, if a retry is of no use or it has lasted too long.
    pub(crate) async fn pause(&self, failure: anyhow::Error) -> anyhow::Result<()> {
        self.way.pause(failure).await
    }

    /// A request to a route.
    fn request(&self, method: Method, to: &GatewayRoute) -> anyhow::Result<RequestBuilder> {
        self.asking(method, to, NO_QUERY)
    }

    /// As `request`, with a query.
    fn asking(
        &self,
        method: Method,
        to: &GatewayRoute,
        query: &[(impl AsRef<str>, String)],
    ) -> anyhow::Result<RequestBuilder> {
        let mut url = self.way.url.clone();
        let namespace = match &self.routes {
            Some(_) => Some(to.namespace.split('/')),
            None if to.namespace == NAMESPACE => None,
            None => {
                let what = "a gateway serves only the queues of its own namespace";
                let help = "name the queue without tenant and namespace, or use the broker: \
                    --service-url instead of --gateway";
                return Err(CommandFailure::usage(what).help(help).into());
            }
        };
        let mut segments = url
            .path_segments_mut()
            .map_err(|()| CommandFailure::usage("the gateway's URL has no path"))?;
        segments.pop_if_empty().extend(namespace.into_iter().flatten());
        segments.push("v1").extend(&to.path);
        drop(segments);
        if to.level != Priority::Normal {
            url.query_pairs_mut().append_pair("level", to.level.word());
        }
        let said = query.iter().filter(|(_, text)| !text.is_empty());
        for (name, text) in said {
            url.query_pairs_mut().append_pair(name.as_ref(), text);
        }
        let request = self.http.request(method, url).timeout(ANSWER_TIME);
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    /// Sends a request. A rate-limited request is repeated a few times, when the gateway says.
    async fn send(&self, mut request: RequestBuilder) -> anyhow::Result<Response> {
        let mut pauses = 0;
        loop {
            let again = request.try_clone();
            let response = match &self.routes {
                Some(routes) => routes.answer(request.build()?).await?,
                None => request.send().await.map_err(|error| self.lost(&error))?,
            };
            self.way.answered();
            if response.status().is_success() {
                return Ok(response);
            }
            match (again, pause(&response)) {
                (Some(again), Some(pause)) if pauses < PAUSES_MAX => {
                    pauses += 1;
                    tokio::time::sleep(pause).await;
                    request = again;
                }
                _ => return Err(self.refused(response).await?.into()),
            }
        }
    }

    /// The error in a refusal.
    async fn refused(&self, response: Response) -> anyhow::Result<CommandFailure> {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = self.body(response).await?;
        let failure = match refused(status, &body) {
            failure if self.routes.is_some() => of_broker(failure),
            failure => failure,
        };
        self.way.refused(status, &headers, failure.api_code());
        Ok(failure)
    }

    /// The whole body of an answer.
    async fn body(&self, mut response: Response) -> anyhow::Result<Bytes> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.lost(&error))? {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(anyhow::anyhow!(
                    "the gateway's answer has more than {ANSWER_BYTES_MAX} bytes"
                ));
            }
        }
        Ok(Bytes::from(body))
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> anyhow::Result<T> {
        let response = self.send(request).await?;
        let body = self.body(response).await?;
        serde_json::from_slice(&body).context("cannot read the gateway's answer")
    }

    async fn get<T: DeserializeOwned>(&self, from: &GatewayRoute) -> anyhow::Result<T> {
        self.query(from, NO_QUERY).await
    }

    /// As `get`, with a query.
    async fn query<T: DeserializeOwned>(
        &self,
        from: &GatewayRoute,
        query: &[(impl AsRef<str>, String)],
    ) -> anyhow::Result<T> {
        loop {
            let failure = match self.json(self.asking(Method::GET, from, query)?).await {
                // A gateway waits for its broker; without one, this command does.
                Err(failure) if self.routes.is_some() => failure,
                told => return told,
            };
            self.pause(failure).await?;
        }
    }

    async fn post<T: DeserializeOwned>(
        &self,
        to: &GatewayRoute,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.json(self.request(Method::POST, to)?.json(body)).await
    }

    /// As `post`, for work that takes as long as it takes: purges and replays.
    async fn work<T: DeserializeOwned>(
        &self,
        to: &GatewayRoute,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.json(self.request(Method::POST, to)?.timeout(WORK_TIME).json(body)).await
    }

    /// Sends a POST without using the answer.
    async fn tell(&self, to: &GatewayRoute, body: &impl Serialize) -> anyhow::Result<()> {
        self.send(self.request(Method::POST, to)?.json(body)).await.map(drop)
    }

    /// Deletes, with a reason for the log of actions.
    async fn delete(&self, what: &GatewayRoute, reason: &str) -> anyhow::Result<()> {
        let query = [("reason", reason.to_owned())];
        self.send(self.asking(Method::DELETE, what, &query)?).await.map(drop)
    }

    /// The error when no answer came.
    fn lost(&self, error: &reqwest::Error) -> CommandFailure {
        self.way.lost(!error.is_connect());
        let why = with_causes(error);
        let what = format!("the gateway at {} cannot be reached: {why}", self.way.url);
        let is_mistrusted = is_mistrust(&what);
        let failure = CommandFailure::new(Code::Unreachable, what);
        if is_mistrusted {
            return failure.help(MISTRUST);
        }
        failure.help(
            "check that it runs and that its address is right (--gateway), or start one \
            here: `longhaul dev`",
        )
    }
}

/// The fields of a filter as a query: words with commas between them, and nothing that is not set.
fn query_of(filter: &impl Serialize) -> anyhow::Result<Vec<(String, String)>> {
    let Value::Object(fields) = serde_json::to_value(filter)? else { return Ok(Vec::new()) };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let said = |(name, value): (String, Value)| match value {
        // Why something is done, and to what by name, is not for queries.
        _ if matches!(name.as_str(), "reason" | "tasks") => None,
        Value::Null | Value::Bool(_) => None,
        Value::Array(words) => Some((name, words.iter().map(text).collect::<Vec<_>>().join(","))),
        value @ (Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            Some((name, text(&value)))
        }
    };
    Ok(fields.into_iter().filter_map(said).collect())
}

/// The answer; `None` if what was asked for does not exist, although its queue does.
fn found<T>(answer: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    let is_missing = |error: &anyhow::Error| {
        let failure = error.downcast_ref::<CommandFailure>();
        code_of(error) == Code::NotFound && failure.is_some_and(|it| it.api_code() != NO_QUEUE)
    };
    match answer {
        Ok(it) => Ok(Some(it)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The token for the gateway: from the settings, or from the file.
fn token(settings: &CliSettings) -> Result<Option<String>, CommandFailure> {
    if let Some(token) = settings.text("token") {
        return Ok(Some(token.trim().to_owned()));
    }
    let Some(path) = settings.path("token-file") else { return Ok(None) };
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| {
        CommandFailure::usage(format!("token-file: {}: {error}", path.display()))
    })?;
    // Some editors begin a file with a byte order mark.
    Ok(Some(text.trim_start_matches('\u{feff}').trim().to_owned()))
}

/// The pause before a rate-limited request is repeated. `None` if it was not rate-limited, or the
/// pause is too long.
fn pause(response: &Response) -> Option<Duration> {
    if response.status() != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let said = response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
    let pause = Duration::from_secs(said.unwrap_or(1));
    (pause <= PAUSE_MAX).then_some(pause)
}

/// The error in a gateway's refusal.
fn refused(status: StatusCode, body: &[u8]) -> CommandFailure {
    let problem = serde_json::from_slice(body).unwrap_or_else(|_| ProblemResponse {
        code: String::new(),
        detail: String::from_utf8_lossy(body).chars().take(500).collect(),
    });
    let what = if problem.detail.is_empty() { status.to_string() } else { problem.detail };
    let code = match (status.as_u16(), problem.code.as_str()) {
        (404 | 410, _) => Code::NotFound,
        (409, _) => Code::Conflict,
        (400 | 405 | 413 | 415 | 422, _) => Code::Usage,
        (503, "contended") => Code::Conflict,
        (429 | 503 | 504, _) | (502, "") => Code::Unreachable,
        _ => Code::Failed,
    };
    // The advice for HTTP callers does not apply here.
    let queue = what.split('`').nth(1);
    let failure = match (problem.code.as_str(), queue) {
        (NO_QUEUE, Some(queue)) => no_queue(queue),
        (NO_LEVELS, Some(queue)) => no_levels(queue),
        _ => CommandFailure::new(code, &what),
    };
    let failure = match (status.as_u16(), problem.code.as_str()) {
        (429, _) => failure.help("send fewer requests, or have the gateway's --rate-limit raised"),
        (401 | 403, _) => {
            failure.help("set a token of the gateway with --token-file or LONGHAUL_TOKEN")
        }
        (_, "") => failure.help("check that --gateway is the address of a longhaul gateway"),
        _ => failure,
    };
    failure.of_api(&problem.code)
}

/// The failure in the words of who has named a broker, and no gateway.
fn of_broker(failure: CommandFailure) -> CommandFailure {
    let code = failure.api_code().to_owned();
    let failure = match &*code {
        "no_admin_api" => {
            let what = "this command needs Pulsar's admin API, but its URL is not set";
            CommandFailure::usage(what)
                .help("set the URL of Pulsar's admin API: --admin-url http://HOST:8080")
        }
        "broker_refused" if failure.to_string().contains("TopicTerminatedError") => failure
            .help("the topic accepts no more messages: `longhaul topic check` shows the remedy"),
        "broker_refused" => failure.help(CREDENTIALS),
        "broker_unreachable" => {
            let what = failure.to_string();
            let why = what.split_once("its broker: ").map_or(&*what, |(_, why)| why);
            let why = why.split_once("; nothing was done").map_or(why, |(why, _)| why);
            CommandFailure::new(Code::Unreachable, format!("the broker cannot be reached: {why}"))
        }
        _ => return failure,
    };
    failure.of_api(&code)
}

/// The error after which a gateway has done no more of a bulk request.
pub(crate) fn early_end(why: &str) -> anyhow::Error {
    CommandFailure::new(Code::Failed, format!("the gateway stopped early: {why}"))
        .help("run the command again for the rest; what is listed above is done")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_api::queue::PurgeBody;
    use longhaul_api::values::Instant;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_filter_is_a_query_without_what_is_not_set() {
        let filter = PurgeBody {
            reason: "not for a query".to_owned(),
            status: vec!["ready".to_owned(), "running".to_owned()],
            key: Some("a".to_owned()),
            created_from: Some(Instant(UNIX_EPOCH + Duration::from_secs(7))),
            ..PurgeBody::default()
        };
        let asked = query_of(&filter).unwrap();
        let said = asked.iter().filter(|(_, text)| !text.is_empty());
        let said: Vec<_> = said.map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(said, [("created_from", "7000"), ("key", "a"), ("status", "ready,running")]);
    }

    #[test]
    fn what_a_gateway_refuses_has_the_same_codes() {
        let problem =
            br#"{"status":409,"code":"task_over","title":"x","detail":"the task is over"}"#;
        for (status, code) in [
            (404, Code::NotFound),
            (409, Code::Conflict),
            (422, Code::Usage),
            (503, Code::Unreachable),
        ] {
            let failure = refused(StatusCode::from_u16(status).unwrap(), problem);
            assert_eq!(failure.api_code(), "task_over");
            assert_eq!(failure.to_string(), "the task is over");
            assert_eq!(code_of(&failure.into()), code, "{status}");
        }
        assert_eq!(refused(StatusCode::BAD_GATEWAY, b"<html>").to_string(), "<html>");
    }

    /// A rate limit must not end bulk commands half-way.
    #[tokio::test]
    async fn a_request_that_comes_too_soon_is_sent_again() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let serving = async {
            let mut bodies = Vec::new();
            for status in ["429 Too Many Requests\r\nretry-after: 0", "200 OK"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = Vec::new();
                while !asked.ends_with(b"}") {
                    assert_ne!(stream.read_buf(&mut asked).await.unwrap(), 0);
                }
                bodies.push(String::from_utf8(asked).unwrap());
                let answer = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            bodies
        };
        rustls::crypto::ring::default_provider().install_default().ok();
        let way = Arc::new(way::tests::way(base, Duration::ZERO));
        let http = reqwest::Client::new();
        let gateway = GatewayClient { routes: None, http, way, token: None };
        let body = serde_json::json!({"reason": "x"});
        let to = GatewayRoute::new(NAMESPACE, &["queues"]);
        let (answer, bodies) = tokio::join!(gateway.post::<Value>(&to, &body), serving);
        assert_eq!(answer.unwrap(), serde_json::json!({}));
        assert!(bodies.iter().all(|it| it.ends_with(r#"{"reason":"x"}"#)), "{bodies:?}");
    }
}

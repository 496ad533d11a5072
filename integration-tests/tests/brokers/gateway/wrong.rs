//! Wrong input: every kind of it is sent on a socket to every route of the OpenAPI document. Each
//! request gets its status and code, and changes nothing.
//!
//! The test reads the parameters of a route from the document, so that it covers a new route by
//! itself; a new kind of body needs an example of a right one.

use super::*;
use integration_tests::sandbox::Sandbox;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use std::collections::BTreeSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const BODY_BYTES: usize = 10_000;
const BATCH_BYTES: usize = 20_000;

/// A lease that does not exist.
const LEASE: &str = "1:2:-1~1~00000000000000000000000000000000";

/// An idempotency key that all submits contain. A refused request reserves none.
const KEY: &str = "of all wrong requests";

/// A route of the document.
struct Route {
    method: Method,
    path: String,
    /// The name of the request body, and its fields with their schemas.
    body: Option<(String, Value)>,
    /// Whether the route accepts other content types than JSON as well.
    is_raw: bool,
    query: Vec<String>,
}

/// One wrong request.
struct Wrong {
    what: String,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
    /// The accepted pairs of status and code.
    expected: Vec<(u16, &'static str)>,
}

/// The answer to a request.
struct Answer {
    status: u16,
    problem: Value,
}

fn routes(document: &Value) -> Result<Vec<Route>> {
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().context("it has paths")? {
        for (method, operation) in operations.as_object().context("a path has operations")? {
            let content = operation.pointer("/requestBody/content").unwrap_or(&Value::Null);
            let reference = content.pointer("/application~1json/schema/$ref");
            let reference = reference.and_then(Value::as_str);
            let body = reference.map(|reference| {
                let pointer = reference.trim_start_matches('#');
                let name = pointer.rsplit('/').next().unwrap_or_default().to_owned();
                (name, document.pointer(pointer).cloned().unwrap_or_default())
            });
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let query = parameters.iter().filter(|it| it["in"] == "query");
            routes.push(Route {
                method: method.to_uppercase().parse()?,
                path: path.clone(),
                body,
                is_raw: content.get("application/octet-stream").is_some(),
                query: query.filter_map(|it| Some(it["name"].as_str()?.to_owned())).collect(),
            });
        }
    }
    ensure!(routes.len() > 40, "the document has {} routes", routes.len());
    Ok(routes)
}

/// A valid body.
fn right(name: &str) -> Result<Value> {
    let task = json!({"payload": "a"});
    Ok(match name {
        "NewQueue" | "Reason" | "KeepAlive" => json!({}),
        "Purge" => json!({"tag": ["none"]}),
        "QueueUpdate" => json!({"expected_version": 0, "settings": {}}),
        "DeadSelection" => json!({"tasks": ["1:2:-1"]}),
        "LeaseRequest" => json!({"worker": "ann"}),
        "Confirmation" => json!({"leases": [LEASE]}),
        "Report" => json!({"status": "SUCCEEDED", "lease": LEASE}),
        "Reports" => json!({"reports": [{"status": "SUCCEEDED", "lease": LEASE}]}),
        "NewSchedule" => json!({"schedule": {"every": "1h"}, "task": task}),
        "ScheduleUpdate" => json!({"expected_version": 1, "schedule": {"every": "1h"}}),
        "NewTask" => task,
        "NewTasks" => json!({"tasks": [task]}),
        "ForceReason" => json!({"epoch": 1}),
        "Reschedule" => json!({"delay": "0s"}),
        _ => anyhow::bail!("what is a right body of the kind `{name}`? Give an example here"),
    })
}

/// A value of another type than the field has; `None` for a field that accepts any JSON.
fn of_another_type(schema: &Value) -> Option<Value> {
    let text = schema.to_string();
    // The field accepts JSON of any kind.
    if !text.contains("\"type\"") && !text.contains("$ref") {
        return None;
    }
    // The items of an array may be objects.
    let is_array = schema["type"].to_string().contains("array");
    let is_object = schema["type"].to_string().contains("object") || text.contains("$ref");
    Some(if is_object && !is_array { json!([[7]]) } else { json!({"\u{0}": [null]}) })
}

fn filled(path: &str, queue: &str) -> String {
    path.replace("{queue}", queue)
        .replace("{task}", "1:2:-1")
        .replace("{lease}", LEASE)
        .replace("{name}", "nightly")
}

fn json_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("idempotency-key", HeaderValue::from_static(KEY));
    headers
}

impl Route {
    fn wrong(
        &self,
        what: &str,
        path: &str,
        body: &[u8],
        expected: &[(u16, &'static str)],
    ) -> Wrong {
        let (what, path) = (format!("{} {}: {what}", self.method, self.path), path.to_owned());
        Wrong {
            what,
            path,
            headers: json_headers(),
            body: body.to_vec(),
            expected: expected.to_vec(),
        }
    }

    /// Requests whose body is wrong, one for each way.
    fn wrong_bodies(&self, queue: &str) -> Result<Vec<Wrong>> {
        let Some((name, schema)) = &self.body else { return Ok(Vec::new()) };
        let path = filled(&self.path, queue);
        let (malformed, unfit) = ((400, "json_malformed"), (422, "json_unfit"));
        let mut all = Vec::new();
        let deep = [b"{\"x\":".to_vec(), vec![b'['; 9_000]].concat();
        for (what, body, expected) in [
            ("an open object", &b"{"[..], &[malformed][..]),
            ("an open text", b"{\"a", &[malformed]),
            ("a form", b"payload=a&x=y", &[malformed]),
            ("NUL", b"\0\0\0", &[malformed]),
            ("NUL in a name", b"{\"\0\":1}", &[malformed]),
            ("no UTF-8", b"{\"\xff\xfe\":1}", &[malformed, unfit]),
            ("depth", &vec![b'['; 9_000], &[malformed, unfit]),
            ("depth in a field", &deep, &[malformed, unfit]),
            ("an array", b"[]", &[unfit]),
            ("a text", b"\"a\"", &[unfit]),
            ("a number", b"7", &[unfit]),
            ("null", b"null", &[unfit]),
            ("an unknown field", b"{\"no_such_field\":1}", &[unfit]),
        ] {
            all.push(self.wrong(what, &path, body, expected));
        }
        let long = [b"{\"".to_vec(), vec![b'a'; BATCH_BYTES]].concat();
        all.push(self.wrong("a long body", &path, &long, &[(413, "body_too_large")]));
        for (field, schema) in schema["properties"].as_object().context("it has fields")? {
            // News of a worker are left out instead.
            let is_news = ["checkpoint_base64", "log", "progress"].contains(&field.as_str());
            if let Some(value) = of_another_type(schema).filter(|_| !is_news) {
                let body = json!({field.as_str(): value}).to_string();
                let what = format!("`{field}` of another type");
                all.push(self.wrong(&what, &path, body.as_bytes(), &[unfit]));
            }
        }
        if schema["required"].as_array().is_some_and(|it| !it.is_empty()) {
            let missing = [unfit, (422, "request_unfit")];
            all.push(self.wrong("no fields", &path, b"{}", &missing));
        }
        let body = right(name)?.to_string();
        let mut encoded = self.wrong(
            "a compressed body",
            &path,
            body.as_bytes(),
            &[(415, "content_encoding_unsupported")],
        );
        encoded.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        all.push(encoded);
        if !self.is_raw {
            let not_json = [(415, "content_type_not_json")];
            let mut text = self.wrong("a text's type", &path, body.as_bytes(), &not_json);
            text.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
            all.push(text);
            let mut none = self.wrong("no content type", &path, b"a=b", &not_json);
            none.headers.remove(CONTENT_TYPE);
            all.push(none);
        }
        Ok(all)
    }

    /// Requests with names that do not exist or are not valid.
    fn wrong_names(&self, queue: &str) -> Result<Vec<Wrong>> {
        let mut body = match &self.body {
            Some((name, _)) => right(name)?,
            None => Value::Null,
        };
        // The path contains the lease.
        if let Some(fields) = body.as_object_mut().filter(|_| self.path.contains("{lease}")) {
            fields.remove("lease");
        }
        let body = body.to_string().into_bytes();
        let mut all = Vec::new();
        let nowhere = format!("{queue}-nowhere");
        // A queue of any name may be created.
        if self.path.contains("{queue}") && self.method != Method::PUT {
            let path = filled(&self.path, &nowhere);
            // Each report of a batch has an outcome of its own, and so has each confirmed lease.
            let has_outcomes = |name: &str| ["Reports", "Confirmation"].contains(&name);
            let is_reports = self.body.as_ref().is_some_and(|(name, _)| has_outcomes(name));
            all.extend((!is_reports).then(|| {
                self.wrong("an unknown queue", &path, &body, &[(404, "queue_not_found")])
            }));
        }
        let long = "q".repeat(129);
        let queues =
            ["a,b", "a%2Fb", "a%00b", "..%2F..", "%20", "%FF", "t-ledger", "t-high", &long];
        let tasks = ["x", "1:2", "1:2:-1%00", "99999999999999999999:0:-1", "%FF", "..%2F.."];
        for (parameter, names, code) in [
            ("{queue}", &queues[..], "queue_name_invalid"),
            ("{task}", &tasks, "task_id_invalid"),
            ("{lease}", &["x", "1:2:-1", "1:2:-1~x~0", "%00"], "lease_invalid"),
        ] {
            for name in names.iter().filter(|_| self.path.contains(parameter)) {
                let path = filled(&self.path.replace(parameter, name), queue);
                let what = format!("{parameter} is `{name}`");
                let expected = [(400, code), (400, "path_invalid")];
                all.push(self.wrong(&what, &path, &body, &expected));
            }
        }
        for name in &self.query {
            let path = filled(&self.path, queue);
            for (what, query) in [
                ("unknown", "no_such_parameter=1".to_owned()),
                ("twice", format!("{name}=a&{name}=b&no_such_parameter=1")),
                ("no UTF-8", format!("{name}=%FF%FE&no_such_parameter=1")),
            ] {
                let path = format!("{path}?{query}");
                // On a route with a JSON body any query parameter is an error.
                let expected = [(400, "query_invalid")];
                all.push(self.wrong(&format!("?{name} {what}"), &path, &body, &expected));
            }
        }
        Ok(all)
    }
}

impl Gateway {
    async fn send(&self, method: &Method, wrong: &Wrong) -> Result<Answer> {
        let url = format!("{}{}", self.server.url(), wrong.path);
        let request = self.http.request(method.clone(), url).headers(wrong.headers.clone());
        let answer = request.body(wrong.body.clone()).send().await?;
        let status = answer.status().as_u16();
        let is_problem = answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes)
            == Some(b"application/problem+json");
        // A stream of events does not end.
        let problem = if is_problem { answer.json().await? } else { Value::Null };
        Ok(Answer { status, problem })
    }

    /// The reason why this answer is not right for a wrong request.
    fn complaint(wrong: &Wrong, answer: &Answer) -> Option<String> {
        let Answer { status, problem } = answer;
        let code = problem["code"].as_str().unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or_default();
        let is_expected = wrong.expected.contains(&(*status, code));
        let is_whole = problem["status"] == json!(status) && detail.len() > 10;
        let is_plain = detail.len() < 3_000 && !detail.contains(char::is_control);
        let is_good = is_expected && is_whole && is_plain;
        (!is_good).then(|| format!("{} ({}): {status} {problem}", wrong.what, wrong.path))
    }

    /// Sends a body that never becomes complete.
    async fn send_slowly(&self, route: &Route, queue: &str) -> Result<String> {
        let path = filled(&route.path, queue);
        let mut stream = TcpStream::connect(self.server.address()).await?;
        let head = format!(
            "{} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: {KEY}\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{{",
            route.method
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await??;
        Ok(answer)
    }

    /// All state that a wrong request might have changed.
    async fn state(&self, queue: &str) -> Result<Value> {
        let mut state = serde_json::Map::new();
        for path in ["", "/counts", "/actions", "/schedules", "/dead", "/workers"] {
            let (status, mut answer) = self.get(&format!("/{queue}{path}")).await?;
            ensure!(status == 200, "{path}: {answer}");
            if let Some(fields) = answer.as_object_mut() {
                fields.remove("now");
            }
            state.insert(path.to_owned(), answer);
        }
        Ok(state.into())
    }
}

/// The topics whose names contain `part`.
async fn topics(sandbox: &Sandbox, part: &str) -> Result<BTreeSet<String>> {
    let admin = sandbox.admin();
    let listed = admin.call(Method::GET, "persistent/public/default", None).await?;
    let all = listed.as_array().context("a list of topics")?;
    let names = all.iter().filter_map(Value::as_str).filter(|it| it.contains(part));
    Ok(names.map(str::to_owned).collect())
}

#[tokio::test]
async fn every_route_refuses_every_kind_of_wrong_input_and_nothing_is_done() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let queue = name(&sandbox)?;
    let gateway = Gateway::start(&sandbox, |config| {
        config.limits.body_bytes = BODY_BYTES;
        config.limits.batch_bytes = BATCH_BYTES;
        config.limits.body_time = Duration::from_secs(1);
    })
    .await?;
    let (status, made) = gateway.call(Method::PUT, &format!("/{queue}"), json!({})).await?;
    ensure!(status == 200, "{made}");
    let document = gateway.http.get(format!("{}/v1/openapi.json", gateway.server.url()));
    let routes = routes(&document.send().await?.json().await?)?;
    let before = (gateway.state(&queue).await?, topics(&sandbox, &queue).await?);

    let (mut count, mut complaints) = (0, Vec::new());
    for route in &routes {
        let bodies = route.wrong_bodies(&queue)?;
        for wrong in bodies.into_iter().chain(route.wrong_names(&queue)?) {
            let answer = gateway.send(&route.method, &wrong).await.context(wrong.what.clone())?;
            complaints.extend(Gateway::complaint(&wrong, &answer));
            count += 1;
        }
    }
    let slow = routes.iter().filter(|it| it.body.is_some());
    let slow = slow.map(|route| gateway.send_slowly(route, &queue));
    for (answer, route) in futures::future::try_join_all(slow)
        .await?
        .iter()
        .zip(routes.iter().filter(|it| it.body.is_some()))
    {
        let is_told = answer.starts_with("HTTP/1.1 408 ") && answer.contains("body_too_slow");
        complaints.extend((!is_told).then(|| format!("{} slowly: {answer}", route.path)));
        count += 1;
    }
    ensure!(complaints.is_empty(), "{} of {count}:\n{}", complaints.len(), complaints.join("\n"));
    say(&format!("{count} wrong requests to {} routes", routes.len()));

    let after = (gateway.state(&queue).await?, topics(&sandbox, &queue).await?);
    ensure!(before == after, "something was done: {before:?} {after:?}");
    // The idempotency key of the wrong requests is free.
    let task = json!({"payload": "b", "idempotency_key": KEY, "strict": true});
    let (status, made) = gateway.call(Method::POST, &format!("/{queue}/tasks"), task).await?;
    ensure!(status == 201, "{made}");
    let id = made["id"].as_str().context("it has an id")?;
    let url = format!("{}/v1/queues/{queue}/tasks/{id}/payload", gateway.server.url());
    let payload = gateway.http.get(url).send().await?.bytes().await?;
    ensure!(payload == "b", "{payload:?}");
    Ok(())
}

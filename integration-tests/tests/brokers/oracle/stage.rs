//! The environment of a script: connections to one broker, its admin interface, and the trace of
//! what was seen.

use crate::oracle::connection::{Connection, Event};
use crate::oracle::show::Names;
use anyhow::{Context, Result, ensure};
use longhaul_wire::messages::{Command, CommandConnect, CommandLookupTopic, CommandPing};
use longhaul_wire::payload::Payload;
use serde_json::Value;
use std::fmt::Display;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The limit for the first answers. Their number is known, so this time passes only when one is
/// missing. The longest delay of a script is shorter.
const PATIENCE: Duration = Duration::from_secs(30);
/// The prefix of the reason why a script did not reach its end.
pub(crate) const FAILED: &str = "! ";
/// How long a broker must be silent before it gets a PING.
const QUIET: Duration = Duration::from_millis(250);
/// The number of PINGs that a broker has to answer. It answers a PING at once, and may send frames
/// that were ready before behind that answer. It sends them before it answers the next PING.
const PONGS: usize = 2;

/// A broker that is observed.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// `pulsar://host:port`
    pub(crate) url: String,
    /// `http://host:port`
    pub(crate) admin: String,
    /// Makes topics differ from those of earlier runs.
    pub(crate) run: String,
}

pub(crate) struct Stage {
    watched: Watched,
    script: &'static str,
    connections: Vec<Connection>,
    names: Names,
    trace: Vec<String>,
}

impl Stage {
    pub(crate) fn new(watched: Watched, script: &'static str) -> Self {
        let names = Names::new(&watched.run);
        Self { watched, script, connections: Vec::new(), names, trace: Vec::new() }
    }

    pub(crate) fn finish(self) -> Vec<String> {
        self.trace
    }

    /// The name of a topic that only this script uses. It is looked up first, as all clients do:
    /// before that no broker of a cluster owns it.
    pub(crate) async fn topic(&self, name: &str) -> Result<String> {
        let (run, script) = (&self.watched.run, self.script);
        let topic = format!("persistent://public/default/oracle-{run}-{script}-{name}");
        let mut connection = Connection::open(&self.watched.url).await?;
        connection.send(hello(), None).await;
        let lookup = CommandLookupTopic { topic: topic.clone(), ..CommandLookupTopic::default() };
        connection.send(lookup.into(), None).await;
        for _ in ["CONNECTED", "LOOKUP_RESPONSE"] {
            let event = connection.next(PATIENCE).await?;
            ensure!(matches!(event, Some(Event::Frame(_))), "{topic} cannot be looked up");
        }
        Ok(topic)
    }

    /// The name of this run, for names other than topics.
    pub(crate) fn run(&self) -> &str {
        &self.watched.run
    }

    /// Notes the next action in the trace.
    pub(crate) fn note(&mut self, what: impl Display) {
        self.trace.push(format!("# {what}"));
    }

    /// Notes why the script did not reach its end. The other scripts continue.
    pub(crate) fn fail(&mut self, error: &anyhow::Error) {
        let error = format!("{error:#}").replace(&self.watched.run, "RUN");
        self.trace.push(format!("{FAILED}{error}"));
    }

    /// Connects and shakes hands, which is traced only when it fails.
    pub(crate) async fn connect(&mut self) -> Result<usize> {
        let at = self.open().await?;
        let before = self.trace.len();
        self.ask(at, hello(), 1).await?;
        let answer = self.trace.get(before).cloned().unwrap_or_default();
        ensure!(answer.contains("Connected"), "no handshake: {answer}");
        self.trace.truncate(before);
        self.connections[at].is_greeted = true;
        Ok(at)
    }

    /// Connects without shaking hands.
    pub(crate) async fn open(&mut self) -> Result<usize> {
        self.connections.push(Connection::open(&self.watched.url).await?);
        Ok(self.connections.len() - 1)
    }

    /// Drops a connection without closing anything on it first.
    pub(crate) async fn drop_connection(&mut self, at: usize) -> Result<()> {
        let fresh = Connection::open(&self.watched.url).await?;
        drop(std::mem::replace(&mut self.connections[at], fresh));
        Ok(())
    }

    pub(crate) async fn send(&mut self, at: usize, command: impl Into<Command>) {
        self.connections[at].send(command.into(), None).await;
    }

    pub(crate) async fn send_message(
        &mut self,
        at: usize,
        command: impl Into<Command>,
        payload: &Payload,
    ) {
        self.connections[at].send(command.into(), Some(payload)).await;
    }

    pub(crate) async fn send_bytes(&mut self, at: usize, bytes: &[u8]) {
        self.connections[at].send_bytes(bytes).await;
    }

    /// Sends, and traces the answers: at least this number, and all that follow soon.
    pub(crate) async fn ask(
        &mut self,
        at: usize,
        command: impl Into<Command>,
        answers: usize,
    ) -> Result<()> {
        self.send(at, command).await;
        self.answers(at, answers).await
    }

    /// Traces the frames that come on a connection.
    pub(crate) async fn answers(&mut self, at: usize, at_least: usize) -> Result<()> {
        let lines = self.read(at, at_least).await?;
        self.trace.extend(lines);
        Ok(())
    }

    /// As [`answers`](Self::answers), where the order has no meaning.
    pub(crate) async fn answers_sorted(&mut self, at: usize, at_least: usize) -> Result<()> {
        let mut lines = self.read(at, at_least).await?;
        lines.sort();
        self.trace.extend(lines);
        Ok(())
    }

    /// As [`answers`](Self::answers), for messages whose bodies begin with their keys, where only
    /// the order within a key has a meaning.
    pub(crate) async fn answers_by_key(&mut self, at: usize, at_least: usize) -> Result<()> {
        let mut lines = self.read(at, at_least).await?;
        let key = |line: &str| line.rsplit('`').nth(1).and_then(|body| body.chars().next());
        lines.sort_by_key(|line| key(line));
        self.trace.extend(lines);
        Ok(())
    }

    /// Traces that nothing comes, on any connection.
    pub(crate) async fn quiet(&mut self) -> Result<()> {
        for at in 0..self.connections.len() {
            self.answers(at, 0).await?;
        }
        Ok(())
    }

    /// A broker on a busy machine may be silent for longer than [`QUIET`]. Then it gets PINGs, and
    /// only their answers end the wait.
    async fn read(&mut self, at: usize, at_least: usize) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let (mut is_asked, mut pongs) = (false, 0);
        loop {
            let is_wanted = is_asked || lines.len() < at_least;
            let limit = if is_wanted { PATIENCE } else { QUIET };
            match self.connections[at].next(limit).await? {
                None if is_wanted || !self.connections[at].is_greeted => return Ok(lines),
                None => {
                    is_asked = true;
                    self.send(at, CommandPing {}).await;
                }
                Some(Event::Closed | Event::Garbage(_)) => {
                    lines.push(format!("c{at} closed"));
                    return Ok(lines);
                }
                Some(Event::Frame(frame))
                    if is_asked && matches!(frame.command, Command::Pong(_)) =>
                {
                    pongs += 1;
                    if pongs == PONGS {
                        return Ok(lines);
                    }
                    self.send(at, CommandPing {}).await;
                }
                Some(Event::Frame(frame)) => {
                    lines.push(format!("c{at} {}", self.names.frame(&frame)?));
                }
            }
        }
    }

    /// The id that the trace calls `m<number>`.
    pub(crate) fn id(&self, number: usize) -> longhaul_wire::messages::MessageIdData {
        self.names.id(number)
    }

    /// The hash of topics that the trace calls `h<number>`.
    pub(crate) fn hash(&self, number: usize) -> String {
        self.names.known_hash(number)
    }

    /// A call of the admin interface that must succeed: `path` follows `/admin/v2/`.
    pub(crate) async fn admin(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        let (status, answer) = self.http(method, path, body).await?;
        ensure!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        Ok(serde_json::from_str(&answer).unwrap_or(Value::Null))
    }

    async fn http(&self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        let host = self.watched.admin.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(host).await?;
        let length = body.len();
        let request = format!(
            "{method} /admin/v2/{path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, body.to_owned()))
    }

    /// A call about a topic.
    pub(crate) async fn admin_topic(
        &self,
        method: &str,
        topic: &str,
        tail: &str,
        body: &str,
    ) -> Result<Value> {
        self.admin(method, &format!("{}{tail}", topic.replacen("://", "/", 1)), body).await
    }

    /// Compacts a topic and waits until that is done.
    pub(crate) async fn compact(&mut self, topic: &str) -> Result<()> {
        self.note("compact");
        self.admin_topic("PUT", topic, "/compaction", "").await?;
        // The embedded broker compacts at a low priority.
        for _ in 0..1200 {
            let answer = self.admin_topic("GET", topic, "/compaction", "").await?;
            match answer["status"].as_str() {
                Some("RUNNING") => tokio::time::sleep(Duration::from_millis(50)).await,
                Some("SUCCESS") => return Ok(()),
                _ => anyhow::bail!("compaction of {topic}: {answer}"),
            }
        }
        anyhow::bail!("the compaction of {topic} does not end")
    }
}

fn hello() -> Command {
    let command = CommandConnect {
        client_version: "oracle".to_owned(),
        protocol_version: Some(21),
        ..CommandConnect::default()
    };
    command.into()
}

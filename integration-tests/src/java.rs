//! A stock Java client, used by a program without longhaul.
//!
//! The program is `java/watcher`, built by Maven on first use and cached. Each call is a Java
//! process and takes about a second.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Deserializer};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::cache::{Project, Tool};
use crate::clients::java_is_missing;
use crate::skip::skip;

/// The time limit of a Java process for connecting, or for sending its messages.
const CLIENT_LIMIT: Duration = Duration::from_secs(120);

macro_rules! source {
    ($path:literal) => {
        ($path, include_str!(concat!("../java/watcher/", $path)))
    };
}

const WATCHER: Project = Project {
    name: "java-watcher",
    sources: &[
        source!("pom.xml"),
        source!("src/main/java/io/streamnative/pulsar/recipes/task/TaskMetadata.java"),
        source!("src/main/java/io/streamnative/pulsar/recipes/task/TaskState.java"),
        source!("src/main/java/longhaul/tests/Arguments.java"),
        source!("src/main/java/longhaul/tests/Example.java"),
        source!("src/main/java/longhaul/tests/Main.java"),
        source!("src/main/java/longhaul/tests/Metadata.java"),
        source!("src/main/java/longhaul/tests/Submit.java"),
    ],
    tool: Tool::Maven,
    goals: &["package"],
};

/// The built Java program.
#[derive(Clone, Debug)]
pub struct JavaClient {
    /// The folder of its jars.
    jars: PathBuf,
}

/// How messages are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sending {
    /// One after the other by a producer with default settings. It batches, but sends a single
    /// message of a batch unbatched (clients before 2.11 sent a batch of one).
    #[default]
    OneByOne,
    /// All at once by a producer with default settings: batches of many.
    Batched,
    /// All at once by a producer without batching.
    Unbatched,
    /// By a producer that splits messages above 1 MiB into chunks of that size.
    Chunked,
}

/// The schema declared by the producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JavaSchema {
    /// `Schema.STRING`.
    #[default]
    Text,
    /// `Schema.BYTES`, which registers nothing.
    Bytes,
    /// `Schema.JSON(TaskMetadata.class)`: the payload is JSON, parsed and written again by the Java
    /// class.
    Metadata,
}

/// Options of [`JavaClient::submit`].
#[derive(Clone, Debug, Default)]
pub struct SubmitOptions {
    /// How messages are sent.
    pub sending: Sending,
    /// The schema declared by the producer.
    pub schema: JavaSchema,
    /// Key of every message.
    pub key: Option<String>,
    /// Properties of every message.
    pub properties: Vec<(String, String)>,
    /// Sends a null value for each payload.
    pub tombstone: bool,
}

/// An entry of a metadata topic as read by the Java client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JavaEntry {
    /// Key of the message.
    pub key: Option<String>,
    /// Whether the value is null, as in a tombstone.
    pub null: bool,
    /// Message id in Java's notation; absent in a table view.
    pub id: Option<String>,
    /// Time at which the producer sent it, in milliseconds; absent in a table view.
    pub publish_time: Option<i64>,
    /// Properties of the message.
    pub properties: BTreeMap<String, String>,
    /// Why the Java client could not decode the value. The fields below are then empty.
    pub error: Option<String>,
    /// The task's message id.
    pub message_id: Option<String>,
    /// Name of the state.
    pub state: Option<String>,
    /// When the task was first taken, in milliseconds.
    pub created: Option<i64>,
    /// When this entry was written, in milliseconds.
    pub last_updated: Option<i64>,
    /// Number of attempts.
    pub attempts: Option<i32>,
    /// Payload of the task.
    #[serde(deserialize_with = "base64_bytes")]
    pub task: Option<Vec<u8>>,
    /// Result of the task.
    #[serde(deserialize_with = "base64_bytes")]
    pub result: Option<Vec<u8>>,
    /// Why the last attempt failed.
    pub failure_reason: Option<String>,
}

impl JavaClient {
    /// Builds the program if necessary; `None` if Java or Maven is missing, and the test is
    /// skipped.
    ///
    /// # Errors
    /// The build fails.
    pub async fn build() -> Result<Option<Self>> {
        if let Some(why) = java_is_missing() {
            skip(&format!("the Java client: {why}"));
            return Ok(None);
        }
        let folder = tokio::task::spawn_blocking(|| WATCHER.install()).await??;
        Ok(Some(Self { jars: folder.join("target") }))
    }

    /// Reads a topic from its first entry on and keeps reading.
    ///
    /// # Errors
    /// The Java client cannot subscribe.
    pub async fn watch(&self, service_url: &str, topic: &str) -> Result<Watcher> {
        self.watch_with(service_url, topic, &[]).await
    }

    /// As [`watch`](Self::watch), but reads the compacted view.
    ///
    /// # Errors
    /// The Java client cannot subscribe.
    pub async fn watch_compacted(&self, service_url: &str, topic: &str) -> Result<Watcher> {
        self.watch_with(service_url, topic, &["--compacted".to_owned()]).await
    }

    async fn watch_with(
        &self,
        service_url: &str,
        topic: &str,
        options: &[String],
    ) -> Result<Watcher> {
        let Program { mut child, complaints } = self.spawn("watch", service_url, topic, options)?;
        let stdin = child.stdin.take().ok_or_else(|| anyhow!("no stdin"))?;
        let stdout = child.stdout.take().ok_or_else(|| anyhow!("no stdout"))?;
        let lines = BufReader::new(stdout).lines();
        let mut watcher = Watcher { child, stdin, lines, complaints };
        let ready = watcher.line(CLIENT_LIMIT).await?;
        if ready.as_deref() != Some(r#"{"ready":true}"#) {
            bail!("the Java client did not subscribe: {ready:?}\n{}", watcher.complaints());
        }
        Ok(watcher)
    }

    /// Sends messages and returns their ids in Java's notation.
    ///
    /// # Errors
    /// A message is refused; or a payload contains a line break, which would make it two.
    pub async fn submit(
        &self,
        service_url: &str,
        topic: &str,
        payloads: &[&str],
        options: &SubmitOptions,
    ) -> Result<Vec<String>> {
        if let Some(payload) = payloads.iter().find(|payload| payload.contains(['\n', '\r'])) {
            bail!("a payload is one line, {payload:?} is not");
        }
        let mut input = payloads.join("\n");
        if !payloads.is_empty() {
            input.push('\n');
        }
        let ids = self.run("submit", service_url, topic, &options.arguments(), input).await?;
        if ids.len() != payloads.len() {
            bail!("{} messages have {} ids", payloads.len(), ids.len());
        }
        Ok(ids)
    }

    /// Runs the client of the reference's example: it submits a task as `Schema.JSON`, follows the
    /// metadata topic until the task is completed, and returns the decoded greeting.
    ///
    /// # Errors
    /// The Java client fails, or has no result in time.
    pub async fn example(&self, service_url: &str, topic: &str, metadata: &str) -> Result<String> {
        let options = ["--metadata".to_owned(), metadata.to_owned()];
        Ok(self.run("example", service_url, topic, &options, String::new()).await?.join("\n"))
    }

    /// The content of a table view of the topic: only keys and values.
    ///
    /// # Errors
    /// The Java client cannot read the topic.
    pub async fn table_view(&self, service_url: &str, topic: &str) -> Result<Vec<JavaEntry>> {
        let lines = self.run("tableview", service_url, topic, &[], String::new()).await?;
        lines.iter().map(|line| parse(line)).collect()
    }

    /// Runs the program to its end and returns its lines.
    async fn run(
        &self,
        verb: &str,
        service_url: &str,
        topic: &str,
        options: &[String],
        input: String,
    ) -> Result<Vec<String>> {
        let Program { mut child, complaints } = self.spawn(verb, service_url, topic, options)?;
        let mut stdin = child.stdin.take().ok_or_else(|| anyhow!("no stdin"))?;
        let work = async move {
            // The program reads all input before it writes, so the pipes cannot block each other.
            // If it dies early, its status and errors tell more than our broken pipe.
            stdin.write_all(input.as_bytes()).await.ok();
            drop(stdin);
            child.wait_with_output().await
        };
        let output = timeout(CLIENT_LIMIT, work).await.map_err(|_| {
            anyhow!("java {verb}: not done within {CLIENT_LIMIT:?}\n{}", read(&complaints))
        })??;
        if !output.status.success() {
            bail!("java {verb}: {}\n{}", output.status, read(&complaints));
        }
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    }

    fn spawn(
        &self,
        verb: &str,
        service_url: &str,
        topic: &str,
        options: &[String],
    ) -> Result<Program> {
        let complaints = tempfile::tempfile()?;
        let child = Command::new(crate::sandbox::java())
            // A short run gains nothing from the optimising compiler and parallel collection.
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-cp"])
            .arg(self.jars.join("*"))
            .args(["longhaul.tests.Main", verb, service_url, topic])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(complaints.try_clone()?)
            .kill_on_drop(true)
            .spawn()
            .context("cannot run java; version 17 or later must be on the PATH or in JAVA_HOME")?;
        Ok(Program { child, complaints })
    }
}

impl SubmitOptions {
    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = match self.sending {
            Sending::OneByOne => Vec::new(),
            Sending::Batched => vec!["--async".to_owned()],
            Sending::Unbatched => vec!["--async".to_owned(), "--no-batch".to_owned()],
            Sending::Chunked => vec!["--no-batch".to_owned(), "--chunk".to_owned()],
        };
        let schema = match self.schema {
            JavaSchema::Text => "string",
            JavaSchema::Bytes => "bytes",
            JavaSchema::Metadata => "metadata",
        };
        arguments.extend(["--schema".to_owned(), schema.to_owned()]);
        if let Some(key) = &self.key {
            arguments.extend(["--key".to_owned(), key.clone()]);
        }
        for (key, value) in &self.properties {
            arguments.extend(["--property".to_owned(), format!("{key}={value}")]);
        }
        if self.tombstone {
            arguments.push("--tombstone".to_owned());
        }
        arguments
    }
}

/// A Java process and the file that takes its stderr.
#[derive(Debug)]
struct Program {
    child: Child,
    complaints: File,
}

/// A Java client that reads a metadata topic. Dropping it ends the process.
#[derive(Debug)]
pub struct Watcher {
    child: Child,
    /// The process ends when this is closed, so it also ends if we are killed.
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    complaints: File,
}

impl Watcher {
    /// Returns the next entry.
    ///
    /// # Errors
    /// No entry comes within the limit, or the Java client has ended.
    pub async fn next(&mut self, limit: Duration) -> Result<JavaEntry> {
        match self.line(limit).await? {
            Some(line) => parse(&line),
            None => bail!("the Java client saw no entry within {limit:?}\n{}", self.complaints()),
        }
    }

    /// Waits for `limit` and checks that no entry comes.
    ///
    /// # Errors
    /// An entry comes, or the Java client has ended.
    pub async fn nothing_for(&mut self, limit: Duration) -> Result<()> {
        match self.line(limit).await? {
            None => Ok(()),
            Some(line) => bail!("unexpected entry {line}"),
        }
    }

    /// Lets the process close its subscription and end.
    ///
    /// # Errors
    /// The process fails while it closes, or does not end.
    pub async fn close(self) -> Result<()> {
        let Self { mut child, stdin, lines, complaints } = self;
        drop(stdin);
        let status =
            timeout(CLIENT_LIMIT, child.wait()).await.context("the Java client does not end")??;
        drop(lines);
        if !status.success() {
            bail!("java watch: {status}\n{}", read(&complaints));
        }
        Ok(())
    }

    async fn line(&mut self, limit: Duration) -> Result<Option<String>> {
        let Ok(line) = timeout(limit, self.lines.next_line()).await else {
            return Ok(None);
        };
        line?.map(Some).ok_or_else(|| anyhow!("the Java client has ended\n{}", self.complaints()))
    }

    fn complaints(&self) -> String {
        read(&self.complaints)
    }
}

fn parse(line: &str) -> Result<JavaEntry> {
    serde_json::from_str(line).with_context(|| line.to_owned())
}

fn read(mut file: &File) -> String {
    let mut text = String::new();
    match file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)) {
        Ok(_) => text,
        Err(cause) => format!("its complaints cannot be read: {cause}"),
    }
}

fn base64_bytes<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<u8>>, D::Error> {
    let text: Option<String> = Deserialize::deserialize(input)?;
    text.map(|text| BASE64_STANDARD.decode(text).map_err(serde::de::Error::custom)).transpose()
}

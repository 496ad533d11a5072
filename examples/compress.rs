//! A real task: compresses the files named by tasks, reports progress, stores checkpoints, and
//! continues where a killed worker stopped.
//!
//! ```text
//! cargo run --release --example compress -- worker
//! cargo run --release --example compress -- submit *.jar
//! ```
//!
//! The output `FILE.zst` is a sequence of zstd frames, one per chunk. A checkpoint stores how many
//! input bytes have become how many output bytes. The next attempt cuts off output written after
//! the last checkpoint, and continues.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use anyhow::Context;
use bytes::Bytes;
use clap::{Parser, Subcommand};
use longhaul::{Client, TaskContext, TaskError, TaskProcessor};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Compresses files.
#[derive(Parser)]
struct Args {
    /// Pulsar's service URL.
    #[arg(long, env = "PULSAR_SERVICE_URL", default_value = "pulsar://127.0.0.1:6650")]
    service_url: String,
    /// Pulsar's admin URL: if given, the worker checks its topics before it starts.
    #[arg(long, env = "PULSAR_ADMIN_URL")]
    admin_url: Option<String>,
    /// Where the tasks are.
    #[arg(long, default_value = "compress")]
    topic: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a worker until Ctrl-C.
    Worker {
        /// Files compressed at once.
        #[arg(long, default_value_t = 2)]
        concurrency: usize,
        /// Seconds between heartbeats.
        #[arg(long, default_value_t = 10)]
        heartbeat: u64,
    },
    /// Submits files and waits for them.
    Submit {
        /// The files.
        files: Vec<PathBuf>,
        /// zstd level, 1 to 22.
        #[arg(long, default_value_t = 19)]
        level: i32,
    },
}

#[derive(Serialize, Deserialize)]
struct Compress {
    file: PathBuf,
    level: i32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Compressed {
    bytes_in: u64,
    bytes_out: u64,
    /// Where the last attempt resumed the work.
    resumed_at: u64,
}

/// The input and output bytes done so far.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Done {
    bytes_in: u64,
    bytes_out: u64,
}

const CHUNK_BYTES: usize = 1024 * 1024;

struct Compressor;

impl TaskProcessor for Compressor {
    type Task = Compress;
    type Output = Compressed;

    async fn process(&self, task: Compress, context: TaskContext) -> Result<Compressed, TaskError> {
        let from: Done = match context.last_checkpoint() {
            Some(bytes) => serde_json::from_slice(bytes)?,
            None => Done::default(),
        };
        let mut done = from;
        let total = std::fs::metadata(&task.file)?.len();
        while done.bytes_in < total && !context.is_cancelled() {
            let (file, level) = (task.file.clone(), task.level);
            // Compression blocks its thread, so it does not run on the runtime.
            done = tokio::task::spawn_blocking(move || chunk(&file, level, done)).await??;
            context.progress(done.bytes_in, total, task.file.display().to_string());
            context.checkpoint(Bytes::from(serde_json::to_vec(&done)?)).await?;
        }
        Ok(Compressed {
            bytes_in: done.bytes_in,
            bytes_out: done.bytes_out,
            resumed_at: from.bytes_in,
        })
    }
}

/// Compresses the next chunk.
fn chunk(file: &PathBuf, level: i32, done: Done) -> std::io::Result<Done> {
    let mut input = File::open(file)?;
    input.seek(SeekFrom::Start(done.bytes_in))?;
    let mut bytes = Vec::new();
    input.take(CHUNK_BYTES as u64).read_to_end(&mut bytes)?;
    let frame = zstd::encode_all(bytes.as_slice(), level)?;
    let mut name = file.clone().into_os_string();
    name.push(".zst");
    let mut output = OpenOptions::new().create(true).truncate(false).write(true).open(name)?;
    output.set_len(done.bytes_out)?;
    output.seek(SeekFrom::End(0))?;
    output.write_all(&frame)?;
    output.sync_data()?;
    Ok(Done {
        bytes_in: done.bytes_in + bytes.len() as u64,
        bytes_out: done.bytes_out + frame.len() as u64,
    })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let log = std::env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned());
    tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).init();
    let args = Args::parse();
    let mut builder = Client::builder(args.service_url);
    if let Some(admin_url) = args.admin_url {
        builder = builder.admin_url(admin_url);
    }
    let client = builder.connect().await?;
    match args.command {
        Command::Worker { concurrency, heartbeat } => {
            let worker = client.worker(args.topic, Compressor).concurrency(concurrency);
            let worker = worker.heartbeat(Duration::from_secs(heartbeat)).start().await?;
            worker.run_until_signal(Duration::from_secs(30)).await?;
        }
        Command::Submit { files, level } => {
            let mut tasks = Vec::new();
            for file in files {
                let file = file.canonicalize().with_context(|| file.display().to_string())?;
                let task = Compress { file: file.clone(), level };
                tasks.push((file, client.submit(&args.topic, &task).await?));
            }
            for (file, task) in tasks {
                let result: Compressed = client.wait(&task).await?;
                println!("{task} {}: {result:?}", file.display());
            }
        }
    }
    Ok(())
}

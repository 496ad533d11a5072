//! `longhaul task submit`.

use super::{following, lines};
use crate::commands::one_of;
use crate::context::CommandContext;
use crate::exit::CommandFailure;
use crate::service::gateway::{GatewayClient, name_in_queue, priority_of};
use crate::service::tasks::{named, parse_task};
use crate::times;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use clap::builder::PossibleValue;
use longhaul::{AfterFailed, RetryPolicy, TaskRef};
use longhaul_api::Priority;
use longhaul_api::new_task::{NewTaskBody, RetryBody};
use longhaul_api::values::{Instant, Length};
use serde_json::json;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum size of a payload file: brokers accept less.
const BYTES_MAX: u64 = 512 * 1024 * 1024;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task submit tasks 'Hello' --wait
  longhaul task submit reports --file report.json --key order-4711 --max-duration 1h
  longhaul task submit mails --lines --file addresses.txt --delay 10m --tag newsletter")]
pub(crate) struct Submit {
    /// Name of the queue (its task topic).
    queue: String,
    #[command(flatten)]
    payload: PayloadArgs,
    /// Submit a task for each non-empty line of --file or standard input.
    #[arg(long, conflicts_with_all = ["payload", "wait", "idempotency_key", "dedupe_key"])]
    lines: bool,
    /// With --lines: begin at this line, counted from 1.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "lines")]
    from_line: usize,
    /// Wait until the task is over, and print its result.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    terms: TermArgs,
}

/// The payload.
#[derive(Debug, Args)]
pub(crate) struct PayloadArgs {
    /// Payload of the task. Without it, the payload is read from --file or standard input.
    pub(crate) payload: Option<String>,
    /// Read the payload from this file; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    pub(crate) file: Option<PathBuf>,
}

impl PayloadArgs {
    /// # Errors
    /// When no payload was given, or the file cannot be read.
    pub(crate) fn read(self) -> anyhow::Result<Bytes> {
        let from: Box<dyn Read> = match (self.payload, self.file) {
            (Some(payload), _) => return Ok(Bytes::from(payload)),
            (None, Some(path)) if path != Path::new("-") => {
                let opened = std::fs::File::open(&path);
                let failed = |error| CommandFailure::usage(format!("{}: {error}", path.display()));
                Box::new(opened.map_err(failed)?)
            }
            (None, file) => {
                if file.is_none() && io::stdin().is_terminal() {
                    return Err(CommandFailure::usage("no payload is given")
                        .help("give it after the queue, with --file, or on standard input")
                        .into());
                }
                Box::new(io::stdin())
            }
        };
        let mut bytes = Vec::new();
        from.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > BYTES_MAX {
            let what = format!("the payload has more than {BYTES_MAX} bytes");
            return Err(CommandFailure::usage(what)
                .help("store it elsewhere and submit a reference to it")
                .into());
        }
        Ok(Bytes::from(bytes))
    }
}

/// The options of a task.
#[derive(Debug, Args)]
#[command(next_help_heading = "Task")]
pub(crate) struct TermArgs {
    /// Set a property for the processor. Can be repeated.
    #[arg(short = 'p', long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
    /// Set the type of the task. Workers choose the processor by it.
    #[arg(long = "type", value_name = "TYPE")]
    task_type: Option<String>,
    /// Set your own name for the task. It does not change how the task runs.
    #[arg(long)]
    key: Option<String>,
    /// Set a tag to find the task by. Can be repeated.
    #[arg(long = "tag", value_name = "WORD")]
    tags: Vec<String>,
    /// Submit the task to this level of the queue. `high` and `low` need a queue with levels.
    #[arg(long, default_value = "normal", value_parser = one_of::<Priority>(["high", "normal", "low"]))]
    priority: Priority,
    /// Do not start the task before this time has passed.
    #[arg(long, value_name = "TIME", value_parser = times::duration, conflicts_with = "start_at")]
    delay: Option<Duration>,
    /// Do not start the task before this instant.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant)]
    start_at: Option<Instant>,
    /// Start no attempt after this instant.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant)]
    expires_at: Option<Instant>,
    /// Limit each attempt to this time.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    max_duration: Option<Duration>,
    /// Limit all attempts together to this time.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    max_total_duration: Option<Duration>,
    /// Fail an attempt that reports nothing for this time.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    no_progress_timeout: Option<Duration>,
    /// Allow this many attempts. Default: the number of the queue or the worker.
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<u32>,
    /// Pause between attempts: 1s..5m (random, below a limit that doubles), or a list such as
    /// 1s,10s,1m.
    #[arg(long, value_name = "PAUSES", value_parser = retry)]
    retry: Option<RetryPolicy>,
    /// Apply the limits of this key to the task.
    #[arg(long, value_name = "KEY")]
    limit_key: Option<String>,
    /// On a queue with an order: run the tasks of this key one at a time, in order.
    #[arg(long, value_name = "KEY")]
    order_key: Option<String>,
    /// Run only one of all tasks with this key, however often it is submitted.
    #[arg(long, value_name = "KEY", conflicts_with = "dedupe_key")]
    idempotency_key: Option<String>,
    /// Run only one of all unfinished tasks with this key.
    #[arg(long, value_name = "KEY")]
    dedupe_key: Option<String>,
    /// With --dedupe-key: replace the waiting task that holds the key, or run after it if it runs.
    #[arg(long, requires = "dedupe_key")]
    overwrite: bool,
    /// With --idempotency-key or --dedupe-key: fail if the task that holds the key has another
    /// payload.
    #[arg(long)]
    strict: bool,
    /// Start the task when this task is over. Can be repeated.
    #[arg(long = "after", value_name = "TASK", value_parser = parse_task)]
    after: Vec<TaskRef>,
    /// Start the task when the task with this idempotency or dedupe key is over. Can be repeated.
    #[arg(long = "after-key", value_name = "KEY")]
    after_keys: Vec<String>,
    /// Decide what happens if a task of --after or --after-key has no result. Default: fail.
    #[arg(long, value_name = "WHAT", value_parser = one_of::<AfterFailed>([
        PossibleValue::new("fail").help("The task fails, too"),
        PossibleValue::new("skip").help("The task is cancelled"),
        PossibleValue::new("run").help("The task runs nevertheless"),
    ]))]
    after_failed: Option<AfterFailed>,
}

impl TermArgs {
    /// A task for a queue, as the API takes it.
    ///
    /// # Errors
    /// When the queue or a task has no name in the API, or options do not go together.
    pub(crate) fn task(self, queue: &str, payload: &[u8]) -> Result<NewTaskBody, CommandFailure> {
        if self.overwrite && self.dedupe_key.is_none() {
            let what = "--overwrite needs a dedupe key";
            return Err(CommandFailure::usage(what).help("set --dedupe-key as well"));
        }
        let after: Result<_, _> = self.after.iter().map(name_in_queue).collect();
        Ok(NewTaskBody {
            properties: self.properties.into_iter().collect(),
            task_type: self.task_type,
            key: self.key,
            tags: self.tags,
            priority: priority_of(queue, self.priority)?,
            delay: self.delay.map(Length),
            scheduled_at: self.start_at,
            expires_at: self.expires_at,
            max_duration: self.max_duration.map(Length),
            max_total_duration: self.max_total_duration.map(Length),
            no_progress_timeout: self.no_progress_timeout.map(Length),
            max_attempts: self.max_attempts,
            retry: self.retry.as_ref().map(RetryBody::from),
            limit_key: self.limit_key,
            order_key: self.order_key,
            idempotency_key: self.idempotency_key,
            dedupe_key: self.dedupe_key,
            overwrite: self.overwrite,
            strict: self.strict,
            after: after?,
            after_keys: self.after_keys,
            after_failed: self.after_failed,
            ..with_payload(payload)
        })
    }
}

/// A task with this payload, as text if it is text.
pub(crate) fn with_payload(payload: &[u8]) -> NewTaskBody {
    match std::str::from_utf8(payload) {
        Ok(text) => NewTaskBody { payload: Some(text.to_owned()), ..NewTaskBody::default() },
        Err(_) => {
            NewTaskBody { payload_base64: Some(STANDARD.encode(payload)), ..NewTaskBody::default() }
        }
    }
}

fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    if name.is_empty() {
        return Err("the property has no name; expected NAME=VALUE".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses the pauses between attempts.
pub(crate) fn retry(text: &str) -> Result<RetryPolicy, String> {
    if let Some((base, max)) = text.split_once("..") {
        return Ok(RetryPolicy::exponential(times::duration(base)?, times::duration(max)?));
    }
    let pauses: Result<Vec<_>, _> = text.split(',').map(times::duration).collect();
    Ok(RetryPolicy::intervals(pauses?))
}

/// # Errors
/// When a task cannot be submitted; with `--wait`, when it failed.
pub(crate) async fn run(
    service: &GatewayClient,
    it: Submit,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let Submit { queue, payload, lines, from_line, wait, terms } = it;
    let payload = payload.read()?;
    if lines {
        let task = terms.task(&queue, b"")?;
        return lines::submit(service, &queue, (&payload, from_line), &task, context).await;
    }
    let task = service.submit(&queue, terms.task(&queue, &payload)?).await?;
    if !wait {
        let task = named(&task);
        return Ok(context.output.one(&json!({ "id": task }), &[("task", task)])?);
    }
    context.output.note(&format!("submitted {}", named(&task)));
    let ended = following::follow(service, &task, context).await?;
    following::print_result(&ended, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_a_range_or_a_list() {
        let second = Duration::from_secs(1);
        assert_eq!(retry("1s..5m"), Ok(RetryPolicy::exponential(second, 300 * second)));
        assert_eq!(retry("1s,10s"), Ok(RetryPolicy::intervals([second, 10 * second])));
        assert!(retry("1s..").is_err() && retry("").is_err());
    }

    #[test]
    fn properties_have_names() {
        assert_eq!(property("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(property("a").is_err() && property("=b").is_err());
    }
}

//! `longhaul task submit`.

use super::{NamedTask, following};
use crate::context::CommandContext;
use crate::exit::CommandFailure;
use crate::service::gateway::GatewayClient;
use crate::service::tasks::{SubmissionTerms, TaskSubmission, named, parse_task};
use crate::times;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use longhaul::topics::Priority;
use longhaul::{AfterFailed, RetryPolicy, TaskRef};
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The maximum size of a payload file: brokers accept less.
const BYTES_MAX: u64 = 512 * 1024 * 1024;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task submit tasks 'Hello' --wait
  longhaul task submit reports --file report.json --key order-4711 --max-duration 1h
  longhaul task submit mails --lines < addresses.txt --delay 10m --tag newsletter")]
pub(crate) struct Submit {
    /// The queue, by the name of its task topic.
    queue: String,
    #[command(flatten)]
    payload: PayloadArgs,
    /// Submits a task for each line of the payload.
    #[arg(long, conflicts_with_all = ["wait", "idempotency_key", "dedupe_key"])]
    lines: bool,
    /// Waits until the task is over, and prints its result.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    terms: TermArgs,
}

/// What is submitted.
#[derive(Debug, Args)]
pub(crate) struct PayloadArgs {
    /// The payload. Without it the file, or else standard input, is.
    payload: Option<String>,
    /// The file with the payload; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    file: Option<PathBuf>,
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
                    return Err(CommandFailure::usage("there is no payload")
                        .help("give it behind the queue, by --file, or on standard input")
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
                .help("put it into a store and submit a reference to it")
                .into());
        }
        Ok(Bytes::from(bytes))
    }
}

/// How it is to be run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Task")]
pub(crate) struct TermArgs {
    /// A property for the processor; may be given several times.
    #[arg(short = 'p', long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
    /// What kind of task it is; workers choose the processor by it.
    #[arg(long = "type", value_name = "TYPE")]
    task_type: Option<String>,
    /// What you call it. A name and nothing else.
    #[arg(long)]
    key: Option<String>,
    /// A word to find it by; may be given several times.
    #[arg(long = "tag", value_name = "WORD")]
    tags: Vec<String>,
    /// Which level of the queue it goes to; another one than normal needs a queue with levels.
    #[arg(long, value_enum, default_value_t = PriorityArg::Normal)]
    priority: PriorityArg,
    /// It does not start before so long from now.
    #[arg(long, value_name = "TIME", value_parser = times::duration, conflicts_with = "start_at")]
    delay: Option<Duration>,
    /// It does not start before this instant.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant)]
    start_at: Option<SystemTime>,
    /// No attempt begins after this instant.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant)]
    expires_at: Option<SystemTime>,
    /// The longest that one attempt may take.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    max_duration: Option<Duration>,
    /// The longest that all attempts together may take.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    max_total_duration: Option<Duration>,
    /// How long an attempt may report nothing.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    no_progress_timeout: Option<Duration>,
    /// How many attempts it has.
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<u32>,
    /// Pauses between attempts: 1s..5m (random, below a ceiling that doubles), or a list such as
    /// 1s,10s,1m.
    #[arg(long, value_name = "PAUSES", value_parser = retry)]
    retry: Option<RetryPolicy>,
    /// The limits of this key apply to it.
    #[arg(long, value_name = "KEY")]
    limit_key: Option<String>,
    /// On a queue with an order: of all tasks with this key one is run at a time, in order.
    #[arg(long, value_name = "KEY")]
    order_key: Option<String>,
    /// Of all tasks with this key one is run, however often it is submitted.
    #[arg(long, value_name = "KEY", conflicts_with = "dedupe_key")]
    idempotency_key: Option<String>,
    /// Of all tasks with this key that are not over one is run.
    #[arg(long, value_name = "KEY")]
    dedupe_key: Option<String>,
    /// With a dedupe key: takes the place of the task that holds it and does not run.
    #[arg(long, requires = "dedupe_key")]
    overwrite: bool,
    /// With a key: refuses another payload than that of the task which holds it.
    #[arg(long)]
    strict: bool,
    /// It begins when this task is over; may be given several times.
    #[arg(long = "after", value_name = "TASK", value_parser = parse_task)]
    after: Vec<TaskRef>,
    /// It begins when the task with this idempotency key or dedupe key is over.
    #[arg(long = "after-key", value_name = "KEY")]
    after_keys: Vec<String>,
    /// What follows when one of those has no result.
    #[arg(long, value_enum, value_name = "WHAT")]
    after_failed: Option<Follows>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PriorityArg {
    High,
    Normal,
    Low,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Follows {
    /// It fails, too.
    Fail,
    /// It is cancelled.
    Skip,
    /// It runs all the same.
    Run,
}

impl TermArgs {
    pub(crate) fn terms(self) -> SubmissionTerms {
        let follows = |it| match it {
            Follows::Fail => AfterFailed::Fail,
            Follows::Skip => AfterFailed::Skip,
            Follows::Run => AfterFailed::Run,
        };
        SubmissionTerms {
            properties: self.properties,
            task_type: self.task_type,
            key: self.key,
            tags: self.tags,
            priority: match self.priority {
                PriorityArg::High => Priority::High,
                PriorityArg::Normal => Priority::Normal,
                PriorityArg::Low => Priority::Low,
            },
            delay: self.delay,
            scheduled_at: self.start_at,
            expires_at: self.expires_at,
            max_duration: self.max_duration,
            max_total_duration: self.max_total_duration,
            no_progress_timeout: self.no_progress_timeout,
            max_attempts: self.max_attempts,
            retry: self.retry,
            limit_key: self.limit_key,
            order_key: self.order_key,
            idempotency_key: self.idempotency_key,
            dedupe_key: self.dedupe_key,
            overwrite: self.overwrite,
            strict: self.strict,
            after: self.after,
            after_keys: self.after_keys,
            after_failed: self.after_failed.map(follows),
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
    let Submit { queue, payload, lines, wait, terms } = it;
    let (payload, terms) = (payload.read()?, terms.terms());
    if lines {
        return submit_lines(service, &queue, &payload, &terms, context).await;
    }
    let task = service.submit(TaskSubmission { queue, payload, terms }).await?;
    if !wait {
        let task = named(&task);
        return Ok(context.output.one(&NamedTask { task: task.clone() }, &[("task", task)])?);
    }
    context.output.note(&format!("submitted {}", named(&task)));
    let ended = following::follow(service, &task, context).await?;
    following::print_result(&ended, context)
}

async fn submit_lines(
    service: &GatewayClient,
    queue: &str,
    payload: &Bytes,
    terms: &SubmissionTerms,
    context: &CommandContext,
) -> anyhow::Result<()> {
    use futures::{StreamExt, TryStreamExt, stream};
    const TOGETHER: usize = 64;
    let lines: Result<Vec<String>, _> = payload.lines().collect();
    let lines =
        lines.map_err(|_| CommandFailure::usage("the payload is no text: it has no lines"))?;
    let progress = context.output.progress(lines.len() as u64);
    let submit = |line: String| {
        let task =
            TaskSubmission { queue: queue.to_owned(), payload: line.into(), terms: terms.clone() };
        service.submit(task)
    };
    let mut tasks =
        stream::iter(lines.into_iter().filter(|it| !it.is_empty()).map(submit)).buffered(TOGETHER);
    while let Some(task) = tasks.try_next().await? {
        context.output.each(&NamedTask { task: named(&task) })?;
        progress.step();
    }
    Ok(())
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

//! `longhaul task submit --lines`: a task for each line.

use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure, code_of};
use crate::output::TableRow;
use crate::service::gateway::GatewayClient;
use crate::service::tasks::named;
use bytes::Bytes;
use futures::{StreamExt, stream};
use longhaul::TaskRef;
use longhaul_api::new_task::NewTaskBody;
use serde::Serialize;
use std::cell::Cell;

/// How many lines are submitted at once.
const AT_ONCE: usize = 64;

/// The outcome of a line.
#[derive(Debug, Serialize)]
struct SubmittedLine {
    line: usize,
    /// Its task.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl TableRow for SubmittedLine {
    const HEADS: &'static [&'static str] = &["TASK"];

    fn cells(&self) -> Vec<String> {
        vec![self.id.clone().unwrap_or_default()]
    }
}

/// Submits a task for each non-empty line of the payload from this line on, and prints the outcome
/// of each. It goes on behind a line that is refused, and ends when there is nobody to submit to.
///
/// # Errors
/// When a line was not submitted; says which was the first.
pub(super) async fn submit(
    service: &GatewayClient,
    queue: &str,
    (payload, from_line): (&Bytes, usize),
    task: &NewTaskBody,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let payload = payload.strip_prefix("\u{feff}".as_bytes()).unwrap_or(payload);
    let lines = payload.split(|byte| *byte == b'\n').map(|it| it.strip_suffix(b"\r").unwrap_or(it));
    let lines = lines.zip(1..).skip(from_line.saturating_sub(1)).filter(|(it, _)| !it.is_empty());
    let lines: Vec<(&[u8], usize)> = lines.collect();
    let progress = context.output.progress(lines.len() as u64);
    let is_away = Cell::new(false);
    let submit = async |(line, number): (&[u8], usize)| {
        if is_away.get() {
            return None;
        }
        let submitted = submit_line(service, queue, line, task).await;
        let is_lost = |error| code_of(error) == Code::Unreachable;
        is_away.set(is_away.get() || submitted.as_ref().is_err_and(is_lost));
        Some((number, submitted))
    };
    let mut outcomes = stream::iter(lines.iter().copied().map(submit)).buffered(AT_ONCE);
    let (mut stored, mut first_error) = (0, None);
    while let Some(outcome) = outcomes.next().await {
        let Some((line, submitted)) = outcome else { continue };
        progress.step();
        match submitted {
            Ok(task) => {
                stored += 1;
                let id = Some(named(&task));
                context.output.each(&SubmittedLine { line, id, error: None })?;
            }
            Err(error) => {
                let told = format!("{error:#}");
                if context.output.is_for_people() {
                    context.output.note(&format!("line {line}: {told}"));
                } else {
                    let error = Some(told.clone());
                    context.output.each(&SubmittedLine { line, id: None, error })?;
                }
                first_error.get_or_insert_with(|| (line, told, code_of(&error)));
            }
        }
    }
    let Some((line, told, code)) = first_error else { return Ok(()) };
    let failed = lines.len() - stored;
    let what =
        format!("{failed} of {} lines were not submitted, first line {line}: {told}", lines.len());
    let help = if is_away.get() {
        format!(
            "run it again with --from-line {line} for the rest; tasks printed for later lines are \
             stored already"
        )
    } else {
        "mend these lines and submit them alone: the others are stored".to_owned()
    };
    Err(CommandFailure::new(code, what).help(help).into())
}

async fn submit_line(
    service: &GatewayClient,
    queue: &str,
    line: &[u8],
    task: &NewTaskBody,
) -> anyhow::Result<TaskRef> {
    let line = std::str::from_utf8(line);
    let line = line.map_err(|_| CommandFailure::usage("the line is not UTF-8 text"))?;
    let payload = Some(line.to_owned());
    service.submit(queue, NewTaskBody { payload, ..task.clone() }).await
}

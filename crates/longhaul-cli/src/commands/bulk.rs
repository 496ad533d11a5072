//! One operation on several tasks: a result for each, and the first error's exit code at the end.

use crate::context::CommandContext;
use crate::exit::{self, CommandFailure};
use crate::output::{TableRow, Tone};
use serde::Serialize;
use std::io;

/// The result for one task.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BulkOutcome {
    pub(crate) task: String,
    pub(crate) outcome: String,
    /// The resulting task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new_task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl TableRow for BulkOutcome {
    const HEADS: &'static [&'static str] = &["TASK", "OUTCOME", "NEW TASK", "ERROR"];

    fn cells(&self) -> Vec<String> {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        vec![self.task.clone(), self.outcome.clone(), text(&self.new_task), text(&self.error)]
    }

    fn tone(&self) -> Tone {
        if self.error.is_some() { Tone::Bad } else { Tone::Plain }
    }
}

/// The most errors printed for people.
const TOLD_MAX: usize = 100;

/// Counts the results, and prints each as it comes; for people, errors come at the end.
pub(crate) struct BulkOutcomes<'a> {
    context: &'a CommandContext,
    done: u64,
    failed: u64,
    errors: Vec<(String, anyhow::Error)>,
}

impl<'a> BulkOutcomes<'a> {
    pub(crate) const fn new(context: &'a CommandContext) -> Self {
        Self { context, done: 0, failed: 0, errors: Vec::new() }
    }

    /// Records a success.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn done(
        &mut self,
        task: String,
        outcome: &str,
        new_task: Option<String>,
    ) -> io::Result<()> {
        self.done += 1;
        let outcome = outcome.to_owned();
        self.context.output.each(&BulkOutcome { task, outcome, new_task, error: None })
    }

    /// Records a failure.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn failed(&mut self, task: String, error: anyhow::Error) -> io::Result<()> {
        self.failed += 1;
        let told = Some(format!("{error:#}"));
        if self.errors.len() < TOLD_MAX {
            self.errors.push((task.clone(), error));
        }
        if self.context.output.is_for_people() {
            return Ok(());
        }
        let outcome = "error".to_owned();
        self.context.output.each(&BulkOutcome { task, outcome, new_task: None, error: told })
    }

    /// Records a success, with the resulting task if there is one, or a failure.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn put(
        &mut self,
        task: String,
        ended: anyhow::Result<(&str, Option<String>)>,
    ) -> io::Result<()> {
        match ended {
            Ok((outcome, new_task)) => self.done(task, outcome, new_task),
            Err(error) => self.failed(task, error),
        }
    }

    /// # Errors
    /// When an operation failed.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let total = self.done + self.failed;
        if total == 0 {
            self.context.output.note("nothing to do: no match");
        }
        if total == 1
            && let Some((_, error)) = self.errors.pop()
        {
            return Err(error);
        }
        let Some((_, first)) = self.errors.first() else { return Ok(()) };
        let code = exit::code_of(first);
        if self.context.output.is_for_people() {
            for (task, error) in &self.errors {
                self.context.output.note(&format!("{task}: {error:#}"));
            }
        }
        let what = format!("{} of {total} failed", self.failed);
        Err(CommandFailure::new(code, what).into())
    }
}

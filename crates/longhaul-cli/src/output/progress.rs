//! Progress for people at a terminal.

use super::{Output, text};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};

/// A line on standard error that is updated in place; nothing if standard error is not a terminal,
/// or with `--quiet`.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    bar: ProgressBar,
}

impl Output {
    /// Progress towards this many steps; 0 if unknown.
    pub(crate) fn progress(&self, total: u64) -> ProgressLine {
        let is_seen = !self.quiet && io::stderr().is_terminal();
        let target = if is_seen {
            ProgressDrawTarget::stderr_with_hz(8)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target((total > 0).then_some(total), target);
        let form =
            if total > 0 { "{bar:30} {pos}/{len} {wide_msg}" } else { "{spinner} {wide_msg}" };
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style);
        }
        ProgressLine { bar }
    }
}

impl ProgressLine {
    /// Sets the steps done, and their total.
    pub(crate) fn set(&self, done: u64, total: u64, message: &str) {
        if total > 0 {
            self.bar.set_length(total);
        }
        self.bar.set_position(done);
        self.bar.set_message(text::line(message).into_owned());
    }

    /// Adds one step.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

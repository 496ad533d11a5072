//! The reports of a running program: one line each, on the file descriptor in `LONGHAUL_FD`.

use super::lines::{OutputLine, printable};
use crate::times::duration;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use std::path::PathBuf;
use std::time::Duration;

/// The maximum length of a line: a checkpoint of 64 KiB in Base64, with its keyword.
pub(crate) const REPORT_BYTES_MAX: usize = 90 * 1024;

/// A report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramReport {
    /// `progress DONE [TOTAL|-] [MESSAGE]`
    Progress { done: u64, total: u64, message: String },
    /// `checkpoint BASE64`
    Checkpoint(Bytes),
    /// `checkpoint-file PATH`
    CheckpointFile(PathBuf),
    /// `log TEXT`
    Log(String),
    /// `retry-after DURATION`
    RetryAfter(Duration),
}

impl ProgramReport {
    /// Parses a line.
    ///
    /// # Errors
    /// What is wrong with the line, and what is expected.
    pub(crate) fn read(line: &OutputLine) -> Result<Self, String> {
        if line.is_cut {
            return Err(format!("the report is longer than {REPORT_BYTES_MAX} bytes"));
        }
        let (word, rest) = next_word(line.text.trim());
        match word {
            "progress" => progress(rest),
            "checkpoint" => BASE64_STANDARD
                .decode(rest)
                .map(|bytes| Self::Checkpoint(bytes.into()))
                .map_err(|error| format!("the checkpoint is not Base64: {error}")),
            "checkpoint-file" if !rest.is_empty() => Ok(Self::CheckpointFile(rest.into())),
            "checkpoint-file" => Err("expected `checkpoint-file PATH`".to_owned()),
            "log" => Ok(Self::Log(printable(rest))),
            "retry-after" => duration(rest).map(Self::RetryAfter),
            _ => {
                Err("expected progress, checkpoint, checkpoint-file, log or retry-after".to_owned())
            }
        }
    }
}

/// The total may be omitted if unknown; then a message that begins with a number needs `-` before
/// it.
fn progress(rest: &str) -> Result<ProgramReport, String> {
    let (done, rest) = next_word(rest);
    let done = done
        .parse()
        .map_err(|_| "expected `progress DONE [TOTAL] [MESSAGE]` with whole numbers".to_owned())?;
    let (second, after) = next_word(rest);
    let (total, message) = match second.parse() {
        Ok(total) => (total, after),
        Err(_) if second == "-" => (0, after),
        Err(_) => (0, rest),
    };
    Ok(ProgramReport::Progress { done, total, message: printable(message) })
}

fn next_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ProgramReport, String> {
        ProgramReport::read(&OutputLine { text: text.to_owned(), is_cut: false })
    }

    fn progress_of(done: u64, total: u64, message: &str) -> ProgramReport {
        ProgramReport::Progress { done, total, message: message.to_owned() }
    }

    #[test]
    fn each_report_is_read() {
        for (text, report) in [
            ("progress 3", progress_of(3, 0, "")),
            ("progress 3 10", progress_of(3, 10, "")),
            ("progress 3 10 pages of the book", progress_of(3, 10, "pages of the book")),
            ("progress 3 pages", progress_of(3, 0, "pages")),
            ("progress 3 - 10 pages", progress_of(3, 0, "10 pages")),
            ("  progress\t3  10   x ", progress_of(3, 10, "x")),
            ("checkpoint aGFsZg==", ProgramReport::Checkpoint(Bytes::from_static(b"half"))),
            ("checkpoint", ProgramReport::Checkpoint(Bytes::new())),
            ("checkpoint-file /tmp/a b", ProgramReport::CheckpointFile("/tmp/a b".into())),
            ("log page 3 is \u{1b}[31mred", ProgramReport::Log("page 3 is [31mred".to_owned())),
            ("retry-after 30s", ProgramReport::RetryAfter(Duration::from_secs(30))),
            ("retry-after 1h 30m", ProgramReport::RetryAfter(Duration::from_secs(5_400))),
            ("retry-after PT5M", ProgramReport::RetryAfter(Duration::from_secs(300))),
        ] {
            assert_eq!(read(text), Ok(report), "{text}");
        }
    }

    #[test]
    fn a_line_that_is_no_report_says_what_would_be_one() {
        for (text, told) in [
            ("progress", "expected `progress DONE"),
            ("progress half", "whole numbers"),
            ("progress -1 10", "whole numbers"),
            ("progress 99999999999999999999", "whole numbers"),
            ("checkpoint !", "not Base64"),
            ("checkpoint-file", "expected `checkpoint-file PATH`"),
            ("retry-after", "a duration such as 90s"),
            ("retry-after -5s", "cannot be negative"),
            ("Progress 1", "expected progress, checkpoint"),
            ("hello", "expected progress, checkpoint"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
        let cut = OutputLine { text: "log x".to_owned(), is_cut: true };
        assert!(ProgramReport::read(&cut).unwrap_err().contains("longer than"));
    }

    #[test]
    fn the_largest_checkpoint_is_a_line() {
        let line = format!("checkpoint {}", BASE64_STANDARD.encode(vec![7; 64 * 1024]));
        assert!(line.len() <= REPORT_BYTES_MAX);
        assert_eq!(read(&line), Ok(ProgramReport::Checkpoint(vec![7; 64 * 1024].into())));
    }
}

//! The log lines of an attempt.

use super::{TaskMetadata, text};
use serde::Deserialize;

/// Number of log lines of an attempt that an entry shows, the newest.
const LINES_MAX: usize = 32;

/// Maximum length of a line in bytes; a longer one is cut.
const LINE_BYTES_MAX: usize = 256;

/// The newest log lines of an attempt, and how many it has had. So a reader of several entries of
/// one attempt knows which of their lines are the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct LogLines {
    /// At most 32 lines of at most 256 bytes.
    #[serde(default, rename = "log")]
    pub lines: Vec<String>,
    /// See [`TaskMetadata::logged`].
    #[serde(default)]
    logged: Option<u64>,
}

impl LogLines {
    /// The lines in the body of a metadata entry; none if it cannot be read.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// Cuts a line that is too long.
    #[must_use]
    pub fn cut(mut line: String) -> String {
        line.truncate(text::start_of(&line, LINE_BYTES_MAX).len());
        line
    }

    /// Adds a line, and drops the oldest one for it if there are too many.
    pub fn push(&mut self, line: String) {
        self.logged = Some(self.count() + 1);
        if self.lines.len() >= LINES_MAX {
            self.lines.remove(0);
        }
        self.lines.push(Self::cut(line));
    }

    /// How many lines the attempt has logged.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.logged.unwrap_or_default().max(self.lines.len() as u64)
    }

    /// The lines that follow the first `count` ones of the attempt, and how many of those that
    /// follow are not among the newest ones and so are lost.
    #[must_use]
    pub fn behind(mut self, count: u64) -> (Vec<String>, u64) {
        let new = self.count().saturating_sub(count);
        let kept = usize::try_from(new).map_or(self.lines.len(), |new| new.min(self.lines.len()));
        let lines = self.lines.split_off(self.lines.len() - kept);
        (lines, new - kept as u64)
    }

    /// Puts the lines into the entry of their attempt.
    pub fn show_in(self, metadata: &mut TaskMetadata) {
        let count = self.count();
        metadata.logged = (count > self.lines.len() as u64).then_some(count);
        metadata.log = self.lines;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskState;

    fn log(lines: std::ops::RangeInclusive<u32>) -> LogLines {
        let mut log = LogLines::default();
        lines.for_each(|number| log.push(number.to_string()));
        log
    }

    #[test]
    fn the_newest_lines_are_kept_and_long_ones_cut() {
        let line = |number: usize| format!("{number} {}", "ä".repeat(200));
        let mut log = LogLines::default();
        (1..=40).for_each(|number| log.push(line(number)));
        assert_eq!((log.lines.len(), log.count()), (32, 40));
        // The ninth line is the first that is left.
        for (number, kept) in (9..).zip(&log.lines) {
            assert!(line(number).starts_with(kept) && (255..=256).contains(&kept.len()), "{kept}");
        }
    }

    #[test]
    fn entries_of_one_attempt_add_up_to_its_lines() {
        let of = |range: std::ops::RangeInclusive<u32>| range.map(|it| it.to_string()).collect();
        assert_eq!(log(1..=3).behind(0), (of(1..=3), 0));
        assert_eq!(log(1..=5).behind(3), (of(4..=5), 0));
        assert_eq!(log(1..=40).behind(5), (of(9..=40), 3));
        assert_eq!(log(1..=40).behind(39), (of(40..=40), 0));
        // The end of an attempt that another worker shows has no lines.
        assert_eq!(LogLines::default().behind(40), (Vec::new(), 0));
    }

    #[test]
    fn an_entry_is_read_as_it_was_shown() {
        for log in [log(1..=3), log(1..=40), LogLines::default()] {
            let mut entry =
                TaskMetadata::new("1:2:-1".to_owned(), TaskState::Processing, 1, (1, 2));
            log.clone().show_in(&mut entry);
            assert_eq!(entry.logged.is_some(), log.count() > 32);
            let read = LogLines::read(&serde_json::to_vec(&entry).unwrap());
            assert_eq!((read.count(), read.lines), (log.count(), log.lines));
        }
        assert_eq!(LogLines::read(b"no entry"), LogLines::default());
    }
}

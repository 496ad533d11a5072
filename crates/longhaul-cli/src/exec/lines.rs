//! Splits a program's output into lines in bounded memory, whatever the content and length of its
//! lines.

use bytes::BytesMut;
use std::collections::VecDeque;
use std::io;
use tokio_util::codec::Decoder;

/// Splits bytes into lines. A line over the limit is cut.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    bytes_max: usize,
    /// A carriage return also ends a line: progress bars redraw after one.
    returns_end: bool,
    line: Vec<u8>,
    is_cut: bool,
}

/// A line, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputLine {
    pub(crate) text: String,
    /// The line was longer.
    pub(crate) is_cut: bool,
}

impl LineSplitter {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { bytes_max, returns_end: false, line: Vec::new(), is_cut: false }
    }

    /// Also ends lines at carriage returns.
    pub(crate) fn with_returns(bytes_max: usize) -> Self {
        Self { returns_end: true, ..Self::new(bytes_max) }
    }

    fn extend(&mut self, bytes: &[u8]) {
        let room = self.bytes_max.saturating_sub(self.line.len());
        self.is_cut |= bytes.len() > room;
        self.line.extend(bytes.iter().take(room));
    }

    /// Empty lines are skipped.
    fn end(&mut self) -> Option<OutputLine> {
        let text = String::from_utf8_lossy(&self.line).trim_end_matches('\r').to_owned();
        let is_cut = std::mem::take(&mut self.is_cut);
        self.line.clear();
        (!text.is_empty()).then_some(OutputLine { text, is_cut })
    }
}

impl Decoder for LineSplitter {
    type Item = OutputLine;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<OutputLine>> {
        let returns_end = self.returns_end;
        let is_end = |byte: &u8| *byte == b'\n' || (returns_end && *byte == b'\r');
        while let Some(end) = bytes.iter().position(is_end) {
            let mut part = bytes.split_to(end + 1);
            part.truncate(end);
            self.extend(&part);
            if let Some(line) = self.end() {
                return Ok(Some(line));
            }
        }
        self.extend(bytes);
        bytes.clear();
        Ok(None)
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> io::Result<Option<OutputLine>> {
        let line = self.decode(bytes)?;
        Ok(line.or_else(|| self.end()))
    }
}

/// Removes characters that could control a reader's terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|it| *it == '\t' || !it.is_control()).collect()
}

/// The last lines of an output.
#[derive(Debug, Default)]
pub(crate) struct OutputTail {
    lines: VecDeque<String>,
    bytes: usize,
}

/// The lines and bytes kept for the failure reason.
const TAIL_LINES_MAX: usize = 20;
const TAIL_BYTES_MAX: usize = 2_000;

impl OutputTail {
    pub(crate) fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > TAIL_LINES_MAX
            || (self.bytes > TAIL_BYTES_MAX && self.lines.len() > 1)
        {
            let Some(first) = self.lines.pop_front() else { break };
            self.bytes -= first.len();
        }
    }

    /// All kept lines, joined.
    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(mut splitter: LineSplitter, parts: &[&[u8]]) -> Vec<(String, bool)> {
        let (mut lines, mut bytes) = (Vec::new(), BytesMut::new());
        for part in parts {
            bytes.extend_from_slice(part);
            while let Some(line) = splitter.decode(&mut bytes).unwrap() {
                lines.push((line.text, line.is_cut));
            }
        }
        if let Some(line) = splitter.decode_eof(&mut bytes).unwrap() {
            lines.push((line.text, line.is_cut));
        }
        lines
    }

    fn whole(texts: &[&str]) -> Vec<(String, bool)> {
        texts.iter().map(|text| ((*text).to_owned(), false)).collect()
    }

    #[test]
    fn lines_end_where_the_program_ends_them_and_not_where_a_read_does() {
        let found = lines_of(LineSplitter::new(10), &[b"on", b"e\ntw", b"o\r\n\n", b"three"]);
        assert_eq!(found, whole(&["one", "two", "three"]));
    }

    #[test]
    fn each_state_of_a_progress_bar_is_a_line() {
        let found = lines_of(LineSplitter::with_returns(10), &[b"10 %\r20 %\r30", b" %\r\ndone\n"]);
        assert_eq!(found, whole(&["10 %", "20 %", "30 %", "done"]));
    }

    #[test]
    fn a_line_without_an_end_costs_no_more_than_its_beginning() {
        let mut splitter = LineSplitter::new(4);
        for _ in 0..1_000 {
            let mut bytes = BytesMut::from(&[b'x'; 1_000][..]);
            assert_eq!(splitter.decode(&mut bytes).unwrap(), None);
        }
        assert!(splitter.line.capacity() <= 1_024);
        let lines = lines_of(splitter, &[b"\nshort\n1234\n"]);
        assert_eq!(lines, [("xxxx".into(), true), ("shor".into(), true), ("1234".into(), false)]);
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_such() {
        assert_eq!(lines_of(LineSplitter::new(9), &[b"a\xffb\n"]), whole(&["a\u{fffd}b"]));
        assert_eq!(printable("\u{1b}[31mred\u{7}\tx\u{9b}0m"), "[31mred\tx0m");
    }

    #[test]
    fn the_last_lines_are_kept() {
        let mut tail = OutputTail::default();
        for number in 0..100 {
            tail.push(format!("line {number}"));
        }
        assert!(tail.text().starts_with("line 80\nline 81") && tail.text().ends_with("line 99"));
        tail.push("y".repeat(1_950));
        assert_eq!(tail.text().lines().count(), 8);
        tail.push("z".repeat(5_000));
        assert_eq!(tail.text(), "z".repeat(5_000));
    }
}

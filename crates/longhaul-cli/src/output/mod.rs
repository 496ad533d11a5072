//! Output: results to standard output in the requested format; notes to standard error.

mod columns;
mod progress;
pub(crate) mod text;

use crate::exit::CommandFailure;
use comfy_table::presets;
use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Table};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::str::FromStr;

/// The format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One document.
    Json,
    /// One document per line.
    JsonLines,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "table" => Ok(Self::Table),
            "json" => Ok(Self::Json),
            "jsonl" => Ok(Self::JsonLines),
            _ => Err("expected table, json or jsonl".to_owned()),
        }
    }
}

/// The emphasis of a text, if there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
    Busy,
    Faint,
}

/// A record as a table row.
pub(crate) trait TableRow: Serialize {
    /// The column heads; `--quiet` shows only the first column.
    const HEADS: &'static [&'static str];

    /// The places of the columns that a narrow terminal leaves out, the first one first.
    const DROPS: &'static [usize] = &[];

    /// One text per column.
    fn cells(&self) -> Vec<String>;

    /// The emphasis of the row.
    fn tone(&self) -> Tone {
        Tone::Plain
    }
}

/// Writes results and notes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) quiet: bool,
    /// Use colours on standard output.
    pub(crate) colours: bool,
}

impl Output {
    /// # Errors
    /// When the setting for colours is invalid.
    pub(crate) fn new(format: Format, quiet: bool, colours: &str) -> Result<Self, CommandFailure> {
        let no = || std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        let colours = match colours {
            "auto" => io::stdout().is_terminal() && !no(),
            "always" => true,
            "never" => false,
            other => {
                let what = format!("color is `{other}`: expected auto, always or never");
                return Err(CommandFailure::usage(what));
            }
        };
        Ok(Self { format, quiet, colours })
    }

    /// Whether results are tables for people.
    pub(crate) fn is_for_people(&self) -> bool {
        self.format == Format::Table
    }

    /// Writes several records.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn list<R: TableRow>(&self, rows: &[R]) -> io::Result<()> {
        match self.format {
            Format::Json => self.json(&rows),
            Format::JsonLines => rows.iter().try_for_each(|row| self.json_line(row)),
            Format::Table if self.quiet => {
                let firsts = rows.iter().filter_map(|row| row.cells().into_iter().next());
                firsts.into_iter().try_for_each(|first| write_line(&text::line(&first)))
            }
            Format::Table if rows.is_empty() => {
                self.note("nothing to show");
                Ok(())
            }
            Format::Table => write_line(&self.table(rows)),
        }
    }

    /// Writes one of many successive records: one line each, in any format.
    ///
    /// # Errors
    /// As [`Output::list`].
    pub(crate) fn each<R: TableRow>(&self, row: &R) -> io::Result<()> {
        if !self.is_for_people() {
            return self.json_line(row);
        }
        let mut cells = row.cells();
        cells.truncate(if self.quiet { 1 } else { cells.len() });
        let cells: Vec<_> =
            cells.iter().filter(|it| !it.is_empty()).map(|it| text::line(it)).collect();
        write_line(&self.painted(&cells.join("  "), row.tone()))
    }

    /// Writes one record, one field per line.
    ///
    /// # Errors
    /// As [`Output::list`].
    pub(crate) fn one(&self, record: &impl Serialize, fields: &[(&str, String)]) -> io::Result<()> {
        match self.format {
            Format::Json => self.json(record),
            Format::JsonLines => self.json_line(record),
            Format::Table if self.quiet => {
                fields.first().map_or(Ok(()), |(_, value)| write_line(&text::line(value)))
            }
            Format::Table => {
                let shown = |it: &&(&str, String)| !it.1.is_empty();
                let width = fields.iter().filter(shown).map(|it| it.0.len()).max().unwrap_or(0);
                for (label, value) in fields.iter().filter(shown) {
                    let value = text::document(value);
                    let indented = value.replace('\n', &format!("\n{:width$}  ", ""));
                    let label = self.painted(&format!("{label:width$}"), Tone::Faint);
                    write_line(&format!("{label}  {indented}"))?;
                }
                Ok(())
            }
        }
    }

    /// Writes text for people.
    ///
    /// # Errors
    /// As [`Output::list`].
    pub(crate) fn lines(&self, lines: &str) -> io::Result<()> {
        write_line(lines)
    }

    /// Writes raw bytes, or safe text to a terminal.
    ///
    /// # Errors
    /// As [`Output::list`].
    pub(crate) fn bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if out.is_terminal() {
            let shown = String::from_utf8_lossy(bytes);
            writeln!(out, "{}", text::document(&shown))
        } else {
            out.write_all(bytes)?;
            out.flush()
        }
    }

    /// Writes a note to standard error.
    pub(crate) fn note(&self, note: &str) {
        if !self.quiet {
            // Ignore a closed standard error.
            writeln!(io::stderr().lock(), "{}", text::clean(note)).ok();
        }
    }

    fn json(&self, record: &impl Serialize) -> io::Result<()> {
        write_line(&text::clean_json(&serde_json::to_string_pretty(record)?))
    }

    fn json_line(&self, record: &impl Serialize) -> io::Result<()> {
        write_line(&text::clean_json(&serde_json::to_string(record)?))
    }

    fn table<R: TableRow>(&self, rows: &[R]) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        // Fit the terminal's width; without a terminal each row is one line.
        let arrangement = if io::stdout().is_terminal() {
            ContentArrangement::Dynamic
        } else {
            ContentArrangement::Disabled
        };
        table.set_content_arrangement(arrangement);
        if !self.colours {
            table.force_no_tty();
        }
        let shown = |row: &R| row.cells().iter().map(|it| text::line(it).into_owned()).collect();
        let cells: Vec<Vec<String>> = rows.iter().map(shown).collect();
        let shown = match table.width().filter(|_| io::stdout().is_terminal()) {
            Some(width) => columns::fitting(R::HEADS, &cells, R::DROPS, width.into()),
            None => (0..R::HEADS.len()).collect(),
        };
        let heads = shown.iter().filter_map(|&at| R::HEADS.get(at));
        table.set_header(heads.map(|text| Cell::new(text).add_attribute(Attribute::Bold)));
        for (row, cells) in rows.iter().zip(&cells) {
            let colour = colour(row.tone());
            let cell = |&at: &usize| {
                let cell = Cell::new(cells.get(at)?);
                Some(match colour {
                    Some(colour) if at == 1 => cell.fg(colour),
                    Some(_) | None => cell,
                })
            };
            table.add_row(shown.iter().filter_map(cell));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, columns::PADDING));
        }
        // Names and states are copied and compared, so in a narrow terminal only the other columns
        // wrap.
        for column in table.column_iter_mut().take(2) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }

    fn painted(&self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Good => 32,
            Tone::Bad => 31,
            Tone::Busy => 36,
            Tone::Faint => 2,
        };
        if self.colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

const fn colour(tone: Tone) -> Option<Color> {
    match tone {
        Tone::Plain => None,
        Tone::Good => Some(Color::Green),
        Tone::Bad => Some(Color::Red),
        Tone::Busy => Some(Color::Cyan),
        Tone::Faint => Some(Color::DarkGrey),
    }
}

fn write_line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Named {
        name: String,
    }

    impl TableRow for Named {
        const HEADS: &'static [&'static str] = &["NAME", "LENGTH"];

        fn cells(&self) -> Vec<String> {
            vec![self.name.clone(), self.name.len().to_string()]
        }
    }

    fn named(name: &str) -> Named {
        Named { name: name.to_owned() }
    }

    #[test]
    fn a_table_has_a_head_and_a_line_for_each_record() {
        let output = Output { format: Format::Table, quiet: false, colours: false };
        let table = output.table(&[named("one"), named("x\u{1b}[2Jy\nz")]);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines, ["NAME           LENGTH", "one            3", "x\\u{1b}[2Jy z  8"]);
    }

    #[test]
    fn colours_are_for_those_who_want_them() {
        let output = Output { format: Format::Table, quiet: false, colours: true };
        assert_eq!(output.painted("a", Tone::Bad), "\u{1b}[31ma\u{1b}[0m");
        let plain = Output { colours: false, ..output };
        assert_eq!(plain.painted("a", Tone::Bad), "a");
        assert!(Output::new(Format::Table, false, "sometimes").is_err());
    }
}

//! Draws rows as a sequence diagram in SVG: time goes down, each party is a line.

use super::scene::{LANES, Row, TASKS, What};
use std::fmt::Write;

const LEFT: usize = 100;
const LANE: usize = 178;
const TOP: usize = 84;
const ROW: usize = 34;
const MARGIN: usize = 30;
const INK: &str = "#1c2126";
const DIM: &str = "#5b6672";
const WRITES: &str = "#0b57a4";
const READS: &str = "#2b7a3f";
const FAULT: &str = "#b3261e";
/// Makes text stand out from the lines that it crosses.
const HALO: &str = "stroke=\"#ffffff\" stroke-width=\"4\" paint-order=\"stroke\"";

fn x(lane: usize) -> usize {
    LEFT + LANE / 2 + lane * LANE
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Text centred at this position.
fn label(out: &mut String, (x, y): (usize, usize), colour: &str, text: &str) {
    let text = escaped(text);
    // Writing to a String does not fail.
    writeln!(
        out,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"{colour}\" {HALO}>{text}</text>"
    )
    .ok();
}

fn arrow(out: &mut String, (from, to): (usize, usize), y: usize, colour: &str, dashed: bool) {
    let dashes = if dashed { " stroke-dasharray=\"5 4\"" } else { "" };
    let back = if to > from { to - 7 } else { to + 7 };
    let (above, below) = (y - 4, y + 4);
    writeln!(out, "<path d=\"M{from} {y}H{to}\" stroke=\"{colour}\"{dashes}/>").ok();
    writeln!(
        out,
        "<path d=\"M{to} {y}L{back} {above}V{below}Z\" fill=\"{colour}\" stroke=\"none\"/>"
    )
    .ok();
}

fn row(out: &mut String, row: &Row, y: usize) {
    let Row { what, text, .. } = row;
    match what {
        What::Stores { by, on, ignored } => {
            let colour = if ignored.is_some() { FAULT } else { WRITES };
            arrow(out, (x(*by), x(*on)), y, colour, false);
            let note = ignored.map_or_else(String::new, |_| " — has no effect".to_owned());
            label(out, ((x(*on) + x(*on - 1)) / 2, y - 6), colour, &format!("{text}{note}"));
        }
        What::Reads { by, on } => {
            let mut nearest = 0;
            for reader in by {
                arrow(out, (x(*on), x(*reader)), y, READS, true);
                nearest = nearest.max(*reader);
            }
            label(out, ((x(nearest) + x(nearest + 1)) / 2, y - 6), READS, text);
        }
        What::Acks { by } => {
            arrow(out, (x(*by), x(TASKS)), y, DIM, false);
            label(out, ((x(TASKS) + x(TASKS - 1)) / 2, y - 6), DIM, text);
        }
        What::Begins { who } | What::Ends { who } => {
            writeln!(
                out,
                "<circle cx=\"{}\" cy=\"{y}\" r=\"4\" fill=\"{INK}\" stroke=\"none\"/>",
                x(*who)
            )
            .ok();
            label(out, (x(*who), y - 8), INK, text);
        }
        What::Happens { who } => {
            let (left, right, above, below) = (x(*who) - 6, x(*who) + 6, y - 6, y + 6);
            let cross = format!("M{left} {above}L{right} {below}M{right} {above}L{left} {below}");
            writeln!(out, "<path d=\"{cross}\" stroke=\"{FAULT}\" stroke-width=\"2.5\"/>").ok();
            label(out, (x(*who), y - 10), FAULT, text);
        }
    }
}

/// The bars of attempts: lane, first row and last row. The bar of an attempt that never ends goes
/// on to the trouble that stopped it.
fn bars(rows: &[Row]) -> Vec<(usize, usize, usize)> {
    let mut found = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let What::Begins { who } = row.what else { continue };
        let rest = rows.iter().enumerate().skip(at);
        let end = |(_, row): &(usize, &Row)| row.what == What::Ends { who };
        let trouble = |(_, row): &(usize, &Row)| row.what == What::Happens { who };
        let last = rest.clone().find(end).or_else(|| rest.clone().find(trouble));
        found.push((who, at, last.map_or(rows.len() - 1, |(end, _)| end)));
    }
    found
}

/// Returns the picture. Its numbers are integers, so that every machine draws the same bytes.
pub(super) fn svg(title: &str, rows: &[Row]) -> String {
    let (width, height) = (LEFT + LANE * LANES.len() + MARGIN, TOP + ROW * rows.len() + MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
        font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"none\" stroke-width=\"1.5\" role=\"img\">\n<title>{}</title>\n\
        <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        escaped(title)
    );
    let bottom = height - MARGIN / 2;
    for (lane, name) in LANES.iter().enumerate() {
        let (left, x, broad) = (x(lane) - LANE * 3 / 8, x(lane), LANE * 3 / 4);
        let back = if lane < TASKS { "#eef1f4" } else { "#fdf3dd" };
        writeln!(out, "<path d=\"M{x} 48V{bottom}\" stroke=\"#c9d0d8\"/>").ok();
        writeln!(
            out,
            "<rect x=\"{left}\" y=\"18\" width=\"{broad}\" height=\"30\" rx=\"5\" fill=\"{back}\"/>"
        )
        .ok();
        label(&mut out, (x, 38), INK, name);
    }
    let y = |at: usize| TOP + ROW * at;
    for (who, begin, end) in bars(rows) {
        let (left, top, high) = (x(who) - 5, y(begin), y(end) - y(begin));
        writeln!(
            out,
            "<rect x=\"{left}\" y=\"{top}\" width=\"10\" height=\"{high}\" fill=\"#d7dde4\"/>"
        )
        .ok();
    }
    for (at, it) in rows.iter().enumerate() {
        let ms = it.at.as_millis();
        let (seconds, rest) = (ms / 1000, ms % 1000);
        let (right, down) = (LEFT - 24, y(at) + 4);
        writeln!(out, "<text x=\"{right}\" y=\"{down}\" text-anchor=\"end\" fill=\"{DIM}\">{seconds}.{rest:03} s</text>").ok();
        row(&mut out, it, y(at));
    }
    out.push_str("</svg>\n");
    out
}

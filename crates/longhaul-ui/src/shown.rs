//! Formats values for people. Untrusted text may contain anything: characters that control a
//! terminal or the direction of text are shown by name.

use jiff::Timestamp;
use maud::{Markup, PreEscaped, Render, html};

/// The most characters shown of a one-line text.
const LINE_CHARS_MAX: usize = 300;

/// An untrusted text.
pub(crate) struct Outside<'a>(pub(crate) &'a str);

/// An instant and the current time, in ms since the epoch.
pub(crate) struct ShownInstant {
    pub(crate) at_ms: u64,
    pub(crate) now_ms: u64,
}

/// Whether a character is invisible, or changes how others are shown.
pub(crate) const fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Shows a text with its hidden characters named. `keeps_lines` keeps line breaks and tabs.
pub(crate) fn text(text: &str, keeps_lines: bool) -> Markup {
    let mut out = String::with_capacity(text.len());
    let mut plain = String::new();
    for character in text.chars() {
        if !is_hidden(character) || keeps_lines && matches!(character, '\n' | '\t') {
            plain.push(character);
            continue;
        }
        out.push_str(&html! { (plain) }.into_string());
        plain.clear();
        let name = format!("U+{:04X}", u32::from(character));
        out.push_str(&html! { span.hidden-character { (name) } }.into_string());
    }
    out.push_str(&html! { (plain) }.into_string());
    PreEscaped(out)
}

/// As `text`, for places without markup: a tooltip, or the title of a window.
pub(crate) fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars().take(LINE_CHARS_MAX) {
        if is_hidden(character) {
            out.push_str(&format!("\u{2039}U+{:04X}\u{203a}", u32::from(character)));
        } else {
            out.push(character);
        }
    }
    out
}

impl Render for Outside<'_> {
    fn render(&self) -> Markup {
        let cut = self.0.char_indices().nth(LINE_CHARS_MAX).map_or(self.0.len(), |(at, _)| at);
        let (start, rest) = self.0.split_at(cut);
        // Lines of one text are one line here.
        let line = start.replace(['\n', '\t'], " ");
        html! { bdi { (text(&line, false)) @if !rest.is_empty() { "…" } } }
    }
}

impl Render for ShownInstant {
    fn render(&self) -> Markup {
        let Some(at) = timestamp(self.at_ms) else { return html! { (self.at_ms) " ms" } };
        let (text, words) = (format!("{at:.3}"), distance(self.at_ms, self.now_ms));
        html! { time datetime=(text) title=(text) { (words) } }
    }
}

fn timestamp(at_ms: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()
}

/// An instant as date and minute, such as `2026-11-30 03:00 UTC`.
pub(crate) fn minute(at_ms: u64) -> String {
    timestamp(at_ms).map_or_else(String::new, |at| at.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// The distance of an instant from now, such as `3 min ago`.
pub(crate) fn distance(at_ms: u64, now_ms: u64) -> String {
    if at_ms > now_ms {
        format!("in {}", length(at_ms - now_ms))
    } else {
        format!("{} ago", length(now_ms - at_ms))
    }
}

/// A duration in its two largest units, or in one if the second is zero.
pub(crate) fn length(ms: u64) -> String {
    let seconds = ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let (large, small) = match () {
        () if ms < 1000 => return format!("{ms} ms"),
        () if seconds < 10 => return format!("{seconds}.{} s", ms % 1000 / 100),
        () if minutes == 0 => return format!("{seconds} s"),
        () if hours == 0 => ((minutes, "min"), (seconds % 60, "s")),
        () if days == 0 => ((hours, "h"), (minutes % 60, "min")),
        () => ((days, "d"), (hours % 24, "h")),
    };
    match small {
        (0, _) => format!("{} {}", large.0, large.1),
        (rest, unit) => format!("{} {} {rest} {unit}", large.0, large.1),
    }
}

/// A number with groups of three digits.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A size in the largest unit that fits.
pub(crate) fn bytes(count: usize) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..0x10_0000 => format!("{} KiB", count / 1024),
        _ => format!("{}.{} MiB", count >> 20, ((count & 0xf_ffff) * 10) >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_outside_is_harmless() {
        let hostile = "<script>alert(1)</script>\u{202e}gpj.exe\u{1b}[31m\0&\"'";
        let shown = Outside(hostile).render().into_string();
        assert!(
            !shown.contains("<script")
                && !shown.contains('\u{202e}')
                && !shown.contains('\u{1b}')
                && !shown.contains('\0'),
            "{shown}"
        );
        for named in ["U+202E", "U+001B", "U+0000", "&lt;script&gt;", "&amp;", "&quot;"] {
            assert!(shown.contains(named), "{named} in {shown}");
        }
        assert!(shown.starts_with("<bdi>") && shown.ends_with("</bdi>"));
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let shown = Outside(&"ä".repeat(LINE_CHARS_MAX + 1)).render().into_string();
        assert_eq!(shown.matches('ä').count(), LINE_CHARS_MAX);
        assert!(shown.contains('…'));
    }

    #[test]
    fn lengths_have_two_units() {
        let shown =
            [0, 999, 1000, 9999, 10_000, 61_000, 3_660_000, 90_000_000, 3_600_000].map(length);
        assert_eq!(
            shown,
            [
                "0 ms",
                "999 ms",
                "1.0 s",
                "9.9 s",
                "10 s",
                "1 min 1 s",
                "1 h 1 min",
                "1 d 1 h",
                "1 h"
            ]
        );
        assert_eq!(
            (distance(5, 2005), distance(2005, 5)),
            ("2.0 s ago".to_owned(), "in 2.0 s".to_owned())
        );
    }

    #[test]
    fn numbers_have_groups() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(number),
            ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
        assert_eq!(
            [1023, 1024, 1 << 20, 3 << 19].map(bytes),
            ["1023 B", "1 KiB", "1.0 MiB", "1.5 MiB"]
        );
    }
}

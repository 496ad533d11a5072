//! Makes untrusted text safe to show.

use std::borrow::Cow;

/// Spells out control characters: a task's text must not move the cursor, change colours or hide
/// itself. Characters that change the direction of writing are included.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    replaced(text, |it| it == '\n')
}

/// As [`clean`], for one line: line breaks become spaces.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    if text.contains(['\n', '\r', '\t']) {
        let one: String = text
            .trim_end()
            .chars()
            .map(|it| if matches!(it, '\n' | '\r' | '\t') { ' ' } else { it })
            .collect();
        return Cow::Owned(replaced(&one, |_| false).into_owned());
    }
    replaced(text, |_| false)
}

/// As [`line()`], with at most this many characters.
pub(crate) fn short(text: &str, max: usize) -> String {
    let text = line(text);
    if text.chars().count() <= max {
        return text.into_owned();
    }
    let mut kept: String = text.chars().take(max.saturating_sub(1)).collect();
    kept.push('…');
    kept
}

/// Text with line breaks and tabs.
pub(crate) fn document(text: &str) -> Cow<'_, str> {
    replaced(text, |it| matches!(it, '\n' | '\t'))
}

fn replaced(text: &str, allowed: impl Fn(char) -> bool) -> Cow<'_, str> {
    spelt(text, allowed, |it| it.escape_unicode().to_string())
}

/// Spells out the control characters that are not allowed.
fn spelt(
    text: &str,
    allowed: impl Fn(char) -> bool,
    spell: impl Fn(char) -> String,
) -> Cow<'_, str> {
    let is_bad = |it: char| is_control(it) && !allowed(it);
    if !text.chars().any(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for it in text.chars() {
        if is_bad(it) {
            shown.push_str(&spell(it));
        } else {
            shown.push(it);
        }
    }
    Cow::Owned(shown)
}

/// Whether this is a control character, or changes the direction of writing.
fn is_control(it: char) -> bool {
    it.is_control() || matches!(it, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// JSON without control characters: serde leaves those above 0x7e unescaped.
pub(crate) fn clean_json(json: &str) -> Cow<'_, str> {
    spelt(json, |it| it == '\n', |it| format!("\\u{:04x}", u32::from(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: &str = "a\u{1b}[31mred\u{7}\u{9b}2J\u{202e}end\r\nnext\ttab";

    #[test]
    fn nothing_that_moves_a_terminal_is_left() {
        for shown in [clean(BAD), line(BAD), document(BAD)] {
            let harmless = |it: char| !is_control(it) || matches!(it, '\n' | '\t');
            assert!(shown.chars().all(harmless), "{shown:?}");
        }
        assert_eq!(clean("a\u{1b}b"), "a\\u{1b}b");
        assert_eq!(line("two\nlines\n"), "two lines");
        assert_eq!(short("a long text", 6), "a lon…");
        assert_eq!(short("brief", 6), "brief");
        assert_eq!(clean("Grüße, 世界 🦀"), "Grüße, 世界 🦀");
    }

    #[test]
    fn json_stays_the_same_document() {
        let json = serde_json::to_string(BAD).unwrap();
        let shown = clean_json(&json);
        assert!(!shown.chars().any(is_control), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), BAD);
    }
}

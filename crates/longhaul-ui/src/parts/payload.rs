//! Payloads and results: bytes from untrusted sources.

use crate::shown;
use maud::{Markup, html};
use std::fmt::Write;

/// The most bytes shown on a page; all bytes can be downloaded.
const SHOWN_BYTES_MAX: usize = 64 << 10;

const INDENTS_MAX: usize = 32;

/// Bytes per line of a hex dump.
const LINE_BYTES: usize = 16;

/// The format in which bytes are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PayloadFormat {
    /// As JSON if they are JSON, else as text if they are text, else as a hex dump.
    #[default]
    Auto,
    Text,
    Hex,
}

/// The query of a page with a payload.
#[derive(Debug, Default, serde::Deserialize)]
pub(crate) struct PayloadQuery {
    /// The format of the bytes.
    #[serde(default, rename = "as")]
    pub(crate) form: PayloadFormat,
}

/// Shows bytes. `place` is the page, for links to other formats; `save` the download of all bytes.
pub(crate) fn show(bytes: &[u8], form: PayloadFormat, place: &str, save: &str) -> Markup {
    let (kind, body) = shape(bytes, form);
    html! {
        p.bar {
            span.tag { (kind) } " " (shown::bytes(bytes.len())) " · "
            a href={ (place) "?as=auto" } { "readable" } " · " a href={ (place) "?as=text" } { "text" } " · " a href={ (place) "?as=hex" } { "hex" } " · "
            a href=(save) download { "save" }
        }
        pre.payload tabindex="0" { (body) }
        @if bytes.len() > SHOWN_BYTES_MAX { p { "Only the first 64 KiB are shown." } }
    }
}

fn shape(bytes: &[u8], form: PayloadFormat) -> (&'static str, Markup) {
    let start = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes);
    let whole = start.len() == bytes.len();
    let json = json(bytes).filter(|_| form == PayloadFormat::Auto && whole);
    match (form, json) {
        (PayloadFormat::Auto, Some(json)) => ("JSON", shown::text(&indented(json), true)),
        (PayloadFormat::Auto, None) if !is_text(start) => ("bytes", dump(start)),
        (PayloadFormat::Auto | PayloadFormat::Text, _) => {
            ("text", shown::text(&String::from_utf8_lossy(start), true))
        }
        (PayloadFormat::Hex, _) => ("bytes", dump(start)),
    }
}

/// The text of an object or an array.
fn json(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    text.starts_with(['{', '[']).then_some(text)
}

/// Lays JSON out over lines. The content stays as written: large numbers, field order, and
/// duplicate fields.
fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        if in_text {
            out.push(character);
            in_text = is_escaped || character != '"';
            is_escaped = !is_escaped && character == '\\';
            continue;
        }
        match character {
            '"' => {
                in_text = true;
                out.push('"');
            }
            '{' | '[' => {
                out.push(character);
                while characters.peek().is_some_and(|next| next.is_ascii_whitespace()) {
                    characters.next();
                }
                let is_empty = matches!(characters.peek(), Some('}' | ']'));
                if let Some(end) = characters.next_if(|_| is_empty) {
                    out.push(end);
                } else {
                    depth += 1;
                    break_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(',');
                break_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            blank if blank.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

/// Limits the indentation: a payload of nested brackets would grow very large.
fn break_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth.min(INDENTS_MAX)));
}

/// Whether the bytes are UTF-8, apart from a character cut at the end.
fn is_text(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(text) => !text.contains('\0'),
        Err(error) => error.error_len().is_none() && error.valid_up_to() > 0,
    }
}

fn dump(bytes: &[u8]) -> Markup {
    let mut out = String::with_capacity(bytes.len() * 5);
    for (line, bytes) in bytes.chunks(LINE_BYTES).enumerate() {
        let mut hex = String::with_capacity(3 * LINE_BYTES);
        for byte in bytes {
            // Writing to a string cannot fail.
            let _written = write!(hex, "{byte:02x} ");
        }
        let text: String = bytes
            .iter()
            .map(
                |&byte| {
                    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' }
                },
            )
            .collect();
        let _written = writeln!(out, "{:08x}  {hex:<48} {text}", line * LINE_BYTES);
    }
    html! { (out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shaped(bytes: &[u8], form: PayloadFormat) -> (&'static str, String) {
        let (kind, body) = shape(bytes, form);
        (kind, body.into_string())
    }

    #[test]
    fn bytes_are_shown_as_what_they_are() {
        assert_eq!(
            shaped(br#"{"a":[1]}"#, PayloadFormat::Auto),
            ("JSON", "{\n  &quot;a&quot;: [\n    1\n  ]\n}".to_owned())
        );
        assert_eq!(
            shaped(b"12", PayloadFormat::Auto).0,
            "text",
            "a number is not worth being called JSON"
        );
        assert_eq!(shaped("ä\n".as_bytes(), PayloadFormat::Auto), ("text", "ä\n".to_owned()));
        assert_eq!(
            shaped(b"\xff\x00A", PayloadFormat::Auto),
            ("bytes", format!("00000000  {:<48} ..A\n", "ff 00 41 "))
        );
        assert_eq!(shaped(b"{}", PayloadFormat::Hex).0, "bytes");
        assert_eq!(shaped(b"{}", PayloadFormat::Text), ("text", "{}".to_owned()));
    }

    #[test]
    fn json_is_laid_out_and_otherwise_left_as_it_is() {
        let odd =
            r#"{ "z":12345678901234567890123,"a":{},"a":[ ],"t":"x\\\"{,","n":[1,{"b":null}]}"#;
        let laid = indented(json(odd.as_bytes()).unwrap());
        let expected = "{\n  \"z\": 12345678901234567890123,\n  \"a\": {},\n  \"a\": [],\n  \"t\": \"x\\\\\\\"{,\",\n  \"n\": [\n    1,\n    {\n      \"b\": null\n    }\n  ]\n}";
        assert_eq!(laid, expected);
        assert_eq!(json(b"{,}"), None);
    }

    #[test]
    fn a_character_that_the_limit_cuts_in_two_does_not_make_bytes_of_a_text() {
        let long = format!("{}ä", "a".repeat(SHOWN_BYTES_MAX - 1));
        assert_eq!(shaped(long.as_bytes(), PayloadFormat::Auto).0, "text");
    }

    #[test]
    fn markup_in_a_payload_stays_text() {
        let (_, body) = shaped(b"<img src=x onerror=alert(1)>", PayloadFormat::Auto);
        assert!(!body.contains('<'), "{body}");
        let (_, body) = shaped(br#"{"a":"</pre><script>"}"#, PayloadFormat::Auto);
        assert!(!body.contains('<'), "{body}");
    }
}

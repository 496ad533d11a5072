//! The texts, numbers and checkpoints of a report, mended where they are odd: they must not decide
//! about the task. A processor logs file names that are no UTF-8 and halves of emojis, and reports
//! percentages with decimals.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use longhaul::Progress;
use longhaul::lease::CHECKPOINT_BYTES_MAX;
use longhaul_api::values::Length;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::time::Duration;
use utoipa::ToSchema;

/// The progress of the work, in your own units. Numbers are rounded, and a negative one is 0.
#[derive(Debug, ToSchema)]
#[schema(as = LeaseProgress)]
#[expect(dead_code, reason = "only its schema is used: any JSON is read in its place")]
pub(crate) struct LeaseProgress {
    done: f64,
    #[schema(default = 0.0)]
    total: f64,
    #[schema(default = "")]
    message: String,
}

/// Any JSON, which is read later and never refuses the report.
#[derive(Debug, Default)]
pub(crate) struct LenientJson(Option<Box<RawValue>>);

impl<'de> Deserialize<'de> for LenientJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::deserialize(from).map(Self)
    }
}

#[derive(Deserialize)]
struct LenientProgress<'a> {
    #[serde(borrow)]
    done: Option<&'a RawValue>,
    #[serde(borrow)]
    total: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

impl LenientJson {
    pub(crate) const fn is_given(&self) -> bool {
        self.0.is_some()
    }

    /// A text. Anything but a string is its JSON.
    pub(crate) fn text(&self) -> Option<String> {
        self.0.as_deref().map(text)
    }

    /// Log lines: an array of texts, or one of them.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Some(json) = self.0.as_deref() else { return Vec::new() };
        match serde_json::from_str::<Vec<&RawValue>>(json.get()) {
            Ok(lines) => lines.into_iter().map(text).collect(),
            Err(_) => vec![text(json)],
        }
    }

    /// The progress, or why it is left out.
    pub(crate) fn progress(&self) -> Result<Option<Progress>, String> {
        let Some(json) = self.0.as_deref() else { return Ok(None) };
        let read: Result<LenientProgress<'_>, _> = serde_json::from_str(json.get());
        let LenientProgress { done, total, message } = read.map_err(|_| {
            "`progress` was left out: it is no object with `done`, `total` and `message`".to_owned()
        })?;
        let Some(done) = done.and_then(number) else {
            return Err("`progress` was left out: its `done` is not a number".to_owned());
        };
        let (total, message) = (total.and_then(number), message.map(text));
        Ok(Some(Progress {
            done,
            total: total.unwrap_or_default(),
            message: message.unwrap_or_default(),
        }))
    }

    /// The checkpoint, or why it is left out.
    pub(crate) fn checkpoint(&self) -> Result<Option<Bytes>, String> {
        let Some(json) = self.0.as_deref() else { return Ok(None) };
        let read = serde_json::from_str::<String>(json.get()).ok();
        let Some(bytes) = read.and_then(|text| STANDARD.decode(text).ok()) else {
            return Err("`checkpoint_base64` was left out: it is not base64".to_owned());
        };
        if bytes.len() > CHECKPOINT_BYTES_MAX {
            let bytes = bytes.len();
            return Err(format!(
                "`checkpoint_base64` was left out: it has {bytes} bytes, the limit is {CHECKPOINT_BYTES_MAX}"
            ));
        }
        Ok(Some(Bytes::from(bytes)))
    }

    /// A pause, which is 0 if it is negative, or why it is left out.
    pub(crate) fn pause(&self, name: &str) -> Result<Option<Duration>, String> {
        let Some(json) = self.0.as_deref() else { return Ok(None) };
        match serde_json::from_str::<Length>(json.get()) {
            Ok(Length(pause)) => Ok(Some(pause)),
            Err(_) if is_negative(json.get()) => Ok(Some(Duration::ZERO)),
            Err(error) => Err(format!("`{name}` was left out: {error}")),
        }
    }
}

/// Whether the JSON is a number below zero, or a duration with a minus before it.
fn is_negative(json: &str) -> bool {
    let duration = |text: &str| serde_json::from_str::<Length>(&text.replacen('-', "", 1)).is_ok();
    serde_json::from_str(json).is_ok_and(|number: f64| number < 0.0)
        || json.starts_with("\"-") && duration(json)
}

/// A number within 0 to 2^64−1, rounded; `None` if it is none.
fn number(json: &RawValue) -> Option<u64> {
    let whole = json.get().parse().ok();
    whole.or_else(|| {
        let number: f64 = serde_json::from_str(json.get()).ok()?;
        // The conversion keeps it within the bounds.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "intended")]
        Some(number.round() as u64)
    })
}

/// The text of a JSON string, with U+FFFD for each half of a surrogate pair; the JSON of any other
/// value.
fn text(json: &RawValue) -> String {
    let json = json.get();
    if !json.starts_with('"') {
        return json.to_owned();
    }
    let read = serde_json::from_str(json);
    read.or_else(|_| serde_json::from_str(&with_whole_pairs(json))).unwrap_or_default()
}

/// A JSON string in which U+FFFD replaces each escaped surrogate without the other half of its pair.
fn with_whole_pairs(json: &str) -> String {
    let mut whole = String::with_capacity(json.len());
    let mut rest = json;
    while let Some((before, behind)) = rest.split_once('\\') {
        whole.push_str(before);
        let pair =
            code(behind).zip(behind.get(5..).and_then(|next| code(next.strip_prefix('\\')?)));
        let length = match (code(behind), pair) {
            (_, Some((0xD800..=0xDBFF, 0xDC00..=0xDFFF))) => 11,
            (Some(0xD800..=0xDFFF), _) => {
                whole.push_str("\\ufffd");
                rest = behind.get(5..).unwrap_or_default();
                continue;
            }
            (Some(_), _) => 5,
            (None, _) => 1,
        };
        whole.push('\\');
        let (escape, others) = behind.split_at_checked(length).unwrap_or((behind, ""));
        whole.push_str(escape);
        rest = others;
    }
    whole.push_str(rest);
    whole
}

/// The number of an escape like `u00e9`.
fn code(escape: &str) -> Option<u16> {
    u16::from_str_radix(escape.strip_prefix('u')?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd(json: &str) -> LenientJson {
        serde_json::from_str(json).unwrap()
    }

    /// Half an emoji in a log line made a finished task fail for good.
    #[test]
    fn halves_of_surrogate_pairs_are_replaced_and_whole_ones_stay() {
        for (json, expected) in [
            (r#""read caf\udce9.txt""#, "read caf\u{fffd}.txt"),
            (r#""\ud83d\ude00 \ud83d""#, "😀 \u{fffd}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\\ud83d \"\ud83d\"""#, "\\ud83d \"\u{fffd}\""),
            (r#""\ude00\u00e9\n""#, "\u{fffd}é\n"),
            (r#""plain""#, "plain"),
            ("33.5", "33.5"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
        ] {
            assert_eq!(odd(json).text().as_deref(), Some(expected), "{json}");
        }
        assert_eq!(odd("null").text(), None);
        assert_eq!(odd(r#"["a", 1, null, "\ud83d"]"#).lines(), ["a", "1", "null", "\u{fffd}"]);
        assert_eq!(odd(r#""a""#).lines(), ["a"]);
    }

    #[test]
    fn progress_is_any_finite_number() {
        let done = |json: &str| odd(&format!(r#"{{"done":{json}}}"#)).progress();
        for (json, expected) in [
            ("33.3", 33),
            ("0.5", 1),
            ("-1", 0),
            ("-0.2", 0),
            ("1e3", 1_000),
            ("1e30", u64::MAX),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(done(json).unwrap().unwrap().done, expected, "{json}");
        }
        for json in ["1e400", "null", r#""half""#, "[1]"] {
            assert!(done(json).unwrap_err().contains("not a number"), "{json}");
        }
        let whole =
            odd(r#"{"done":1,"total":2.5,"message":"\ud83d"}"#).progress().unwrap().unwrap();
        assert_eq!((whole.done, whole.total, &*whole.message), (1, 3, "\u{fffd}"));
        assert!(odd("7").progress().unwrap_err().contains("no object"));
    }

    #[test]
    fn a_pause_below_zero_is_zero() {
        let pause = |json: &str| odd(json).pause("retry_after");
        for json in ["-1", "-0.5", r#""-3s""#, "-1e300"] {
            assert_eq!(pause(json), Ok(Some(Duration::ZERO)), "{json}");
        }
        assert_eq!(pause("2.5"), Ok(Some(Duration::from_millis(2_500))));
        assert_eq!(pause("null"), Ok(None));
        for json in [r#""soon""#, r#""-soon""#, r#""5-s""#] {
            assert!(pause(json).unwrap_err().contains("`retry_after` was left out"), "{json}");
        }
    }

    #[test]
    fn a_checkpoint_that_cannot_be_stored_is_left_out() {
        assert_eq!(odd(r#""aGk=""#).checkpoint(), Ok(Some(Bytes::from_static(b"hi"))));
        let large = format!("\"{}\"", STANDARD.encode(vec![0; CHECKPOINT_BYTES_MAX + 1]));
        for (json, why) in [(&*large, "65537 bytes"), ("5", "not base64"), (r#""%""#, "not base64")]
        {
            assert!(odd(json).checkpoint().unwrap_err().contains(why), "{why}");
        }
    }
}

//! Dead letters: tasks that failed for good.

use crate::clock;
use crate::output::{TableRow, text};
use crate::times;
use longhaul_api::dead::DeadLetterBody;

/// A letter for people; the payload is shown if it is text.
pub(crate) fn letter_fields(
    letter: &DeadLetterBody,
    payload: Option<&[u8]>,
) -> Vec<(&'static str, String)> {
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    let properties = letter.properties.iter().map(|(name, value)| format!("{name}={value}"));
    let bytes = || match (letter.payload_bytes, letter.hidden) {
        (bytes, true) => format!("({bytes} bytes, hidden by the gateway)"),
        (bytes, false) => format!("({bytes} bytes; print them with --payload)"),
    };
    let payload = payload.and_then(|it| std::str::from_utf8(it).ok());
    vec![
        ("task", letter.task.clone()),
        ("failed", times::iso(letter.at)),
        ("attempts", letter.attempts.to_string()),
        ("reason", letter.reason.clone()),
        ("detail", text(&letter.detail)),
        ("type", text(&letter.task_type)),
        ("key", text(&letter.key)),
        ("tags", letter.tags.join(", ")),
        ("replay of", text(&letter.replay_of)),
        ("payload", payload.map_or_else(bytes, str::to_owned)),
        ("properties", properties.collect::<Vec<_>>().join("\n")),
    ]
}

impl TableRow for DeadLetterBody {
    const HEADS: &'static [&'static str] = &["TASK", "FAILED", "ATTEMPTS", "TYPE", "KEY", "REASON"];
    const DROPS: &'static [usize] = &[2, 3, 4];

    fn cells(&self) -> Vec<String> {
        vec![
            self.task.clone(),
            times::ago(self.at, clock::wall_ms()),
            self.attempts.to_string(),
            self.task_type.clone().unwrap_or_default(),
            self.key.clone().unwrap_or_default(),
            text::short(self.detail.as_ref().unwrap_or(&self.reason), 120),
        ]
    }
}

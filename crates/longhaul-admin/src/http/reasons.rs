//! What an answer that refuses a call means.

use super::AdminErrorKind;
use http::StatusCode;

/// Parts of Pulsar's answers, in lower case, while a topic has no owner.
const OWNERLESS: [&str; 4] =
    ["ownership", "not served by this instance", "being unloaded", "timeoutexception"];
/// Characters of a broker's text that an error keeps at most.
const REASON_CHARS_MAX: usize = 300;

pub(super) fn kind_of(status: StatusCode, reason: &str) -> AdminErrorKind {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => AdminErrorKind::Unauthorized,
        StatusCode::NOT_FOUND => AdminErrorKind::NotFound,
        StatusCode::CONFLICT => AdminErrorKind::Conflict,
        StatusCode::METHOD_NOT_ALLOWED if reason.to_lowercase().contains("policies") => {
            AdminErrorKind::PoliciesDisabled
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            AdminErrorKind::Unavailable
        }
        // Pulsar's answer for a topic that has no owner at the moment.
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::PRECONDITION_FAILED
            if OWNERLESS.iter().any(|words| reason.to_lowercase().contains(words)) =>
        {
            AdminErrorKind::Unavailable
        }
        _ => AdminErrorKind::Other,
    }
}

/// The broker's own text: the `reason` of its JSON, or else the beginning of the answer.
pub(super) fn broker_reason(answer: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct ErrorReasonJson {
        reason: String,
    }
    match serde_json::from_slice(answer) {
        Ok(ErrorReasonJson { reason }) => excerpt(reason.as_bytes()),
        Err(_) => excerpt(answer),
    }
}

/// The beginning of a text on one line, so that a stack trace or an HTML page does not fill the
/// terminal.
pub(super) fn excerpt(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(REASON_CHARS_MAX) {
        None => words,
        Some((end, _)) => format!("{}…", words.get(..end).unwrap_or_default()),
    }
}

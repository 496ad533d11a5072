//! Verbs at the end of a path, as in `POST /v1/queues/mails/tasks/12:0:-1:cancel`.
//!
//! The router knows only whole segments, and the id before the verb has colons, too. So the verb gets a segment of its own before the route is looked up.

use axum::extract::Request;
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::Response;
use std::borrow::Cow;

/// What stands before a verb in the paths that the router sees. No name of a queue begins with it, and no id.
const MARK: &str = "/~";

/// The path by which the router knows a route.
pub(super) fn routed(path: &'static str) -> Cow<'static, str> {
    split(path)
        .map_or(Cow::Borrowed(path), |(place, verb)| Cow::Owned(format!("{place}{MARK}{verb}")))
}

/// Splits off the verb: what stands behind the last colon, if it is a word.
fn split(path: &str) -> Option<(&str, &str)> {
    let (place, verb) = path.rsplit_once(':').or_else(|| {
        let at = path.len().checked_sub(path.to_ascii_lowercase().rsplit("%3a").next()?.len())?;
        let verb = path.get(at..)?;
        let place = path.get(..at.checked_sub(3)?)?;
        Some((place, verb))
    })?;
    let is_word = verb.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let is_verb = is_word && verb.starts_with(|first: char| first.is_ascii_lowercase());
    is_verb.then_some((place, verb))
}

/// Gives the verb of a request its own segment.
pub(super) async fn put_in_place(mut request: Request, next: Next) -> Response {
    if *request.method() == Method::POST
        && let Some((place, verb)) = split(request.uri().path())
    {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let rewritten = format!("{place}{MARK}{verb}{query}").parse::<Uri>();
        if let Ok(rewritten) = rewritten {
            *request.uri_mut() = rewritten;
        }
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_is_a_word_behind_the_last_colon() {
        for (path, expected) in [
            ("/v1/queues/mails:pause", Some(("/v1/queues/mails", "pause"))),
            (
                "/v1/queues/m/tasks/12:0:-1:force-fail",
                Some(("/v1/queues/m/tasks/12:0:-1", "force-fail")),
            ),
            (
                "/v1/queues/m/tasks/12%3A0%3A-1%3acancel",
                Some(("/v1/queues/m/tasks/12%3A0%3A-1", "cancel")),
            ),
            ("/v1/queues/m/tasks/12:0:-1", None),
            ("/v1/queues/m/tasks/12:0:1", None),
            ("/v1/queues/m", None),
            ("/v1/queues/m:", None),
            ("/v1/queues/m:x/y", None),
            ("", None),
        ] {
            assert_eq!(split(path), expected, "{path}");
        }
        assert_eq!(routed("/v1/queues/{queue}:pause"), "/v1/queues/{queue}/~pause");
        assert_eq!(routed("/v1/queues/{queue}"), "/v1/queues/{queue}");
    }
}

//! Verbs at the end of a path, as in `POST /v1/queues/mails/tasks/12:0:-1:cancel`.
//!
//! The router matches whole segments only, and the id before the verb has colons, too. So the verb
//! is moved to its own segment before routing.

use axum::extract::{Request, State};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::Response;
use std::borrow::Cow;
use std::sync::Arc;

/// The prefix of a verb in the router's paths. No queue name and no id starts with it.
const MARK: &str = "/~";

/// The router's path of a route.
pub(super) fn routed(path: &'static str) -> Cow<'static, str> {
    split(path)
        .map_or(Cow::Borrowed(path), |(place, verb)| Cow::Owned(format!("{place}{MARK}{verb}")))
}

/// Splits off the verb: the part behind the last colon, if it is a word.
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

/// The known verbs, each with the path before it.
#[derive(Debug, Default)]
pub(super) struct Verbs(Vec<(&'static str, &'static str)>);

impl Verbs {
    /// Adds the verb of a route, if it has one.
    pub(super) fn note(&mut self, path: &'static str) {
        self.0.extend(split(path));
    }

    /// Whether a route has this verb behind such a path.
    fn has(&self, place: &str, verb: &str) -> bool {
        self.0.iter().any(|(pattern, known)| *known == verb && fits(pattern, place))
    }
}

/// Whether a path matches a route's segments; a parameter matches any non-empty segment.
fn fits(pattern: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    let fits = |of_route: &str| {
        let segment = segments.next();
        segment.is_some_and(|it| it == of_route || (of_route.starts_with('{') && !it.is_empty()))
    };
    pattern.split('/').all(fits) && segments.next().is_none()
}

/// Moves the verb of a request to its own segment. For POST, the method of all verbs, any word is
/// moved; for other methods only known verbs are. So a wrong method is told from a path that does
/// not exist.
pub(super) async fn put_in_place(
    State(verbs): State<Arc<Verbs>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some((place, verb)) = split(request.uri().path())
        && (*request.method() == Method::POST || verbs.has(place, verb))
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
    #[test]
    fn a_verb_belongs_to_the_paths_of_its_routes() {
        let mut verbs = Verbs::default();
        ["/v1/queues/{queue}:pause", "/v1/queues/{queue}/tasks:batch", "/v1/queues/{queue}"]
            .into_iter()
            .for_each(|path| verbs.note(path));
        for (place, verb, expected) in [
            ("/v1/queues/mails", "pause", true),
            ("/v1/queues/mails/tasks", "batch", true),
            ("/v1/queues/mails", "batch", false),
            ("/v1/queues/mails/tasks", "pause", false),
            ("/v1/queues/mails/dead", "batch", false),
            ("/v1/queues/", "pause", false),
            ("/v1/queues", "pause", false),
            ("/v1/queues/mails/", "pause", false),
            ("v1/queues/mails", "pause", false),
        ] {
            assert_eq!(verbs.has(place, verb), expected, "{place}:{verb}");
        }
    }
}

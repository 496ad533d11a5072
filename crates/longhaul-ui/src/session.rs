//! Sign-in: if the gateway needs tokens, the browser keeps one in a cookie that scripts cannot read
//! and other sites cannot send.

use crate::asked::{FormFields, QueryFields};
use crate::parts::layout;
use crate::trouble::PageError;
use crate::visit::{Visit, to};
use crate::{ROOT, Ui};
use axum::Router;
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use maud::html;
use serde::Deserialize;
use std::sync::Arc;

const COOKIE_NAME: &str = "longhaul-token";

/// How long a browser keeps the token, in s: a working day.
const COOKIE_SECONDS: u32 = 12 * 3600;

#[derive(Debug, Deserialize)]
struct SignInQuery {
    /// The page requested before the sign-in.
    #[serde(default)]
    to: String,
}

#[derive(Debug, Deserialize)]
struct SignIn {
    token: String,
    #[serde(default)]
    to: String,
}

pub(crate) fn routes() -> Router<Arc<Ui>> {
    Router::new().route("/sign-in", get(show).post(sign_in)).route("/sign-out", post(sign_out))
}

/// The token in a browser's cookie.
pub(crate) fn token(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let value = cookies.flat_map(|line| line.split(';')).find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE_NAME).then_some(value)
    })?;
    // The token is encoded: it may contain characters that a cookie may not.
    String::from_utf8(URL_SAFE_NO_PAD.decode(value).ok()?).ok().filter(|token| !token.is_empty())
}

async fn show(visit: Visit, QueryFields(asked): QueryFields<SignInQuery>) -> Response {
    form(&visit, &asked.to, None)
}

async fn sign_in(mut visit: Visit, FormFields(given): FormFields<SignIn>) -> Response {
    let token = given.token.trim();
    visit.caller.token = Some(token.to_owned());
    match visit.get::<serde_json::Value>("/v1/queues").await {
        // Any other refusal comes after the token was accepted: it may lack the scope, and the
        // gateway its admin URL or its broker.
        Err(trouble) if trouble.status == StatusCode::UNAUTHORIZED => {
            form(&visit, &given.to, Some(&trouble))
        }
        Ok(_) | Err(_) => {
            let value = URL_SAFE_NO_PAD.encode(token);
            with_cookie(&visit, to(own(&given.to)), &value, COOKIE_SECONDS)
        }
    }
}

async fn sign_out(visit: Visit) -> Response {
    with_cookie(&visit, to(&format!("{ROOT}/sign-in")), "", 0)
}

fn with_cookie(visit: &Visit, mut response: Response, value: &str, seconds: u32) -> Response {
    let secure = if visit.ui.options.has_tls { "; Secure" } else { "" };
    let cookie = format!(
        "{COOKIE_NAME}={value}; Path={ROOT}; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}"
    );
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// A page of this dashboard; a sign-in must not redirect to another site.
fn own(place: &str) -> &str {
    let is_own =
        place == ROOT || place.strip_prefix(ROOT).is_some_and(|rest| rest.starts_with(['/', '?']));
    if is_own { place } else { ROOT }
}

fn form(visit: &Visit, place: &str, trouble: Option<&PageError>) -> Response {
    let body = html! {
        h1 { "Sign in" }
        @if let Some(trouble) = trouble {
            p.notice.bad role="alert" { (trouble.detail) }
        }
        p { "This gateway requires a token. " code { "longhaul token create" } " creates one." }
        form.stack method="post" action={ (ROOT) "/sign-in" } {
            input type="hidden" name="to" value=(place);
            label for="token" { "Token" }
            input #token type="password" name="token" required autofocus autocomplete="current-password";
            button { "Sign in" }
        }
    };
    let mut page = layout::bare(visit, "Sign in", &body);
    if let Some(trouble) = trouble {
        *page.status_mut() = trouble.status;
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookies(lines: &[&'static str]) -> HeaderMap {
        lines.iter().map(|line| (COOKIE, HeaderValue::from_static(line))).collect()
    }

    #[test]
    fn a_token_is_read_from_the_cookie_of_that_name_alone() {
        assert_eq!(token(&cookies(&[])), None);
        assert_eq!(
            token(&cookies(&["a=b; longhaul-token=c2VjcmV0; d=e"])).as_deref(),
            Some("secret")
        );
        assert_eq!(token(&cookies(&["x=1", "longhaul-token=c2VjcmV0"])).as_deref(), Some("secret"));
        for wrong in
            ["longhaul-token=", "longhaul-token=%%", "xlonghaul-token=c2VjcmV0", "longhaul-token"]
        {
            assert_eq!(token(&cookies(&[wrong])), None, "{wrong}");
        }
    }
}

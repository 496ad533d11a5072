//! Signing in and out, and the properties of the cookie.

use crate::fake::{Answer, Like, Site, TOKEN};
use axum::body::Body;
use axum::http::Request;

fn site(has_tls: bool) -> Site {
    let like = Like { wants_token: true, ..Like::default() };
    Site::new(like, |options| options.has_tls = has_tls)
}

async fn sign_in(site: &Site, token: &str, to: &str) -> Answer {
    let fields =
        [("token", token), ("to", to)].map(|(name, value)| (name.to_owned(), value.to_owned()));
    site.post("/ui/sign-in", &fields).await
}

async fn with_cookie(site: &Site, cookie: &str, path: &str) -> Answer {
    let request = Request::get(path).header("cookie", cookie).body(Body::empty());
    site.send(request.unwrap()).await
}

#[tokio::test]
async fn who_is_not_signed_in_is_asked_and_comes_back_to_the_page() {
    let site = site(false);
    let answer = site.get("/ui/queues/mails/tasks?status=failed").await;
    assert_eq!(answer.status, 303);
    let form = answer.header("location").to_owned();
    assert_eq!(form, "/ui/sign-in?to=%2Fui%2Fqueues%2Fmails%2Ftasks%3Fstatus%3Dfailed");
    let page = site.get(&form).await;
    assert!(page.text.contains(r#"value="/ui/queues/mails/tasks?status=failed""#), "{}", page.text);
    let answer = sign_in(&site, TOKEN, "/ui/queues/mails/tasks?status=failed").await;
    assert_eq!(answer.header("location"), "/ui/queues/mails/tasks?status=failed");
    let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
    assert!(!cookie.contains("s3cret"), "it is encoded: a token may hold what a cookie may not");
    site.calls();
    assert_eq!(with_cookie(&site, &cookie, "/ui/queues/mails").await.status, 200);
    for call in site.calls() {
        assert_eq!(
            call.authorization.as_deref(),
            Some(&*format!("Bearer {TOKEN}")),
            "{}",
            call.path
        );
    }
}

/// Scripts cannot read the cookie, other sites cannot send it, and the API never gets it.
#[tokio::test]
async fn the_cookie_is_for_these_pages_alone() {
    for has_tls in [false, true] {
        let answer = sign_in(&site(has_tls), TOKEN, "").await;
        let cookie = answer.header("set-cookie").to_owned();
        let flags: Vec<&str> = cookie.split("; ").skip(1).collect();
        for flag in ["HttpOnly", "SameSite=Strict", "Path=/ui", "Max-Age=43200"] {
            assert!(flags.contains(&flag), "{flag} in {cookie}");
        }
        assert_eq!(flags.contains(&"Secure"), has_tls, "{cookie}");
        assert!(flags.iter().all(|flag| !flag.starts_with("Domain")), "{cookie}");
    }
}

#[tokio::test]
async fn a_token_that_is_not_taken_is_not_kept() {
    let site = site(false);
    let answer = sign_in(&site, "wrong", "/ui/queues/mails").await;
    assert_eq!((answer.status.as_u16(), answer.header("set-cookie")), (401, ""));
    assert!(answer.text.contains("who is that?"), "{}", answer.text);
    assert!(answer.text.contains(r#"value="/ui/queues/mails""#), "the way back is kept");
    assert!(!answer.text.contains("wrong"), "a token is not shown again");
    let answer = with_cookie(&site, "longhaul-token=d3Jvbmc", "/ui").await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/ui/sign-in?to=%2Fui"));
}

#[tokio::test]
async fn signing_out_ends_the_cookie() {
    let answer = site(true).post("/ui/sign-out", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/ui/sign-in"));
    let cookie = answer.header("set-cookie");
    assert!(cookie.starts_with("longhaul-token=;") && cookie.contains("Max-Age=0"), "{cookie}");
}

#[tokio::test]
async fn signing_in_leads_to_no_other_site() {
    for own in ["/ui", "/ui?a", "/ui/queues/a?x=1"] {
        assert_eq!(sign_in(&site(false), TOKEN, own).await.header("location"), own);
    }
    for other in [
        "https://evil.test/ui",
        "//evil.test",
        "/\\evil.test",
        "javascript:alert(1)",
        "/uix",
        "/",
        "",
        "/ui\\..\\x",
        "/ui/../../x\r\nSet-Cookie: a=b",
    ] {
        let answer = sign_in(&site(false), TOKEN, other).await;
        assert_eq!(answer.header("location"), "/ui", "{other}");
        assert!(!answer.headers.contains_key("x"), "{other}");
    }
}

/// A stream cannot show a sign-in page.
#[tokio::test]
async fn events_are_refused_without_a_token() {
    let site = site(false);
    assert_eq!(site.get("/ui/queues/mails/events").await.status, 401);
}

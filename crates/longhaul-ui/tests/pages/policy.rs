//! The content security policy of pages.

use crate::fake::Site;
use crate::markup::{Piece, pieces, tags};
use axum::body::Body;
use axum::http::Request;

#[tokio::test]
async fn every_page_forbids_what_stands_in_it_to_run() {
    for (place, answer) in Site::of("plain").pages().await {
        let policy = answer.header("content-security-policy");
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "form-action 'self'",
            "base-uri 'none'",
        ] {
            assert!(policy.split("; ").any(|it| it == rule), "{place}: {rule} in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{place}: {policy}");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8", "{place}");
    }
}

#[tokio::test]
async fn no_page_has_a_script_or_a_style_in_it() {
    for (place, answer) in Site::of("plain").pages().await {
        for tag in tags(&answer.text) {
            assert!(tag.name != "style", "{place}");
            for (name, value) in &tag.attributes {
                assert!(!name.starts_with("on") && name != "style", "{place}: {tag:?}");
                let goes = matches!(name.as_str(), "href" | "src" | "action");
                assert!(
                    !goes || value.starts_with("/ui") || value.starts_with("#"),
                    "{place}: {tag:?}"
                );
            }
        }
        let all = pieces(&answer.text);
        for (at, piece) in all.iter().enumerate() {
            let Piece::Open(tag) = piece else { continue };
            if tag.name == "script" {
                assert!(tag.get("src").is_some(), "{place}");
                assert_eq!(all.get(at + 1), Some(&Piece::Close("script".to_owned())), "{place}");
            }
        }
    }
}

#[tokio::test]
async fn what_a_page_loads_is_there_and_may_be_kept() {
    let site = Site::of("plain");
    let page = site.get("/ui").await;
    let loaded: Vec<String> = tags(&page.text)
        .iter()
        .filter(|tag| matches!(tag.name.as_str(), "link" | "script"))
        .filter_map(|tag| tag.get("href").or_else(|| tag.get("src")).map(str::to_owned))
        .collect();
    assert_eq!(loaded.len(), 3, "{loaded:?}");
    for place in loaded {
        let asset = site.get(&place).await;
        assert_eq!(asset.status, 200, "{place}");
        assert!(asset.header("cache-control").contains("immutable"), "{place}");
        let (_, name) = place.rsplit_once('/').unwrap();
        let old = site.get(&format!("/ui/assets/0/{name}")).await;
        assert_eq!((old.status.as_u16(), old.header("cache-control")), (200, "no-store"));
    }
    assert_eq!(site.get("/ui/assets/0/other").await.status, 404);
}

#[tokio::test]
async fn a_page_is_compressed_for_whoever_can_read_that() {
    let site = Site::of("plain");
    let ask = |encoding| {
        let request = Request::get("/ui/queues/mails/tasks").header("accept-encoding", encoding);
        site.send(request.body(Body::empty()).unwrap())
    };
    assert_eq!(ask("gzip, deflate, br").await.header("content-encoding"), "gzip");
    assert_eq!(ask("identity").await.header("content-encoding"), "");
}

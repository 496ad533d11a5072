//! Links work for any queue and task name.

use crate::fake::{Like, Site};
use crate::markup::tags;
use std::collections::BTreeSet;

/// All links of a page except downloads.
fn links(page: &str) -> BTreeSet<String> {
    let links =
        tags(page).into_iter().filter(|tag| tag.name == "a" && tag.get("download").is_none());
    links
        .filter_map(|tag| tag.get("href").map(str::to_owned))
        .filter(|it| it.starts_with("/ui"))
        .collect()
}

#[tokio::test]
async fn every_link_leads_to_a_page() {
    let site = Site::of("plain");
    let mut seen = BTreeSet::new();
    for (place, answer) in site.pages().await {
        for link in links(&answer.text) {
            if link != "/ui/nothing" && seen.insert(link.clone()) {
                assert_eq!(site.get(&link).await.status, 200, "{link} on {place}");
            }
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
}

#[tokio::test]
async fn a_queue_with_an_odd_name_is_found_again() {
    for queue in ["a b", "ü/../x", "%2F", "a?b#c&d", "\"<'>", "..", "\u{202e}x"] {
        let site = Site::new(Like { queue, ..Like::default() }, |_| {});
        let overview = site.get("/ui").await;
        let link = links(&overview.text).into_iter().find(|it| it.starts_with("/ui/queues/"));
        let link = link.unwrap();
        site.calls();
        let page = site.get(&link).await;
        assert_eq!(page.status, 200, "{link}");
        for call in site.calls() {
            let name = call.path.split('/').nth(3).unwrap().split('?').next().unwrap();
            let name = percent_encoding::percent_decode_str(name).decode_utf8().unwrap();
            assert_eq!(name, queue, "{link} asked for {}", call.path);
        }
        for link in links(&page.text) {
            assert_eq!(site.get(&link).await.status, 200, "{link}");
        }
    }
}

#[tokio::test]
async fn whoever_asks_for_the_root_is_sent_to_the_pages() {
    let site = Site::of("plain");
    for place in ["/", "/ui/"] {
        let answer = site.get(place).await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/ui"), "{place}");
    }
}

/// The gateway answers an invalid filter with an error; the page must not drop it.
#[tokio::test]
async fn what_is_filtered_for_reaches_the_gateway() {
    let site = Site::of("plain");
    site.get("/ui/queues/mails/tasks?status=failed&tag=a%26b&created_from=2026-11-22T09:30:00Z&after=12:0:-1").await;
    let listed = site.calls().into_iter().find(|call| call.path.contains("/tasks?")).unwrap();
    for part in [
        "status=failed",
        "tag=a%26b",
        "created_from=2026-11-22T09:30:00Z",
        "order=newest",
        "after=12:0:-1",
    ] {
        assert!(listed.path.split(['?', '&']).any(|it| it == part), "{part} in {}", listed.path);
    }
}

/// Unreadable input and missing pages get an error page with a useful link.
#[tokio::test]
async fn what_cannot_be_read_or_is_not_there_has_a_page_that_leads_on() {
    let site = Site::of("plain");
    for (place, status, way) in [
        ("/ui/queues/mails/tasks?level=wrong", 400, "/ui/queues/mails"),
        ("/ui/queues/mails/tasks?status=a&status=b", 400, "/ui/queues/mails"),
        ("/ui/queues/mails/tasks/1:2:-1?as=wrong", 400, "/ui/queues/mails"),
        ("/ui/queues/%ff/tasks", 400, "/ui/queues/%ff"),
        ("/ui/queues/mails?level=wrong", 400, "/ui"),
        ("/ui/queues/mails/nothing", 404, "/ui/queues/mails"),
    ] {
        let page = site.get(place).await;
        assert_eq!(
            (page.status.as_u16(), page.header("content-type")),
            (status, "text/html; charset=utf-8"),
            "{place}"
        );
        let go_on = format!("<a href=\"{way}\">Go on</a>");
        assert!(page.text.contains(&go_on), "{place}: {}", page.text);
    }
    let fields =
        [("version", "none"), ("settings", "{}")].map(|it| (it.0.to_owned(), it.1.to_owned()));
    let page = site.post("/ui/queues/mails/limits", &fields).await;
    assert_eq!(page.status, 422);
    assert!(page.text.contains("<a href=\"/ui/queues/mails\">Go on</a>"), "{}", page.text);
    assert!(page.text.contains("version: invalid digit"), "{}", page.text);
}

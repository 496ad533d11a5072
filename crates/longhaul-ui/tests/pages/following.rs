//! Whose events keep a page up to date.

use crate::fake::Site;
use crate::markup::tags;

/// Pages of a level followed the events of the normal level, and a page about one task was made
/// anew with the event of any task. Tabs counted the normal level beside a task of another one, and
/// led there.
#[tokio::test]
async fn a_page_follows_the_events_of_what_it_shows() {
    let site = Site::of("plain");
    let events = |level: &str| Some(format!("/ui/queues/mails/events?level={level}"));
    for (place, level, task) in [
        ("/ui/queues/mails", Some("normal"), None),
        ("/ui/queues/mails?level=high", Some("high"), None),
        ("/ui/queues/mails/tasks?level=low", Some("low"), None),
        ("/ui/queues/mails/tasks/12:0:-1", Some("normal"), Some("12:0:-1")),
        ("/ui/queues/mails/tasks/high~12:0:-1", Some("high"), Some("high~12:0:-1")),
        ("/ui/queues/mails/dead", None, None),
        ("/ui/queues/mails/actions", None, None),
    ] {
        site.calls();
        let page = site.get(place).await;
        assert_eq!(page.status, 200, "{place}");
        let counted = format!("/v1/queues/mails/counts?level={}", level.unwrap_or("normal"));
        assert!(site.calls().iter().any(|call| call.path == counted), "{place}");
        let tags = tags(&page.text);
        let body = tags.iter().find(|tag| tag.name == "body").unwrap();
        let followed = level.and_then(events);
        assert_eq!(body.get("data-events").map(str::to_owned), followed, "{place}");
        assert_eq!(body.get("data-task"), task, "{place}");
        let mut tab = "/ui/queues/mails/tasks".to_owned();
        if let Some(level) = level.filter(|&level| level != "normal") {
            tab += &format!("?level={level}");
        }
        let leads = |tag: &crate::markup::Tag| tag.name == "a" && tag.get("href") == Some(&tab);
        assert!(tags.iter().any(leads), "{place}: {tab}");
    }
}

//! Whose events keep a page up to date.

use crate::fake::Site;
use crate::markup::tags;

/// Pages of a level followed the events of the normal level, and a page about one task was made
/// anew with the event of any task.
#[tokio::test]
async fn a_page_follows_the_events_of_what_it_shows() {
    let site = Site::of("plain");
    let events = |level: &str| Some(format!("/ui/queues/mails/events?level={level}"));
    for (place, followed, task) in [
        ("/ui/queues/mails", events("normal"), None),
        ("/ui/queues/mails?level=high", events("high"), None),
        ("/ui/queues/mails/tasks?level=low", events("low"), None),
        ("/ui/queues/mails/tasks/12:0:-1", events("normal"), Some("12:0:-1")),
        ("/ui/queues/mails/dead", None, None),
        ("/ui/queues/mails/actions", None, None),
    ] {
        let page = site.get(place).await;
        assert_eq!(page.status, 200, "{place}");
        let tags = tags(&page.text);
        let body = tags.iter().find(|tag| tag.name == "body").unwrap();
        assert_eq!(body.get("data-events").map(str::to_owned), followed, "{place}");
        assert_eq!(body.get("data-task"), task, "{place}");
    }
}

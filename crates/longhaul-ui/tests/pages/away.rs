//! Pages of a gateway without a broker: they say so, and the script requests them again until it is
//! back.

use crate::fake::{Like, PLACES, Site};
use crate::markup::tags;

/// Pages that need no request to the gateway.
const BY_ITSELF: [&str; 2] = ["/ui/sign-in", "/ui/nothing"];

fn site() -> Site {
    Site::new(Like { text: "no way to it", is_away: true, ..Like::default() }, |_| {})
}

/// The error page of an outage has links to other pages, and reloads itself.
#[tokio::test]
async fn each_page_says_that_the_broker_is_away_and_comes_back_by_itself() {
    let site = site();
    for place in PLACES.into_iter().filter(|place| !BY_ITSELF.contains(place)) {
        let page = site.get(place).await;
        assert_eq!(page.status, 503, "{place}");
        for said in ["The broker is away", "no way to it", "comes back by itself"] {
            assert!(page.text.contains(said), "{place} does not say {said:?}: {}", page.text);
        }
        let tags = tags(&page.text);
        let body = tags.iter().find(|tag| tag.name == "body").unwrap();
        assert_eq!((body.get("data-page"), body.get("data-events")), (Some("stand-in"), None));
        let links = tags.iter().filter_map(|tag| tag.get("href"));
        let ways = links.filter(|href| href.starts_with("/ui/queues/mails/")).count();
        assert!(
            ways >= 6 || ["/ui", "/ui/names"].contains(&place),
            "{place} leads to {ways} other pages"
        );
    }
}

/// A page that is available is not marked as a stand-in.
#[tokio::test]
async fn no_page_that_is_there_says_so() {
    for (place, page) in Site::of("plain").pages().await {
        assert!(!page.text.contains("stand-in"), "{place}");
    }
}

/// The result of an action stays until it is read: the page behind it must not replace it.
#[tokio::test]
async fn an_action_that_was_refused_is_not_tried_again_by_itself() {
    let site = site();
    let answer = site.post("/ui/queues/mails/pause", &[]).await;
    assert_eq!(answer.status, 503);
    assert!(answer.text.contains("The broker is away"), "{}", answer.text);
    assert!(answer.text.contains(r#"data-page="still""#), "{}", answer.text);
}

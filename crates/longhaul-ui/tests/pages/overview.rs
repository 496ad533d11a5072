//! The first page: sums, and what needs somebody.

use crate::fake::Site;

/// Queues with priorities were counted without their tasks of high and low priority, and nothing
/// said that something had failed.
#[tokio::test]
async fn all_priorities_count_and_what_failed_is_named() {
    let page = Site::of("plain").get("/ui").await;
    let head = "<td class=\"number\" data-head=\"Running\"><div>";
    let running = page.text.split(head).nth(1).unwrap();
    assert!(running.starts_with("3<"), "one of each priority: {running:.40}");
    let needs = page.text.split("id=\"problems\"").nth(1).unwrap();
    let needs = needs.split("</section>").next().unwrap();
    // Two steps of three priorities, each with one task that failed and one that was cancelled.
    assert!(needs.contains("failed or expired in the last hour: 6 tasks"), "{needs}");
    assert!(needs.contains("/ui/queues/mails/reasons"), "{needs}");
    let (silent, failed) = (needs.find("of silent workers"), needs.find("failed or expired"));
    assert!(silent.is_some() && silent < failed, "the most urgent first: {needs}");
}

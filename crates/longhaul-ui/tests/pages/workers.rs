//! Who works on a queue.

use crate::fake::Site;

/// The page showed those of normal priority alone: who worked on the others seemed not to be there.
#[tokio::test]
async fn the_workers_of_each_priority_are_shown() {
    let site = Site::of("plain");
    let page = site.get("/ui/queues/mails/workers").await;
    let calls = site.calls().into_iter().map(|call| call.path);
    let asked: Vec<String> = calls.filter(|path| path.contains("/workers")).collect();
    for level in ["high", "normal", "low"] {
        assert!(asked.contains(&format!("/v1/queues/mails/workers?level={level}")), "{asked:?}");
        assert!(page.text.contains(&format!("<td>{level}</td>")), "{}", page.text);
    }
}

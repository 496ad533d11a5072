//! The page of a queue's workers.

use crate::fake::Site;

/// Workers of all priorities must be shown, not only those of normal priority.
#[tokio::test]
async fn the_workers_of_each_priority_are_shown() {
    let site = Site::of("plain");
    let page = site.get("/ui/queues/mails/workers").await;
    let calls = site.calls().into_iter().map(|call| call.path);
    let asked: Vec<String> = calls.filter(|path| path.contains("/workers")).collect();
    for level in ["high", "normal", "low"] {
        assert!(asked.contains(&format!("/v1/queues/mails/workers?level={level}")), "{asked:?}");
        assert!(
            page.text.contains(&format!("<td data-head=\"Priority\"><div>{level}</div></td>")),
            "{}",
            page.text
        );
    }
    // A worker shares its slots among its partitions and priorities.
    assert!(page.text.contains("2 of 8"), "{}", page.text);
}

/// Dead workers must not be named as successors, although the gateway still lists them.
#[tokio::test]
async fn only_workers_that_are_alive_take_tasks_over() {
    let site = Site::of("holder");
    let page = site.get("/ui/queues/mails/tasks/12:0:-1").await;
    let holder = page.text.split("id=\"holder\"").nth(1).unwrap().split("</p>").next().unwrap();
    assert!(holder.contains("alive") && holder.contains("late"), "{holder}");
    assert!(!holder.contains("dead"), "{holder}");
    let page = site.get("/ui/queues/mails/workers").await;
    assert!(page.text.contains("2 missed"), "{}", page.text);
}

//! Settings that programs change, and schedules that they set, at each start.

use super::documents::another;
use super::*;
use crate::ops::QueueSettings;
#[cfg(feature = "schedules")]
use crate::{ActionError, Schedule, ops::ScheduleInfo};

/// Clients that have all read the register while it was empty: each bases its change on version 0.
async fn starting(bench: &Bench, count: usize) -> Vec<Client> {
    let clients: Vec<Client> = (0..count).map(|_| another(bench)).collect();
    for client in &clients {
        assert_eq!(client.queue("tasks").settings().await.unwrap().version, 0);
    }
    clients
}

fn stored(bench: &Bench) -> usize {
    let register = partition("persistent://public/default/tasks-register".to_owned(), -1);
    bench.fake.world().logs.get(&register).map_or(0, Vec::len)
}

fn limit(settings: &mut QueueSettings) {
    settings.limit.max_in_flight = Some(20);
}

#[tokio::test(start_paused = true)]
async fn settings_changed_at_each_start_are_written_once() {
    let bench = bench();
    let queue = bench.client.queue("tasks");
    assert_eq!(queue.change(|_| {}).await.unwrap(), 0);
    assert_eq!(stored(&bench), 0, "the default settings need no document");
    assert_eq!(queue.change(limit).await.unwrap(), 1);
    let before = stored(&bench);
    for _ in 0..3 {
        assert_eq!(another(&bench).queue("tasks").change(limit).await.unwrap(), 1);
    }
    assert_eq!(stored(&bench), before);
    let invalid = queue.change(|settings| settings.limit.max_in_flight = Some(0)).await;
    assert!(matches!(invalid, Err(ActionError::Invalid(_))), "{invalid:?}");
    assert_eq!(queue.settings().await.unwrap().version, 1);
}

#[tokio::test(start_paused = true)]
async fn programs_that_change_settings_at_once_keep_each_others_changes() {
    let bench = bench();
    let clients = starting(&bench, 2).await;
    let queues: Vec<_> = clients.iter().map(|client| client.queue("tasks")).collect();
    let describe = |settings: &mut QueueSettings| settings.description = Some("exports".to_owned());
    let (one, other) = tokio::join!(queues[0].change(limit), queues[1].change(describe));
    let mut versions = [one.unwrap(), other.unwrap()];
    versions.sort_unstable();
    assert_eq!(versions, [1, 2]);
    let settings = another(&bench).queue("tasks").settings().await.unwrap().settings;
    assert_eq!(settings.limit.max_in_flight, Some(20));
    assert_eq!(settings.description.as_deref(), Some("exports"));
    let same = starting_with(&bench, 2).await;
    assert_eq!(same, [2, 2], "both find their change made");
}

/// Clients that make the same change at once.
async fn starting_with(bench: &Bench, count: usize) -> Vec<u64> {
    let clients: Vec<Client> = (0..count).map(|_| another(bench)).collect();
    let changes = clients.iter().map(|client| async { client.queue("tasks").change(limit).await });
    join_all(changes).await.into_iter().map(Result::unwrap).collect()
}

/// One change is accepted per round, and each of the others is tried again, 11 times in all.
#[tokio::test(start_paused = true)]
async fn a_change_that_loses_again_and_again_ends_with_a_conflict() {
    let bench = bench();
    let clients = starting(&bench, 20).await;
    let changes = clients.iter().enumerate().map(|(number, client)| async move {
        let key = |settings: &mut QueueSettings| {
            settings.keys.insert(number.to_string(), crate::Limit::default());
        };
        client.queue("tasks").change(key).await
    });
    let answers = join_all(changes).await;
    let made = answers.iter().filter(|answer| answer.is_ok()).count();
    let told = |answer: &&Result<u64, ActionError>| {
        matches!(answer, Err(ActionError::VersionConflict { .. }))
    };
    assert_eq!((made, answers.iter().filter(told).count()), (11, 9), "{answers:?}");
    let settings = another(&bench).queue("tasks").settings().await.unwrap().settings;
    assert_eq!(settings.keys.len(), made, "no accepted change is lost");
}

#[cfg(feature = "schedules")]
async fn set(client: &Client, schedule: Schedule, text: &str) -> Result<u64, ActionError> {
    let task = client.submission("tasks", &Text(text.to_owned()));
    client.queue("tasks").schedules().set("nightly", schedule, task).await
}

#[cfg(feature = "schedules")]
async fn stands(bench: &Bench) -> ScheduleInfo {
    another(bench).queue("tasks").schedules().get("nightly").await.unwrap().unwrap()
}

#[cfg(feature = "schedules")]
fn nightly() -> Schedule {
    Schedule::cron("30 2 * * *").time_zone("Europe/Berlin")
}

#[cfg(feature = "schedules")]
#[tokio::test(start_paused = true)]
async fn programs_that_set_a_schedule_at_once_all_succeed() {
    let bench = bench();
    let clients = starting(&bench, 2).await;
    let sets = clients.iter().map(|client| set(client, nightly(), "report"));
    let versions: Vec<u64> = join_all(sets).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(versions, [1, 1], "one has written it, the other has found it");
    assert_eq!(stands(&bench).await.version, 1);
    // Both change it to the same times.
    let clients = [another(&bench), another(&bench)];
    for client in &clients {
        client.queue("tasks").schedules().get("nightly").await.unwrap().unwrap();
    }
    let sets = clients.iter().map(|client| set(client, Schedule::cron("@hourly"), "report"));
    let versions: Vec<u64> = join_all(sets).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(versions, [2, 2]);
}

#[cfg(feature = "schedules")]
#[tokio::test(start_paused = true)]
async fn programs_that_create_a_schedule_at_once_are_told_that_it_exists() {
    let bench = bench();
    let clients = starting(&bench, 2).await;
    let created = clients.iter().map(|client| async {
        let task = client.submission("tasks", &Text("report".to_owned()));
        client.queue("tasks").schedules().create("nightly", nightly(), task).await
    });
    let created = join_all(created).await;
    let exists =
        |created: &&Result<u64, ActionError>| matches!(created, Err(ActionError::ScheduleExists));
    assert_eq!(created.iter().filter(exists).count(), 1, "{created:?}");
}

#[cfg(feature = "schedules")]
#[tokio::test(start_paused = true)]
async fn a_schedule_set_at_each_start_is_written_when_it_differs() {
    let bench = bench();
    let client = &bench.client;
    assert_eq!(set(client, nightly(), "report").await.unwrap(), 1);
    let before = stored(&bench);
    assert_eq!(set(client, nightly(), "report").await.unwrap(), 1);
    assert_eq!(stored(&bench), before);
    assert_eq!(set(client, nightly(), "summary").await.unwrap(), 2);
    let overlap = nightly().overlap(crate::Overlap::AllowAll);
    assert_eq!(set(client, overlap.clone(), "summary").await.unwrap(), 3);
    let created = stands(&bench).await.schedule;
    assert_eq!(created.task.payload().unwrap(), "summary");
    assert_eq!(created.since, created.created_at, "its times are the same");

    // A pause and the firings by hand are the operators'.
    let schedules = client.queue("tasks").schedules();
    assert_eq!(schedules.pause("nightly").await.unwrap(), 4);
    assert_eq!(schedules.trigger("nightly").await.unwrap(), 5);
    assert_eq!(set(client, overlap, "summary").await.unwrap(), 5);
    assert_eq!(set(client, nightly(), "summary").await.unwrap(), 6);
    let found = stands(&bench).await.schedule;
    assert_eq!((found.paused, found.triggers.len()), (true, 1));

    let task = client.submission("tasks", &Text("summary".to_owned()));
    let higher = task.priority(Priority::High);
    let refused = schedules.set("nightly", nightly(), higher).await;
    assert!(matches!(refused, Err(ActionError::OtherPriority)), "{refused:?}");
    let never = set(client, Schedule::cron("0 0 30 2 *"), "summary").await;
    assert!(matches!(never, Err(ActionError::InvalidSchedule(_))), "{never:?}");
    assert_eq!(stands(&bench).await.version, 6);
}

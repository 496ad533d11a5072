//! One worker and its schedules, with lost publishes and documents of other writers.

use super::*;
use longhaul_core::protocol::register::{DocumentKind, DocumentName};
use longhaul_memory::{Loss, PublishFate};

/// A worker that notes which slots it has run.
fn noting() -> (Bench, Diary) {
    noting_with(WorkerConfig::default())
}

fn noting_with(config: WorkerConfig) -> (Bench, Diary) {
    Bench::with_diary(config, None, |context, notes| async move {
        notes.note(context.properties()["SCHEDULE_SLOT"].clone());
        end(context).await
    })
}

impl Bench {
    /// Writes a version of a schedule.
    fn schedule(&self, name: &str, version: u64, json: &str) {
        let name = DocumentName::new(DocumentKind::Schedule, name).unwrap();
        self.write_document(name, version, version, json.to_owned());
    }

    /// A schedule that fires every twenty seconds from now on, with these additional fields.
    fn each_twenty_seconds(&self, name: &str, version: u64, more: &str) {
        let now = self.broker.clock().wall_ms();
        let json = format!(
            r#"{{"every":"PT20S","createdAt":{now},"since":{now},"task":{{"text":"tick"}}{more}}}"#
        );
        self.schedule(name, version, &json);
    }
}

/// A firing is published, and then its key. Each of them may be lost, stored without a receipt, or
/// refused.
#[tokio::test(start_paused = true)]
async fn a_firing_that_is_lost_is_fired_again_and_is_one_task() {
    for fate in [PublishFate::Lost, PublishFate::ReceiptLost, PublishFate::Refused] {
        for on_register in [false, true] {
            let (mut bench, diary) = noting();
            bench.run_for(SECOND).await;
            bench.each_twenty_seconds("tick", 1, "");
            bench.run_for(10 * SECOND).await;
            let tasks = bench.at(&bench.names.task, -1);
            let topic = if on_register { bench.register() } else { tasks };
            bench.broker.next_publish(&topic, fate);
            bench.run_for(60 * SECOND).await;
            let mut slots = diary.lines();
            assert_eq!(slots.len(), 3, "{fate:?} {on_register} {slots:?}");
            slots.dedup();
            assert_eq!(slots.len(), 3, "{fate:?} {on_register} {slots:?}");
            assert_eq!(bench.driver.stats.read().violations, 0);
        }
    }
}

/// An invalid document fires nothing and does no harm. The next version of it counts again.
#[tokio::test(start_paused = true)]
async fn a_document_that_cannot_be_used_does_not_fire_and_can_be_mended() {
    let (mut bench, diary) = noting();
    bench.run_for(SECOND).await;
    let bad = [
        "",
        "null",
        "[1]",
        "{",
        r#"{"cron":"* * * * *"}"#,
        r#"{"cron":"whenever","since":1}"#,
        r#"{"cron":"* * * * *","timeZone":"Mars/Base","since":1}"#,
        r#"{"every":"PT0.1S","since":1}"#,
        r#"{"every":"PT20S","since":1,"overlap":"later"}"#,
        r#"{"every":"PT20S","since":-1}"#,
        r#"{"every":"PT20S","since":1,"task":{"base64":"%"}}"#,
        r#"{"every":"PT20S","since":1,"task":{"text":"a","base64":"YQ=="}}"#,
    ];
    for (json, version) in bad.into_iter().zip(1..) {
        bench.schedule("tick", version, json);
        bench.run_for(25 * SECOND).await;
    }
    assert_eq!(diary.lines(), Vec::<String>::new());
    bench.each_twenty_seconds("tick", 100, r#","fields of a later version":{"a":[1]}"#);
    bench.run_for(21 * SECOND).await;
    assert_eq!(diary.lines().len(), 1);
}

/// Regression: any producer may use a key that looks like a slot of a schedule. Slot 9 was the last
/// one by text order, so the first slot stayed due and fired again and again, as fast as the broker
/// took it. A slot of the year 2286 stopped the schedule for good, and the sum of a 64-bit slot and
/// an interval overflowed.
#[tokio::test(start_paused = true)]
async fn keys_of_others_that_read_like_slots_neither_stop_nor_spin_a_schedule() {
    for slot in ["9", "99999999999999", "9999999999999", "18446744073709551615", "+17", "x", ""] {
        for by_hand in ["", "trigger/"] {
            let (mut bench, diary) = noting();
            bench.run_for(SECOND).await;
            bench.each_twenty_seconds("tick", 1, "");
            let key = format!("schedule/tick/{by_hand}{slot}");
            bench.submit(&[("IDEMPOTENCY_KEY", &key), ("SCHEDULE_SLOT", "hostile")]);
            bench.run_for(65 * SECOND).await;
            let slots: Vec<String> =
                diary.lines().into_iter().filter(|line| line != "hostile").collect();
            assert_eq!(slots.len(), 3, "{key} {slots:?}");
            let tasks = bench.broker.full_log(&bench.at(&bench.names.task, -1));
            assert_eq!(tasks.len(), 4, "{key}: one message for each slot");
        }
    }
}

/// A slot whose key was taken before it was due is settled, and the next one fires.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_taken_beforehand_is_not_fired() {
    let (mut bench, diary) = noting();
    bench.run_for(SECOND).await;
    bench.each_twenty_seconds("tick", 1, "");
    let next = (bench.broker.clock().wall_ms() / 20_000 + 2) * 20_000;
    let key = format!("schedule/tick/{next}");
    bench.submit(&[("IDEMPOTENCY_KEY", &key), ("SCHEDULE_SLOT", "hostile")]);
    bench.run_for(65 * SECOND).await;
    assert_eq!(diary.lines().len(), 3, "{:?}", diary.lines());
    let tasks = bench.broker.full_log(&bench.at(&bench.names.task, -1));
    assert_eq!(tasks.len(), 3);
}

/// The register was replaced, so the schedules are gone.
#[tokio::test(start_paused = true)]
async fn a_schedule_is_gone_with_its_register() {
    let (mut bench, diary) = noting();
    bench.run_for(SECOND).await;
    bench.each_twenty_seconds("tick", 1, "");
    bench.run_for(21 * SECOND).await;
    assert_eq!(diary.lines().len(), 1);
    bench.broker.replace_topic(&bench.names.register.clone(), Loss::Error);
    bench.run_for(60 * SECOND).await;
    assert_eq!(diary.lines().len(), 1);
}

/// A draining worker fires nothing more: its tasks would wait for another worker.
#[tokio::test(start_paused = true)]
async fn a_worker_that_drains_fires_nothing() {
    let mut bench = Bench::new(WorkerConfig::default(), None, |_| end_after(40 * SECOND));
    bench.submit(&[]);
    bench.each_twenty_seconds("tick", 1, r#","overlap":"allowAll""#);
    bench.run_for(5 * SECOND).await;
    bench.drain_for(60 * SECOND);
    bench.run_for(30 * SECOND).await;
    assert!(!bench.ended, "its task runs");
    let tasks = bench.broker.full_log(&bench.at(&bench.names.task, -1));
    assert_eq!(tasks.len(), 1);
}

/// Regression: a slot within the catch-up window for longer than keys are remembered would have
/// fired again.
#[tokio::test(start_paused = true)]
async fn a_slot_is_never_forgotten() {
    const R: Duration = Duration::from_secs(3600);
    let (mut bench, diary) =
        noting_with(WorkerConfig { key_retention: R, ..WorkerConfig::default() });
    bench.run_for(SECOND).await;
    let now = bench.broker.clock().wall_ms();
    let json = format!(
        r#"{{"every":"PT1H","createdAt":{now},"since":{now},"triggers":[{now}],"catchUpWindow":"PT720H","task":{{"text":"tick"}}}}"#
    );
    bench.schedule("tick", 1, &json);
    bench.run_long(2 * R).await;
    let fired = diary.lines();
    // No later slot shows that these were settled.
    bench.schedule("tick", 2, &json.replace(r#""since""#, r#""paused":true,"since""#));
    bench.run_long(6 * R).await;
    assert_eq!(diary.lines(), fired);
    bench.schedule("tick", 3, &json);
    bench.run_long(R).await;
    let mut slots = diary.lines();
    slots.sort();
    slots.dedup();
    assert_eq!(slots.len(), diary.lines().len(), "{:?}", diary.lines());
    assert_eq!(bench.driver.stats.read().violations, 0);
}

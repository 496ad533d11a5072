//! The meaning of expressions, day by day; clock changes; refused expressions.

use super::*;

/// The first firings after an instant, by the clocks of a zone. Seconds are left out if they are 0.
fn firings(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let schedule = Schedule::cron(expression).time_zone(zone);
    let from: Timestamp = from.parse().unwrap();
    let found = schedule.next_after(u64::try_from(from.as_millisecond()).unwrap(), count);
    let zone = TimeZone::get(zone).unwrap();
    let text = |ms: u64| {
        let instant = Timestamp::from_millisecond(i64::try_from(ms).unwrap()).unwrap();
        let at = instant.to_zoned(zone.clone()).strftime("%a %F %T %z").to_string();
        at.replace(":00 ", " ")
    };
    found.unwrap().into_iter().map(text).collect()
}

#[track_caller]
fn assert_utc(expression: &str, expected: &[&str]) {
    let found = firings(expression, "UTC", "2026-01-01T00:00:00Z", expected.len());
    let expected: Vec<_> = expected.iter().map(|it| format!("{it} +0000")).collect();
    assert_eq!(found, expected, "{expression}");
}

/// Expressions that users of crontab and Quartz know.
#[test]
fn expressions_mean_what_people_expect() {
    assert_utc("*/15 * * * *", &["Thu 2026-01-01 00:15", "Thu 2026-01-01 00:30"]);
    assert_utc("30 2 * * *", &["Thu 2026-01-01 02:30", "Fri 2026-01-02 02:30"]);
    assert_utc("0 9-17/4 * * MON-FRI", &["Thu 2026-01-01 09:00", "Thu 2026-01-01 13:00"]);
    assert_utc("0 9,18 * JAN,JUL *", &["Thu 2026-01-01 09:00", "Thu 2026-01-01 18:00"]);
    // Six fields begin with seconds, seven end with years.
    assert_utc("*/20 * * * * *", &["Thu 2026-01-01 00:00:20", "Thu 2026-01-01 00:00:40"]);
    assert_utc("0 0 12 1 1 ? 2028-2030/2", &["Sat 2028-01-01 12:00", "Tue 2030-01-01 12:00"]);
    // Last day, nearest weekday, n-th weekday, last weekday of its kind.
    assert_utc("0 0 L * *", &["Sat 2026-01-31 00:00", "Sat 2026-02-28 00:00"]);
    assert_utc("0 0 15W * *", &["Thu 2026-01-15 00:00", "Mon 2026-02-16 00:00"]);
    assert_utc("0 0 1W * *", &["Mon 2026-02-02 00:00", "Mon 2026-03-02 00:00"]);
    assert_utc("0 0 ? * FRI#2", &["Fri 2026-01-09 00:00", "Fri 2026-02-13 00:00"]);
    assert_utc("0 0 ? * FRI#L", &["Fri 2026-01-30 00:00", "Fri 2026-02-27 00:00"]);
    assert_utc("0 0 * * 5L", &["Fri 2026-01-30 00:00", "Fri 2026-02-27 00:00"]);
    // 0 and 7 are Sunday, as in crontab.
    assert_utc("0 0 * * 0", &["Sun 2026-01-04 00:00", "Sun 2026-01-11 00:00"]);
    assert_utc("0 0 * * 7", &["Sun 2026-01-04 00:00", "Sun 2026-01-11 00:00"]);
    // Day of month and day of week: one of them suffices, as in crontab; with a plus both must
    // match.
    assert_utc(
        "0 0 13 * FRI",
        &["Fri 2026-01-02 00:00", "Fri 2026-01-09 00:00", "Tue 2026-01-13 00:00"],
    );
    assert_utc("0 0 13 * +FRI", &["Fri 2026-02-13 00:00", "Fri 2026-03-13 00:00"]);
    assert_utc("0 0 29 2 *", &["Tue 2028-02-29 00:00", "Sun 2032-02-29 00:00"]);
    assert_utc("@daily", &["Fri 2026-01-02 00:00"]);
}

/// In Berlin the clocks change from 02:00 to 03:00 on 2026-03-29, and from 03:00 to 02:00 on
/// 2026-10-25. A time of day that does not exist is made up directly after the gap, and one that
/// occurs twice counts once. Firings by the minute or the hour follow real time.
#[test]
fn clocks_that_are_changed_lose_no_day_and_double_none() {
    let (spring, autumn) = ("2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z");
    let berlin = |expression, from, count| firings(expression, "Europe/Berlin", from, count);
    assert_eq!(
        berlin("30 2 * * *", spring, 2),
        ["Sun 2026-03-29 03:00 +0200", "Mon 2026-03-30 02:30 +0200"]
    );
    assert_eq!(
        berlin("30 2 * * *", autumn, 2),
        ["Sun 2026-10-25 02:30 +0200", "Mon 2026-10-26 02:30 +0100"]
    );
    let hours = berlin("0 * * * *", "2026-03-29T00:30:00Z", 2);
    assert_eq!(hours, ["Sun 2026-03-29 03:00 +0200", "Sun 2026-03-29 04:00 +0200"]);
    let hours = berlin("30 * * * *", "2026-10-25T00:00:00Z", 3);
    assert_eq!(
        hours,
        ["Sun 2026-10-25 02:30 +0200", "Sun 2026-10-25 02:30 +0100", "Sun 2026-10-25 03:30 +0100"]
    );
}

#[test]
fn intervals_are_counted_from_1970_and_may_be_moved() {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let hour = 3_600_000;
    let daily = Schedule::every(hours(24)).offset(hours(2));
    assert_eq!(daily.next_after(0, 2).unwrap(), [2 * hour, 26 * hour]);
    assert_eq!(daily.next_after(2 * hour, 1).unwrap(), [26 * hour]);
    let slots = FiringTimes::of(&daily).unwrap();
    let up_to = [2 * hour - 1, 2 * hour, 26 * hour - 1, 26 * hour].map(|ms| slots.last_up_to(ms));
    assert_eq!(up_to, [None, Some(2 * hour), Some(2 * hour), Some(26 * hour)]);
    let at = Schedule::at(std::time::UNIX_EPOCH + hours(1));
    assert_eq!(at.next_after(0, 5).unwrap(), [hour]);
    assert_eq!(at.next_after(hour, 5).unwrap(), Vec::<u64>::new());
}

/// The interval between a slot and the next one is the same from both sides.
#[test]
fn the_last_slot_is_the_one_before_the_next() {
    let from: Timestamp = "2026-03-27T00:00:00Z".parse().unwrap();
    let from = u64::try_from(from.as_millisecond()).unwrap();
    for expression in ["30 2 * * *", "*/7 * * * *", "0 0 L * *", "*/13 */2 * * * *"] {
        let schedule = Schedule::cron(expression).time_zone("Europe/Berlin");
        let slots = FiringTimes::of(&schedule).unwrap();
        let found = schedule.next_after(from, 300).unwrap();
        for pair in found.windows(2) {
            assert_eq!(slots.last_up_to(pair[0]), Some(pair[0]), "{expression}");
            assert_eq!(slots.last_up_to(pair[1] - 1), Some(pair[0]), "{expression}");
        }
    }
}

#[test]
fn what_cannot_be_used_is_refused_with_the_reason() {
    let told = |schedule: Schedule| schedule.check().unwrap_err().to_string();
    for expression in [
        "",
        "* * * *",
        "61 * * * *",
        "* * * * * * * *",
        "a b c d e",
        "* * 32 * *",
        "0 0 * * 8",
        "0 0 * * L-3-",
    ] {
        let error = told(Schedule::cron(expression));
        assert!(
            error.starts_with(&format!("`{expression}` is not a cron expression: ")),
            "{error}"
        );
    }
    let zone = told(Schedule::cron("* * * * *").time_zone("Mars/Base"));
    assert!(zone.starts_with("`Mars/Base` is not a time zone"), "{zone}");
    let short = told(Schedule::every(Duration::from_millis(999)));
    assert!(short.contains("below a second"), "{short}");
    let window = Schedule::cron("* * * * *").catch_up_window(Duration::from_secs(9));
    assert!(told(window).contains("catch-up window"));
    assert!(told(Schedule::default()).contains("one of"));
    let both =
        Schedule { at: Some("2026-01-01T00:00:00Z".to_owned()), ..Schedule::cron("* * * * *") };
    assert!(told(both).contains("one of"));
    assert!(told(Schedule::every(Duration::from_secs(5)).time_zone("UTC")).contains("time zone"));
    assert!(told(Schedule::cron("* * * * *").offset(Duration::from_secs(5))).contains("offset"));
    assert!(told(Schedule::cron("x".repeat(10_000))).len() < 500);
}

/// The 30th of February never comes, and this is found quickly.
#[test]
fn what_never_comes_has_no_next() {
    let never = Schedule::cron("0 0 30 2 *");
    assert_eq!(never.next_after(0, 1).unwrap(), Vec::<u64>::new());
    assert_eq!(
        Schedule::cron("0 0 0 1 1 ? 2020").next_after(1_700_000_000_000, 1).unwrap(),
        Vec::<u64>::new()
    );
}

use super::*;

/// What the clocks do, by another library: see `clock_changes.py`.
const TABLE: &str = include_str!("clock_changes.txt");
const MINUTES: i64 = 28 * 60;

/// Lists of hours lost a slot in spring and doubled one in autumn, lists of minutes lost the day,
/// and midnight was lost where the clocks are changed at midnight.
#[test]
fn slots_around_changes_of_clocks_are_those_of_the_table() {
    let mut rows = 0;
    for row in TABLE.lines() {
        let [zone, from, expression, expected]: [&str; 4] =
            row.split('|').collect::<Vec<_>>().try_into().unwrap();
        let from: Timestamp = from.parse().unwrap();
        let times = CronTimes::new(expression, TimeZone::get(zone).unwrap()).unwrap();
        let minute = |at: Timestamp| at.duration_since(from).as_mins();
        let end = from + SignedDuration::from_mins(MINUTES);
        let next = |at: &Timestamp| times.next_after(*at);
        let first = times.next_after(from - SECOND);
        let slots = std::iter::successors(first, next).take_while(|at| *at < end);
        let found: Vec<_> = slots.map(|at| minute(at).to_string()).collect();
        assert_eq!(found.join(","), expected, "{zone} {from} {expression}");
        let last = |at: &Timestamp| times.last_up_to(*at - SECOND);
        let slots = std::iter::successors(times.last_up_to(end - SECOND), last);
        let mut back: Vec<_> =
            slots.take_while(|at| *at >= from).map(|at| minute(at).to_string()).collect();
        back.reverse();
        assert_eq!(back.join(","), expected, "backwards: {zone} {from} {expression}");
        rows += 1;
    }
    assert_eq!(rows, 300);
}

/// `0 0 */2 * MON` fired each Monday and each odd day.
#[test]
fn a_star_in_a_day_field_narrows_the_other_one() {
    let from: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    for (expression, days) in [
        ("0 0 */2 * MON", "5 19"),
        ("0 0 0 */2 * MON", "5 19"),
        ("0 0 13 * */2", "13 13"),
        ("0 0 13 * FRI", "2 9 13 16"),
    ] {
        let times = CronTimes::new(expression, TimeZone::UTC).unwrap();
        let slots = std::iter::successors(times.next_after(from), |at| times.next_after(*at));
        let slots = slots.map(|at| at.to_zoned(TimeZone::UTC).day().to_string());
        let found: Vec<_> = slots.take(days.split(' ').count()).collect();
        assert_eq!(found.join(" "), days, "{expression}");
    }
}

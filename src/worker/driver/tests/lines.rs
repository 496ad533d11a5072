//! Log lines of attempts, and other data that outlives an attempt until its end is shown.

use super::*;

/// Logs this number of lines at this interval, and then fails at the first attempt.
fn logging(count: u32, every: Duration) -> Bench {
    Bench::new(brisk(), None, move |context| async move {
        for number in 1..=count {
            tokio::time::sleep(every).await;
            context.log(format!("{} {number}", context.attempt()));
        }
        if context.attempt() == 1 {
            return Err(TaskError::retry_after(5 * SECOND, "out of luck"));
        }
        Ok(Text("done".to_owned()))
    })
}

#[tokio::test(start_paused = true)]
async fn lines_are_seen_live_once_a_second_and_stay_with_the_end_of_their_attempt() {
    let mut bench = logging(50, SECOND / 10);
    bench.submit(&[]);
    bench.run_for(30 * SECOND).await;
    let shown = bench.shown();
    let of = |attempt, state| {
        let fits = move |it: &TaskMetadata| it.attempts == attempt && it.state == state;
        let fitting = shown.iter().filter(move |(_, it)| fits(it));
        fitting.map(|(at, it)| (*at, it.log.clone())).collect::<Vec<_>>()
    };
    for attempt in 1..=2 {
        let live = of(attempt, TaskState::Processing);
        assert!((5..=7).contains(&live.len()), "{live:?}");
        assert!(live.windows(2).all(|two| two[1].0 - two[0].0 >= 1_000), "{live:?}");
        let (start, lines) = &live[0];
        assert!(lines.is_empty(), "{lines:?}");
        let newest = |lines: &Vec<String>| lines.last().unwrap().clone();
        for (at, lines) in &live[1..] {
            let expected = (at - start) / 100;
            let newest = newest(lines);
            let (of_attempt, number) = newest.split_once(' ').unwrap();
            assert_eq!(of_attempt, attempt.to_string());
            assert!(number.parse::<u64>().unwrap().abs_diff(expected) <= 1, "{number} {expected}");
        }
        let state = if attempt == 1 { TaskState::Failed } else { TaskState::Completed };
        let kept: Vec<String> = (19..=50).map(|number| format!("{attempt} {number}")).collect();
        let ends = of(attempt, state);
        assert_eq!(ends.iter().map(|(_, lines)| lines).collect::<Vec<_>>(), [&kept]);
    }
    assert_eq!(bench.driver.lanes[-1].ended_attempts.len(), 0);
}

/// An unused feature costs nothing: no byte on the metadata topic, nothing in memory.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_logs_nothing_leaves_nothing() {
    let mut bench = Bench::new(brisk(), None, |context| report(context, 3));
    bench.submit(&[("customer", "4711")]);
    bench.run_for(2 * SECOND).await;
    bench.run_for(10 * SECOND).await;
    let log = bench.broker.full_log(&bench.at(&bench.names.metadata, -1));
    let texts: Vec<_> = log.iter().map(|it| String::from_utf8_lossy(&it.payload)).collect();
    assert!(texts.len() >= 2 && !texts.iter().any(|text| text.contains("\"log\"")), "{texts:?}");
    assert_eq!(bench.driver.lanes[-1].ended_attempts.len(), 0);
}

/// Regression: the end of a task whose payload is too large to be shown lost its key, because the
/// properties were dropped with the payload.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_task_with_a_large_payload_is_shown_with_its_key_and_type() {
    let mut bench = Bench::new(brisk(), None, |context| report(context, 1));
    let payload = Bytes::from(vec![b'x'; 64 * 1024 + 1]);
    let properties = [("TASK_KEY", "k"), ("TASK_TYPE", "t")];
    let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let message =
        Outgoing { properties: properties.into_iter().collect(), payload, ..Outgoing::default() };
    bench.broker.publish(&bench.at(&bench.names.task, -1), message);
    bench.run_for(10 * SECOND).await;
    let shown = bench.shown();
    assert_eq!(shown.last().unwrap().1.state, TaskState::Completed);
    for (_, shown) in shown {
        assert_eq!((shown.task_key.as_deref(), shown.task_type.as_deref()), (Some("k"), Some("t")));
        assert_eq!(shown.task, None);
    }
    assert_eq!(bench.driver.lanes[-1].ended_attempts.len(), 0);
}

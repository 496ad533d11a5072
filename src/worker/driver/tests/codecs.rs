//! Tasks whose payloads are encoded by a codec: nothing of them is plain on any topic.

use super::*;
use crate::worker::coded::Coded;
use longhaul_core::task::{Codecs, Flip, decode, encode};

/// A worker with the codec `flip`. The first attempt stores a checkpoint and fails, the second one
/// has a result.
fn coded() -> Bench {
    let mut bench = Bench::new(brisk(), None, |_| async { Ok(Text::default()) });
    let processor = crate::processor_fn(async |task: Text, context: TaskContext| {
        assert_eq!((task.0.as_str(), context.codec()), ("a secret task", Some("flip")));
        match context.last_checkpoint() {
            None => {
                context.checkpoint("a secret checkpoint").await?;
                context.checkpoint_stored().await?;
                Err(TaskError::retry_after(SECOND, "half done"))
            }
            Some(bytes) => {
                assert_eq!(bytes.as_ref(), b"a secret checkpoint");
                Ok(Text("a secret result".to_owned()))
            }
        }
    });
    let mut codecs = Codecs::default();
    codecs.add(Flip("flip"));
    bench.driver.processor = Arc::new(Coded { processor: Arc::new(processor), codecs });
    bench
}

impl Bench {
    fn submit_coded(&self, codec: &str, payload: Bytes) -> TaskId {
        let properties = [("TASK_CODEC".to_owned(), codec.to_owned())].into();
        let message = Outgoing { properties, payload, ..Outgoing::default() };
        TaskId::new(self.broker.publish(&self.at(&self.names.task, -1), message), -1)
    }
}

#[tokio::test(start_paused = true)]
async fn payload_checkpoint_and_result_travel_encoded_and_the_entries_name_the_codec() {
    let mut bench = coded();
    let codec = Flip("flip");
    bench.submit_coded("flip", encode(&codec, b"a secret task").unwrap());
    bench.run_for(20 * SECOND).await;
    let shown = bench.shown();
    assert!(shown.len() >= 4);
    for (_, entry) in &shown {
        assert_eq!(entry.codec.as_deref(), Some("flip"));
        let task = decode(&codec, entry.task.as_ref().unwrap());
        assert_eq!(task.as_deref(), Ok(&b"a secret task"[..]));
    }
    let (_, last) = shown.last().unwrap();
    assert_eq!((last.state, last.attempts), (TaskState::Completed, 2));
    let result = decode(&codec, last.result.as_ref().unwrap());
    assert_eq!(result.as_deref(), Ok(&b"a secret result"[..]));
    let mut checkpoints = 0;
    let names = &bench.names;
    for topic in [&names.task, &names.ledger, &names.metadata, &names.dead_letters] {
        for message in bench.broker.full_log(&bench.at(topic, -1)) {
            let text = String::from_utf8_lossy(&message.payload).into_owned();
            assert!(!text.contains("secret"), "{topic}: {text}");
            checkpoints += u32::from(matches!(ledger::read(&message), Ok(Entry::Checkpoint(_))));
        }
    }
    assert!(checkpoints >= 1);
}

/// Regression: the payload was handed to the processor undecoded, and failed to parse or parsed as
/// nonsense.
#[tokio::test(start_paused = true)]
async fn what_this_worker_cannot_decode_is_left_to_others_with_that_reason() {
    let cases = [
        ("zip", "no codec `zip` is known here, only `flip`"),
        ("flip", "codec `flip`: not what it has written"),
    ];
    for (codec, cause) in cases {
        let mut bench = coded();
        bench.submit_coded(codec, "a secret task".into());
        bench.run_for(60 * SECOND).await;
        let shown = bench.shown();
        let (at, last) = shown.last().unwrap();
        let reason = format!("Task payload could not be decoded: {cause}");
        assert_eq!((last.reason(), last.codec.as_deref()), (Some(reason.as_str()), Some(codec)));
        assert!(last.outcome.is_none() && last.next_attempt_at.unwrap() - at >= 149_000);
    }
    // A worker without any codec does not treat it as a plain payload.
    let mut bench = Bench::new(brisk(), None, |_| async { Ok(Text::default()) });
    bench.submit_coded("flip", "a secret task".into());
    bench.run_for(10 * SECOND).await;
    let reason = "Task payload could not be decoded: no codec `flip` is known here, only none";
    assert_eq!(bench.shown().last().unwrap().1.reason(), Some(reason));
    assert_eq!(bench.driver.stats.read().completed, 0);
}

/// A reader of the result needs the codec, even if the payload is too large to be shown.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_large_task_names_its_codec() {
    let mut bench = coded();
    let processor = crate::processor_fn(async |_: crate::Raw, _: TaskContext| Ok(Text::default()));
    let mut codecs = Codecs::default();
    codecs.add(Flip("flip"));
    bench.driver.processor = Arc::new(Coded { processor: Arc::new(processor), codecs });
    bench.submit_coded("flip", encode(&Flip("flip"), &[b'x'; 70_000]).unwrap());
    bench.run_for(10 * SECOND).await;
    let shown = bench.shown();
    assert_eq!(shown.last().unwrap().1.state, TaskState::Completed);
    for (_, entry) in shown {
        assert_eq!((entry.codec.as_deref(), entry.task), (Some("flip"), None));
    }
}

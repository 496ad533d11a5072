//! Tasks as they were submitted.

use super::*;
use crate::client::ReadError;
use crate::transport::TransportErrorKind;

#[tokio::test(start_paused = true)]
async fn a_task_that_nobody_has_claimed_is_read_as_it_was_submitted() {
    let bench = bench();
    let submission = bench.client.submission("tasks", &Text("to do".to_owned()));
    let task = submission.property("customer", "7").tag("eu").send().await.unwrap();
    let submitted = bench.client.queue(&task.topic).submitted(task.id).await.unwrap().unwrap();
    assert_eq!(submitted.payload, "to do");
    let property = |name: &str| submitted.properties.get(name).map(String::as_str);
    assert_eq!((property("customer"), property("TAGS")), (Some("7"), Some("eu")));
    assert_eq!(bench.client.decode_payload(&submitted).unwrap(), "to do");
    assert!(!format!("{submitted:?}").contains("to do"));

    let gone = TaskRef { id: TaskId { entry: 99, ..task.id }, ..task.clone() };
    assert_eq!(bench.client.queue(&gone.topic).submitted(gone.id).await.unwrap(), None);
    bench.fake.world().refusals.push_back(TransportErrorKind::Unreachable);
    let failed = bench.client.queue(&task.topic).submitted(task.id).await.unwrap_err();
    assert!(matches!(failed, ReadError::Transport(_)), "{failed}");
}

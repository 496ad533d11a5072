//! Watchers of the topics of a namespace.

use crate::oracle::stage::Stage;
use anyhow::Result;
use longhaul_wire::messages::{CommandWatchTopicList, CommandWatchTopicListClose};

pub(super) async fn watchers(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let namespace = format!("public/watched-{}", stage.run());
    stage.admin("PUT", &format!("namespaces/{namespace}"), "").await?;
    let path = |topic: &str| format!("persistent/{namespace}/{topic}");
    let watch = |request_id, pattern: &str| CommandWatchTopicList {
        request_id,
        watcher_id: 7,
        namespace: namespace.clone(),
        topics_pattern: pattern.to_owned(),
        topics_hash: None,
    };
    stage.note("none yet");
    stage.ask(at, watch(1, &format!("persistent://{namespace}/a.*")), 1).await?;
    for (method, topic) in [("PUT", "a1"), ("PUT", "a2"), ("PUT", "b"), ("DELETE", "a1")] {
        stage.note(format!("{method} {topic}"));
        stage.admin(method, &path(topic), "").await?;
        stage.answers(at, usize::from(topic != "b")).await?;
    }
    stage.note("one partition");
    stage.admin("PUT", &format!("{}/partitions", path("ap")), "1").await?;
    stage.answers(at, 1).await?;
    stage.note("with the hash of what there is, and of what there was");
    for hash in [stage.hash(4), stage.hash(0)] {
        let mut command = watch(2, &format!("persistent://{namespace}/a.*"));
        command.topics_hash = Some(hash);
        command.watcher_id = 8;
        stage.ask(at, command, 1).await?;
        stage.ask(at, CommandWatchTopicListClose { request_id: 3, watcher_id: 8 }, 1).await?;
    }
    stage.note("closed, and closed again");
    stage.ask(at, CommandWatchTopicListClose { request_id: 4, watcher_id: 7 }, 1).await?;
    stage.ask(at, CommandWatchTopicListClose { request_id: 5, watcher_id: 7 }, 1).await?;
    stage.admin("PUT", &path("a3"), "").await?;
    stage.answers(at, 0).await?;
    stage.note("no pattern");
    stage.ask(at, watch(6, "("), 1).await
}

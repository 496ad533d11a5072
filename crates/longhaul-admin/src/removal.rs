//! Deletes the topics of a task topic and all their messages.

use super::admin::Admin;
use super::calls::found;
use super::http::AdminError;
use longhaul_core::topics::TopicNames;

/// The most rounds of deletions. The first round deletes nearly everything.
const ROUNDS_MAX: usize = 4;

/// Deletes a task topic, the topics of its levels, and everything that belongs to them, even while
/// clients use them. Running tasks go on, and the results that their workers publish are lost.
/// Missing topics are skipped, so a removal that failed half-way can be repeated.
///
/// Stop the workers first: running workers create topics of these names again, without their
/// policies. What a client creates meanwhile, because it was just connecting, is deleted, too.
///
/// # Errors
/// The admin API cannot be reached, or refuses.
pub async fn remove(
    admin: &Admin,
    names: &TopicNames,
    levels: &[TopicNames],
) -> Result<(), AdminError> {
    let admin = admin.retrying();
    // The task topic goes first, so that no task is submitted to a half-deleted queue.
    let of_level =
        |level: &TopicNames| [&level.task, &level.ledger, &level.metadata].map(Clone::clone);
    let mut topics: Vec<_> = [names].into_iter().chain(levels).flat_map(of_level).collect();
    topics.extend([names.register.clone(), names.dead_letters.clone()]);
    // A client that connects again creates a partition without the whole.
    let mut partitions = Vec::new();
    for topic in &topics {
        if let Some(count) = found(admin.partitions(topic).await)?.flatten() {
            partitions.extend((0..count).map(|index| format!("{topic}-partition-{index}")));
        }
        delete(&admin, topic).await?;
    }
    topics.extend(partitions);
    for _ in 1..ROUNDS_MAX {
        let mut deleted = false;
        for topic in &topics {
            deleted |= delete(&admin, topic).await?;
        }
        if !deleted {
            break;
        }
    }
    Ok(())
}

/// Deletes a topic; returns whether it was there.
async fn delete(admin: &Admin, topic: &str) -> Result<bool, AdminError> {
    Ok(found(admin.delete_topic(topic).await)?.is_some())
}

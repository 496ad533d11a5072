//! Deletes the topics of a task topic and all their messages.

use super::admin::Admin;
use super::http::{AdminError, AdminErrorKind};
use longhaul_core::topics::TopicNames;

/// Deletes a task topic, the topics of its levels, and everything that belongs to them, even while
/// clients use them. Running tasks go on, and the results that their workers publish are lost.
/// Missing topics are skipped, so a removal that failed half-way can be repeated.
///
/// Stop the workers first: running workers create topics of these names again, without their
/// policies.
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
    for TopicNames { task, metadata, ledger, .. } in [names].into_iter().chain(levels) {
        for topic in [task, ledger, metadata] {
            gone(admin.delete_topic(topic).await)?;
        }
    }
    for topic in [&names.register, &names.dead_letters] {
        gone(admin.delete_topic(topic).await)?;
    }
    Ok(())
}

fn gone(deleted: Result<(), AdminError>) -> Result<(), AdminError> {
    match deleted {
        Err(error) if error.kind == AdminErrorKind::NotFound => Ok(()),
        deleted => deleted,
    }
}

//! Deletes the topics of a task topic, with everything in them.

use super::admin::Admin;
use super::http::{AdminError, AdminErrorKind};
use longhaul_core::topics::TopicNames;

/// Deletes a task topic, those of its levels, and all that belong to them, even while clients use
/// them. Tasks that run then go on, and what their workers publish at the end is lost. What does
/// not exist is left out, so that a removal that failed half-way can be repeated.
///
/// Workers that still run make topics of these names again, without their policies: end them first.
///
/// # Errors
/// When the admin API cannot be asked, or refuses.
pub async fn remove(
    admin: &Admin,
    names: &TopicNames,
    levels: &[TopicNames],
) -> Result<(), AdminError> {
    let admin = admin.retrying();
    // The task topic goes first: nothing is to be submitted to what is half gone.
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

//! The topics of a queue with levels.

use crate::calls::found;
use crate::{Admin, AdminError, SetupError, SetupReport, TopicSettings, setup};
use longhaul_core::topics::TopicNames;

/// Sets up the topics of a queue and of its levels: [`setup`] for each. A new level gets as many
/// partitions as the task topic has.
///
/// # Errors
/// See [`SetupError`]. Completed steps are kept.
pub async fn setup_levels(
    admin: &Admin,
    queue: &TopicNames,
    levels: &[TopicNames],
    settings: &TopicSettings,
) -> Result<SetupReport, SetupError> {
    let mut report = setup(admin, queue, settings).await?;
    for level in levels {
        let settings = like(admin, settings, queue, level).await?;
        let SetupReport { steps, findings } = setup(admin, level, &settings).await?;
        report.steps.extend(steps);
        // Levels share the dead letters with the queue, so their findings are reported once.
        let said = |finding: &_| report.findings.contains(finding);
        let new: Vec<_> = findings.into_iter().filter(|finding| !said(finding)).collect();
        report.findings.extend(new);
    }
    Ok(report)
}

/// The settings for a level: a new one gets as many partitions as the queue's own task topic has.
///
/// # Errors
/// The admin API cannot be reached, or refuses.
pub async fn like(
    admin: &Admin,
    settings: &TopicSettings,
    queue: &TopicNames,
    level: &TopicNames,
) -> Result<TopicSettings, AdminError> {
    let admin = admin.retrying();
    let is_new = found(admin.partitions(&level.task).await)?.is_none();
    if settings.partitions.is_some() || !is_new {
        return Ok(settings.clone());
    }
    let partitions = found(admin.partitions(&queue.task).await)?.flatten();
    Ok(TopicSettings { partitions, ..settings.clone() })
}

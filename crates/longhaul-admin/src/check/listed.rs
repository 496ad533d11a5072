//! Formats lists of partitions for people.

use crate::observe::PartitionState;

/// Partitions listed by number; further ones are only counted.
const LISTED_MAX: usize = 8;

pub(super) fn indexes(
    partitions: &[PartitionState],
    which: impl Fn(&PartitionState) -> bool,
) -> Vec<usize> {
    partitions
        .iter()
        .enumerate()
        .filter(|(_, partition)| which(partition))
        .map(|(index, _)| index)
        .collect()
}

/// `None` when there is nothing to list.
pub(super) fn listed(indexes: &[usize]) -> Option<String> {
    let shown: Vec<String> = indexes.iter().take(LISTED_MAX).map(ToString::to_string).collect();
    let rest = indexes.len().saturating_sub(LISTED_MAX);
    match (shown.as_slice(), rest) {
        ([], _) => None,
        ([one], 0) => Some(format!("partition {one}")),
        (shown, 0) => Some(format!("partitions {}", shown.join(", "))),
        (shown, rest) => Some(format!("partitions {} and {rest} more", shown.join(", "))),
    }
}

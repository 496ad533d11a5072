//! How consumers share a subscription, as requested by SUBSCRIBE.

use super::dispatcher::{ConsumerKey, DispatchMode, Dispatcher, HashRange, KeyPolicy};
use super::effect::RequestRefusal;
use longhaul_wire::messages::{CommandSubscribe, KeySharedMode, ServerError, SubType};

pub(super) fn kind_of(command: &CommandSubscribe) -> Result<DispatchMode, RequestRefusal> {
    let refuse = |text: &str| Err(RequestRefusal::not_allowed(text));
    match SubType::try_from(command.sub_type) {
        Ok(SubType::Exclusive) => Ok(DispatchMode::Exclusive),
        Ok(SubType::Shared) => Ok(DispatchMode::Shared),
        Ok(SubType::Failover) => Ok(DispatchMode::Failover),
        Ok(SubType::KeyShared) if command.read_compacted.unwrap_or_default() => refuse(
            "a Key_Shared subscription cannot read the compacted view: use Exclusive or Failover",
        ),
        Ok(SubType::KeyShared) => {
            let meta = command.key_shared_meta.as_ref();
            let mode =
                meta.map_or(Ok(KeySharedMode::AutoSplit), |meta| meta.key_shared_mode.try_into());
            let Ok(mode) = mode else { return refuse("unknown mode of a Key_Shared subscription") };
            Ok(DispatchMode::KeyShared(KeyPolicy {
                is_sticky: mode == KeySharedMode::Sticky,
                allows_disorder: meta.is_some_and(|meta| meta.allow_out_of_order_delivery()),
            }))
        }
        Err(_) => refuse("unknown type of subscription"),
    }
}

/// The hashes that a sticky consumer has chosen.
pub(super) fn ranges_of(
    kind: DispatchMode,
    command: &CommandSubscribe,
) -> Result<Vec<HashRange>, RequestRefusal> {
    if !matches!(kind, DispatchMode::KeyShared(KeyPolicy { is_sticky: true, .. })) {
        return Ok(Vec::new());
    }
    let refuse = |text: &str| Err(RequestRefusal::new(ServerError::ConsumerAssignError, text));
    let mut ranges: Vec<HashRange> = Vec::new();
    for range in command.key_shared_meta.iter().flat_map(|meta| &meta.hash_ranges) {
        match (u16::try_from(range.start), u16::try_from(range.end)) {
            (Ok(start), Ok(end)) if start <= end => ranges.push((start, end)),
            _ => return refuse("a range of hashes goes from 0 up to 65535 at most"),
        }
    }
    if ranges.is_empty() {
        return refuse("a sticky consumer needs ranges of hashes");
    }
    ranges.sort_unstable();
    if ranges.windows(2).any(|pair| matches!(pair, [a, b] if b.0 <= a.1)) {
        return refuse("the ranges of hashes of a sticky consumer overlap");
    }
    Ok(ranges)
}

/// The error if another consumer already has these hashes.
pub(super) fn range_conflict(dispatcher: &Dispatcher, holder: ConsumerKey) -> RequestRefusal {
    let name = dispatcher
        .consumers()
        .iter()
        .find(|consumer| consumer.key == holder)
        .map(|consumer| consumer.name.as_str());
    let name = name.unwrap_or_default();
    let text = format!("consumer {name} has some of these hashes already: ask for others");
    RequestRefusal::new(ServerError::ConsumerAssignError, text).because_of(holder.conn)
}

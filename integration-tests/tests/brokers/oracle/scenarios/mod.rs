//! The scripts, by subject.

mod acking;
mod compacting;
mod connecting;
mod consuming;
mod key_shared;
mod moving;
mod producing;
mod terminating;
mod topics;
mod watching;

use crate::oracle::stage::Stage;
use anyhow::Result;
use std::pin::Pin;

pub(crate) type Script =
    for<'a> fn(&'a mut Stage) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Scripts under their own names.
macro_rules! scripts {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$((stringify!($name), (|stage| Box::pin($module::$name(stage))) as Script)),*]
    };
}

pub(crate) fn all() -> Vec<(&'static str, Script)> {
    scripts![
        connecting::handshake,
        connecting::before_connect,
        connecting::garbage,
        connecting::unsupported,
        topics::lookup,
        topics::partitions,
        topics::schemas,
        topics::incompatible_schemas,
        topics::topics_of_namespace,
        topics::notes,
        topics::non_persistent,
        watching::watchers,
        terminating::terminated,
        terminating::terminated_under_readers,
        topics::unload,
        topics::deletion,
        producing::names,
        terminating::initial_subscription,
        producing::reconnects,
        producing::access_modes,
        producing::waiting_for_exclusive,
        producing::receipts,
        producing::deduplication,
        consuming::permits,
        consuming::shared_turns,
        consuming::shared_turns_of_new_messages,
        consuming::closing,
        consuming::exclusive,
        consuming::failover,
        terminating::failover_on_a_partition,
        consuming::initial_positions,
        consuming::delayed,
        consuming::stats,
        consuming::unacked_limit,
        key_shared::key_shared_modes,
        key_shared::key_shared_sticky,
        key_shared::key_shared_keys,
        key_shared::key_shared_draining,
        key_shared::key_shared_ack_by_another,
        key_shared::key_shared_leaving,
        key_shared::key_shared_coming_back,
        key_shared::key_shared_out_of_order,
        key_shared::key_shared_redelivery,
        key_shared::key_shared_slow,
        key_shared::key_shared_delayed,
        key_shared::key_shared_seek,
        acking::redelivery,
        acking::redelivery_of_all,
        acking::cumulative,
        acking::receipts_of_acks,
        acking::batch_indexes,
        moving::reader_starts,
        moving::seek_by_id,
        moving::seek_by_time,
        moving::seek_of_a_subscription,
        moving::unsubscribe,
        moving::moved_by_admin,
        compacting::last_ids,
        compacting::tombstones,
        compacting::batches,
    ]
}

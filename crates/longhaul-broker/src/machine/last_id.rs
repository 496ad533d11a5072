//! `GET_LAST_MESSAGE_ID`: readers use it to detect that they have caught up.

use super::BrokerMachine;
use super::dispatcher::ConsumerKey;
use super::effect::RequestRefusal;
use crate::state::entries::EntryPosition;
use longhaul_wire::messages::{
    CommandGetLastMessageId, CommandGetLastMessageIdResponse, MessageIdData, ServerError,
};

impl BrokerMachine {
    pub(super) fn last_message_id(
        &mut self,
        conn: u64,
        command: CommandGetLastMessageId,
    ) -> Result<(), RequestRefusal> {
        let key = ConsumerKey { conn, id: command.consumer_id };
        let missing = || {
            let text = format!("there is no consumer {} on this connection", command.consumer_id);
            RequestRefusal::new(ServerError::MetadataError, text)
        };
        let (topic, subscription) = self.subscription_of(key).ok_or_else(missing)?;
        self.pin_horizon(topic, subscription, key);
        let live = self.live.get(&topic);
        let dispatcher = live.and_then(|live| live.dispatchers.get(&subscription));
        let reader = dispatcher.filter(|it| it.is_reader(key));
        let kept = self.state.topic(topic).ok_or_else(missing)?;
        let record = kept.subscriptions.get(&subscription);
        let mut view = self.view(topic, reader.is_some()).ok_or_else(missing)?;
        if let (Some((_, horizon)), Some((reader, record))) =
            (&mut view.compacted, reader.zip(record))
        {
            *horizon = reader.horizon(*horizon, kept.entries.first(), &record.cursor);
        }
        // The last entry that the reader will see: a reader of the compacted view would wait for
        // ever for an entry that compaction has removed.
        let (position, batch) = view.last().unwrap_or((EntryPosition::NONE, None));
        let mark = record.map_or(0, |record| record.cursor.mark());
        let mark = kept.position_before_or_none(mark);
        let partition = self.live.get(&topic).map(|live| live.partition);
        let id = |position: EntryPosition, batch_index: Option<i32>| MessageIdData {
            ledger_id: position.ledger,
            entry_id: position.entry,
            partition,
            batch_index,
            ..MessageIdData::default()
        };
        let batch_index =
            batch.and_then(|count| i32::try_from(count).ok()).map_or(-1, |count| count - 1);
        self.send_after_commit(
            conn,
            CommandGetLastMessageIdResponse {
                last_message_id: id(position, Some(batch_index)),
                request_id: command.request_id,
                consumer_mark_delete_position: Some(id(mark, None)),
            },
        );
        Ok(())
    }

    /// A reader that was told of a last message will wait for it, also if it has read nothing yet.
    fn pin_horizon(&mut self, topic: u32, subscription: u32, key: ConsumerKey) {
        let newest = self.state.topic(topic).and_then(|kept| kept.compacted.as_ref());
        let newest = newest.map_or(0, |view| view.horizon);
        let live = self.live.get_mut(&topic);
        let dispatcher = live.and_then(|live| live.dispatchers.get_mut(&subscription));
        if let Some(dispatcher) = dispatcher.filter(|it| it.is_reader(key)) {
            dispatcher.pin(newest);
        }
    }
}

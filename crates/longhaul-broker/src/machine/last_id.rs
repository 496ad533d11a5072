//! GET_LAST_MESSAGE_ID: how a reader knows that it has caught up.

use super::Machine;
use super::dispatcher::ConsumerKey;
use super::effect::Refusal;
use crate::state::Topic;
use crate::state::entries::Position;
use longhaul_wire::messages::{
    CommandGetLastMessageId, CommandGetLastMessageIdResponse, MessageIdData, ServerError,
};

/// The id of the last entry of a topic that has none.
const NONE: Position = Position { ledger: u64::MAX, entry: u64::MAX };

/// The id before an ordinal; before the first entry of all, that of entry -1 of its ledger.
fn before(topic: &Topic, ordinal: u64) -> Position {
    let ledger = || topic.entries.position_of(ordinal).map_or(u64::MAX, |it| it.ledger);
    let first = || Position { ledger: ledger(), entry: u64::MAX };
    topic.position_before(ordinal).unwrap_or_else(first)
}

impl Machine {
    pub(super) fn last_message_id(
        &mut self,
        conn: u64,
        it: CommandGetLastMessageId,
    ) -> Result<(), Refusal> {
        let key = ConsumerKey { conn, id: it.consumer_id };
        let missing = || {
            let text = format!("there is no consumer {} on this connection", it.consumer_id);
            Refusal::new(ServerError::MetadataError, text)
        };
        let (topic, subscription) = self.place_of(key).ok_or_else(missing)?;
        let reads_compacted =
            self.live.get(&topic).and_then(|live| live.dispatchers.get(&subscription)).is_some_and(
                |it| it.consumers().iter().any(|it| it.key == key && it.reads_compacted),
            );
        let view = self.view(topic, reads_compacted).ok_or_else(missing)?;
        // Who reads the compacted view waits for ever for an entry that compaction has removed: the last one that it will see.
        let (position, batch) = view.last().unwrap_or((NONE, None));
        let kept = self.state.topic(topic).ok_or_else(missing)?;
        let mark = kept.subscriptions.get(&subscription).map_or(0, |it| it.cursor.mark());
        let mark = before(kept, mark);
        let partition = self.live.get(&topic).map(|it| it.partition);
        let id = |position: Position, batch_index: Option<i32>| MessageIdData {
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
                request_id: it.request_id,
                consumer_mark_delete_position: Some(id(mark, None)),
            },
        );
        Ok(())
    }
}

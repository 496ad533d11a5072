//! The register: it is read before tasks are taken, and followed after that. Also its replacement.

use super::*;
use crate::supervise::ConnectionState;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::register::{
    Document, DocumentKey, DocumentName, Hold, HoldKey, KeyKind, KeyName, Period, QueueTask,
    RegisterEntry, Stamp,
};
use longhaul_core::register;
use longhaul_memory::Loss;

impl Bench {
    pub(super) fn register(&self) -> TopicPartition {
        self.at(&self.names.register, -1)
    }

    /// Writes to the register that this task holds a key.
    pub(super) fn bind(&self, name: &str, task: TaskId, serial: u64) {
        self.bind_to(KeyKind::Idempotency, name, task, serial);
    }

    pub(super) fn bind_to(&self, kind: KeyKind, name: &str, task: TaskId, serial: u64) {
        self.write_bind(KeyName::new(kind, name).unwrap(), task, false, serial);
    }

    pub(super) fn write_bind(&self, name: KeyName, task: TaskId, overwrites: bool, serial: u64) {
        let stamp = Stamp { writer: OwnerId(99), serial };
        let task = QueueTask::normal(task);
        let key = HoldKey { name, period: Period(0), epoch: Epoch(1), task, stamp };
        self.write_to_register(&RegisterEntry::Bind(Hold { key, digest: None, overwrites }));
    }

    /// Writes a version of a document, as a program in any language would.
    pub(super) fn write_document(
        &self,
        name: DocumentName,
        version: u64,
        serial: u64,
        content: impl Into<Bytes>,
    ) -> DocumentKey {
        let key = DocumentKey { name, version, stamp: Stamp { writer: OwnerId(77), serial } };
        let document = Document { key: key.clone(), content: content.into() };
        self.write_to_register(&RegisterEntry::Document(document));
        key
    }

    pub(super) fn write_to_register(&self, entry: &RegisterEntry) {
        self.broker.publish(&self.register(), register::message(entry));
    }

    pub(super) fn holder(&self, name: &str) -> Option<TaskId> {
        let name = KeyName::new(KeyKind::Idempotency, name).unwrap();
        self.driver.queues[0].core.register().keys().holder(&name).map(|holding| holding.task.id)
    }

    /// The number of marks on the register by which it is recognized.
    fn starts(&self) -> usize {
        let log = self.broker.full_log(&self.register());
        let is_start =
            |message: &&Message| matches!(register::read(message), Ok(RegisterEntry::Start(_)));
        log.iter().filter(is_start).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_takes_tasks_when_it_has_read_the_register_and_not_before() {
    let config = WorkerConfig { heartbeat: 4 * SECOND, ..WorkerConfig::default() };
    let mut bench = Bench::new(config, None, end);
    let task = bench.submit(&[]);
    bench.broker.delete_topic(&bench.names.register.clone(), Loss::Error);
    bench.run_for(15 * SECOND).await;
    assert!(!bench.driver.stats.is_ready(1));
    assert_eq!(bench.driver.lanes[-1].core.machine().fold(task).phase, Phase::New);
    let state = bench.driver.env.connections.state();
    assert!(matches!(state, ConnectionState::Refused { .. }), "{state:?}");
    bench.broker.create_topic(&bench.names.register.clone(), None, true);
    bench.bind("k", task, 1);
    bench.turns = 0;
    bench.run_for(15 * SECOND).await;
    assert!(bench.driver.stats.is_ready(1));
    assert_eq!(bench.driver.lanes[-1].core.machine().fold(task).phase, Phase::Completed);
    assert_eq!((bench.holder("k"), bench.starts()), (Some(task), 1));
    let other = bench.submit(&[]);
    bench.bind("l", other, 2);
    bench.run_for(SECOND).await;
    assert_eq!(bench.holder("l"), Some(other));
}

#[tokio::test(start_paused = true)]
async fn a_register_that_is_another_one_is_told_and_its_keys_are_forgotten() {
    let mut bench = Bench::new(WorkerConfig::default(), None, end);
    let task = bench.submit(&[]);
    bench.bind("k", task, 1);
    bench.run_for(5 * SECOND).await;
    // It is the same one after an unload, and after it was compacted and trimmed.
    bench.broker.compact(&bench.register());
    bench.broker.trim(&bench.register());
    bench.broker.unload(&bench.register(), Loss::Error);
    bench.run_for(5 * SECOND).await;
    assert_eq!((bench.driver.stats.read().registers_lost, bench.holder("k")), (0, Some(task)));
    bench.broker.replace_topic(&bench.names.register.clone(), Loss::Error);
    bench.run_for(5 * SECOND).await;
    assert_eq!((bench.driver.stats.read().registers_lost, bench.holder("k")), (1, None));
    assert_eq!(bench.starts(), 1, "the new one has a mark, too");
    assert!(bench.driver.stats.is_ready(1));
}

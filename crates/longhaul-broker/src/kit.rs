//! A machine on a log that never fails, for tests.

use crate::auth::Authenticator;
use crate::log::{LogOptions, SimulatedStorage, Stepped};
use crate::machine::{BrokerMachine, MachineSettings};
use crate::state::BrokerState;
use std::collections::HashMap;
use std::sync::Arc;

/// Number of seeds that a simulation tries: `LONGHAUL_SIMULATION_SEEDS` if set, all with
/// `LONGHAUL_TEST_LONG=1`, as in CI, and otherwise a quarter.
pub(crate) fn seeds(all: u64) -> u64 {
    if let Ok(text) = std::env::var("LONGHAUL_SIMULATION_SEEDS") {
        return text.parse().unwrap();
    }
    if is_long() { all } else { all / 4 }
}

pub(crate) fn is_long() -> bool {
    std::env::var("LONGHAUL_TEST_LONG").is_ok_and(|switch| switch == "1")
}

/// The wall clock at the start of every test, in ms.
pub(crate) const START: u64 = 1_700_000_000_000;

/// Small limits, so that a test reaches them.
pub(crate) fn settings() -> MachineSettings {
    MachineSettings {
        message_bytes_max: 4000,
        service_url: "pulsar://test:6650".to_owned(),
        service_url_tls: None,
        handles_per_connection: 10,
        recent_bytes: 1000,
        window_bytes: 100_000,
        unsent_bytes_max: 10_000_000,
        disk_bytes_max: None,
        topic_defaults: Vec::new(),
        checkpoint_bytes: 1_000_000,
        piece_bytes: 100_000,
    }
}

/// A machine without topics or connections, and its log on `storage`.
pub(crate) fn machine(
    settings: MachineSettings,
    options: &LogOptions,
    storage: &SimulatedStorage,
    auth: Option<Arc<Authenticator>>,
) -> (BrokerMachine, Stepped) {
    let log = Stepped::open(Arc::new(storage.clone()), options.clone(), &mut |_| Ok(())).unwrap();
    let known = (log.composer.clone(), log.status());
    let machine =
        BrokerMachine::new(settings, auth, BrokerState::default(), known, HashMap::new(), START);
    (machine, log)
}

/// Writes everything that the machine has recorded, and lets it deliver.
pub(crate) fn settle(machine: &mut BrokerMachine, log: &mut Stepped) {
    while machine.dispatch() {}
    while let Some(group) = machine.take_group() {
        log.write(&group).unwrap();
        machine.committed(&group);
        while machine.dispatch() {}
    }
}

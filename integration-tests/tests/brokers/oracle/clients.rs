//! Compares what stock clients see of the embedded broker with what they see of Pulsar.
//!
//! The programs print only what is the same in each run. Their output with Pulsar is kept in
//! `java.txt`, `python.txt` and `go.txt`, and their output with the embedded broker must be equal,
//! except for the intended differences.

use super::{Difference, PULSAR, Traces, compare, record_or_compare, recorded, selected, tell};
use anyhow::{Context, Result, ensure};
use integration_tests::clients::{ClientProgram, Language};
use integration_tests::{sandbox, skip};
use longhaul_broker::{Broker, BrokerConfig};

/// Size of the largest message. Chunks have this size where the client has no setting for it. With
/// Pulsar's default of 5 MiB each chunk is too large for its storage, which then stops answering.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The intended differences in what a client sees.
pub(crate) const WANTED: &[Difference] = &[
    Difference {
        script: "java batch indexes",
        theirs: "left [a, b, c, d]",
        ours: "left [a, c]",
        why: "acknowledged messages of a batch are remembered, as Pulsar does when told to",
    },
    Difference {
        script: "python batch indexes",
        theirs: "left ['a', 'b', 'c', 'd']",
        ours: "left ['a', 'c']",
        why: "acknowledged messages of a batch are remembered, as Pulsar does when told to",
    },
    Difference {
        script: "go batch indexes",
        theirs: "left [a b c d]",
        ours: "left [a c]",
        why: "acknowledged messages of a batch are remembered, as Pulsar does when told to",
    },
];

#[tokio::test]
async fn stock_clients_see_what_they_see_of_pulsar() -> Result<()> {
    let mut report = String::new();
    for language in [Language::Java, Language::Python, Language::Go] {
        let Some(program) = ClientProgram::prepare(language).await? else { continue };
        for judged in [with_pulsar(language, &program).await, with_ours(language, &program).await] {
            report += &judged.err().map(|error| format!("{error:#}")).unwrap_or_default();
        }
    }
    ensure!(report.is_empty(), "{report}");
    Ok(())
}

async fn with_pulsar(language: Language, program: &ClientProgram) -> Result<()> {
    let Some(kind) = sandbox::Sandbox::pulsar_kind()? else {
        skip(&format!("the {} client on Pulsar: LONGHAUL_TEST_BROKER names none", language.name()));
        return Ok(());
    };
    let _alone = PULSAR.lock().await;
    let broker = pulsar(kind).await?;
    let lines = program.play(broker.service_url(), broker.admin().url()).await?;
    tell(&format!("the {} client was played with Pulsar", language.name()));
    record_or_compare(language.name(), &traces(language, &lines)?).context("Pulsar")
}

async fn with_ours(language: Language, program: &ClientProgram) -> Result<()> {
    let broker = ours()?;
    let admin = broker.admin_url().context("no admin interface")?;
    let lines = program.play(broker.service_url(), &admin).await?;
    broker.shutdown()?;
    compare(&recorded(language.name())?, &traces(language, &lines)?, WANTED)
}

/// Starts a Pulsar for stock clients.
pub(crate) async fn pulsar(kind: sandbox::BrokerKind) -> Result<sandbox::Broker> {
    let limit = MESSAGE_BYTES_MAX.to_string();
    // A broker that has just started would move its topics, and messages would come twice.
    let extra = [("maxMessageSize", limit.as_str()), ("loadBalancerEnabled", "false")];
    let extra = extra.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let config = sandbox::BrokerConfig { extra, ..Default::default() };
    sandbox::Broker::launch(kind, config).await
}

/// Starts the embedded broker for stock clients.
pub(crate) fn ours() -> Result<Broker> {
    let config = BrokerConfig { message_bytes_max: MESSAGE_BYTES_MAX, ..BrokerConfig::default() };
    Ok(Broker::start(config)?)
}

/// The lines of each step that is asked for, by the name of the step and of the language.
pub(crate) fn traces(language: Language, lines: &[String]) -> Result<Traces> {
    let mut traces = Traces::new();
    let mut step = String::new();
    for line in lines {
        if let Some(name) = line.strip_prefix("# ") {
            step = format!("{} {name}", language.name());
            ensure!(
                traces.insert(step.clone(), Vec::new()).is_none(),
                "two steps are called {name}"
            );
        } else if let Some(trace) = traces.get_mut(&step) {
            trace.push(line.clone());
        }
    }
    traces.retain(|name, _| selected(name));
    Ok(traces)
}

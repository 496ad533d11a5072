//! The wire crate between stock clients and a broker.
//!
//! First it only observes: `LONGHAUL_FRAMES_RECORD=all` records the frames that the clients and the
//! scripts of this test exchange with Pulsar and with the embedded broker, for the tests of the
//! crate. Then it translates: each frame is decoded, its batch unpacked, and all of it packed and
//! encoded again, and neither side may see a difference.

use crate::oracle::challenge;
use crate::oracle::clients::{self, ours, pulsar};
use crate::oracle::proxy::{Proxy, Treatment};
use crate::oracle::recording::{Recording, Side};
use crate::oracle::{PULSAR, compare, play, recorded, selected, tell};
use anyhow::{Context, Result, bail, ensure};
use integration_tests::clients::{ClientProgram, Language};
use integration_tests::sandbox::{BrokerKind, Sandbox};
use integration_tests::skip;
use std::path::PathBuf;

/// The environment variable that asks for recordings: all of them, or that of one client.
const RECORD: &str = "LONGHAUL_FRAMES_RECORD";
/// The name used in place of a client's for the raw commands of this test.
const SCRIPTS: &str = "scripts";
const LANGUAGES: [Language; 3] = [Language::Java, Language::Python, Language::Go];

#[tokio::test]
async fn stock_clients_do_not_notice_that_all_is_encoded_anew() -> Result<()> {
    let _alone = PULSAR.lock().await;
    let mut report = String::new();
    for language in LANGUAGES {
        let Some(program) = ClientProgram::prepare(language).await? else { continue };
        let broker = ours()?;
        let admin = broker.admin_url().context("no admin interface")?;
        let proxy = Proxy::start(broker.service_url(), Treatment::Anew).await?;
        let lines = program.play(proxy.url(), &admin).await?;
        broker.shutdown()?;
        let traces = clients::traces(language, &lines)?;
        let judged = compare(&recorded(language.name())?, &traces, clients::WANTED);
        for outcome in [judged, proxy.finish().map(drop)] {
            report += &outcome.err().map(|error| format!("{error:#}\n")).unwrap_or_default();
        }
    }
    ensure!(report.is_empty(), "{report}");
    Ok(())
}

#[tokio::test]
async fn traffic_is_recorded() -> Result<()> {
    let Ok(asked) = std::env::var(RECORD) else {
        skip(&format!("it records traffic, and {RECORD} does not ask for that"));
        return Ok(());
    };
    let is_asked = |name: &str| asked == "all" || asked == name;
    let kind = Sandbox::pulsar_kind()?.context("LONGHAUL_TEST_BROKER must name a Pulsar")?;
    let _alone = PULSAR.lock().await;
    for language in LANGUAGES.into_iter().filter(|language| is_asked(language.name())) {
        record_client(language, kind).await?;
    }
    if !is_asked(SCRIPTS) {
        return Ok(());
    }
    let broker = pulsar(kind).await?;
    let proxy = Proxy::start(broker.service_url(), Treatment::Keep).await?;
    play(proxy.url(), broker.admin().url(), selected).await;
    // The frames of the scripts are written by the crate under test, or are garbage.
    let mut recording = proxy.finish()?;
    drop(broker);
    for (side, bytes) in challenge::recorded(kind).await?.frames() {
        recording.add(*side, bytes);
    }
    recording.retain(Side::Broker);
    store(SCRIPTS, "pulsar", &recording)
}

async fn record_client(language: Language, kind: BrokerKind) -> Result<()> {
    let name = language.name();
    let Some(program) = ClientProgram::prepare(language).await? else {
        bail!("a recording has all clients, and that of {name} is missing");
    };
    let broker = pulsar(kind).await?;
    let proxy = Proxy::start(broker.service_url(), Treatment::Keep).await?;
    program.play(proxy.url(), broker.admin().url()).await?;
    store(name, "pulsar", &proxy.finish()?)?;
    drop(broker);
    let broker = ours()?;
    let admin = broker.admin_url().context("no admin interface")?;
    let proxy = Proxy::start(broker.service_url(), Treatment::Keep).await?;
    program.play(proxy.url(), &admin).await?;
    broker.shutdown()?;
    store(name, "longhaul", &proxy.finish()?)
}

fn store(client: &str, broker: &str, recording: &Recording) -> Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/longhaul-wire/tests/recorded");
    let file = PathBuf::from(folder).join(format!("{client}-{broker}.frames"));
    let packed = recording.pack()?;
    let (count, size) = (recording.frames().len(), packed.len());
    let back = Recording::unpack(&packed)?;
    ensure!(back.frames() == recording.frames(), "the recording cannot be read back");
    tell(&format!("{client} and {broker}: {count} kinds of frames in {size} bytes"));
    Ok(std::fs::write(file, packed)?)
}

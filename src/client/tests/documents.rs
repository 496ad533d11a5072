//! Documents: read, changed, and changed concurrently.

use super::*;
use crate::client::documents::DocumentAction;
use crate::transport::PublishError;
use longhaul_core::protocol::register::{DocumentKind, DocumentName};
use longhaul_core::register;

const REGISTER: &str = "persistent://public/default/tasks-register";

pub(super) fn another(bench: &Bench) -> Client {
    Client::on_transport(Arc::new(FakeTransport(Arc::clone(&bench.fake))))
}

fn name(text: &str) -> DocumentName {
    DocumentName::new(DocumentKind::Settings, text).unwrap()
}

async fn change(
    client: &Client,
    text: &str,
    expected: u64,
    content: &'static str,
) -> Result<u64, ActionError> {
    let names = client.names("tasks").unwrap();
    let register = client.register_of(&names).await.unwrap();
    let action = DocumentAction { verb: "update", reason: "" };
    client.change_document(&register, &name(text), (expected, content.into()), action).await
}

async fn read(client: &Client, text: &str) -> (u64, Option<Bytes>) {
    let names = client.names("tasks").unwrap();
    let register = client.register_of(&names).await.unwrap();
    register.with_documents(|it| (it.version(&name(text)), it.get(&name(text)).cloned()))
}

/// The number of entries that compaction would leave on the register.
fn left(bench: &Bench) -> usize {
    let place = partition(REGISTER.to_owned(), -1);
    let world = bench.fake.world();
    let mut left = BTreeMap::new();
    for message in &world.logs[&place] {
        left.insert(message.key.clone(), register::read(message).is_ok() && !message.null);
    }
    left.values().filter(|is_left| **is_left).count()
}

#[tokio::test(start_paused = true)]
async fn a_document_is_changed_and_read_by_others_and_leaves_one_entry() {
    let bench = bench();
    let client = &bench.client;
    assert_eq!(change(client, "queue", 0, "one").await.unwrap(), 1);
    assert_eq!(change(client, "queue", 1, "{\"maxAttempts\":2}").await.unwrap(), 2);
    assert_eq!(change(client, "other", 0, "three").await.unwrap(), 1);
    let other = another(&bench);
    assert_eq!(read(&other, "queue").await, (2, Some(Bytes::from_static(b"{\"maxAttempts\":2}"))));
    assert_eq!(change(&other, "queue", 2, "").await.unwrap(), 3);
    settle().await;
    assert_eq!(read(client, "queue").await, (3, None));
    assert_eq!(change(client, "queue", 3, "{}").await.unwrap(), 4);
    assert_eq!(left(&bench), 2, "one entry for each document");
}

#[tokio::test(start_paused = true)]
async fn of_changes_at_once_one_is_accepted_and_the_others_are_told() {
    let bench = bench();
    let clients: Vec<Client> = (0..4).map(|_| another(&bench)).collect();
    // All clients have read that there is no document.
    for client in &clients {
        assert_eq!(read(client, "queue").await.0, 0);
    }
    let changes = clients.iter().map(|client| change(client, "queue", 0, "mine"));
    let answers = join_all(changes).await;
    let accepted = answers.iter().filter(|answer| matches!(answer, Ok(1))).count();
    let told = |answer: &&Result<u64, ActionError>| {
        matches!(answer, Err(ActionError::VersionConflict { current: 1 }))
    };
    assert_eq!((accepted, answers.iter().filter(told).count()), (1, 3), "{answers:?}");
    // The next change removes the rejected entries.
    settle().await;
    assert_eq!(change(&clients[0], "queue", 1, "next").await.unwrap(), 2);
    assert_eq!(left(&bench), 1);
}

/// A change of an outdated version fails at once, and writes nothing.
#[tokio::test(start_paused = true)]
async fn a_change_of_an_outdated_version_is_refused() {
    let bench = bench();
    for version in 0..3 {
        change(&bench.client, "queue", version, "x").await.unwrap();
    }
    let before = bench.fake.world().logs[&partition(REGISTER.to_owned(), -1)].len();
    for expected in [0, 2, 4, u64::MAX] {
        let refused = change(&bench.client, "queue", expected, "y").await;
        assert!(matches!(refused, Err(ActionError::VersionConflict { current: 3 })), "{refused:?}");
    }
    assert_eq!(bench.fake.world().logs[&partition(REGISTER.to_owned(), -1)].len(), before);
    let long: &'static str = "x".repeat(256 * 1024 + 1).leak();
    let refused = change(&bench.client, "queue", 3, long).await;
    assert!(matches!(refused, Err(ActionError::TooLarge(262_145))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_without_a_receipt_is_told_as_such() {
    let bench = bench();
    change(&bench.client, "queue", 0, "one").await.unwrap();
    bench.fake.world().fates.push_back(ScriptedFate::Unknown);
    let unknown = change(&bench.client, "queue", 1, "two").await;
    assert!(
        matches!(unknown, Err(ActionError::NoReceipt(PublishError::Unknown(_)))),
        "{unknown:?}"
    );
    bench.fake.world().fates.push_back(ScriptedFate::Refused);
    settle().await;
    let refused = change(&bench.client, "queue", 2, "three").await;
    assert!(
        matches!(refused, Err(ActionError::NoReceipt(PublishError::Refused(_)))),
        "{refused:?}"
    );
    assert_eq!(read(&another(&bench), "queue").await, (2, Some(Bytes::from_static(b"two"))));
}

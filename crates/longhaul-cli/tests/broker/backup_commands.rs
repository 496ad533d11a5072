//! The commands for a backup: `longhaul broker backup now`, `list` and `check`.

use super::client::{Client, ask_at};
use super::program::{Server, run, text};
use bytes::BytesMut;
use longhaul_wire::frame;
use longhaul_wire::messages::{Command as WireCommand, CommandSend, MessageMetadata};
use longhaul_wire::payload::Payload;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

const ROUNDS: u64 = 5;

/// The arguments of a command about the backup.
fn backup(arguments: &[&str]) -> (Option<i32>, String) {
    let done = run(&[&["broker", "backup"], arguments].concat());
    (done.status.code(), text(&done.stdout) + &text(&done.stderr))
}

fn now(server: &Server) -> (Option<i32>, String) {
    backup(&["now", "--admin-url", &format!("http://{}", server.admin)])
}

/// Files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(below).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_confirmed_before_a_backup_now_is_in_the_backup() {
    let folder = tempfile::tempdir().unwrap();
    let (data, store) = (folder.path().join("data"), folder.path().join("store"));
    let (data, store) = (data.to_str().unwrap(), store.to_str().unwrap());
    let server = Server::start(&["--data", data, "--broker-backup", store]);
    let mut client = Client::producer(server.address(), "t").await.unwrap();
    // Messages without a subscription are removed.
    client.subscribe("t", "s", 1).await.unwrap();
    for number in 0..ROUNDS {
        client.publish_one(1, number, b"x").await.unwrap();
        let (code, told) = now(&server);
        assert_eq!(code, Some(0), "{told}");
        assert!(told.starts_with("stored-to"), "{told}");
        let new = folder.path().join(number.to_string());
        let (code, told) = backup(&["check", store, "--dir", new.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{told}");
        assert!(told.contains(&format!("{} messages that can be read", number + 1)), "{told}");
    }
    let (code, told) = backup(&["list", store, "-o", "json"]);
    assert_eq!(code, Some(0), "{told}");
    let listed: serde_json::Value = serde_json::from_str(&told).unwrap();
    let [row] = &listed.as_array().unwrap()[..] else { panic!("{told}") };
    let [oldest, newest] = ["oldest", "newest"].map(|name| row[name].as_str().unwrap());
    assert!(oldest <= newest && row["bytes"].as_u64() > Some(0), "{told}");
    // The listed time is one that can be restored.
    let first = folder.path().join("first");
    let (code, told) = backup(&["check", store, "--dir", first.to_str().unwrap(), "--at", oldest]);
    assert_eq!(code, Some(0), "{told}");
    server.terminate();
    let dir = folder.path().join("0");
    let (code, told) = backup(&["check", store, "--dir", dir.to_str().unwrap()]);
    assert_eq!(code, Some(2), "it is not empty: {told}");
    for piece in
        files(Path::new(store)).iter().filter(|path| path.to_str().unwrap().contains("/log/"))
    {
        let mut bytes = std::fs::read(piece).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(piece, bytes).unwrap();
    }
    let dir = folder.path().join("damaged");
    let (code, told) = backup(&["check", store, "--dir", dir.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("the restored directory is damaged"), "{told}");
    assert!(told.contains("delete it") && !told.contains("keep the directory"), "{told}");
    // A backup of another directory that is complete.
    let other = folder.path().join("other");
    let server = Server::start(&["--data", other.to_str().unwrap(), "--broker-backup", store]);
    assert_eq!(now(&server).0, Some(0));
    let dir = folder.path().join("newest");
    let (code, told) = backup(&["check", store, "--dir", dir.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{told}");
    let damaged = row["backup"].as_str().unwrap();
    assert!(told.contains(&format!("the store also has {damaged}")), "{told}");
}

/// `now` said that everything was stored after the store had been emptied: the broker lists its store
/// once an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_now_stores_again_what_the_store_has_lost() {
    let folder = tempfile::tempdir().unwrap();
    let [data, store, new] = ["data", "store", "new"].map(|name| folder.path().join(name));
    let [data, store, new] = [&data, &store, &new].map(|path| path.to_str().unwrap());
    let server = Server::start(&["--data", data, "--broker-backup", store]);
    let mut client = Client::producer(server.address(), "t").await.unwrap();
    client.subscribe("t", "s", 1).await.unwrap();
    client.publish_one(1, 0, b"x").await.unwrap();
    assert_eq!(now(&server).0, Some(0));
    for entry in std::fs::read_dir(store).unwrap() {
        std::fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    let (code, told) = now(&server);
    assert_eq!(code, Some(0), "{told}");
    // `-o json` was ignored.
    let (code, told) = backup(&["check", store, "--dir", new, "-o", "json"]);
    assert_eq!(code, Some(0), "{told}");
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["sound"], &told["messages"]), (&true.into(), &1.into()), "{told}");
    assert!(told["folder"].as_str().unwrap().starts_with(store), "{told}");
    assert!(told["as_of"].as_str().unwrap().ends_with('Z'), "{told}");
}

/// A machine was lost between the log's piece and the view that the piece names: the restored topic
/// had no compacted view, and nobody could make it again from the messages that compaction had left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_makes_a_view_that_the_store_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let [data, store, new] = ["data", "store", "new"].map(|name| folder.path().join(name));
    let [data, shelf, new] = [&data, &store, &new].map(|path| path.to_str().unwrap());
    let server = Server::start(&["--data", data, "--broker-backup", shelf]);
    let mut client = Client::producer(server.address(), "t").await.unwrap();
    client.subscribe("t", "s", 1).await.unwrap();
    let views = || {
        let all = files(&store).into_iter();
        all.filter(|path| path.to_str().unwrap().contains("/compact/")).collect::<BTreeSet<_>>()
    };
    let mut stored = BTreeSet::new();
    for round in 0..2 {
        for number in 0..3 {
            publish_keyed(&mut client, 10 * round + number, &format!("key-{round}-{number}")).await;
        }
        compact(&server.admin).await;
        assert_eq!(now(&server).0, Some(0));
        let later: Vec<PathBuf> = views().difference(&stored).cloned().collect();
        assert_eq!(later.len(), 1, "each round stores a view");
        stored = views();
    }
    server.terminate();
    let age = |path: &PathBuf| std::fs::metadata(path).unwrap().modified().unwrap();
    let mut oldest_first: Vec<PathBuf> = stored.into_iter().collect();
    oldest_first.sort_by_key(age);
    std::fs::remove_file(oldest_first.pop().unwrap()).unwrap();
    let (code, told) = backup(&["check", shelf, "--dir", new]);
    assert_eq!(code, Some(0), "{told}");
    let restored = Server::start(&["--data", new]);
    let stats = ask_at(&restored.admin, "GET", &format!("{TOPIC}/internalStats"));
    let (_, view) = stats.split_once("\"compactedLedger\":").unwrap();
    let view = view.split_inclusive('}').next().unwrap();
    assert!(view.contains("\"entries\":6"), "it has an entry for each key: {view}");
    // Without an earlier view there is nothing to make it from, and the restore says so.
    std::fs::remove_file(oldest_first.pop().unwrap()).unwrap();
    let dir = folder.path().join("without");
    let (code, told) = backup(&["check", shelf, "--dir", dir.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{told}");
}

const TOPIC: &str = "/admin/v2/persistent/public/default/t";

async fn publish_keyed(client: &mut Client, sequence_id: u64, key: &str) {
    let metadata = MessageMetadata {
        producer_name: "tiny".to_owned(),
        sequence_id,
        publish_time: 1,
        partition_key: Some(key.to_owned()),
        ..MessageMetadata::default()
    };
    let send = CommandSend { producer_id: 1, sequence_id, ..CommandSend::default() };
    let mut out = BytesMut::new();
    frame::encode_with(send, &Payload::new(&metadata, b"x"), &mut out);
    client.write(&out).await.unwrap();
    let answer = client.answer().await.unwrap();
    assert!(matches!(answer.command, WireCommand::SendReceipt(_)), "{answer:?}");
}

/// Compacts the topic.
async fn compact(admin: &str) {
    let path = format!("{TOPIC}/compaction");
    let asked = ask_at(admin, "PUT", &path);
    assert!(asked.starts_with("HTTP/1.1 204"), "{asked}");
    let made = async {
        while !ask_at(admin, "GET", &path).contains("SUCCESS") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), made).await.unwrap();
}

#[test]
fn a_backup_that_is_not_there_is_told_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().to_str().unwrap();
    let server = Server::start(&[]);
    let (code, told) = now(&server);
    assert_eq!(code, Some(1), "{told}");
    let words = "error: this broker has no backup: start it with --broker-backup";
    assert!(told.starts_with(words), "{told}");
    let (code, told) = backup(&["list", store]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("has no backup"), "{told}");
    let (code, told) = backup(&["list", "/nowhere"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("cannot use /nowhere for backups: there is no such directory"), "{told}");
    let dir = folder.path().join("new");
    let (code, told) = backup(&["check", store, "--dir", dir.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("has no backup"), "{told}");
}

#[test]
fn a_restore_refuses_a_future_time_and_a_directory_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let [data, store] = ["data", "store"].map(|name| folder.path().join(name));
    let (data, new) = (data.to_str().unwrap(), store.join("new"));
    let (store, new) = (store.to_str().unwrap(), new.to_str().unwrap());
    let server = Server::start(&["--data", data, "--broker-backup", store]);
    assert_eq!(now(&server).0, Some(0));
    let (code, told) = backup(&["check", store, "--dir", new]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("which must not be changed"), "{told}");
    let (code, told) = backup(&["check", store, "--dir", "new", "--at", "in 2h"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("in the future"), "{told}");
}

/// The error was one of the service that gives a machine at Amazon its keys.
#[test]
fn a_store_without_keys_is_told_in_words() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            read_head(&mut stream);
            let answer =
                b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer).unwrap();
        }
    });
    let mut list = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    list.args(["broker", "backup", "list", "s3://bucket/folder"]);
    list.env_clear().env("AWS_METADATA_ENDPOINT", url);
    let told = text(&list.output().unwrap().stderr);
    assert!(told.contains("there are no keys: set AWS_ACCESS_KEY_ID"), "{told}");
}

fn read_head(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    head
}

/// Answers each request with the next of these bodies; an empty one closes the connection.
fn answers(bodies: &'static [(&str, &str)]) -> (String, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = thread::spawn(move || {
        for (method, body) in bodies {
            let (mut stream, _) = listener.accept().unwrap();
            let head = read_head(&mut stream);
            assert!(head.starts_with(method.as_bytes()), "{method}: {head:?}");
            if !body.is_empty() {
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    (url, served)
}

/// The numbers of passes begin anew with the broker: the command waited for as many passes as the
/// broker had made before its restart.
#[test]
fn backup_now_outlasts_a_restart() {
    let (url, served) = answers(&[
        ("PUT", r#"{"startedAt":1,"pass":1000}"#),
        ("GET", ""),
        ("GET", r#"{"startedAt":2,"storedPass":1,"storedTo":5,"failedPass":0,"lastError":""}"#),
        ("PUT", r#"{"startedAt":2,"pass":2}"#),
        ("GET", r#"{"startedAt":2,"storedPass":1,"storedTo":5,"failedPass":0,"lastError":""}"#),
        (
            "GET",
            r#"{"startedAt":2,"storedPass":2,"storedTo":1000,"failedPass":3,"lastError":"later"}"#,
        ),
    ]);
    let (code, told) = backup(&["now", "--admin-url", &url]);
    assert_eq!(code, Some(0), "a later pass has failed: {told}");
    assert!(told.contains("1970-01-01T00:00:01.000Z"), "{told}");
    served.join().unwrap();
}

#[test]
fn backup_now_names_the_address_that_does_not_answer() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, told) = backup(&["now", "--admin-url", &format!("http://{free}")]);
    assert_eq!(code, Some(5), "{told}");
    assert!(told.contains(&free.to_string()) && told.contains("--admin-url"), "{told}");
}

//! Codecs on the side of a client.

use super::*;
use longhaul_core::task::{Flip, encode};

fn encoding() -> Bench {
    let bench = bench();
    let settings = Client::builder("").codec(Flip("flip")).codec(Flip("other")).encode_with("flip");
    let transport = Arc::new(FakeTransport(Arc::clone(&bench.fake)));
    let client = Client::new(settings.settings, Preflight::default(), transport);
    Bench { client, ..bench }
}

#[tokio::test(start_paused = true)]
async fn a_submission_is_encoded_and_names_its_codec() {
    let bench = encoding();
    let submission = || bench.client.submission("tasks", &Text("secret".to_owned()));
    submission().send().await.unwrap();
    submission().codec("other").send().await.unwrap();
    // The submitter has encoded this one itself.
    submission().property("TASK_CODEC", "theirs").send().await.unwrap();
    let refused = submission().codec("zip").send().await;
    let told = "the task cannot be encoded: no codec `zip` is known here, only `flip`, `other`";
    assert_eq!(refused.err().map(|error| error.to_string()).as_deref(), Some(told));
    let log = bench.fake.world().logs[&partition(TASKS.to_owned(), -1)].clone();
    let secret = |codec| encode(&Flip(codec), b"secret").unwrap();
    let expected =
        [("flip", secret("flip")), ("other", secret("other")), ("theirs", "secret".into())];
    let sent = log.iter().map(|it| (it.properties.get("TASK_CODEC").unwrap(), it.payload.clone()));
    assert_eq!(sent.collect::<Vec<_>>(), expected);
}

/// A task that is submitted again is encoded once, and another payload as the first one was.
#[tokio::test(start_paused = true)]
async fn what_is_submitted_again_has_its_codec() {
    let bench = encoding();
    let encoded = |codec, text: &str| encode(&Flip(codec), text.as_bytes()).unwrap();
    let again = |codec: Option<&'static str>| {
        let properties = codec.map(|it| ("TASK_CODEC".to_owned(), it.to_owned()));
        let payload = codec.map_or_else(|| Bytes::from("secret"), |it| encoded(it, "secret"));
        let same = (payload, properties.into_iter().collect(), Vec::new());
        bench.client.resubmission("tasks", same)
    };
    let other = Text("other".to_owned());
    again(Some("other")).send().await.unwrap();
    again(Some("other")).payload(&other).send().await.unwrap();
    again(None).send().await.unwrap();
    again(None).payload(&other).send().await.unwrap();
    assert!(again(Some("flip")).codec("zip").payload(&other).send().await.is_ok());
    let log = bench.fake.world().logs[&partition(TASKS.to_owned(), -1)].clone();
    let sent = log.iter().map(|it| (it.properties.get("TASK_CODEC"), it.payload.clone()));
    let (first, second) = ("other", "flip");
    let expected = [
        (Some(first), encoded(first, "secret")),
        (Some(first), encoded(first, "other")),
        (None, "secret".into()),
        (None, "other".into()),
        (Some(second), encoded(second, "other")),
    ];
    assert_eq!(sent.collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_wait_decodes_and_an_unknown_codec_is_named() {
    let bench = encoding();
    let result = encode(&Flip("flip"), b"secret").unwrap();
    let encoded = |id, codec: &str| TaskMetadata {
        result: Some(result.clone()),
        codec: Some(codec.to_owned()),
        ..completed(id, 1)
    };
    bench.show(&encoded(ID, "flip"), 1);
    bench.show(&encoded(OTHER, "zip"), 1);
    assert_eq!(bench.client.wait::<Text>(&task(ID)).await.unwrap().0, "secret");
    let unknown = bench.client.wait::<Text>(&task(OTHER)).await.unwrap_err();
    let told = "the result cannot be decoded: no codec `zip` is known here, only `flip`, `other`";
    assert_eq!(unknown.to_string(), told);
    let entry = bench.client.wait_metadata(&task(ID)).await.unwrap();
    assert_eq!(entry.result.as_ref(), Some(&result));
    let decoded = bench.client.decode(entry).unwrap();
    assert_eq!(decoded.result(), Ok(Some(Text("secret".to_owned()))));
    assert_eq!(bench.client.decode(completed(ID, 1)), Ok(completed(ID, 1)));
}

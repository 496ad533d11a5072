//! Valid and invalid settings documents.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn full() -> QueueSettings {
    let rate = Some(Rate::new(100, 60 * SECOND));
    QueueSettings {
        paused: true,
        limit: Limit { max_in_flight: Some(20), rate },
        per_key: Limit { max_in_flight: Some(1), rate: None },
        keys: [("acme/x".to_owned(), Limit { max_in_flight: Some(5), rate })].into(),
        no_progress_timeout: Some(600 * SECOND),
        retry: Some(RetryPolicy::intervals([SECOND, Duration::ZERO])),
        max_attempts: Some(3),
        expires_after: Some(3600 * SECOND),
        dead_letters: DeadLetterSettings {
            expired: Some(true),
            enabled: Some(true),
            max_size: Some(1000),
            retention: Some(86_400 * SECOND),
        },
        order: Some(QueueOrder::Key),
        description: Some("mails of the shop".to_owned()),
        webhooks: vec!["https://hooks.example/ends".to_owned()],
        other: Map::new(),
    }
}

/// The form is stored on registers, so it must be the same in each version.
#[test]
fn the_document_never_changes() {
    let text = r#"{"paused":true,"maxInFlight":20,"rate":{"tokens":100,"per":"PT1M"},"perKey":{"maxInFlight":1},"keys":{"acme/x":{"maxInFlight":5,"rate":{"tokens":100,"per":"PT1M"}}},"noProgressTimeout":"PT10M","retry":{"intervals":["PT1S","PT0S"]},"maxAttempts":3,"expiresAfter":"PT1H","deadLetters":{"enabled":true,"expired":true,"maxSize":1000,"retention":"PT24H"},"order":"key","description":"mails of the shop","webhooks":["https://hooks.example/ends"]}"#;
    let written = String::from_utf8(full().to_document().unwrap()).unwrap();
    assert_eq!(written, text);
    assert_eq!(QueueSettings::read(text.as_bytes()), Ok(full()));
    assert_eq!(QueueSettings::default().to_document().unwrap(), b"{}");
    let exponential = QueueSettings {
        retry: Some(RetryPolicy::exponential(SECOND, 60 * SECOND)),
        ..QueueSettings::default()
    };
    let written = exponential.to_document().unwrap();
    assert_eq!(written, br#"{"retry":{"base":"PT1S","max":"PT1M"}}"#);
    assert_eq!(QueueSettings::read(&written), Ok(exponential));
}

/// Characters are counted, not bytes.
#[test]
fn a_description_has_up_to_1024_characters() {
    let description = Some("ü".repeat(1_024));
    let settings = QueueSettings { description, ..QueueSettings::default() };
    assert_eq!(settings.validate(), Ok(()));
}

/// The values are written once, into a queue created with them: they must not change.
#[test]
fn the_defaults_of_moab_are_14_days_one_attempt_and_no_dead_letter() {
    let written = QueueSettings::moab().to_document().unwrap();
    let text = r#"{"maxAttempts":1,"expiresAfter":"PT336H","deadLetters":{"enabled":false}}"#;
    assert_eq!(String::from_utf8(written).unwrap(), text);
}

#[test]
fn nothing_at_all_limits_nothing() {
    for document in ["", "{}"] {
        assert_eq!(QueueSettings::read(document.as_bytes()), Ok(QueueSettings::default()));
    }
}

/// A later version has written a setting that this one does not know: an update by this version
/// must not lose it.
#[test]
fn what_is_not_known_is_kept() {
    let text = r#"{"maxInFlight":2,"colour":{"a":[1,null]}}"#;
    let mut settings = QueueSettings::read(text.as_bytes()).unwrap();
    settings.paused = true;
    let written = String::from_utf8(settings.to_document().unwrap()).unwrap();
    assert_eq!(written, r#"{"paused":true,"maxInFlight":2,"colour":{"a":[1,null]}}"#);
}

#[test]
fn a_key_has_its_own_limit_or_that_of_all() {
    let settings = full();
    assert_eq!(settings.limit_of("other").max_in_flight, Some(1));
    assert_eq!(settings.limit_of("acme/x").max_in_flight, Some(5));
}

#[test]
fn a_bad_setting_is_named_with_its_bound() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut QueueSettings), error: &str) {
        let mut settings = QueueSettings::default();
        change(&mut settings);
        let told = settings.to_document().unwrap_err().to_string();
        assert_eq!(told, error);
    }
    let none = Limit { max_in_flight: Some(0), rate: None };
    let rate = |tokens, per| Limit { rate: Some(Rate::new(tokens, per)), max_in_flight: None };
    check(
        |s| s.per_key = none,
        "per_key.max_in_flight: must be at least 1; to stop a queue, pause it",
    );
    check(
        |s| {
            s.keys.insert("acme".to_owned(), rate(0, SECOND));
        },
        "keys.acme.rate.tokens: must be between 1 and 100000, is 0",
    );
    check(
        |s| s.limit = rate(1, Duration::ZERO),
        "rate.per: must be between 1ms and 86400s, is 0ns",
    );
    check(|s| s.max_attempts = Some(0), "max_attempts: must be between 1 and 1000, is 0");
    check(
        |s| {
            s.max_attempts = Some(2);
            s.retry = Some(RetryPolicy::intervals([SECOND, SECOND]));
        },
        "max_attempts: is 2, and the intervals of `retry` make 3 attempts",
    );
    check(
        |s| s.retry = Some(RetryPolicy::exponential(2 * SECOND, SECOND)),
        "retry: the base 2s exceeds the maximum 1s",
    );
    check(
        |s| s.description = Some("ü".repeat(1_025)),
        "description: has at most 1024 characters, one has 1025",
    );
    let numbered = |count: u32| (0..count).map(|it| format!("https://a/{it}")).collect();
    check(|s| s.webhooks = numbered(9), "webhooks: a queue has at most 8 webhooks, there are 9");
    check(
        |s| {
            s.webhooks = vec!["https://a".to_owned(), "http://a".to_owned(), "https://a".to_owned()]
        },
        "webhooks: `https://a` is named twice",
    );
    check(
        |s| s.webhooks = vec!["hooks.example".to_owned()],
        "webhooks: a URL begins with https:// or http://, this is `hooks.example`",
    );
    check(|s| s.expires_after = Some(Duration::ZERO), "expires_after: `0s`: it must be above zero");
    check(
        |s| {
            s.keys.insert(String::new(), Limit::default());
        },
        "keys: a key has 1 to 256 bytes, one has 0",
    );
}

/// A call of the end of a call would have no end.
#[test]
fn the_queue_of_the_calls_has_no_webhooks() {
    let settings = full();
    assert_eq!(settings.validate_for("mails"), Ok(()));
    assert_eq!(settings.validate_for("webhooks").unwrap_err().field, "webhooks");
    assert_eq!(QueueSettings::default().validate_for("webhooks"), Ok(()));
}

/// Anyone may write to a register. An unreadable document is an error and no panic.
#[test]
fn a_document_that_is_none_is_an_error() {
    for text in [
        "[]",
        "nonsense",
        r#"{"paused":"yes"}"#,
        r#"{"rate":{"tokens":-1,"per":"PT1S"}}"#,
        r#"{"rate":{"tokens":1}}"#,
        r#"{"rate":{"tokens":1,"per":"1s"}}"#,
        r#"{"maxInFlight":0}"#,
        r#"{"retry":{"base":"PT1S"}}"#,
    ] {
        assert!(QueueSettings::read(text.as_bytes()).is_err(), "{text}");
    }
}

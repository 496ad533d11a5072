//! Paths and status codes of Pulsar's interface that were missing: stock tools got 404, or a wrong
//! code.

use super::*;

#[test]
fn a_backlog_is_expired() {
    for (body, left) in [
        (r#"{"ledgerId":0,"entryId":1}"#, 1),
        (r#"{"ledgerId":0,"entryId":1,"excluded":true}"#, 2),
        (r#"{"ledgerId":-1,"entryId":-1}"#, 3),
        ("\"latest\"", 0),
    ] {
        let mut rig = with_messages();
        assert_eq!(subscription(&mut rig, "POST", "/expireMessages", body), DONE);
        assert_eq!(backlog(&mut rig), left, "{body}");
    }
    let mut rig = with_messages();
    assert_eq!(subscription(&mut rig, "POST", "/expireMessages", "").0, 400);
}

#[test]
fn a_schema_is_tried() {
    let mut rig = AdminRig::new();
    let schemas = "/admin/v2/schemas/public/default/a";
    let json = r#"{"type":"JSON","schema":"{}"}"#;
    let fits = |rig: &mut AdminRig, body: &str| {
        rig.ask("POST", &format!("{schemas}/compatibility"), body).1["compatibility"].clone()
    };
    assert_eq!(fits(&mut rig, json), true, "there is none yet");
    assert_eq!(rig.ask("POST", &format!("{schemas}/schema"), json).0, 200);
    assert_eq!(fits(&mut rig, r#"{"type":"JSON","schema":"[]"}"#), true);
    assert_eq!(fits(&mut rig, r#"{"type":"STRING","schema":""}"#), false);
}

#[test]
fn refusals_have_the_codes_of_pulsar() {
    let mut rig = AdminRig::new();
    assert_eq!(topic(&mut rig, "PUT", "", ""), DONE);
    assert_eq!(topic(&mut rig, "GET", "/examinemessage", "").0, 412, "it is empty");
    let parts = format!("{BASE}/p");
    for (method, tail, body, status) in [
        ("PUT", "/partitions", "0", 406),
        ("PUT", "/partitions", "10001", 406),
        ("PUT", "/partitions", "3", 204),
        ("POST", "/partitions", "2", 422),
        ("GET", "/examinemessage", "", 405),
        ("POST", "/terminate", "", 405),
    ] {
        assert_eq!(rig.ask(method, &format!("{parts}{tail}"), body).0, status, "{tail} {body}");
    }
}

/// Regression: a scrape job could not ask for the metrics of some topics.
#[test]
fn metrics_are_those_of_the_selected_topics() {
    let mut rig = AdminRig::new();
    for topic in ["a1", "a2", "b"] {
        assert_eq!(rig.ask("PUT", &format!("{BASE}/{topic}"), ""), DONE);
    }
    let mut page = |query: &str| {
        let (status, text) = rig.ask("GET", &format!("/metrics{query}"), "");
        let text = text.as_str().unwrap().to_owned();
        assert_eq!(status, 200);
        let shown = ["a1", "a2", "b"].map(|topic| text.contains(&format!("default/{topic}\"}}")));
        (shown, text.contains("pulsar_active_connections"))
    };
    let start = "persistent%3A%2F%2Fpublic%2Fdefault%2F";
    assert_eq!(page(""), ([true, true, true], true));
    assert_eq!(page(&format!("?topics={start}a")), ([true, true, false], false));
    assert_eq!(page(&format!("?topics={start}a&after={start}a1")), ([false, true, false], false));
    assert_eq!(page(&format!("?after={start}a1")), ([false, true, true], false));
    assert_eq!(page("?topics="), ([true, true, true], false));
    assert_eq!(page("?topics=public"), ([false, false, false], false));
}

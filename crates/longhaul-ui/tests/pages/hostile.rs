//! Untrusted text is shown, and has no effect.

use crate::fake::{Answer, Site};
use crate::markup::{Piece, Tag, pieces};

/// Tries to break out of every context in which a text is shown.
const HOSTILE: &str = "</title></textarea></pre></script><script>alert(1)</script><img src=x onerror=alert(2)>\" onmouseover=\"alert(3)' autofocus onfocus='alert(4)&lt;b&gt; \
    javascript:alert(5) \u{202e}gpj.exe\u{2066}\u{200b}\u{feff}\u{7}\u{1b}[31m\u{9b}2J\u{0}\r\nSet-Cookie: a=b --> ]]>";

/// The invisible or direction-changing characters of [`HOSTILE`].
const HIDDEN: [char; 9] =
    ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{7}', '\u{1b}', '\u{9b}', '\u{0}', '\r'];

/// The tags with their attribute names, without the markup of hidden characters and line breaks.
fn structure(answer: &Answer) -> Vec<(String, Vec<String>)> {
    let names = |tag: Tag| (tag.name, tag.attributes.into_iter().map(|it| it.0).collect());
    let shown = pieces(&answer.text).into_iter().filter_map(|piece| match piece {
        Piece::Open(tag) if tag.get("class") != Some("hidden-character") => Some(names(tag)),
        Piece::Open(_) | Piece::Close(_) | Piece::Text(_) => None,
    });
    shown.collect()
}

/// With a harmless text each page has the same tags and attributes: a text adds none.
#[tokio::test]
async fn a_text_makes_no_tag_and_no_attribute() {
    let (hostile, harmless) = (Site::of(HOSTILE), Site::of("plain"));
    for ((place, hostile), (_, harmless)) in
        hostile.pages().await.into_iter().zip(harmless.pages().await)
    {
        assert_eq!(hostile.status, harmless.status, "{place}");
        assert_eq!(structure(&hostile), structure(&harmless), "{place}");
    }
}

/// The text is shown as text, not left out.
#[tokio::test]
async fn a_text_is_shown_whole() {
    let site = Site::of(HOSTILE);
    let bare = ["/ui", "/ui/names", "/ui/sign-in", "/ui/nothing"];
    for (place, answer) in site.pages().await {
        if bare.contains(&place.split('?').next().unwrap()) {
            continue;
        }
        let text: String = pieces(&answer.text)
            .into_iter()
            .map(|piece| if let Piece::Text(text) = piece { text } else { String::new() })
            .collect();
        // A dump shows dots instead, and a field must return the characters unchanged.
        let has_no_names = place.ends_with("as=hex") || place.ends_with("/limits");
        assert!(text.contains("<script>alert(1)</script>"), "{place}");
        assert!(has_no_names || text.contains("U+202E"), "{place}");
    }
}

/// Browsers obey such characters in tooltips and window titles, too. Form fields must return them
/// unchanged.
#[tokio::test]
async fn hidden_characters_stand_nowhere_but_in_fields() {
    for (place, answer) in Site::of(HOSTILE).pages().await {
        let mut is_field = false;
        for piece in pieces(&answer.text) {
            match piece {
                Piece::Open(tag) => {
                    is_field = tag.name == "textarea";
                    for (name, value) in &tag.attributes {
                        let is_field = name == "value" && tag.name == "input";
                        assert!(is_field || !value.contains(HIDDEN), "{place}: {name} of {tag:?}");
                    }
                }
                Piece::Text(text) => {
                    assert!(is_field || !text.contains(HIDDEN), "{place}: {text:?}")
                }
                Piece::Close(_) => is_field = false,
            }
        }
        for (name, value) in &answer.headers {
            assert!(value.to_str().is_ok(), "{place}: {name}");
        }
    }
}

/// Bytes are downloaded as a file, under a name of our own, so no browser runs them.
#[tokio::test]
async fn what_is_saved_is_not_run() {
    let site = Site::of("<script>alert(1)</script>");
    for what in ["payload", "result"] {
        let place = format!("/ui/queues/mails/tasks/12%3A0%3A-1%0D%0A%22%3Bx/{what}");
        let answer = site.get(&place).await;
        assert_eq!(answer.text, "<script>alert(1)</script>");
        assert_eq!(answer.header("content-type"), "application/octet-stream");
        let name = format!("attachment; filename=\"{what}-12-0--1----x.bin\"");
        assert_eq!(answer.header("content-disposition"), name);
        assert_eq!(answer.header("content-security-policy"), "default-src 'none'; sandbox");
    }
}

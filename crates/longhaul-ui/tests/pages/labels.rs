//! Accessibility: every control has a name, and every page a structure.

use crate::fake::Site;
use crate::markup::{Piece, Tag, pieces, tags};
use std::collections::BTreeSet;

/// The text between a tag and its end tag, or its label.
fn name_of(all: &[Piece], at: usize, tag: &Tag) -> String {
    if let Some(label) = tag.get("aria-label") {
        return label.trim().to_owned();
    }
    let (mut depth, mut text) = (0, String::new());
    for piece in &all[at..] {
        match piece {
            Piece::Open(inner) if inner.name == tag.name => depth += 1,
            Piece::Close(name) if *name == tag.name => depth -= 1,
            Piece::Open(_) | Piece::Close(_) => {}
            Piece::Text(inner) => text.push_str(inner),
        }
        if depth == 0 {
            break;
        }
    }
    text.trim().to_owned()
}

fn check_controls(place: &str, page: &str) {
    let all = pieces(page);
    let labelled: BTreeSet<String> =
        tags(page).iter().filter_map(|tag| tag.get("for").map(str::to_owned)).collect();
    let mut labels = 0;
    for (at, piece) in all.iter().enumerate() {
        match piece {
            Piece::Open(tag) if tag.name == "label" => labels += 1,
            Piece::Close(name) if name == "label" => labels -= 1,
            Piece::Open(tag) => match tag.name.as_str() {
                "input" if tag.get("type") == Some("hidden") => {}
                "input" | "select" | "textarea" | "progress" => {
                    let has_label = labels > 0
                        || tag.get("aria-label").is_some()
                        || tag.get("id").is_some_and(|id| labelled.contains(id));
                    assert!(has_label, "{place}: {tag:?} has no label");
                }
                "button" | "a" | "summary" | "label" | "h1" | "h2" | "caption" | "figcaption" => {
                    assert!(!name_of(&all, at, tag).is_empty(), "{place}: {tag:?} has no name");
                }
                "svg" | "nav" => {
                    assert!(tag.get("aria-label").is_some(), "{place}: {tag:?} has no name");
                }
                _ => {}
            },
            Piece::Close(_) | Piece::Text(_) => {}
        }
    }
}

#[tokio::test]
async fn every_control_has_a_name() {
    for (place, answer) in Site::of("plain").pages().await {
        check_controls(place, &answer.text);
    }
}

#[tokio::test]
async fn every_page_has_a_language_a_title_one_heading_and_ids_of_one_place_each() {
    for (place, answer) in Site::of("plain").pages().await {
        let tags = tags(&answer.text);
        let count = |name: &str| tags.iter().filter(|tag| tag.name == name).count();
        assert_eq!((count("h1"), count("main"), count("title") > 0), (1, 1, true), "{place}");
        let language = tags.iter().find(|tag| tag.name == "html").and_then(|tag| tag.get("lang"));
        assert_eq!(language, Some("en"), "{place}");
        assert_eq!(count("table"), count("caption"), "{place}");
        let ids: Vec<&str> = tags.iter().filter_map(|tag| tag.get("id")).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{place}: {ids:?}");
        assert!(ids.contains(&"main"), "{place}: the link to the content leads nowhere");
        // A scrolling region must be reachable by keyboard.
        for tag in tags.iter().filter(|tag| tag.get("class") == Some("scrolls")) {
            assert_eq!(
                (tag.get("tabindex"), tag.get("role")),
                (Some("0"), Some("region")),
                "{place}"
            );
        }
    }
}

#[test]
fn a_field_without_a_label_is_found() {
    let check = |page: &'static str| std::panic::catch_unwind(|| check_controls("here", page));
    assert!(check("<!DOCTYPE html><label>a<input name=\"a\"></label>").is_ok());
    assert!(check("<!DOCTYPE html><label>a</label><input name=\"a\">").is_err());
    assert!(check("<!DOCTYPE html><a href=\"/ui\"></a>").is_err());
}

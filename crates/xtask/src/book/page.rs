//! A page in Markdown becomes HTML.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "parts of Markdown that are not named here stay as they are"
)]

use super::place::{self, Link};
use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd, html};
use std::collections::{BTreeMap, BTreeSet};

/// A page as HTML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// What stands between the frame.
    pub html: String,
    /// The names of its headings.
    pub anchors: BTreeSet<String>,
    /// Where it leads to within the repository.
    pub links: Vec<Link>,
}

/// Renders a page. Links to the other pages lead to their places on the site.
pub(super) fn render(path: &str, text: &str, pages: &BTreeMap<String, String>) -> Rendered {
    let mut page = Rendered::default();
    let own = place::of_page(path);
    let href = |target: &str, links: &mut Vec<Link>| {
        let Some(link) = Link::read(path, target) else { return target.to_owned() };
        let place = if pages.contains_key(&link.path) {
            place::of_page(&link.path)
        } else {
            place::of_file(&link.path)
        };
        let anchor = link.anchor.as_ref().map_or_else(String::new, |it| format!("#{it}"));
        let name = if link.path == path && !anchor.is_empty() {
            anchor
        } else {
            format!("{}{anchor}", place::between(&own, &place))
        };
        links.push(link);
        name
    };
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let mut events = Vec::new();
    let mut rust = false;
    for event in Parser::new_ext(text, options) {
        events.push(match event {
            // Marks for tests, and nothing else.
            Event::Html(text) if text.trim_start().starts_with("<!--") => continue,
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let dest_url = href(&dest_url, &mut page.links).into();
                Event::Start(Tag::Link { link_type, dest_url, title, id })
            }
            Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                let dest_url = href(&dest_url, &mut page.links).into();
                Event::Start(Tag::Image { link_type, dest_url, title, id })
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match &kind {
                    CodeBlockKind::Fenced(words) => words.split([',', ' ']).next().unwrap_or(""),
                    CodeBlockKind::Indented => "",
                };
                rust = language == "rust";
                let language = CowStr::from(language.to_owned());
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language)))
            }
            Event::Text(text) if rust => Event::Text(shown(&text).into()),
            Event::End(TagEnd::CodeBlock) => {
                rust = false;
                Event::End(TagEnd::CodeBlock)
            }
            other => other,
        });
    }
    name_headings(&mut events, &mut page.anchors);
    html::push_html(&mut page.html, events.into_iter());
    // A wide table scrolls by itself, and not the page.
    page.html = page.html.replace("<table>", "<div class=\"wide\"><table>");
    page.html = page.html.replace("</table>", "</table></div>");
    page
}

/// What a reader sees of an example: lines that begin with `# ` are for the compiler.
fn shown(code: &str) -> String {
    let is_hidden = |line: &str| line == "#" || line.starts_with("# ");
    code.split_inclusive('\n').filter(|line| !is_hidden(line.trim_end())).collect()
}

/// Gives each heading the name that links use.
fn name_headings(events: &mut [Event<'_>], anchors: &mut BTreeSet<String>) {
    let mut at = 0;
    while at < events.len() {
        let rest = events.get(at..).unwrap_or_default();
        if let Some(Event::Start(Tag::Heading { .. })) = rest.first() {
            let inner = rest.iter().take_while(|it| !matches!(it, Event::End(TagEnd::Heading(_))));
            let text: String = inner
                .filter_map(|event| match event {
                    Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
                    _ => None,
                })
                .collect();
            let name = unused(&slug(&text), anchors);
            if let Some(Event::Start(Tag::Heading { id, .. })) = events.get_mut(at) {
                *id = Some(name.clone().into());
            }
            anchors.insert(name);
        }
        at += 1;
    }
}

/// The name of a heading, as GitHub makes it.
fn slug(text: &str) -> String {
    let kept = text.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.flat_map(char::to_lowercase).map(|it| if it == ' ' { '-' } else { it }).collect()
}

fn unused(name: &str, anchors: &BTreeSet<String>) -> String {
    let numbered = (1..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| !anchors.contains(name)).unwrap_or_default()
}

/// Text in HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> Rendered {
        let other = |path: &str| (path.to_owned(), String::new());
        render("docs/a.md", text, &BTreeMap::from([other("docs/a.md"), other("docs/b.md")]))
    }

    #[test]
    fn headings_have_the_names_that_links_use() {
        let page = rendered("# The `x`, and: more!\n\n## Twice\n\n## Twice\n");
        let names: Vec<_> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(names, ["the-x-and-more", "twice", "twice-1"]);
        assert!(page.html.contains("<h2 id=\"twice-1\">"), "{}", page.html);
    }

    #[test]
    fn links_lead_to_the_site() {
        let page =
            rendered("[b](b.md#x) [own](#y) [file](../c.rs) [far](https://example.com/b.md)");
        for href in ["\"b.html#x\"", "\"#y\"", "\"files/c.rs\"", "\"https://example.com/b.md\""] {
            assert!(page.html.contains(href), "{href}: {}", page.html);
        }
        assert_eq!(page.links.len(), 3);
    }

    #[test]
    fn what_is_for_tests_is_not_shown() {
        let page = rendered("<!-- tour: python -->\n```rust,no_run\n# use a;\nb();\n#[c]\n```\n");
        assert!(!page.html.contains("tour") && !page.html.contains("use a"), "{}", page.html);
        assert!(page.html.contains("b();\n#[c]") && page.html.contains("language-rust\""));
    }
}

//! Tables, and the way from one page of them to the next.

use maud::{Markup, html};

/// A table that scrolls by itself where it is wider than the window. Without rows it says what is missing.
pub(crate) fn table(
    id: &str,
    caption: &str,
    heads: &[&str],
    rows: &[Markup],
    empty: &str,
) -> Markup {
    html! {
        div.scrolls id=(id) tabindex="0" role="region" aria-label=(caption) {
            @if rows.is_empty() {
                p.empty { (empty) }
            } @else {
                table {
                    caption.unseen { (caption) }
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody { @for row in rows { tr { (row) } } }
                }
            }
        }
    }
}

/// Goes to the first page, and to the next one. `place` has its query, without `after`.
pub(crate) fn pager(place: &str, after: Option<&str>, next: Option<&str>) -> Markup {
    let joint = if place.contains('?') { '&' } else { '?' };
    html! {
        nav.pager aria-label="Pages" {
            @if after.is_some() { a href=(place) { "First page" } }
            @if let Some(next) = next {
                a rel="next" href={ (place) (joint) "after=" (crate::visit::escaped(next)) } { "Next page" }
            }
        }
    }
}

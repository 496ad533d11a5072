//! Tables, and the way from one page of them to the next.

use maud::{Markup, Render, html};

/// The head of a column. It stands as the cells below it do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TableHead {
    Text(&'static str),
    /// Of a column of numbers.
    Number(&'static str),
}

/// A table that scrolls by itself where it is wider than the window. Without rows it says what is
/// missing.
pub(crate) fn table(
    id: &str,
    caption: &str,
    heads: &[TableHead],
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
                    thead { tr { @for head in heads { (head) } } }
                    tbody { @for row in rows { tr { (row) } } }
                }
            }
        }
    }
}

impl Render for TableHead {
    fn render(&self) -> Markup {
        match self {
            Self::Text(name) => html! { th scope="col" { (name) } },
            Self::Number(name) => html! { th.number scope="col" { (name) } },
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

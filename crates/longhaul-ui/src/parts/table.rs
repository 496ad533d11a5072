//! Tables and their paging.

use maud::{Markup, Render, html};

/// The head of a column. It is aligned like the cells below it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TableHead {
    Text(&'static str),
    /// The head of a column of numbers.
    Number(&'static str),
}

/// The content of a row's cells. Missing cells are empty.
pub(crate) type RowCells = Vec<Markup>;

/// A table that scrolls if it is wider than the window. On a phone, each row is a card, whose cells
/// show the head of their column. Without rows it shows something else instead.
pub(crate) fn table(
    id: &str,
    caption: &str,
    heads: &[TableHead],
    rows: &[RowCells],
    empty: &Markup,
) -> Markup {
    html! {
        div.scrolls id=(id) tabindex="0" role="region" aria-label=(caption) {
            @if rows.is_empty() {
                div.empty { (empty) }
            } @else {
                table {
                    caption.unseen { (caption) }
                    thead { tr { @for head in heads { (head) } } }
                    tbody { @for row in rows { tr { @for (head, cell) in heads.iter().zip(row) { (head.cell(cell)) } } } }
                }
            }
        }
    }
}

impl TableHead {
    fn cell(self, content: &Markup) -> Markup {
        match self {
            Self::Text(name) => html! { td data-head=(name) { (held(content)) } },
            Self::Number(name) => html! { td.number data-head=(name) { (held(content)) } },
        }
    }
}

/// The content as one element beside the head that a card shows; nothing if there is none.
fn held(content: &Markup) -> Markup {
    html! { @if !content.0.is_empty() { div { (content) } } }
}

impl Render for TableHead {
    fn render(&self) -> Markup {
        match self {
            Self::Text(name) => html! { th scope="col" { (name) } },
            Self::Number(name) => html! { th.number scope="col" { (name) } },
        }
    }
}

/// Links to the first and the next page. `place` has its query, without `after`.
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

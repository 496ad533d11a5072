//! The documentation as a site: the pages of the repository that `docs/SUMMARY.md` names, as HTML without scripts.
//!
//! Why it is no mdBook: `docs/decisions/book.md`. What a page becomes is decided by pure functions; [`build`] alone reads and writes files.

mod page;
mod place;
mod summary;

pub use page::Rendered;
pub use place::Link;
pub use summary::{Entry, Group, read as read_summary};

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Where the pages are named.
pub const SUMMARY: &str = "docs/SUMMARY.md";

const STYLE: &str = include_str!("style.css");

/// A site that is not written yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// What each file of the site has, by its path there.
    pub pages: BTreeMap<String, String>,
    /// Files of the repository that are copied as they are: from where, and to where.
    pub copies: BTreeSet<(String, String)>,
    /// Links that lead nowhere, each with its page.
    pub faults: Vec<String>,
}

/// Makes the site of these pages. `pages` has the text of each page by its path in the repository, and `files` tells whether another file is there.
#[must_use]
pub fn site(
    groups: &[Group],
    pages: &BTreeMap<String, String>,
    files: &dyn Fn(&str) -> bool,
) -> Site {
    let mut site = Site::default();
    let rendered: BTreeMap<_, _> =
        pages.iter().map(|(path, text)| (path.as_str(), page::render(path, text, pages))).collect();
    for (path, page) in &rendered {
        for link in &page.links {
            if let Err(fault) = check(link, &rendered, files, &mut site.copies) {
                site.faults.push(format!("{path}: {fault}"));
            }
        }
    }
    let order: Vec<&Entry> = groups.iter().flat_map(|group| &group.entries).collect();
    for (at, entry) in order.iter().enumerate() {
        let Some(page) = rendered.get(entry.path.as_str()) else {
            site.faults.push(format!("{SUMMARY}: there is no {}", entry.path));
            continue;
        };
        let before = at.checked_sub(1).and_then(|at| order.get(at)).copied();
        let html = frame(groups, entry, page, [before, order.get(at + 1).copied()]);
        site.pages.insert(place::of_page(&entry.path), html);
    }
    for path in pages.keys().filter(|path| order.iter().all(|entry| entry.path != **path)) {
        site.faults.push(format!("{SUMMARY}: {path} is missing"));
    }
    site.pages.insert("style.css".to_owned(), STYLE.to_owned());
    site
}

/// Whether a link within the repository leads somewhere. A file that is no page is copied.
fn check(
    link: &Link,
    pages: &BTreeMap<&str, Rendered>,
    files: &dyn Fn(&str) -> bool,
    copies: &mut BTreeSet<(String, String)>,
) -> Result<(), String> {
    let Link { path, anchor } = link;
    match (pages.get(path.as_str()), anchor) {
        (Some(page), Some(anchor)) if !page.anchors.contains(anchor) => {
            Err(format!("{path} has no heading #{anchor}"))
        }
        (Some(_), _) => Ok(()),
        (None, None) if files(path) => {
            copies.insert((path.clone(), place::of_file(path)));
            Ok(())
        }
        (None, _) => Err(format!("there is no {path}")),
    }
}

/// A page with the contents beside it, and with the pages before and behind it.
fn frame(
    groups: &[Group],
    entry: &Entry,
    page: &Rendered,
    [before, behind]: [Option<&Entry>; 2],
) -> String {
    let own = place::of_page(&entry.path);
    let to = |path: &str| place::between(&own, &place::of_page(path));
    let mut contents = String::new();
    for group in groups {
        // Writing to a String does not fail.
        write!(contents, "<h2>{}</h2>\n<ul>\n", page::escaped(&group.name)).ok();
        for other in &group.entries {
            let here = if other.path == entry.path { " aria-current=\"page\"" } else { "" };
            let (path, title) = (to(&other.path), page::escaped(&other.title));
            writeln!(contents, "<li><a href=\"{path}\"{here}>{title}</a></li>").ok();
        }
        contents.push_str("</ul>\n");
    }
    let step = |entry: Option<&Entry>, relation: &str, sign: &str| {
        entry.map_or_else(String::new, |it| {
            let title = page::escaped(&it.title);
            format!("<a rel=\"{relation}\" href=\"{}\">{sign} {title}</a>", to(&it.path))
        })
    };
    let steps = [step(before, "prev", "←"), step(behind, "next", "→")].concat();
    let (title, style) = (page::escaped(&entry.title), place::between(&own, "style.css"));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
        <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
        <title>{title} · longhaul</title>\n<link rel=\"stylesheet\" href=\"{style}\">\n</head>\n<body>\n\
        <a class=\"skip\" href=\"#page\">To the page</a>\n<nav aria-label=\"Contents\">\n{contents}</nav>\n\
        <main id=\"page\">\n{}\n<footer>{steps}</footer>\n</main>\n</body>\n</html>\n",
        page.html
    )
}

/// The pages that the summary names, and all others of `docs/`, by their paths.
fn read_pages(top: &Path, groups: &[Group]) -> Result<BTreeMap<String, String>> {
    let mut paths: BTreeSet<_> =
        groups.iter().flat_map(|group| &group.entries).map(|entry| entry.path.clone()).collect();
    for folder in ["docs", "docs/decisions"] {
        for entry in fs::read_dir(top.join(folder))? {
            let path = format!("{folder}/{}", entry?.file_name().to_string_lossy());
            if path.ends_with(".md") && path != SUMMARY {
                paths.insert(path);
            }
        }
    }
    let read = |path: String| {
        let text = fs::read_to_string(top.join(&path)).with_context(|| path.clone())?;
        Ok((path, text))
    };
    paths.into_iter().map(read).collect()
}

/// Makes the site of the repository in this folder.
///
/// # Errors
///
/// If a page cannot be read.
pub fn read(top: &Path) -> Result<Site> {
    let groups = read_summary(&fs::read_to_string(top.join(SUMMARY))?)?;
    let pages = read_pages(top, &groups)?;
    Ok(site(&groups, &pages, &|path| top.join(path).is_file()))
}

/// Writes the site of the repository in this folder into another one, whose contents it replaces.
///
/// # Errors
///
/// If a link leads nowhere: each is named.
pub fn build(top: &Path, to: &Path) -> Result<usize> {
    let site = read(top)?;
    anyhow::ensure!(site.faults.is_empty(), "{}", site.faults.join("\n"));
    if to.is_dir() {
        fs::remove_dir_all(to)?;
    }
    let make_room = |path: &Path| path.parent().map_or(Ok(()), fs::create_dir_all);
    for (path, text) in &site.pages {
        make_room(&to.join(path))?;
        fs::write(to.join(path), text)?;
    }
    for (from, path) in &site.copies {
        make_room(&to.join(path))?;
        fs::copy(top.join(from), to.join(path))?;
    }
    Ok(site.pages.len())
}

#[cfg(test)]
mod tests;

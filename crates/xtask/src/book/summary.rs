//! The order of the pages: groups by their headings, in each a list of links.

use super::place::Link;
use anyhow::{Context, Result, ensure};

/// Pages that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The heading.
    pub name: String,
    /// Its pages in order.
    pub entries: Vec<Entry>,
}

/// A page in the contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How the contents call it.
    pub title: String,
    /// Where it is in the repository.
    pub path: String,
}

/// Reads the summary, which names the pages as seen from its own folder.
///
/// # Errors
///
/// Names the line that is neither a heading nor a link in a list.
pub fn read(text: &str) -> Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    for line in lines {
        if let Some(name) = line.strip_prefix("## ") {
            groups.push(Group { name: name.to_owned(), entries: Vec::new() });
            continue;
        }
        let link = line.strip_prefix("- [").and_then(|rest| rest.strip_suffix(')'));
        let link = link.and_then(|rest| rest.split_once("]("));
        let (title, target) = link.with_context(|| format!("{}: `{line}`", super::SUMMARY))?;
        let path = Link::read(super::SUMMARY, target).context("a page of somebody else")?.path;
        let group = groups.last_mut().context("a page before the first group")?;
        group.entries.push(Entry { title: title.to_owned(), path });
    }
    let paths: Vec<_> = groups.iter().flat_map(|group| &group.entries).map(|it| &it.path).collect();
    for (at, path) in paths.iter().enumerate() {
        ensure!(!paths.iter().take(at).any(|other| other == path), "{path} is named twice");
    }
    Ok(groups)
}

#[test]
fn a_summary_is_groups_of_pages() {
    let text =
        "# Summary\n\n## Start\n\n- [The project](../README.md)\n- [A tour](tour.md)\n\n## More\n";
    let groups = read(text).unwrap();
    assert_eq!(groups.len(), 2);
    let entry = Entry { title: "A tour".to_owned(), path: "docs/tour.md".to_owned() };
    assert_eq!(groups[0].entries[1], entry);
    for wrong in
        ["- [A](a.md)", "## A\n* [A](a.md)", "## A\n- [A](a.md)\n- [B](a.md)", "## A\ntext"]
    {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

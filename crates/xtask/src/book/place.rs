//! Where a file of the repository is on the site. All paths have strokes between their parts and begin at the top.

/// Where a link leads to within the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// From the top of the repository.
    pub path: String,
    /// The heading, without its `#`.
    pub anchor: Option<String>,
}

impl Link {
    /// What a link on a page means; none if it leads out of the repository.
    pub(super) fn read(page: &str, target: &str) -> Option<Self> {
        if target.contains("://") || target.starts_with("mailto:") {
            return None;
        }
        let (path, anchor) = target
            .split_once('#')
            .map_or((target, None), |(path, anchor)| (path, Some(anchor.to_owned())));
        if path.is_empty() {
            return Some(Self { path: page.to_owned(), anchor });
        }
        let mut parts: Vec<&str> = page.split('/').collect();
        parts.pop();
        for part in path.split('/') {
            match part {
                "." | "" => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        Some(Self { path: parts.join("/"), anchor })
    }
}

/// The place of a page. Those outside of `docs/` have a folder of their own, since there is a page on security in both.
pub(super) fn of_page(path: &str) -> String {
    let bare = path.strip_suffix(".md").unwrap_or(path);
    match (bare, bare.strip_prefix("docs/")) {
        ("README", _) => "index.html".to_owned(),
        (_, Some(bare)) => format!("{bare}.html"),
        (bare, None) => format!("project/{bare}.html"),
    }
}

/// The place of any other file. Pictures are beside the pages, as they are in `docs/`.
pub(super) fn of_file(path: &str) -> String {
    path.strip_prefix("docs/").map_or_else(|| format!("files/{path}"), str::to_owned)
}

/// How a link on one place of the site names another.
pub(super) fn between(from: &str, to: &str) -> String {
    let depth = from.matches('/').count();
    format!("{}{to}", "../".repeat(depth))
}

#[test]
fn links_are_followed_from_the_folder_of_their_page() {
    let link = |path: &str, anchor: Option<&str>| {
        Some(Link { path: path.to_owned(), anchor: anchor.map(str::to_owned) })
    };
    for (page, target, expected) in [
        ("docs/cli.md", "http.md#routes", link("docs/http.md", Some("routes"))),
        ("docs/cli.md", "../README.md", link("README.md", None)),
        ("README.md", "docs/cli.md", link("docs/cli.md", None)),
        ("docs/cli.md", "#settings", link("docs/cli.md", Some("settings"))),
        ("docs/decisions/large.md", "../cli.md", link("docs/cli.md", None)),
        ("docs/cli.md", "https://example.com/x.md", None),
    ] {
        assert_eq!(Link::read(page, target), expected, "{target}");
    }
    assert_eq!(of_page("README.md"), "index.html");
    assert_eq!(of_page("docs/decisions/large.md"), "decisions/large.html");
    assert_eq!(of_page("SECURITY.md"), "project/SECURITY.html");
    assert_eq!(of_file("examples/limits.rs"), "files/examples/limits.rs");
    assert_eq!(of_file("docs/pictures/claim.svg"), "pictures/claim.svg");
    assert_eq!(between("decisions/large.html", "cli.html"), "../cli.html");
}

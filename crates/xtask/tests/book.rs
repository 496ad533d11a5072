//! The documentation site of the repository: every page is in it, and every link and heading that a page names is there.

use anyhow::{Result, ensure};
use std::path::Path;
use xtask::book;

#[test]
fn every_page_is_on_the_site_and_every_link_leads_somewhere() -> Result<()> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir()?;
    let site = folder.path().join("book");
    let count = book::build(&top, &site)?;
    ensure!(count > 20, "the site has {count} pages");
    let index = std::fs::read_to_string(site.join("index.html"))?;
    ensure!(index.contains("<h1") && index.contains("href=\"tour.html\""), "{index}");
    // Nothing of an earlier run stays.
    std::fs::write(site.join("gone.html"), "")?;
    ensure!(
        book::build(&top, &site)? == count && !site.join("gone.html").try_exists()?,
        "it stays"
    );
    Ok(())
}

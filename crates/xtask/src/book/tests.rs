use super::*;

fn made(summary: &str, pages: &[(&str, &str)]) -> Site {
    let pages = pages.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    site(&read_summary(summary).unwrap(), &pages.collect(), &|path| path == "examples/a.rs")
}

const SUMMARY_OF_TWO: &str = "## Start\n- [One](one.md)\n- [Two <2>](two.md)\n";

#[test]
fn a_site_has_its_pages_in_order_and_the_files_that_they_name() {
    let one = ("docs/one.md", "# One\n\n[two](two.md#more), [an example](../examples/a.rs)");
    let site = made(SUMMARY_OF_TWO, &[one, ("docs/two.md", "# Two\n\n## More\n")]);
    assert_eq!(site.faults, Vec::<String>::new());
    let names: Vec<_> = site.pages.keys().map(String::as_str).collect();
    assert_eq!(names, ["one.html", "style.css", "two.html"]);
    let copy = ("examples/a.rs".to_owned(), "files/examples/a.rs".to_owned());
    assert_eq!(site.copies, BTreeSet::from([copy]));
    let one = &site.pages["one.html"];
    assert!(one.contains("<a rel=\"next\" href=\"two.html\">→ Two &lt;2&gt;</a>"), "{one}");
    assert!(one.contains("href=\"one.html\" aria-current=\"page\"") && !one.contains("<script"));
}

#[test]
fn each_planted_fault_is_found() {
    let two = ("docs/two.md", "# Two\n\n## More\n");
    for (text, told) in [
        ("[a](three.md)", "docs/three.md"),
        ("[a](two.md#less)", "#less"),
        ("[a](#nowhere)", "#nowhere"),
        ("![a](pictures/a.svg)", "docs/pictures/a.svg"),
        ("[a](../examples/b.rs)", "examples/b.rs"),
        ("[a][b]\n\n[b]: two.md#less", "#less"),
    ] {
        let site = made(SUMMARY_OF_TWO, &[("docs/one.md", text), two]);
        assert!(site.faults.len() == 1 && site.faults.concat().contains(told), "{:?}", site.faults);
    }
    let forgotten = made("## Start\n- [One](one.md)\n", &[("docs/one.md", ""), two]);
    assert!(forgotten.faults.concat().contains("docs/two.md is missing"), "{forgotten:?}");
    let gone = made(SUMMARY_OF_TWO, &[two]);
    assert!(gone.faults.concat().contains("there is no docs/one.md"), "{gone:?}");
}

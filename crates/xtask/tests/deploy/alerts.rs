//! `packaging/prometheus`: whoever is woken by an alert finds what to do.

use super::{documents, read};
use std::collections::BTreeSet;

fn headings(page: &str) -> BTreeSet<String> {
    page.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect()
}

fn alerts(rules: &str) -> BTreeSet<String> {
    let file = documents(rules).remove(0);
    let groups = file["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules.map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_alert_has_its_section_among_the_runbooks() {
    let alerts = alerts(&read("packaging/prometheus/longhaul.rules.yaml"));
    assert!(alerts.len() > 10, "{alerts:?}");
    assert_eq!(headings(&read("docs/runbooks.md")), alerts);
}

//! All findings on one page, for people to read: `snapshots/` has it.
//!
//! The rules themselves make each finding, from the cluster or node in `example` with one fault.

mod cluster;
mod node;
mod people;

use crate::site::check::finding::{Code, Finding};
use std::collections::BTreeSet;

/// The findings of one fault, and the code that is to be among them.
type Example = (Code, Vec<Finding>);

fn examples() -> Vec<Example> {
    [cluster::examples(), people::examples(), node::examples()].concat()
}

#[test]
fn findings_read_like_a_colleague() {
    let examples = examples().into_iter();
    let found = examples.flat_map(|(code, found)| {
        let own = found.into_iter().filter(move |one| one.code == code);
        own.map(move |finding| (code.as_str(), finding.to_string()))
    });
    let by_code: BTreeSet<(&str, String)> = found.collect();
    let lines = by_code.into_iter().map(|(_, line)| line);
    let page = lines.collect::<Vec<_>>().join("\n\n");
    assert!(page.is_ascii());
    insta::assert_snapshot!(page);
}

#[test]
fn each_example_has_a_finding_of_its_code() {
    for (code, found) in examples() {
        let has_it = found.iter().any(|finding| finding.code == code);
        assert!(has_it, "{}: {found:?}", code.as_str());
    }
}

#[test]
fn each_code_has_an_example() {
    let examples = examples();
    for code in Code::ALL {
        let has_one = examples.iter().any(|(own, _)| own == code);
        assert!(has_one, "{}", code.as_str());
    }
}

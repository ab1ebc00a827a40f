//! Checks of the pages: links lead somewhere, and research/device-memory.md has every function that an account of device
//! memory must know of, and names tests there are.

use std::collections::BTreeSet;

use anyhow::{Context, Result, anyhow};
use softmig_bindings::classes;
use softmig_tests::documents::{anchors, functions, links, listed, named, page, pages, root};

/// The functions in the first column of the page's tables. A word that begins with `_` is an ending of the name before it.
fn functions_of(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let cell = row.split(" | ").next().unwrap_or_default();
        let mut first = String::new();
        for word in cell.split(['`', ',', ' ']).filter(|word| !word.is_empty()) {
            if word.starts_with('_') {
                found.push(format!("{first}{word}"));
            } else {
                first = word.to_owned();
                found.push(first.clone());
            }
        }
    }
    found
}

#[test]
fn the_page_of_device_memory_has_every_function_that_counts() -> Result<()> {
    let all = functions_of(&page("../research/device-memory.md")?);
    let shown: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(all.len(), shown.len(), "a function is listed twice");
    let entries = classes::entries().map_err(|wrong| anyhow!(wrong))?;
    let counted = entries.into_iter().filter(|entry| entry.class.is_counted());
    let counted: BTreeSet<String> = counted.flat_map(|entry| entry.names).collect();
    let missing: Vec<_> = counted.difference(&shown).collect();
    assert!(
        missing.is_empty(),
        "not in research/device-memory.md: {missing:?}"
    );
    let unknown: Vec<_> = shown.difference(&counted).collect();
    assert!(
        unknown.is_empty(),
        "in research/device-memory.md, and not counted by hook/bindings/memory.txt: {unknown:?}"
    );
    Ok(())
}

#[test]
fn the_page_of_device_memory_names_the_tests_there_are() -> Result<()> {
    let named = named(&page("../research/device-memory.md")?);
    assert!(named.len() > 30, "{named:?}");
    let tests = root().join("tests");
    let mut all = functions(&tests, &["slurm: Slurm)", ")"])?;
    all.extend(listed(&tests)?);
    let missing: Vec<_> = named.difference(&all).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
    Ok(())
}

#[test]
fn every_link_of_a_page_leads_to_something() -> Result<()> {
    let mut dead = Vec::new();
    let mut count = 0;
    for path in pages()? {
        let text = std::fs::read_to_string(&path)?;
        let folder = path.parent().context("a page without a folder")?;
        for link in links(&text) {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => folder.join(file),
            };
            let is_there = match anchor {
                "" => target.exists(),
                anchor => std::fs::read_to_string(&target)
                    .is_ok_and(|text| anchors(&text).contains(anchor)),
            };
            if !is_there {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(count > 50, "{count} links");
    assert!(dead.is_empty(), "{dead:#?}");
    Ok(())
}

#[test]
fn the_book_has_every_page_of_docs() -> Result<()> {
    let contents = page("SUMMARY.md")?;
    let shown = links(&contents);
    for path in pages()? {
        let Ok(page) = path.strip_prefix(root().join("../docs")) else {
            continue;
        };
        let name = page.to_string_lossy();
        assert!(
            name == "SUMMARY.md" || shown.contains(&name.as_ref()),
            "docs/SUMMARY.md does not name {name}"
        );
    }
    Ok(())
}

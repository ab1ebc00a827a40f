//! docs/threat-model.md names every test of these, and none that does not exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The names of the functions in a folder's files, as they stand before these arguments.
fn functions(folder: &Path, arguments: &[&str]) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            names.extend(functions(&path, arguments)?);
            continue;
        }
        for line in fs::read_to_string(&path)?.lines() {
            let function = line
                .strip_prefix("fn ")
                .and_then(|rest| rest.split_once('('));
            names.extend(function.and_then(|(name, rest)| {
                let is_meant =
                    rest.is_empty() || arguments.iter().any(|start| rest.starts_with(start));
                is_meant.then(|| name.to_owned())
            }));
        }
    }
    Ok(names)
}

#[test]
fn the_threat_model_names_the_tests_there_are() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("../docs/threat-model.md"))?;
    let is_name = |word: &&str| {
        word.matches('_').count() > 3
            && word
                .chars()
                .all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let named: BTreeSet<String> = text.split('`').filter(is_name).map(str::to_owned).collect();
    assert!(named.len() > 40, "{named:?}");
    let all = functions(&root.join("tests"), &["slurm: Slurm)", ")"])?;
    let missing: Vec<_> = named.difference(&all).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
    let unnamed: Vec<_> = functions(&root.join("tests/identity"), &["slurm: Slurm)"])?
        .into_iter()
        .filter(|name| is_name(&name.as_str()) && !named.contains(name))
        .collect();
    assert!(unnamed.is_empty(), "not in the document: {unnamed:?}");
    Ok(())
}

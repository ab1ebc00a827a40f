//! docs/threat-model.md names every test of these, and none that does not exist.

use anyhow::Result;
use softmig_tests::documents::{functions, named, page, root};

#[test]
fn the_threat_model_names_the_tests_there_are() -> Result<()> {
    let named = named(&page("threat-model.md")?);
    assert!(named.len() > 40, "{named:?}");
    let all = functions(&root().join("tests"), &["slurm: Slurm)", ")"])?;
    let missing: Vec<_> = named.difference(&all).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
    let unnamed: Vec<_> = functions(&root().join("tests/identity"), &["slurm: Slurm)"])?
        .into_iter()
        .filter(|name| name.matches('_').count() > 3 && !named.contains(name))
        .collect();
    assert!(unnamed.is_empty(), "not in the document: {unnamed:?}");
    Ok(())
}

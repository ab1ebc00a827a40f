//! tests/attempts.md names every test of these, and none that does not exist, here, in the gate, the policy, the monitor, the
//! hook, the calls of the driver, the prolog or the epilog.

use anyhow::Result;
use softmig_tests::documents::{functions, named, page, plain_tests, root};

#[test]
fn the_list_of_attempts_names_the_tests_there_are() -> Result<()> {
    let named = named(&page("../tests/attempts.md")?);
    assert!(named.len() > 40, "{named:?}");
    let mut all = functions(&root().join("tests"), &["slurm: Slurm)", ")"])?;
    for folder in [
        "../gate/src",
        "../gate/tests",
        "../policy/tests",
        "../monitor/src",
        "../monitor/tests",
        "../hook/region/src",
        "../hook/src",
        "../rm/src",
        "../node/epilog",
        "../node/tests",
    ] {
        let tests = plain_tests(&root().join(folder))?;
        assert!(!tests.is_disjoint(&named), "none of {folder} is named");
        all.extend(tests);
    }
    let missing: Vec<_> = named.difference(&all).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
    let unnamed: Vec<_> = functions(&root().join("tests/identity"), &["slurm: Slurm)"])?
        .into_iter()
        .filter(|name| name.matches('_').count() > 3 && !named.contains(name))
        .collect();
    assert!(unnamed.is_empty(), "not in the document: {unnamed:?}");
    Ok(())
}

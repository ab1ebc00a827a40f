//! Whatever gives the GPU work is held back, by whichever function: the list comes from the headers (`cargo xtask bindings
//! --check` sees to it that each has a row). See `tests/programs/delays.c`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use softmig_bindings::{classes, rows};

use crate::stand::{Stand, in_some_try, run};

/// What each call returned, and for how many milliseconds it was held back.
type Delays = BTreeMap<String, (String, f64)>;

fn delays(said: &str) -> Result<Delays> {
    let lines = said.lines().map(|line| {
        let mut words = line.split(' ');
        let mut next = || words.next().with_context(|| said.to_owned());
        let name = next()?.to_owned();
        Ok((name, (next()?.to_owned(), next()?.parse()?)))
    });
    lines.collect()
}

/// A call that the GPU's processors have nothing to do with: the host's work, or the copy engines'.
fn is_others(name: &str) -> bool {
    ["HostFunc", "HtoD", "DtoH"]
        .iter()
        .any(|other| name.contains(other))
}

#[test]
fn all_that_gives_the_gpu_work_is_held_back() -> Result<()> {
    let free = delays(&run(Stand::new()?.unlimited(&["delays"]))?)?;
    let known: BTreeSet<&str> = rows().filter(|name| classes::gives_work(name)).collect();
    let tried: BTreeSet<&str> = free.keys().map(String::as_str).collect();
    ensure!(known.len() > 80 && tried == known, "{tried:?}\n{known:?}");

    // A quarter has to pay for 8 ms with 24: less than half of that is none that was held back.
    let at_once = || {
        let held = delays(&run(Stand::new()?.limited("25", &["delays"]))?)?;
        for (name, (result, _)) in &free {
            ensure!(&held[name].0 == result, "{name}: {held:?}");
        }
        let at_once = held.iter().filter(|(name, _)| !is_others(name));
        let at_once = at_once.filter(|(_, (_, time))| *time < 12.0);
        let at_once: Vec<_> = at_once.collect();
        println!("{} calls, at once: {at_once:?}", held.len());
        Ok(at_once.len() as f64)
    };
    in_some_try("calls that were not held back", at_once, |count| {
        count == 0.0
    })?;
    Ok(())
}

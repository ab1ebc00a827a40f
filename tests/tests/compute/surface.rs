//! Whatever gives the GPU work is held back, by whichever function: the list comes from the headers (`cargo xtask bindings
//! --check` sees to it that each has a row). See `tests/programs/delays.c`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use softmig_bindings::{classes, rows};

use crate::compute::stand::{Stand, in_some_try, run};

/// The result of each call, and its delay in milliseconds.
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

#[test]
fn all_that_gives_the_gpu_work_is_held_back() -> Result<()> {
    let stand = Stand::new()?;
    let free = delays(&run(stand.unlimited(&["delays"]))?)?;
    let failed = stand.gpus.all_calls("failed");
    let known: BTreeSet<&str> = rows().filter(|name| classes::gives_work(name)).collect();
    let tried: BTreeSet<&str> = free.keys().map(String::as_str).collect();
    ensure!(known.len() > 70 && tried == known, "{tried:?}\n{known:?}");

    // A quarter has to pay for 8 ms with 24, if the program was not itself late by as much: each is held back in some run.
    let left = RefCell::new(known);
    let held_back = || {
        let stand = Stand::new()?;
        let held = delays(&run(stand.limited("25", &["delays"]))?)?;
        // compute-sanitizer would report calls of the library that fail.
        let now = stand.gpus.all_calls("failed");
        ensure!(
            now == failed,
            "{now} calls failed, {failed} without the library"
        );
        for (name, (result, _)) in &free {
            ensure!(&held[name].0 == result, "{name}: {held:?}");
        }
        let mut left = left.borrow_mut();
        left.retain(|name| held[*name].1 < 12.0);
        println!("{} calls, never held back: {left:?}", held.len());
        Ok(left.len() as f64)
    };
    in_some_try("calls that were not held back", held_back, |count| {
        count == 0.0
    })?;
    Ok(())
}

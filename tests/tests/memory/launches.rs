//! Memory taken when a kernel is launched, or code used for the first time: no call asks for it, and it counts.

use anyhow::{Context, Result, ensure};
use softmig_fake_node::MIB;

use crate::memory::stand::{Said, Stand, context, number};

/// How many functions launch kernels, or make graphs of them ready.
const LAUNCHES: usize = 15;

/// The line of each.
fn launches(said: &Said) -> Vec<&str> {
    let lines = said.lines.iter();
    lines
        .filter_map(|line| line.strip_prefix("launch "))
        .collect()
}

/// An H200 has 132 multiprocessors of 2048 threads: 3 KiB more for each are 792 MiB.
#[test]
fn a_kernel_whose_stacks_do_not_fit_is_not_launched() -> Result<()> {
    let stand = Stand::new(1200)?;
    let said = stand.run(&["launches", "4096"])?;
    said.check()?;
    let launches = launches(&said);
    ensure!(launches.len() == LAUNCHES, "{said:#?}");
    for launch in launches {
        ensure!(launch.ends_with(": flat=0 deep=2 flat_again=0"), "{launch}");
    }
    // Nothing but the context, and what graphs and code take besides.
    let peak = stand.gpus.peak(0);
    ensure!(peak <= context() + 16 * MIB, "{peak}");
    Ok(())
}

/// The context keeps them: 1 KiB more for each thread are 264 MiB.
#[test]
fn the_stacks_of_kernels_that_were_launched_count() -> Result<()> {
    let stand = Stand::new(1200)?;
    let mut client = stand.start(&["launches", "2048"])?;
    client.hears("over")?;
    let held: u64 = stand.held()?.iter().flatten().sum();
    let taken = stand.gpus.usage()?[0].used;
    ensure!(
        taken >= context() + 264 * MIB && held >= taken,
        "{held} of {taken}"
    );
    let said = client.end()?;
    for launch in launches(&said) {
        ensure!(launch.ends_with(": flat=0 deep=0 flat_again=0"), "{launch}");
    }
    stand.check_peaks()
}

/// The context that comes after a reset has the handle of the one before, and no stacks yet.
#[test]
fn a_known_kernel_is_reserved_for_in_a_new_context() -> Result<()> {
    let stand = Stand::new(1200)?;
    let said = stand.run(&["launches", "anew", "2048"])?;
    said.check()?;
    let line = said.lines.iter().find(|line| line.starts_with("anew: "));
    let line = line.with_context(|| format!("{said:#?}"))?;
    ensure!(line.starts_with("anew: first=0 reset=0 made=0 "), "{line}");
    ensure!(number(line, "blocks")? > 4, "{line}");
    ensure!(line.ends_with(" again=2"), "{line}");
    stand.check_peaks()
}

/// It is there when it is seen to be too much; the one that asked is told, and what it did not get is gone again.
#[test]
fn code_that_is_too_large_is_not_used() -> Result<()> {
    let stand = Stand::new(1200)?;
    let mut client = stand.start(&["launches", "code", "900"])?;
    client.hears("over")?;
    let taken = stand.gpus.usage()?[0].used;
    ensure!(taken <= stand.limit, "{taken}");
    let said = client.end()?;
    said.check()?;
    let lines = said.lines.iter();
    let looks: Vec<&String> = lines.filter(|line| line.starts_with("code cu")).collect();
    ensure!(looks.len() == 5, "{said:#?}");
    for look in looks {
        ensure!(number(look, "used")? != 0, "{look}");
    }
    Ok(())
}

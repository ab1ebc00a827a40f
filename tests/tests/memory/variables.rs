//! Managed variables of code: no call has their size and no figure of the driver's shows them, and they count.

use anyhow::{Result, ensure};
use softmig_fake_node::{Kind, MIB};

use crate::memory::stand::{Said, Stand, context, number};
use crate::memory::ways::OUT_OF_MEMORY;

/// The functions that load code.
const LOADS: [&str; 6] = [
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary",
    "cuModuleLoad",
    "cuLibraryLoadData",
    "cuLibraryLoadFromFile",
];

/// A slice for a context and `mib` MiB beside it.
fn stand(mib: u64) -> Result<Stand> {
    // One MiB more, since a context is rounded up.
    Stand::new(context() / MIB + mib + 1)
}

fn run(stand: &Stand, words: &[&str]) -> Result<Said> {
    let words: Vec<&str> = ["variables"].iter().chain(words).copied().collect();
    let said = stand.run(&words)?;
    said.check()?;
    Ok(said)
}

/// Its size is known only after it is there; if it is too large, it goes again.
#[test]
fn a_managed_variable_larger_than_the_slice_is_refused() -> Result<()> {
    let stand = stand(1000)?;
    let mut client = stand.start(&["variables", "ways", "1100"])?;
    for load in LOADS {
        let line = client.hears(&format!("{load}: "))?;
        let told = ["result", "more", "left"].map(|key| number(&line, key));
        let [result, more, left] = told;
        ensure!((result?, more?, left?) == (OUT_OF_MEMORY, 0, 0), "{line}");
    }
    let managed = stand.gpus.usage()?[0].processes[0].bytes.of(Kind::Managed);
    ensure!(managed == 0, "{managed} bytes are left");
    client.end()?.check()
}

#[test]
fn a_managed_variable_counts_as_long_as_its_code_is_loaded() -> Result<()> {
    let stand = stand(1000)?;
    let said = run(&stand, &["ways", "900"])?;
    for load in LOADS {
        ensure!(
            said.text(load)? == "result=0 more=900 left=0",
            "{load}: {said:#?}"
        );
    }
    stand.check_peaks()
}

/// Its variables are there before any context, and no call need follow.
#[test]
fn a_library_that_is_loaded_before_a_context_is_charged() -> Result<()> {
    let stand = stand(1000)?;
    for (mib, result, more) in [("900", 0, 900), ("4000", OUT_OF_MEMORY, 0)] {
        let said = run(&stand, &["early", mib])?;
        let expected = format!("result={result} more={more}");
        ensure!(said.text("early")? == expected, "{said:#?}");
    }
    Ok(())
}

#[test]
fn variables_go_with_the_context_of_their_module() -> Result<()> {
    let stand = stand(2000)?;
    let said = run(&stand, &["ends", "300"])?;
    for (when, left) in [
        ("destroyed", 0),
        ("reset", 0),
        ("library", 300),
        ("unloaded", 0),
    ] {
        ensure!(said.text(when)? == format!("left={left}"), "{said:#?}");
    }
    stand.check_peaks()
}

/// As the driver has it: what is small lies together, allocated or not.
#[test]
fn small_variables_and_allocations_share_their_pieces() -> Result<()> {
    let stand = stand(1000)?;
    let said = run(&stand, &["small", "100"])?;
    for (when, more) in [
        ("many", 2),
        ("shared", 2),
        ("without the first", 2),
        ("without all", 0),
        ("behind what was freed", 2),
        ("at the end", 0),
    ] {
        ensure!(said.text(when)? == format!("more={more}"), "{said:#?}");
    }
    stand.check_peaks()
}

#[test]
fn managed_memory_is_not_charged_again_as_a_variable() -> Result<()> {
    let stand = stand(1000)?;
    let said = run(&stand, &["beside", "100"])?;
    for (when, figure) in [
        ("loaded", "more=8"),
        ("unloaded", "more=0"),
        ("freed", "left=0"),
    ] {
        ensure!(said.text(when)? == figure, "{said:#?}");
    }
    stand.check_peaks()
}

/// When the process has ended, the next one gets what the variables held.
#[test]
fn the_limit_holds_beside_managed_variables() -> Result<()> {
    let stand = stand(800)?;
    for _ in 0..2 {
        let said = run(&stand, &["fill", "400"])?;
        ensure!(said.number("fill", "taken")? == 50, "{said:#?}");
    }
    stand.check_peaks()
}

#[test]
fn a_variable_of_unnamed_code_counts_when_it_is_asked_for() -> Result<()> {
    let stand = stand(1000)?;
    // No more than all of the slice can be seen to be in use.
    for (mib, result, more) in [("900", 0, 900), ("1100", OUT_OF_MEMORY, 1001)] {
        let said = run(&stand, &["unnamed", mib])?;
        let expected = format!("result={result} more={more} left=0");
        ensure!(said.text("unnamed")? == expected, "{said:#?}");
    }
    Ok(())
}

/// Each moment at which another thread's memory is there and not yet, or no more, in the account.
#[test]
fn threads_that_load_and_allocate_leave_the_account_exact() -> Result<()> {
    let stand = stand(1000)?;
    for _ in 0..5 {
        let said = run(&stand, &["race", "16", "100"])?;
        ensure!(said.text("race")? == "failed=0 left=0 more=2", "{said:#?}");
    }
    Ok(())
}

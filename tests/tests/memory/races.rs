//! Calls of several threads at the same moment, and things that programs leave behind on purpose: a process gets its
//! limit, neither more nor less.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use softmig_fake_node::{Description, Gpu, MIB};

use crate::memory::stand::{Running, Said, Stand, context};
use crate::memory::ways::OUT_OF_MEMORY;

/// A slice for a context and `mib` MiB beside it.
fn stand(mib: u64) -> Result<Stand> {
    // One MiB more, since a context is rounded up.
    Stand::new(context() / MIB + mib + 1)
}

fn run(stand: &Stand, words: &[&str]) -> Result<Said> {
    let words: Vec<&str> = ["races"].iter().chain(words).copied().collect();
    let said = stand.run(&words)?;
    said.check()?;
    Ok(said)
}

/// Room for one context beside what the threads take: if a thread were charged a second context, the others would have
/// too little.
#[test]
fn threads_that_begin_at_once_are_charged_one_context() -> Result<()> {
    let stand = stand(256)?;
    for _ in 0..20 {
        let said = stand.client(&["threads"]).output()?;
        let stdout = String::from_utf8_lossy(&said.stdout);
        let is_well = stdout.contains("threads that met an error: 0 of 64\n");
        ensure!(is_well && said.status.success(), "{said:?}");
    }
    stand.check_peaks()
}

/// While the first one's stacks are being looked after, the kernel is not known yet.
#[test]
fn a_kernel_whose_stacks_do_not_fit_is_launched_by_no_thread() -> Result<()> {
    for _ in 0..10 {
        let stand = stand(200)?;
        let said = run(&stand, &["deep", "4", "20000"])?;
        ensure!(said.number("deep", "failed")? == 4, "{said:#?}");
        stand.check_peaks()?;
    }
    Ok(())
}

/// One that does is charged once.
#[test]
fn a_kernel_that_all_threads_launch_at_once_has_its_stacks_once() -> Result<()> {
    for _ in 0..10 {
        let stand = stand(1300)?;
        let said = run(&stand, &["deep", "8", "4000"])?;
        ensure!(said.number("deep", "failed")? == 0, "{said:#?}");
        stand.check_peaks()?;
    }
    Ok(())
}

#[test]
fn unused_memory_of_a_pool_is_there_for_all_who_ask_at_once() -> Result<()> {
    for _ in 0..5 {
        let stand = stand(1200)?;
        let said = run(&stand, &["kept", "4", "1024", "200"])?;
        ensure!(said.number("kept", "failed")? == 0, "{said:#?}");
        stand.check_peaks()?;
    }
    Ok(())
}

/// Launches go on, too: none waits for events of a context that is gone.
#[test]
fn a_context_that_ends_beside_a_new_one_leaves_nothing() -> Result<()> {
    let stand = stand(2000)?;
    for _ in 0..20 {
        let mut client = stand.client(&["races", "contexts", "3", "100"]);
        client.env("CUDA_DEVICE_SM_LIMIT", "25");
        let said = Running::start(client)?.end()?;
        said.check()?;
        ensure!(said.number("contexts", "failed")? == 0, "{said:#?}");
        let took = Duration::from_millis(said.number("took", "milliseconds")?);
        ensure!(took < Duration::from_secs(120), "{said:#?}");
    }
    stand.check_peaks()
}

/// Thousands of allocations, which move in the table as others are forgotten.
#[test]
fn a_context_ends_with_all_that_was_taken_in_it() -> Result<()> {
    let stand = stand(context() / MIB + 3000 * 6)?;
    let said = run(&stand, &["blocks", "3000", "6"])?;
    ensure!(said.text("blocks")? == "taken=3000 again=0", "{said:#?}");
    stand.check_peaks()
}

/// A descriptor keeps the memory, which no figure of the driver's then has.
#[test]
fn memory_that_a_descriptor_keeps_stays_charged() -> Result<()> {
    for in_stream in ["0", "1"] {
        let stand = stand(1000)?;
        let said = run(&stand, &["descriptors", in_stream, "300"])?;
        let expected = format!("taken=3 then={OUT_OF_MEMORY}");
        ensure!(said.text("descriptors")? == expected, "{said:#?}");
    }
    Ok(())
}

#[test]
fn pools_of_managed_memory_leave_no_charge() -> Result<()> {
    let stand = stand(1000)?;
    let said = run(&stand, &["managed", "5", "256", "50"])?;
    ensure!(said.number("managed", "taken")? == 20, "{said:#?}");
    stand.check_peaks()
}

/// A destroyed pool is not asked about by a thread that knew it a moment before.
#[test]
fn pools_that_come_and_go_harm_no_thread_that_looks() -> Result<()> {
    let stand = stand(1000)?;
    for _ in 0..3 {
        let said = run(&stand, &["pools", "6", "2000", "50"])?;
        ensure!(said.number("pools", "failed")? == 0, "{said:#?}");
        ensure!(said.number("beside", "taken")? == 20, "{said:#?}");
    }
    stand.check_peaks()?;
    // Longer: no thread asks about a pool that is gone. Memory that comes and goes during a look at the driver's figure stays
    // charged until that can be compared, so an allocation may be refused meanwhile.
    let roomy = Stand::new(4000)?;
    run(&roomy, &["pools", "8", "40000", "50"])?;
    roomy.check_peaks()
}

/// The CUDA runtime makes contexts by functions without names. The library cannot count what a process without a ledger
/// takes, so such a process gets nothing.
#[test]
fn a_process_without_an_account_loads_and_launches_nothing() -> Result<()> {
    let stand = stand(1000)?;
    std::fs::remove_file(stand.path("ledger"))?;
    let said = run(&stand, &["private"])?;
    for call in ["cuMemAlloc", "cuModuleLoadData"] {
        ensure!(said.text(call)? == OUT_OF_MEMORY.to_string(), "{said:#?}");
    }
    Ok(())
}

/// A graph's memory is charged when it is launched, and nothing is given back for what never was.
#[test]
fn a_graph_that_is_updated_gives_nothing_back() -> Result<()> {
    let stand = stand(500)?;
    let said = run(&stand, &["updates", "50", "300", "50"])?;
    // A graph with memory takes a piece for itself.
    ensure!(said.number("updates", "taken")? == 9, "{said:#?}");
    stand.check_peaks()
}

#[test]
fn a_thread_without_a_context_takes_no_more_than_others() -> Result<()> {
    let stand = stand(500)?;
    let said = run(&stand, &["apart"])?;
    ensure!(said.number("apart", "failed")? == 1, "{said:#?}");
    ensure!(said.number("apart, a graph", "failed")? == 2, "{said:#?}");
    stand.check_peaks()
}

/// One thread gives memory back while another exports or maps it. The process stays charged for what that keeps, whichever
/// comes first, also where the driver is slow with either.
#[test]
fn memory_that_is_kept_while_it_is_given_back_stays_charged() -> Result<()> {
    for (how, gives_back, keeps) in [
        ("export", "cuMemRelease", "cuMemExportToShareableHandle"),
        ("address", "cuMemFree_v2", "cuMemGetHandleForAddressRange"),
        ("map", "cuMemRelease", "cuMemMap"),
    ] {
        for slow in [None, Some(gives_back), Some(keeps)] {
            let mut description = Description::new(&[Gpu::h200(0)]);
            description.slow = slow.map(Into::into);
            let stand = Stand::with(context() / MIB + 1001, description)?;
            let said = run(&stand, &[how, "300", "10"])?;
            let rounds = said.number(how, "rounds")?;
            // There is room for 100 that are kept. On a busy machine a slow call may come first.
            let expected = match slow {
                None => 100..=300,
                Some(slow) if slow == gives_back => 100..=250,
                Some(_) => 150..=300,
            };
            ensure!(expected.contains(&rounds), "{how}, {slow:?}: {rounds}");
            let peak = stand.check_peaks();
            peak.with_context(|| format!("{how}, {slow:?}: {rounds}"))?;
        }
    }
    Ok(())
}

/// The library remembers what the driver gave, and not what another thread wrote in its place.
#[test]
fn an_address_that_another_thread_writes_over_frees_no_charge() -> Result<()> {
    let description = Description::new(&[Gpu::h200(0)]).slow("cuMemAlloc_v2");
    let stand = Stand::with(context() / MIB + 501, description)?;
    let said = run(&stand, &["overwritten", "1000", "10"])?;
    ensure!(said.number("overwritten", "taken")? == 50, "{said:#?}");
    stand.check_peaks()
}

#[test]
fn pieces_that_descriptors_keep_stay_charged() -> Result<()> {
    let stand = stand(500)?;
    let said = run(&stand, &["pieces", "2000"])?;
    ensure!(said.number("pieces", "taken")? <= 250, "{said:#?}");
    Ok(())
}

/// 8 KiB for each thread that an H200 can run at once, beyond the 1 KiB that each context has.
#[test]
fn a_limit_that_all_threads_set_at_once_is_charged_once() -> Result<()> {
    let stand = stand(4000)?;
    let said = run(&stand, &["limits", "8", "8192", "50"])?;
    ensure!(said.number("limits", "failed")? == 0, "{said:#?}");
    let taken = said.number("beside", "taken")? * 50;
    ensure!((2000..=2200).contains(&taken), "{said:#?}");
    stand.check_peaks()
}

//! The account of a program that is refused, frees what it has not, forks, is killed or goes on.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use softmig_fake_node::{Description, Gpu, MIB};
use softmig_tests::command::PATIENCE;
use softmig_tests::programs::tree;

use crate::memory::stand::{Running, Stand, context, number};
use crate::memory::ways::OUT_OF_MEMORY;

/// One block of the client `lives`.
const STEP: u64 = 8 * MIB;
/// In the slice of these tests: blocks of that size beside one context.
const ALL: u64 = 300;

/// A slice for one context and [`ALL`] blocks.
fn stand() -> Result<Stand> {
    Stand::new(context() / MIB + ALL * STEP / MIB)
}

/// All that the ledger says is held.
fn held(stand: &Stand) -> Result<u64> {
    Ok(stand.held()?.iter().flatten().sum())
}

/// Whether `ALL` blocks and a context are held; the ledger counts a context rounded up.
fn is_full(stand: &Stand, held: u64) -> bool {
    held <= stand.limit && held > stand.limit - STEP
}

/// How many blocks a client says that it took, the last time.
fn blocks(said: &[u64]) -> u64 {
    said.last().copied().unwrap_or(0)
}

#[test]
fn a_refusal_changes_nothing_and_a_free_makes_room() -> Result<()> {
    // One MiB more, since a context is rounded up: without it one block less would fit.
    let stand = Stand::new(context() / MIB + ALL * STEP / MIB + 1)?;
    let mut client = stand.start(&["lives", "refused"])?;
    client.hears("took: ")?;
    let before = held(&stand)?;
    let said = client.hears("refused: ")?;
    ensure!(said == "refused: others=0 wrong=0", "{said}");
    ensure!(held(&stand)? == before, "{} was {before}", held(&stand)?);
    let (refused, recovered) = stand.refusals()?;
    ensure!(refused > 2000 && recovered == 0, "{refused}, {recovered}");
    client.tell()?;
    let said = client.end()?;
    said.check()?;
    ensure!(said.numbers("took", "blocks")? == [ALL, ALL], "{said:#?}");
    // It went on without all but the last.
    ensure!(stand.refusals()? == (refused + 1, refused));
    stand.check_peaks()
}

/// With the library and without: the driver's own answers.
#[test]
fn frees_that_go_wrong_are_the_drivers_to_answer() -> Result<()> {
    let stand = Stand::new(4096)?;
    let without = Running::start(stand.unlimited(&["lives", "frees"]))?.end()?;
    let with = stand.run(&["lives", "frees"])?;
    with.check()?;
    ensure!(with.lines.len() > 30, "{with:#?}");
    ensure!(
        with.lines[1..] == without.lines[1..],
        "{with:#?}\nwithout: {without:#?}"
    );
    Ok(())
}

/// After all those frees nothing is charged too much or too little.
#[test]
fn frees_that_go_wrong_leave_the_account_as_it_was() -> Result<()> {
    let stand = Stand::new(4096)?;
    let said = stand.run(&["takes", "cuMemAlloc_v2", "8388608", "fill"])?;
    let before = said.number("took", "blocks")?;
    let said = stand.run(&["lives", "frees-and-fill"])?;
    said.check()?;
    ensure!(said.number("took", "blocks")? == before, "{said:#?}");
    stand.check_peaks()
}

#[test]
fn a_child_takes_no_account_with_it_and_gives_none_back() -> Result<()> {
    let stand = stand()?;
    let mut client = stand.start(&["lives", "forks"])?;
    client.hears("took: ")?;
    let before = stand.held()?;
    client.tell()?;
    for _ in 0..3 {
        ensure!(client.hears("child: ")? == "child: 0");
        ensure!(
            stand.held()? == before,
            "{:?} was {before:?}",
            stand.held()?
        );
        client.tell()?;
    }
    let said = client.end()?;
    ensure!(
        blocks(&said.numbers("took", "blocks")?) >= ALL - 1,
        "{said:#?}"
    );
    stand.check_peaks()
}

#[test]
fn a_child_that_forks_first_shares_the_slice_with_its_parent() -> Result<()> {
    let stand = Stand::new(2 * context() / MIB + ALL * STEP / MIB + 1)?;
    let mut client = stand.start(&["lives", "fork-first"])?;
    client.hears("took: ")?;
    client.hears("took: ")?;
    let mut both = stand.held()?.concat();
    both.sort_unstable();
    ensure!(both.len() == 2, "{both:?}");
    ensure!(
        both[0] >= context() + 50 * STEP && both[1] >= context() + 100 * STEP,
        "{both:?}"
    );
    // One line is for whichever reads first.
    client.tell()?;
    client.tell()?;
    let said = client.end()?;
    // The child's memory is the parent's to take, its context's too.
    let all = ALL + context() / STEP;
    ensure!(blocks(&said.numbers("took", "blocks")?) >= all, "{said:#?}");
    stand.check_peaks()
}

/// Whether a process has not ended. A zombie, for which its parent has not waited yet, has ended.
pub(super) fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// The child has the driver's open files too, and so keeps the memory: on a real GPU it is free when the child ends.
#[test]
fn a_child_that_outlives_its_parent_keeps_what_it_held() -> Result<()> {
    let stand = stand()?;
    let mut client = stand.start(&["lives", "orphan"])?;
    let child = client.hears("forked: ")?.replace("forked: ", "");
    ensure!(is_full(&stand, held(&stand)?), "{:?}", stand.held()?);
    client.kill()?;
    let said = stand.run(&["lives", "fill"])?;
    ensure!(
        said.text("start")? == OUT_OF_MEMORY.to_string(),
        "{said:#?}"
    );
    // The end of its input ends the child.
    drop(client);
    let deadline = Instant::now() + PATIENCE;
    while runs(&child) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = stand.run(&["lives", "fill"])?;
    ensure!(
        blocks(&said.numbers("took", "blocks")?) >= ALL - 1,
        "{said:#?}"
    );
    stand.check_peaks()
}

#[test]
fn a_program_that_a_process_started_keeps_nothing_of_it() -> Result<()> {
    let stand = stand()?;
    let mut client = stand.start(&["lives", "launcher"])?;
    client.hears("forked: ")?;
    client.kill()?;
    let said = stand.run(&["lives", "fill"])?;
    ensure!(
        blocks(&said.numbers("took", "blocks")?) >= ALL - 1,
        "{said:#?}"
    );
    stand.check_peaks()
}

#[test]
fn memory_that_a_program_held_before_exec_is_free_after_it() -> Result<()> {
    let stand = stand()?;
    let said = stand.run(&["lives", "exec"])?;
    said.check()?;
    let took = said.numbers("took", "blocks")?;
    ensure!(
        took.len() == 2 && took[0] >= ALL - 1 && took[1] == took[0],
        "{said:#?}"
    );
    stand.check_peaks()
}

#[test]
fn a_process_that_closes_all_descriptors_stays_charged() -> Result<()> {
    let stand = stand()?;
    let mut client = stand.start(&["lives", "closes"])?;
    client.hears("took: ")?;
    let before = stand.held()?;
    client.tell()?;
    client.hears("took: ")?;
    ensure!(before.concat().len() == 1 && stand.held()?.concat().len() == 1);
    ensure!(is_full(&stand, held(&stand)?), "{:?}", stand.held()?);
    // It does not count as dead: another process finds the slice full.
    let other = stand.run(&["lives", "fill"])?;
    ensure!(other.text("start")? == "2", "{other:#?}");
    ensure!(is_full(&stand, held(&stand)?), "{:?}", stand.held()?);
    client.tell()?;
    client.end()?;
    stand.check_peaks()
}

#[test]
fn a_driver_that_is_unloaded_and_loaded_again_is_counted_on() -> Result<()> {
    let stand = stand()?;
    let said = stand.run(&["lives", "unloads"])?;
    said.check()?;
    let took = said.numbers("took", "blocks")?;
    ensure!(
        took.len() == 3 && took.iter().all(|took| *took >= ALL - 1),
        "{said:#?}"
    );
    ensure!(
        said.numbers("took", "then")? == [OUT_OF_MEMORY; 3],
        "{said:#?}"
    );
    stand.check_peaks()
}

/// The limits hold for the copy of the driver that a program uses after it asked another.
#[test]
fn a_copy_of_the_driver_is_limited_after_another_was_asked() -> Result<()> {
    let stand = stand()?;
    let copy = stand.path("libcuda-compat.so");
    std::fs::copy(tree().join("usr/lib/x86_64-linux-gnu/libcuda.so.1"), &copy)?;
    let copy = copy.to_str().context("a path that is no text")?;
    for action in ["probes", "probes-by-a-call"] {
        let said = stand.run(&["lives", action, copy])?;
        said.check()?;
        ensure!(said.text("start")? == "0", "{action}: {said:#?}");
        let took = said.number("took", "blocks")?;
        ensure!((ALL - 1..=ALL).contains(&took), "{action}: {said:#?}");
        if action == "probes" {
            ensure!(said.text("found")? == "1", "{said:#?}");
        }
        stand.check_peaks()?;
    }
    Ok(())
}

#[test]
fn no_copy_of_nvml_shows_more_than_the_slice() -> Result<()> {
    let stand = stand()?;
    let copies = ["one", "other"].map(|name| stand.path(&format!("nvml-{name}.so")));
    for copy in &copies {
        std::fs::copy(
            tree().join("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"),
            copy,
        )?;
    }
    let words = copies.each_ref().map(|copy| copy.to_str().unwrap_or(""));
    let said = stand.run(&["lives", "nvml", words[0], words[1]])?;
    said.check()?;
    let limit = (stand.limit / MIB).to_string();
    ensure!(
        said.text("one")? == format!("result=0 total={limit}"),
        "{said:#?}"
    );
    // A device of the one is nothing to the other: 3 is NVML's "not supported".
    ensure!(said.text("other")? == "result=3 total=0", "{said:#?}");
    Ok(())
}

#[test]
fn memory_of_a_context_is_freed_with_it() -> Result<()> {
    let stand = stand()?;
    let said = stand.run(&["lives", "resets"])?;
    said.check()?;
    let took = said.numbers("took", "blocks")?;
    ensure!(
        took.len() == 5 && took.iter().all(|took| *took >= ALL - 1),
        "{said:#?}"
    );
    for what in ["reset", "release", "retain", "use"] {
        ensure!(said.text(what)? == "0", "{said:#?}");
    }
    stand.check_peaks()?;
    let stand = Stand::new(2 * context() / MIB + ALL * STEP / MIB + 1)?;
    let said = stand.run(&["lives", "contexts"])?;
    said.check()?;
    let took = said.numbers("took", "blocks")?;
    ensure!(took.len() == 4 && took[..3] == [ALL; 3], "{said:#?}");
    ensure!(took[3] >= ALL + context() / STEP, "{said:#?}");
    stand.check_peaks()
}

#[test]
fn a_heap_for_kernels_has_its_place_in_the_slice() -> Result<()> {
    let stand = stand()?;
    let said = stand.run(&["lives", "limits"])?;
    said.check()?;
    ensure!(said.text("printf")? == "0", "{said:#?}");
    ensure!(said.text("heap")? == "0", "{said:#?}");
    let took = said.number("took", "blocks")?;
    ensure!(
        (ALL - 64 / 8 - 256 / 8 - 1..=ALL).contains(&took),
        "{said:#?}"
    );
    stand.check_peaks()
}

#[test]
fn the_memory_of_a_killed_process_is_the_next_ones() -> Result<()> {
    let stand = stand()?;
    for round in 0..3 {
        let mut holder = stand.start(&["lives", "fill"])?;
        holder.hears("took: ")?;
        let full = stand.run(&["lives", "fill"])?;
        ensure!(full.text("start")? == "2", "{full:#?}");
        holder.kill()?;
        let said = stand.run(&["lives", "fill"])?;
        ensure!(
            blocks(&said.numbers("took", "blocks")?) >= ALL - 1,
            "round {round}: {said:#?}"
        );
    }
    stand.check_peaks()
}

/// For a second after a death its memory may be the driver's, unless the process is known to be gone.
#[test]
fn processes_one_after_the_other_wait_for_nothing() -> Result<()> {
    let stand = stand()?;
    let mut fastest = Duration::MAX;
    for round in 0..4 {
        let begun = Instant::now();
        let said = stand.run(&["lives", "fill"])?;
        fastest = fastest.min(begun.elapsed());
        let took = blocks(&said.numbers("took", "blocks")?);
        ensure!(took >= ALL - 1, "round {round}: {said:#?}");
        if round == 0 {
            // Nobody was there before it.
            fastest = Duration::MAX;
        }
    }
    ensure!(fastest < Duration::from_secs(1), "{fastest:?}");
    stand.check_peaks()
}

#[test]
fn two_processes_share_one_slice() -> Result<()> {
    let stand = Stand::new(2 * context() / MIB + ALL * STEP / MIB + 1)?;
    let mut one = stand.start(&["takes", "cuMemAlloc_v2", "8388608", "hold", "100"])?;
    one.hears("took: ")?;
    let mut two = stand.start(&["takes", "cuMemAllocAsync", "8388608", "hold", "0"])?;
    let took = number(&two.hears("took: ")?, "blocks")?;
    ensure!((ALL - 104..=ALL - 100).contains(&took), "{took}");
    one.end()?;
    two.end()?;
    stand.check_peaks()
}

#[test]
fn memory_that_a_pool_trims_is_free_for_the_job() -> Result<()> {
    let stand = Stand::new(4096)?;
    let mut client = stand.start(&["lives", "trims"])?;
    let mut after = |what: &str| -> Result<u64> {
        client.hears(what)?;
        let held = held(&stand)?;
        client.tell()?;
        Ok(held / MIB)
    };
    let (kept, trimmed, too) = (
        after("kept: ")?,
        after("trimmed: ")?,
        after("trimmed too: ")?,
    );
    // 64 blocks of 8 MiB in the pool, and as many in graphs.
    ensure!(kept >= context() / MIB + 1024, "{kept}");
    ensure!(
        trimmed <= kept - 480 && trimmed >= context() / MIB + 512,
        "{trimmed} of {kept}"
    );
    ensure!(too <= trimmed - 480, "{too} of {trimmed}");
    client.end()?.check()
}

#[test]
fn memory_that_was_mapped_into_arrays_stays_charged() -> Result<()> {
    let stand = Stand::new(4096)?;
    let mut client = stand.start(&["lives", "sparse"])?;
    client.hears("given: ")?;
    let held = held(&stand)?;
    ensure!(held >= context() + 128 * MIB, "{held}");
    client.end()?.check()
}

/// The rest lies in as many of the driver's pieces as before, and those count.
#[test]
fn memory_that_is_freed_in_fragments_is_not_free() -> Result<()> {
    // The driver does not tell in which pieces an array lies, so the library asks how much all arrays take.
    for (kind, unseen) in [("plain", 0), ("arrays", 8 * MIB)] {
        let stand = Stand::new(2048)?;
        let said = stand.run(&["lives", "fragments", kind])?;
        said.check()?;
        ensure!(said.number("fragments", "blocks")? > 20_000, "{said:#?}");
        ensure!(said.number("took", "blocks")? < 20, "{said:#?}");
        let peak = stand.gpus.peak(0);
        ensure!(peak <= stand.limit + unseen, "{kind}: {peak} bytes");
    }
    Ok(())
}

/// How much code takes is known only after it is loaded; if that is too much, it is unloaded again.
#[test]
fn a_module_larger_than_the_slice_is_refused() -> Result<()> {
    for mib in ["2000", "2500", "40000"] {
        let stand = stand()?;
        let mut client = stand.start(&["lives", "modules", mib])?;
        client.hears("took: ")?;
        let taken = stand.gpus.usage()?[0].used;
        ensure!(taken <= stand.limit, "{mib}: {} MiB are taken", taken / MIB);
        client.tell()?;
        let said = client.end()?;
        said.check()?;
        let fits = u64::from(mib == "2000");
        ensure!(
            said.text("large")? == (OUT_OF_MEMORY * (1 - fits)).to_string(),
            "{said:#?}"
        );
        ensure!(
            said.text("large library")? == OUT_OF_MEMORY.to_string(),
            "{said:#?}"
        );
    }
    Ok(())
}

/// Of a process that NVML does not list, nothing is known but what comes and goes on the GPU.
#[test]
fn a_neighbours_memory_is_not_charged_to_a_process_that_is_not_listed() -> Result<()> {
    let description = Description::new(&[Gpu::h200(0)]).unlisted();
    let stand = Stand::with(8192, description)?;
    let mut client = stand.start(&["lives", "looks"])?;
    let mut free = || -> Result<u64> {
        let said = client.hears("free: ")?;
        client.tell()?;
        ensure!(number(&said, "load")? == 0, "{said}");
        number(&said, "mib")
    };
    let mut least = free()?;
    for _ in 0..3 {
        let before = free()?;
        let words = ["takes", "cuMemAlloc_v2", "33554432", "hold", "500"];
        let mut neighbour = Running::start(stand.unlimited(&words))?;
        neighbour.hears("holding: ")?;
        least = least.min(free()?).min(free()?);
        neighbour.end()?;
        let after = free()?.max(free()?);
        // A module of its own came with each line.
        ensure!(after + 64 > before, "{after} MiB, and {before} before");
    }
    ensure!(least > 8192 - 2 * context() / MIB - 128, "{least} MiB");
    Ok(())
}

/// Where one that had everything was killed, all who begin at the same moment wait for its memory: none takes it for living
/// because another just looks.
#[test]
fn all_who_begin_after_a_death_find_room() -> Result<()> {
    const ROUNDS: usize = 3;
    const CLIENTS: u64 = 8;
    let stand = Stand::new(CLIENTS * (context() + STEP) / MIB + CLIENTS)?;
    for _ in 0..ROUNDS {
        let mut holder = stand.start(&["takes", "cuMemAlloc_v2", "8388608", "hold", "0"])?;
        holder.hears("holding: ")?;
        holder.kill()?;
        let begun =
            (0..CLIENTS).map(|_| stand.start(&["takes", "cuMemAlloc_v2", "8388608", "hold", "1"]));
        for client in begun.collect::<Result<Vec<_>>>()? {
            let said = client.end()?;
            said.check()?;
            ensure!(said.number("took", "blocks")? == 1, "{said:#?}");
        }
    }
    stand.check_peaks()
}

/// compute-sanitizer reports every call of the driver that fails as the program's error.
#[test]
fn the_library_makes_no_call_that_fails() -> Result<()> {
    const WAYS: [&str; 16] = [
        "cuMemAlloc_v2",
        "cuMemAllocPitch_v2",
        "cuMemAllocManaged",
        "cuMemAllocAsync",
        "cuMemPoolCreate",
        "cuMemMap",
        "cuMemCreate",
        "cuArrayCreate_v2",
        "cuMipmappedArrayCreate",
        "cuGraphAddMemAllocNode",
        "captured",
        "cuMemExportToShareableHandle",
        "cuMemGetHandleForAddressRange",
        "cuStreamCreate",
        "cuCtxCreate_v2",
        "cuCtxSetLimit",
    ];
    let stand = Stand::new(65536)?;
    let failed = |mut client: Running| -> Result<u64> {
        client.hears("took: ")?;
        Ok(stand.gpus.calls(client.pid(), "failed"))
    };
    for way in WAYS {
        let words = ["takes", way, "8388608", "hold", "20"];
        let without = failed(Running::start(stand.unlimited(&words))?)?;
        let with = failed(stand.start(&words)?)?;
        ensure!(
            with == without,
            "{way}: {with} calls failed, {without} without the library"
        );
    }
    let words = ["lives", "without-context"];
    let without = failed(Running::start(stand.unlimited(&words))?)?;
    let with = failed(stand.start(&words)?)?;
    ensure!(
        with == without,
        "{with} calls failed, {without} without the library"
    );
    Ok(())
}

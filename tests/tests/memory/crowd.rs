//! Many processes at once: a race for the last of a slice, and a storm in which some of them are killed at any moment.

use std::time::Duration;

use anyhow::{Result, ensure};
use softmig_fake_node::{Description, Gpu, MIB};

use crate::memory::stand::{Stand, context, number};
use crate::memory::ways::OUT_OF_MEMORY;

/// Processes of a crowd.
const COUNT: u64 = 64;
/// How long a storm lasts, in seconds.
const STORM: &str = "10";

/// A slice for the contexts of a crowd and `mib` MiB beside them. Memory of dead processes stays for a while, as it
/// does on a real GPU.
fn stand(mib: u64) -> Result<Stand> {
    let description = Description::new(&[Gpu::h200(0)]).lingering(Duration::from_millis(30));
    Stand::with(COUNT * context() / MIB + mib, description)
}

/// Not one byte over, and no false refusal.
fn race(way: &str, step: u64) -> Result<()> {
    // One more MiB, for what contexts are rounded up to.
    let stand = stand(1025)?;
    let mut crowd = stand.start(&["crowd", "race", &COUNT.to_string(), &step.to_string(), way])?;
    crowd.hears("ready")?;
    let held: u64 = stand.held()?.iter().flatten().sum();
    ensure!(held >= COUNT * context() && held < stand.limit, "{held}");
    crowd.tell()?;
    let full = crowd.hears("full: ")?;
    ensure!(number(&full, "odd")? == 0, "{full}");
    ensure!(number(&full, "refused")? == COUNT, "{full}");
    let room = (stand.limit - COUNT * context()) / step;
    ensure!(number(&full, "blocks")? == room, "{full}, not {room}");
    let taken = stand.gpus.usage()?[0].used;
    ensure!(taken == COUNT * context() + room * step, "{taken}");
    stand.check_peaks()?;
    crowd.end().map(drop)
}

#[test]
fn processes_racing_for_the_last_gib_are_not_refused_wrongly() -> Result<()> {
    race("cuMemAlloc_v2", 8 * MIB)?;
    race("cuMemAlloc_v2", 16 * MIB)?;
    race("cuMemCreate", 8 * MIB)?;
    race("cuArrayCreate_v2", 16 * MIB)
}

/// The ledger's figure of a process may be this much less than its memory: growth without a call of its own is charged
/// at the next look.
const UNSEEN: u64 = 8 * MIB;
/// The figure may be this much more: memory that pools and graphs gave back is seen when nothing else is under way.
const MOST_TOO_MUCH: u64 = 64 * MIB;

/// Compares what each process has with what the ledger says of it.
fn compare(stand: &Stand) -> Result<()> {
    let held = stand.held()?.concat();
    let processes = &stand.gpus.usage()?[0].processes;
    let mut taken: Vec<u64> = processes
        .iter()
        .map(|process| process.bytes.total())
        .collect();
    taken.sort_unstable();
    ensure!(held.len() == taken.len(), "held {held:?}\ntaken {taken:?}");
    for (held, taken) in held.iter().zip(&taken) {
        ensure!(
            held + UNSEEN >= *taken,
            "{taken} are taken and {held} known"
        );
        ensure!(
            *held <= taken + MOST_TOO_MUCH,
            "{taken} are taken and {held} charged"
        );
    }
    Ok(())
}

/// Several threads of several processes at the limit, where each is refused all the time.
#[test]
fn a_crowd_without_deaths_never_has_more_than_the_limit() -> Result<()> {
    let stand = Stand::new(4 * context() / MIB + 600)?;
    let mut crowd = stand.start(&["crowd", "busy", "4", "3", "1"])?;
    let quiet = crowd.hears("quiet: ")?;
    ensure!(number(&quiet, "odd")? == 0, "{quiet}");
    ensure!(number(&quiet, "refused")? > 100, "{quiet}");
    let (peak, most) = (stand.gpus.peak(0), stand.limit + 4 * UNSEEN);
    ensure!(peak <= most, "{peak} of {}", stand.limit);
    compare(&stand)?;
    crowd.end().map(drop)
}

#[test]
fn after_a_storm_of_processes_and_deaths_the_account_is_exact() -> Result<()> {
    let stand = stand(6 * 1024)?;
    let seed = std::process::id().to_string();
    let mut crowd = stand.start(&["crowd", "storm", &COUNT.to_string(), STORM, &seed])?;
    let quiet = crowd.hears("quiet: ")?;
    println!("seed {seed}: {quiet}");
    ensure!(number(&quiet, "odd")? == 0, "{quiet}");
    let peak = || stand.gpus.peak(0);
    let most = stand.limit + COUNT * UNSEEN;
    ensure!(peak() <= most, "{} of {}", peak(), stand.limit);
    // The filler is refused in the end, and then nothing is left of the dead.
    let rest = || stand.start(&["takes", "cuMemAlloc_v2", "8388608", "hold", "0"]);
    let mut filler = rest()?;
    if number(
        &filler.hears("start: ")?.replace("start: ", "start="),
        "start",
    )? == 0
    {
        filler.hears("took: ")?;
    }
    compare(&stand)?;
    ensure!(peak() <= most, "{} of {}", peak(), stand.limit);
    filler.end()?;
    crowd.tell()?;
    crowd.hears("over")?;
    crowd.end()?;
    let mut filler = rest()?;
    let took = filler.hears("took: ")?;
    ensure!(number(&took, "then")? == OUT_OF_MEMORY, "{took}");
    let all = (stand.limit - context()) / (8 * MIB);
    ensure!(
        (all - 1..=all).contains(&number(&took, "blocks")?),
        "{took}, not {all}"
    );
    ensure!(stand.held()?.concat().len() == 1, "{:?}", stand.held()?);
    filler.end()?;
    ensure!(peak() <= most, "{} of {}", peak(), stand.limit);
    Ok(())
}

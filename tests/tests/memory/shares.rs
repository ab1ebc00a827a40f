//! Memory that several processes use: it is counted as long as any of them has it, also after its maker ended.

use anyhow::{Result, ensure};
use softmig_fake_node::MIB;

use crate::memory::stand::{Running, Stand, context, number};
use crate::memory::ways::OUT_OF_MEMORY;

/// One block of the client `shares`.
const STEP: u64 = 4 * MIB;
/// How many blocks have room beside the contexts of three processes. Few: what is shared is memory of this machine's.
const ROOM: u64 = 64;
/// Blocks lost to rounding up: contexts, and pools, which have some room to spare.
const SLACK: u64 = 20;

/// Makes a test of each way to share.
macro_rules! ways {
    ($($name:ident: $way:literal;)*) => {
        mod memory_that_outlives_its_maker_stays_counted_by {
            $(
                #[test]
                fn $name() -> anyhow::Result<()> {
                    super::outlives($way)
                }
            )*
        }

        mod the_limit_holds_for_memory_opened_by {
            $(
                #[test]
                fn $name() -> anyhow::Result<()> {
                    super::opens_no_more($way)
                }
            )*
        }
    };
}

ways! {
    ipc: "ipc";
    ipc_of_old: "ipc-old";
    descriptors_of_physical_memory: "descriptor";
    pools: "pool";
}

/// A slice for this number of contexts and [`ROOM`] blocks.
fn stand(contexts: u64) -> Result<Stand> {
    Stand::new(contexts * context() / MIB + ROOM * STEP / MIB + 1)
}

/// How many blocks a third process gets beside the two.
fn the_rest(stand: &Stand) -> Result<u64> {
    let step = STEP.to_string();
    let mut third = stand.start(&["takes", "cuMemAlloc_v2", &step, "hold", "0"])?;
    let took = number(&third.hears("took: ")?, "blocks")?;
    third.end()?;
    stand.check_peaks()?;
    Ok(took)
}

fn start(stand: &Stand, way: &str, count: u64) -> Result<(Running, u64, u64)> {
    let mut both = stand.start(&["shares", way, &count.to_string()])?;
    let said = both.hears("opened: ")?;
    let (opened, then) = (number(&said, "blocks")?, number(&said, "then")?);
    ensure!(number(&said, "more")? == OUT_OF_MEMORY, "{said}");
    Ok((both, opened, then))
}

fn outlives(way: &str) -> Result<()> {
    const SHARED: u64 = 24;
    let stand = stand(3)?;
    let (mut both, opened, then) = start(&stand, way, SHARED)?;
    ensure!((opened, then) == (SHARED, 0), "{opened} {then}");
    // Each of the two may be charged for them, but one has to be.
    let rest = the_rest(&stand)?;
    ensure!(
        (ROOM - 2 * SHARED - SLACK.min(ROOM - 2 * SHARED)..=ROOM - SHARED).contains(&rest),
        "{rest}"
    );
    both.kill()?;
    both.hears("alone: ")?;
    // The maker's context is free, and no more than that.
    let all = ROOM + context() / STEP + 1;
    let rest = the_rest(&stand)?;
    ensure!(
        (all - SHARED - SLACK..=all - SHARED).contains(&rest),
        "{rest}"
    );
    both.tell()?;
    ensure!(both.hears("closed: ")? == "closed: 0");
    let rest = the_rest(&stand)?;
    ensure!((all - SLACK..=all).contains(&rest), "{rest}");
    Ok(())
}

/// The second process is refused, or the driver counts once what both have. Then the maker ends, and a third process
/// comes.
fn opens_no_more(way: &str) -> Result<()> {
    let stand = stand(2)?;
    let (mut both, opened, then) = start(&stand, way, ROOM - 4)?;
    ensure!(
        opened > 0 && (then == 0 || then == OUT_OF_MEMORY),
        "{opened} {then}"
    );
    stand.check_peaks()?;
    both.kill()?;
    both.hears("alone: ")?;
    the_rest(&stand)?;
    both.tell()?;
    ensure!(both.hears("closed: ")? == "closed: 0");
    let rest = the_rest(&stand)?;
    ensure!((ROOM - SLACK..=ROOM).contains(&rest), "{rest}");
    Ok(())
}

/// Vulkan's and others': they take it without a call that anyone could see, so what is imported counts.
#[test]
fn imported_memory_of_other_interfaces_counts() -> Result<()> {
    let stand = Stand::new(context() / MIB + 100 * 8 + 1)?;
    let said = stand.run(&["lives", "externals"])?;
    said.check()?;
    ensure!(
        said.text("imported")? == "blocks=100 then=2 taken_away=0",
        "{said:#?}"
    );
    ensure!(said.text("destroyed")? == "0", "{said:#?}");
    ensure!(said.number("took", "blocks")? == 100, "{said:#?}");
    Ok(())
}

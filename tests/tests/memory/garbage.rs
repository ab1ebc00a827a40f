//! A file in the ledger's place that is not a ledger, or is full of garbage. Only the job's own user can write it, and
//! it harms only that user's processes.

use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use softmig_fake_node::MIB;

use crate::memory::stand::{Running, Stand, context};
use crate::memory::ways::OUT_OF_MEMORY;
use crate::stand::make_ledger;

/// Blocks of 8 MiB in the slices here.
const ALL: u64 = 100;

/// A neighbour with a ledger of its own, and a second ledger that is spoilt.
struct Spoilt {
    stand: Stand,
    path: PathBuf,
}

impl Spoilt {
    fn new() -> Result<Spoilt> {
        let stand = Stand::new(context() / MIB + ALL * 8 + 1)?;
        let path = stand.path("spoilt");
        Ok(Spoilt { stand, path })
    }

    /// A client with the ledger that is spoilt.
    fn client(&self, words: &[&str]) -> Command {
        let mut command = self.stand.client(words);
        command.env("SOFTMIG_RUN", &self.path);
        command
    }

    /// A ledger as it should be.
    fn make(&self) -> Result<()> {
        let _ = std::fs::remove_file(&self.path);
        make_ledger(&self.path, 1)
    }

    /// The neighbour has its whole slice.
    fn check_neighbour(&self) -> Result<()> {
        let said = self
            .stand
            .run(&["takes", "cuMemAlloc_v2", "8388608", "fill"])?;
        said.check()?;
        ensure!(said.number("took", "blocks")? == ALL, "{said:#?}");
        ensure!(said.number("again", "blocks")? == ALL, "{said:#?}");
        Ok(())
    }
}

/// A client gets no memory, in words that it understands, and no more than that happens.
fn gets_nothing(spoilt: &Spoilt, how: &str) -> Result<()> {
    spoilt.stand.gpus.forget_peak(0);
    let said =
        Running::start(spoilt.client(&["takes", "cuMemAlloc_v2", "8388608", "fill"]))?.end()?;
    let started = said.text("start")?;
    ensure!(said.status.success() && started != "0", "{how}: {said:#?}");
    let peak = spoilt.stand.gpus.peak(0);
    ensure!(peak == 0, "{how}: {peak} bytes were taken");
    Ok(())
}

#[test]
fn without_a_ledger_that_can_be_trusted_no_memory_is_given() -> Result<()> {
    let spoilt = Spoilt::new()?;
    let path = spoilt.path.as_path();
    gets_nothing(&spoilt, "missing")?;
    std::fs::create_dir(path)?;
    gets_nothing(&spoilt, "a folder")?;
    std::fs::remove_dir(path)?;
    symlink(spoilt.stand.path("ledger"), path)?;
    gets_nothing(&spoilt, "a link")?;
    spoilt.make()?;
    for mode in [0o620, 0o602, 0o666] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
        gets_nothing(&spoilt, "others may write to it")?;
    }
    for size in [0, 1, 4096, 4096 + 65535] {
        spoilt.make()?;
        open(path)?.set_len(size)?;
        gets_nothing(&spoilt, &format!("{size} bytes"))?;
    }
    spoilt.make()?;
    open(path)?.write_all_at(&2_u64.to_ne_bytes(), 0)?;
    gets_nothing(&spoilt, "another version")?;
    std::fs::write(path, [0xff; 4096 + 65536])?;
    gets_nothing(&spoilt, "all ones")?;
    if rustix::process::geteuid().is_root() {
        spoilt.make()?;
        std::os::unix::fs::chown(path, Some(2001), None)?;
        gets_nothing(&spoilt, "another's")?;
    }
    spoilt.check_neighbour()
}

fn open(path: &Path) -> Result<std::fs::File> {
    let file = std::fs::OpenOptions::new().write(true).open(path);
    file.with_context(|| format!("opening {}", path.display()))
}

/// Bytes without a pattern.
fn garbage(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let words = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state ^ state >> 29).to_ne_bytes()
    });
    words.flatten().take(4096 + 65536).collect()
}

/// Full of garbage behind its first word: what its own processes get is anything, and they end.
#[test]
fn garbage_in_a_ledger_delays_no_process() -> Result<()> {
    let spoilt = Spoilt::new()?;
    for seed in 1..=8 {
        spoilt.make()?;
        let mut bytes = garbage(seed);
        bytes[..8].copy_from_slice(&1_u64.to_ne_bytes());
        if seed % 2 == 0 {
            // Which GPU each part belongs to stays as it is: its grants and slots alone are garbage.
            bytes[8..4096].fill(0);
        }
        open(&spoilt.path)?.write_all_at(&bytes, 0)?;
        let said = Running::start(spoilt.client(&["takes", "cuMemAllocAsync", "8388608", "fill"]))?
            .end()?;
        ensure!(said.status.success(), "{seed}: {said:#?}");
        spoilt.check_neighbour()?;
    }
    Ok(())
}

#[test]
fn garbage_that_is_written_all_the_time_delays_no_process() -> Result<()> {
    let spoilt = Spoilt::new()?;
    spoilt.make()?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| -> Result<()> {
            let file = open(&spoilt.path)?;
            let mut seed = 0;
            while !over.load(Ordering::Relaxed) {
                seed += 1;
                file.write_all_at(&garbage(seed)[8..], 8)?;
            }
            Ok(())
        });
        let ran = || -> Result<()> {
            let mut crowd = Running::start(spoilt.client(&["crowd", "busy", "2", "1", "1"]))?;
            crowd.hears("quiet: ")?;
            crowd.end()?;
            spoilt.check_neighbour()
        };
        let ran = ran();
        over.store(true, Ordering::Relaxed);
        writer.join().expect("the writer's thread")?;
        ran
    })
}

/// Made shorter under those who have it mapped, it ends them, and them alone.
#[test]
fn a_ledger_that_is_cut_ends_its_own_processes_alone() -> Result<()> {
    const SIGBUS: i32 = 7;
    let spoilt = Spoilt::new()?;
    spoilt.make()?;
    let mut own = Running::start(spoilt.client(&["lives", "closes"]))?;
    own.hears("took: ")?;
    let mut neighbour = spoilt.stand.start(&["lives", "closes"])?;
    neighbour.hears("took: ")?;
    open(&spoilt.path)?.set_len(0)?;
    own.tell()?;
    let said = own.end()?;
    ensure!(said.status.signal() == Some(SIGBUS), "{said:#?}");
    neighbour.tell()?;
    neighbour.hears("took: ")?;
    neighbour.tell()?;
    let said = neighbour.end()?;
    ensure!(said.status.success(), "{said:#?}");
    let took = said.numbers("took", "blocks")?;
    ensure!(took.last() == Some(&ALL), "{said:#?}");
    ensure!(
        said.numbers("took", "then")?.last() == Some(&OUT_OF_MEMORY),
        "{said:#?}"
    );
    spoilt.check_neighbour()
}

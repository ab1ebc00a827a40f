//! Many processes with several threads each, killed at any moment: the account stays right, and the limit is kept.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::path::Path;
use std::process::Child;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use support::{Mapped, join, make, open, reap, start, started};

const PROCESSES: usize = 16;
const THREADS: u64 = 4;
const GPUS: usize = 2;
/// The units that all processes together may hold of each GPU, and the most that is asked for at once.
const LIMIT: u32 = 1000;
const MOST: usize = 16;
const ROUNDS: usize = 20;
/// In grants.
const ROUND: u64 = 10_000;

/// More slots than processes: who looks for a dead one has its lock for a moment.
const SLOTS: usize = 2 * PROCESSES;

/// The words of the processes beside the ledger, by their place in a file of their own.
mod said {
    /// Not zero when all shall stop.
    pub const STOP: usize = 0;
    /// How often units were granted and refused, and how many slots of the dead held any.
    pub const GRANTED: usize = 64;
    pub const REFUSED: usize = 128;
    pub const REAPED: usize = 192;
    pub const SIZE: u64 = 64 << 10;

    /// Not zero if the process holds what it holds for good.
    pub const fn done(slot: usize) -> usize {
        held(super::GPUS, slot)
    }

    /// The units that the process holds for certain.
    pub const fn held(gpu: usize, slot: usize) -> usize {
        4096 + (slot * (super::GPUS + 1) + gpu) * 64
    }
}

fn said(path: &Path) -> Mapped {
    Mapped::new(&open(&path.with_extension("said")))
}

fn forget(said: Mapped, slot: usize) {
    assert!(slot < SLOTS);
    for of_gpu in 0..=GPUS {
        said.word(said::held(of_gpu, slot)).store(0, SeqCst);
    }
}

/// The words themselves.
impl Mapped {
    /// The latest grant on a GPU.
    fn grant(self, gpu: usize) -> u64 {
        self.word(320 + 64 * gpu).load(SeqCst)
    }

    /// The units that a slot uses and holds of a GPU, a grant that was not entered yet included, if this is its latest.
    fn slot(self, gpu: usize, slot: usize, grant: u64) -> (u64, u64) {
        let place = 4096 + 65536 * gpu + 64 * slot;
        let word = self.word(place).load(SeqCst);
        let (used, granted) = (word & 0xff_ffff, word >> 24 & 0xff_ffff);
        let is_next = (grant >> 24 & 0x3ff, grant >> 34 & 0xffff) == (slot as u64, word >> 48);
        let next = if is_next { grant & 0xff_ffff } else { 0 };
        (used + next, granted.max(used) + next)
    }
}

/// The work of each process.
#[test]
fn process() {
    let Some(path) = started() else { return };
    let said = said(&path);
    let (slot, ledger) = join(&path, GPUS, |slot| forget(said, slot));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let path = &path;
            scope.spawn(move || {
                let random = Random(u64::from(std::process::id()) << 8 | thread);
                work(random, path, slot, ledger, said);
            });
        }
    });
    said.word(said::done(slot)).store(1, SeqCst);
    loop {
        std::thread::park();
    }
}

fn work(mut random: Random, path: &Path, slot: usize, ledger: Mapped, said: Mapped) {
    let mut held = Vec::new();
    while said.word(said::STOP).load(SeqCst) == 0 {
        if random.below(5) < 3 {
            let (gpu, units) = (random.below(GPUS), random.below(MOST) + 1);
            if ledger.gpu(gpu).reserve(slot, units as u32, LIMIT).is_ok() {
                let say = said.word(said::held(gpu, slot));
                say.fetch_add(units as u64, SeqCst);
                held.push((gpu, units));
                said.word(said::GRANTED).fetch_add(1, SeqCst);
            } else {
                said.word(said::REFUSED).fetch_add(1, SeqCst);
                if random.below(20) == 0 {
                    let reaped = reap(path, ledger, SLOTS, |slot| forget(said, slot));
                    said.word(said::REAPED).fetch_add(reaped, SeqCst);
                }
            }
        } else if !held.is_empty() {
            let (gpu, units) = held.swap_remove(random.below(held.len()));
            let say = said.word(said::held(gpu, slot));
            say.fetch_sub(units as u64, SeqCst);
            ledger.gpu(gpu).refund(slot, units as u32);
        }
    }
}

#[test]
fn killing_any_process_keeps_the_account_and_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    make(&path, GPUS);
    let file = std::fs::File::create_new(path.with_extension("said")).unwrap();
    file.set_len(said::SIZE).unwrap();
    let (ledger, said) = (Mapped::new(&open(&path)), said(&path));
    let says = |place| said.word(place).load(SeqCst);
    let mut random = Random(2026);
    let mut processes = Processes::default();
    let mut looks = 0;

    for _ in 0..ROUNDS {
        // While the others are stopped, since they would leave no time.
        processes.fill(&path);
        processes.signal(libc::SIGCONT);
        let end = says(said::GRANTED) + ROUND;
        while says(said::GRANTED) < end {
            looks += look_while_they_run(ledger);
        }
        // One is killed while it runs, one while it is stopped.
        processes.kill_one(&mut random);
        processes.stop();
        look_while_they_stand(ledger, said);
        processes.kill_one(&mut random);
    }
    processes.fill(&path);
    processes.signal(libc::SIGCONT);

    said.word(said::STOP).store(1, SeqCst);
    while (0..SLOTS).map(|slot| says(said::done(slot))).sum::<u64>() < PROCESSES as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The living stay, the dead go.
    look_while_they_stand(ledger, said);
    reap(&path, ledger, SLOTS, |slot| forget(said, slot));
    for gpu in 0..GPUS {
        for slot in 0..SLOTS {
            let used = ledger.gpu(gpu).held_by(slot);
            assert_eq!(u64::from(used), says(said::held(gpu, slot)));
        }
    }
    drop(processes);
    assert!(reap(&path, ledger, SLOTS, |_| ()) > 0);
    let (slot, ledger) = join(&path, GPUS, |_| ());
    for gpu in 0..GPUS {
        assert_eq!(ledger.gpu(gpu).held(), 0);
        ledger.gpu(gpu).reserve(slot, LIMIT, LIMIT).unwrap();
    }
    println!(
        "{} grants, {} refusals, {} dead found, {looks} looks",
        says(said::GRANTED),
        says(said::REFUSED),
        says(said::REAPED),
    );
    assert!(looks > 0 && says(said::REFUSED) > 0);
}

/// Checks that the processes never hold too much together: from one grant to the next, the sum can only become less.
/// Returns how often it could be seen.
fn look_while_they_run(ledger: Mapped) -> u64 {
    let mut looks = 0;
    for gpu in 0..GPUS {
        let grant = ledger.grant(gpu);
        let held: u64 = (0..SLOTS).map(|slot| ledger.slot(gpu, slot, grant).1).sum();
        if ledger.grant(gpu) == grant {
            assert!(held <= LIMIT.into(), "{held} of GPU {gpu}");
            looks += 1;
        }
    }
    looks
}

/// Checks that the ledger knows the units that each process says it holds, and not many more, and that together they
/// hold no more than they may.
fn look_while_they_stand(ledger: Mapped, said: Mapped) {
    for gpu in 0..GPUS {
        let mut all = 0;
        let grant = ledger.grant(gpu);
        for slot in 0..SLOTS {
            let (used, held) = ledger.slot(gpu, slot, grant);
            let says = said.word(said::held(gpu, slot)).load(SeqCst);
            assert!(says <= used && used <= held, "{says}, {used}, {held}");
            // A thread is at one call.
            assert!(used <= says + THREADS * MOST as u64, "{says}, {used}");
            all += says;
        }
        assert!(all <= LIMIT.into(), "{all} of GPU {gpu}");
    }
    assert_eq!(look_while_they_run(ledger), GPUS as u64);
}

/// The processes, and those killed that were not waited for. All end with the test.
#[derive(Default)]
struct Processes(Vec<Child>, Vec<Child>);

impl Processes {
    fn fill(&mut self, path: &Path) {
        while self.0.len() < PROCESSES {
            self.0.push(start("process", path));
        }
    }

    fn signal(&self, signal: i32) {
        for process in &self.0 {
            // SAFETY: numbers, and a child that was not waited for.
            assert_eq!(unsafe { libc::kill(process.id() as i32, signal) }, 0);
        }
    }

    fn kill_one(&mut self, random: &mut Random) {
        let mut process = self.0.swap_remove(random.below(self.0.len()));
        process.kill().unwrap();
        self.1.push(process);
    }

    /// Returns when all are stopped, and the killed are dead.
    fn stop(&mut self) {
        self.signal(libc::SIGSTOP);
        for process in &self.0 {
            let (id, mut status) = (process.id() as i32, 0);
            // SAFETY: a place for the status.
            let found = unsafe { libc::waitpid(id, &mut status, libc::WUNTRACED) };
            assert!(found == id && libc::WIFSTOPPED(status), "{status:x}");
        }
        for mut process in self.1.drain(..) {
            process.wait().unwrap();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in self.0.iter_mut().chain(&mut self.1) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }
}

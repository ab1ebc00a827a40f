//! The time that the ledger takes for each allocation: `cargo bench -p softmig-region`.

use std::num::NonZeroU64;
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use softmig_region::{GpuLedger, Ledger, SLOTS, size};

const CALLS: u32 = 200_000;
const ROUNDS: usize = 15;

#[repr(C, align(64))]
struct Line([AtomicU64; 8]);

fn main() {
    for (name, slot_of) in [("one process", 0), ("one each", 1)] {
        for threads in [1, 2, 8] {
            let pair = at_once(threads, |gpu, thread| pairs(gpu, thread * slot_of));
            println!("{pair:8.1} ns  reserve and refund, from slack: {threads} threads, {name}");
        }
    }
    for used in [1, 16, 256, SLOTS] {
        let grant = measure(used, |gpu| grants(gpu, used - 1));
        println!("{grant:8.1} ns  a grant, {used} slots in use");
        let pair = measure(used, |gpu| stolen(gpu, used));
        println!("{pair:8.1} ns  a grant of another's slack, {used} slots in use");
        let refusal = measure(used, |gpu| refusals(gpu, used - 1));
        println!("{refusal:8.1} ns  a refusal, {used} slots in use");
    }
    for threads in [2, 8] {
        let grant = at_once(threads, grants);
        println!("{grant:8.1} ns  a grant, {threads} processes at once");
    }
}

/// From slack, as of a program that frees and allocates the same again.
fn pairs(gpu: GpuLedger<'_>, slot: usize) -> u32 {
    let _ = gpu.reserve(slot, 64, u32::MAX);
    for _ in 0..CALLS {
        gpu.refund(slot, 4);
        let _ = gpu.reserve(slot, 4, u32::MAX);
    }
    CALLS
}

/// Each more than ever before.
fn grants(gpu: GpuLedger<'_>, slot: usize) -> u32 {
    for _ in 0..CALLS / 10 {
        let _ = gpu.reserve(slot, 1, u32::MAX);
    }
    gpu.clear(slot);
    CALLS / 10
}

/// Two processes by turns, with room for one of them.
fn stolen(gpu: GpuLedger<'_>, used: usize) -> u32 {
    for call in 0..CALLS / 10 {
        let slot = (call as usize % 2).min(used - 1);
        let _ = gpu.reserve(slot, 4 + call % 2, 5);
        gpu.refund(slot, 5);
    }
    CALLS / 10
}

fn refusals(gpu: GpuLedger<'_>, slot: usize) -> u32 {
    for _ in 0..CALLS / 100 {
        let _ = gpu.reserve(slot, 5, 4);
    }
    CALLS / 100
}

fn measure(used: usize, calls: impl Fn(GpuLedger<'_>) -> u32) -> f64 {
    with_ledger(used, |gpu| {
        median(|| {
            let start = Instant::now();
            let calls = calls(gpu);
            start.elapsed().as_nanos() as f64 / f64::from(calls)
        })
    })
}

/// The time of one call of one thread, while others do the same.
fn at_once(threads: usize, calls: impl Fn(GpuLedger<'_>, usize) -> u32 + Sync) -> f64 {
    let calls = &calls;
    with_ledger(threads, |gpu| {
        median(|| {
            let ready = Barrier::new(threads);
            let one = |thread| {
                ready.wait();
                let start = Instant::now();
                let calls = calls(gpu, thread);
                start.elapsed().as_nanos() as f64 / f64::from(calls)
            };
            std::thread::scope(|scope| {
                let one = &one;
                let others: Vec<_> = (1..threads)
                    .map(|thread| scope.spawn(move || one(thread)))
                    .collect();
                let first = one(0);
                let rest: f64 = others
                    .into_iter()
                    .filter_map(|thread| thread.join().ok())
                    .sum();
                (first + rest) / threads as f64
            })
        })
    })
}

fn median(round: impl Fn() -> f64) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    times.sort_by(f64::total_cmp);
    times.swap_remove(ROUNDS / 2)
}

fn with_ledger<R>(used: usize, measure: impl FnOnce(GpuLedger<'_>) -> R) -> R {
    let line = || Line(std::array::from_fn(|_| AtomicU64::new(0)));
    let lines: Vec<Line> = (0..size(1) / 64).map(|_| line()).collect();
    // SAFETY: the lines are `size(1)` bytes of atomics, aligned as a ledger has to be.
    let ledger = unsafe { Ledger::at(lines.as_ptr().cast(), size(1)) };
    let ledger = ledger.expect("a ledger of zeros");
    ledger.use_slot(used - 1);
    measure(ledger.gpu(NonZeroU64::MIN).expect("room for one"))
}

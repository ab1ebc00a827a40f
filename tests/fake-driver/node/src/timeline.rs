//! When a kernel runs: one after the other on each device, over all processes, in the order in which they arrive.
//!
//! The model has no time slices, no two kernels at a time and no cost of switching, so what a limiter measures with it
//! is exact. The end of a kernel is known when it arrives, so a waiting program sleeps until then. A kernel whose
//! process dies is taken off; those queued behind it keep their times.
//!
//! A node with a scheduler goes by src/runlist.rs instead.

use crate::layout::{DeviceState, STRETCHES, Stretch, get, set};
use crate::mapped::Mapped;
use crate::process::Process;
use crate::{clock, reap, runlist};

/// How long a foreign queue may be before it is asked whether its owners still live.
const LONG_QUEUE: u64 = 10_000_000;

impl Process {
    /// Puts a kernel on a device's queue: not before `ready`, and after all that arrived earlier. Returns when it ends.
    pub fn run(&self, device: usize, ready: u64, duration: u64) -> u64 {
        let shared = self.mapped.shared();
        let _held = shared.lock.lock();
        let Some(state) = shared.devices.get(device) else {
            return ready;
        };
        if get(&state.busy_until) > clock::now(&self.mapped) + LONG_QUEUE {
            reap::reap(&self.mapped);
        }
        let Some(record) = self.record() else {
            return ready;
        };
        let start = ready.max(get(&state.busy_until));
        let end = start.saturating_add(duration);
        set(&state.busy_until, end);
        remember(state, self.slot, start, end);
        if let Some(busy) = record.busy.get(device) {
            set(busy, get(busy).saturating_add(duration));
        }
        end
    }

    /// How long a device worked between two points in time, by process; processes have left, some of them.
    #[must_use]
    pub fn worked(&self, device: usize, from: u64, to: u64) -> Vec<(usize, u64)> {
        let shared = self.mapped.shared();
        let _held = shared.lock.lock();
        runlist::catch_up(&self.mapped, device);
        let mut by_slot: Vec<(usize, u64)> = Vec::new();
        for (slot, start, end) in shared.devices.get(device).into_iter().flat_map(stretches) {
            let time = end.min(to).saturating_sub(start.max(from));
            match by_slot.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, sum)) => *sum += time,
                None => by_slot.push((slot, time)),
            }
        }
        by_slot.retain(|(_, time)| *time > 0);
        by_slot
    }
}

/// Takes a dead process's work off the queues.
pub(crate) fn drop_process(mapped: &Mapped, slot: usize) {
    let now = clock::now(mapped);
    for state in &mapped.shared().devices {
        let mut busy_until = 0;
        for stretch in &state.stretches {
            if get(&stretch.slot) == slot as u64 + 1 {
                set(&stretch.end, get(&stretch.end).min(now));
                if get(&stretch.start) > now {
                    set(&stretch.slot, 0);
                }
            }
            if get(&stretch.slot) != 0 {
                busy_until = get(&stretch.end).max(busy_until);
            }
        }
        set(&state.busy_until, busy_until);
    }
}

/// Adds a stretch of work. If the last one is of the same process and ended as this one begins, it is made longer
/// instead: many short kernels are one stretch.
pub(crate) fn remember(state: &DeviceState, slot: usize, start: u64, end: u64) {
    let next = get(&state.next_stretch);
    if let Some(last) = stretch(state, next.wrapping_sub(1))
        && get(&last.slot) == slot as u64 + 1
        && get(&last.end) == start
    {
        set(&last.end, end);
        return;
    }
    if let Some(new) = stretch(state, next) {
        set(&new.start, start);
        set(&new.end, end);
        set(&new.slot, slot as u64 + 1);
    }
    set(&state.next_stretch, next + 1);
}

fn stretch(state: &DeviceState, number: u64) -> Option<&Stretch> {
    state.stretches.get(number as usize % STRETCHES)
}

fn stretches(state: &DeviceState) -> impl Iterator<Item = (usize, u64, u64)> {
    let taken = state.stretches.iter().filter(|one| get(&one.slot) != 0);
    taken.map(|one| {
        let slot = get(&one.slot) as usize - 1;
        (slot, get(&one.start), get(&one.end))
    })
}

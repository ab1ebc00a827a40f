//! The work that clients of packs leave on the GPU when they end: kernels that have begun go on to their end, as long as the pack has
//! the GPU.

use std::collections::BTreeMap;

use super::switch_log::Stays;
use crate::schedule::{Job, Nanos};

/// For so much of its pack's time kernels may go on after their process's end. Few take longer.
const LONGEST_KERNEL: Nanos = 1_000_000_000;

/// The processes of packs that have ended with work on the GPU. `M` is what tells a pack's supervisor of one.
#[derive(Debug)]
pub(super) struct Leftovers<M> {
    processes: BTreeMap<u32, Leftover<M>>,
    /// The moment until which time was counted.
    counted: Nanos,
}

#[derive(Debug)]
struct Leftover<M> {
    tenant: Job,
    left: Nanos,
    member: M,
}

impl<M> Leftovers<M> {
    pub(super) fn new() -> Self {
        Self {
            processes: BTreeMap::new(),
            counted: 0,
        }
    }

    /// A process has ended with work, and its pack has this tenant.
    pub(super) fn add(&mut self, now: Nanos, process: u32, tenant: Job, member: M) {
        if self.processes.is_empty() {
            self.counted = now;
        }
        let left = LONGEST_KERNEL;
        let leftover = Leftover {
            tenant,
            left,
            member,
        };
        self.processes.insert(process, leftover);
    }

    /// Whether there are any.
    pub(super) fn is_any(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Counts the time until now, by the GPU's log. `tenant` says whose a process is, and `is_held` who could not have the GPU by then.
    /// Returns those whose kernels have ended.
    pub(super) fn count(
        &mut self,
        now: Nanos,
        stays: &BTreeMap<u32, Stays>,
        tenant: impl Fn(u32) -> Option<Job>,
        is_held: impl Fn(Job) -> bool,
    ) -> Vec<M> {
        let mut had: BTreeMap<Job, Nanos> = BTreeMap::new();
        let passed = (now - std::mem::replace(&mut self.counted, now)).max(0);
        let mut idle = passed;
        for (&process, stays) in stays {
            let ended = || self.processes.get(&process).map(|it| it.tenant);
            if let Some(tenant) = tenant(process).or_else(ended) {
                *had.entry(tenant).or_default() += stays.resident;
            }
            idle -= stays.resident;
        }
        let idle = idle.max(0);
        let time = |tenant: Job| match had.get(&tenant).copied().unwrap_or(0) {
            had if is_held(tenant) => had,
            // It could have had the GPU, and has no kernel that runs.
            0 => passed,
            // A kernel whose process has ended makes no entry in the log if the group is there already.
            had => had + idle,
        };
        for one in self.processes.values_mut() {
            one.left -= time(one.tenant);
        }
        let all = std::mem::take(&mut self.processes);
        let (off, on): (BTreeMap<_, _>, _) = all.into_iter().partition(|(_, it)| it.left <= 0);
        self.processes = on;
        off.into_values().map(|it| it.member).collect()
    }

    /// Forgets those of packs that have no tenant any more: the supervisor counts by itself where nobody else is there.
    pub(super) fn retain(&mut self, is_tenant: impl Fn(Job) -> bool) {
        self.processes.retain(|_, it| is_tenant(it.tenant));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const MS: Nanos = 1_000_000;
    const PACK: Job = Job(7);

    fn stay(resident: Nanos) -> Stays {
        Stays {
            resident,
            ..Stays::default()
        }
    }

    proptest! {
        /// Looks of up to 100 ms, in which process 1 of the pack and process 2 of another job have parts of the time, and the pack is
        /// held or not.
        #[test]
        fn kernels_have_their_time_on_the_gpu_and_no_less(
            looks in vec((1..100 * MS, 0.0..0.6, 0.0..0.4, any::<bool>()), 1..400),
        ) {
            let mut leftovers = Leftovers::new();
            leftovers.add(0, 5, PACK, "five");
            let (mut now, mut had, mut off) = (0, 0, false);
            for (time, own, others, is_held) in looks {
                now += time;
                let part = |part: f64| (time as f64 * part) as Nanos;
                let resident = if is_held { 0 } else { part(own) };
                let stays = [(1, stay(resident)), (2, stay(part(others)))].into();
                had += match resident {
                    _ if is_held => 0,
                    0 => time,
                    _ => time - part(others),
                };
                let tenant = |process| Some(if process == 1 { PACK } else { Job(8) });
                let ended = leftovers.count(now, &stays, tenant, |_| is_held);
                prop_assert!(ended.is_empty() || !off);
                off |= !ended.is_empty();
                prop_assert_eq!(off, had >= LONGEST_KERNEL);
                prop_assert_eq!(leftovers.is_any(), !off);
            }
        }
    }

    #[test]
    fn the_log_may_name_who_has_ended() {
        let mut leftovers = Leftovers::new();
        leftovers.add(0, 5, PACK, ());
        leftovers.add(0, 6, Job(9), ());
        let stays = [(5, stay(LONGEST_KERNEL))].into();
        let off = leftovers.count(LONGEST_KERNEL, &stays, |_| None, |_| true);
        assert_eq!((off.len(), leftovers.is_any()), (1, true));
        leftovers.retain(|tenant| tenant == PACK);
        assert!(!leftovers.is_any());
        // Time before a process ended is not its own.
        leftovers.add(9 * LONGEST_KERNEL, 5, PACK, ());
        let none = BTreeMap::new();
        let off = leftovers.count(9 * LONGEST_KERNEL + 1, &none, |_| None, |_| false);
        assert!(off.is_empty());
    }
}

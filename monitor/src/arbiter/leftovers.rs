//! The work that clients of packs leave on the GPU when they end: kernels that have begun go on to their end, as long as the pack has
//! the GPU.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::switch_log::Stays;
use crate::schedule::{Job, Nanos};

/// For so much of its pack's time kernels may go on after their process's end. Few take longer.
const LONGEST_KERNEL: Nanos = 1_000_000_000;

/// The processes of packs that have ended. `M` is what tells a pack's supervisor of one.
#[derive(Debug)]
pub(super) struct Leftovers<M> {
    processes: BTreeMap<u32, Leftover<M>>,
    /// The moment until which time was counted.
    counted: Nanos,
    told: (Sender<Told>, Receiver<Told>),
}

#[derive(Debug)]
struct Leftover<M> {
    tenant: Job,
    /// The time of the pack's that its kernels have to end.
    needs: Nanos,
    left: Nanos,
    member: M,
}

/// What came of it that a supervisor was told of a process: false if its channels were on the GPU until now, so that its time begins.
pub(super) type Told = (u32, bool);

impl<M: Clone> Leftovers<M> {
    pub(super) fn new() -> Self {
        Self {
            processes: BTreeMap::new(),
            counted: 0,
            told: channel(),
        }
    }

    /// A process has ended, and its pack has this tenant.
    pub(super) fn add(
        &mut self,
        now: Nanos,
        (process, has_work): (u32, bool),
        tenant: Job,
        member: M,
    ) {
        if self.processes.is_empty() {
            self.counted = now;
        }
        let needs = if has_work { LONGEST_KERNEL } else { 0 };
        let leftover = Leftover {
            tenant,
            needs,
            left: needs,
            member,
        };
        self.processes.insert(process, leftover);
    }

    /// Whether there are any.
    pub(super) fn is_any(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Who tells a supervisor says here what came of it.
    pub(super) fn told(&self) -> Sender<Told> {
        self.told.0.clone()
    }

    /// Counts the time until now, by the GPU's log. `tenant` says whose a process is, and `is_held` who could not have the GPU by then.
    /// Returns those whose kernels have ended, which their supervisors are to be told.
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
        self.take_answers();
        let off = self.processes.values_mut().filter(|it| it.left <= 0);
        let told = off.map(|it| {
            // Without an answer it is told again.
            it.left = LONGEST_KERNEL;
            it.member.clone()
        });
        told.collect()
    }

    /// The time of those whose channels were on the GPU until now begins.
    fn take_answers(&mut self) {
        for (process, is_off) in self.told.1.try_iter() {
            if is_off {
                self.processes.remove(&process);
            } else if let Some(one) = self.processes.get_mut(&process) {
                one.left = one.needs;
            }
        }
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
        /// held or not. The supervisor answers that the channels are on the GPU still, that they are off, or nothing.
        #[test]
        fn kernels_have_their_time_on_the_gpu_and_no_less(
            looks in vec((1..100 * MS, 0.0..0.6, 0.0..0.4, any::<bool>()), 1..400),
            answers in vec(proptest::option::of(any::<bool>()), 10),
        ) {
            let mut leftovers = Leftovers::new();
            let mut answers = answers.into_iter();
            leftovers.add(0, (5, true), PACK, "five");
            let (mut now, mut had) = (0, 0);
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
                let told = leftovers.count(now, &stays, tenant, |_| is_held);
                prop_assert_eq!(!told.is_empty(), had >= LONGEST_KERNEL);
                if told.is_empty() {
                    continue;
                }
                had = 0;
                let answer = answers.next().unwrap_or(Some(true));
                if let Some(is_off) = answer {
                    leftovers.told().send((5, is_off)).unwrap();
                }
                let told = leftovers.count(now, &BTreeMap::new(), |_| None, |_| true);
                prop_assert!(told.is_empty());
                prop_assert_eq!(leftovers.is_any(), answer != Some(true));
                if answer == Some(true) {
                    break;
                }
            }
        }
    }

    #[test]
    fn the_log_may_name_who_has_ended() {
        let mut leftovers = Leftovers::new();
        leftovers.add(0, (5, true), PACK, ());
        leftovers.add(0, (6, true), Job(9), ());
        let stays = [(5, stay(LONGEST_KERNEL))].into();
        let told = leftovers.count(LONGEST_KERNEL, &stays, |_| None, |_| true);
        assert_eq!(told.len(), 1);
        leftovers.retain(|tenant| tenant == PACK);
        leftovers.told().send((5, true)).unwrap();
        let none = BTreeMap::new();
        leftovers.count(LONGEST_KERNEL, &none, |_| None, |_| true);
        assert!(!leftovers.is_any());
        // Time before a process ended is not its own.
        leftovers.add(9 * LONGEST_KERNEL, (5, true), PACK, ());
        let told = leftovers.count(9 * LONGEST_KERNEL + 1, &none, |_| None, |_| false);
        assert!(told.is_empty());
    }

    #[test]
    fn who_had_no_work_waits_only_for_its_channels() {
        let mut leftovers = Leftovers::new();
        let none = BTreeMap::new();
        leftovers.add(0, (5, false), PACK, ());
        for _ in 0..3 {
            let told = leftovers.count(1, &none, |_| None, |_| true);
            assert_eq!(told.len(), 1);
            leftovers.told().send((5, false)).unwrap();
        }
        leftovers.told().send((5, true)).unwrap();
        let told = leftovers.count(2, &none, |_| None, |_| true);
        assert!(told.is_empty() && !leftovers.is_any());
    }
}

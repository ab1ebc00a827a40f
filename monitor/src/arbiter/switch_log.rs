//! How long each process was on the GPU, by the GPU's log of context switches.

use std::collections::BTreeMap;

use softmig_rm::Switch;

use crate::schedule::Nanos;

/// The time of each stay before its first kernel begins and after its last one ends (research/gpu-time.md). All of it is subtracted
/// at the start of the stay.
pub(super) const CHANGING: Nanos = 60_000;

/// The GPU's log, as far as it is open: the processes that are there.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// When each group came, and until when that was counted, by process and group.
    there: BTreeMap<(u32, u32), (Nanos, Nanos)>,
}

/// How a process used the GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stays {
    /// Without [`CHANGING`] for each stay.
    pub(super) resident: Nanos,
    /// How long each stay was that has ended.
    pub(super) lengths: Vec<Nanos>,
}

impl Log {
    /// True if no group is known to be there.
    pub(super) fn is_empty(&self) -> bool {
        self.there.is_empty()
    }

    /// Forgets what is there of processes that have ended: the end of some stays is never logged.
    pub(super) fn forget(&mut self, has_ended: impl Fn(u32) -> bool) {
        self.there.retain(|&(process, _), _| !has_ended(process));
    }

    /// The use of the GPU by each process since the last call.
    pub(super) fn note(&mut self, switches: &[Switch], now: Nanos) -> BTreeMap<u32, Stays> {
        let mut all: BTreeMap<u32, Stays> = BTreeMap::new();
        for switch in switches {
            let key = (switch.process, switch.channel);
            let at = Nanos::try_from(switch.at).unwrap_or(Nanos::MAX);
            if switch.is_start {
                // One at a time: the end of any other was not logged, or lost.
                self.there.clear();
                self.there.insert(key, (at, at.saturating_add(CHANGING)));
            } else if let Some((since, counted)) = self.there.remove(&key) {
                let stays = all.entry(switch.process).or_default();
                stays.resident = stays.resident.saturating_add((at - counted).max(0));
                stays.lengths.push(at - since);
            }
        }
        for (&(process, _), (_, counted)) in &mut self.there {
            if now > *counted {
                let stays = all.entry(process).or_default();
                stays.resident = stays.resident.saturating_add(now - *counted);
                *counted = now;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_log_is_counted_for_those_whom_it_names(
            log in vec((0..3_u32, 0..3_u32, any::<bool>(), any::<u64>()), 0..20),
            now in 0..Nanos::MAX,
        ) {
            let log: Vec<Switch> = log
                .into_iter()
                .map(|(process, channel, is_start, at)| Switch { process, channel, is_start, at })
                .collect();
            let stays = Log::default().note(&log, now);
            prop_assert!(stays.keys().all(|process| log.iter().any(|switch| switch.process == *process)));
            prop_assert!(stays.values().all(|stays| stays.resident >= 0));
        }
    }

    fn switch(process: u32, is_start: bool, at: u64) -> Switch {
        Switch {
            process,
            channel: 6,
            is_start,
            at,
        }
    }

    #[test]
    fn time_on_the_gpu_is_counted_once_whenever_the_log_is_read() {
        let mut log = Log::default();
        let first = log.note(&[switch(7, true, 1_000_000)], 3_000_000);
        assert_eq!(first[&7].resident, 2_000_000 - CHANGING);
        assert!(first[&7].lengths.is_empty());
        let second = log.note(
            &[switch(7, false, 5_000_000), switch(8, true, 5_000_000)],
            6_000_000,
        );
        assert_eq!(
            second[&7],
            Stays {
                resident: 2_000_000,
                lengths: vec![4_000_000]
            }
        );
        assert_eq!(second[&8].resident, 1_000_000 - CHANGING);
        // A group that came before the log began is not known.
        let third = log.note(&[switch(9, false, 6_000_000)], 6_000_000);
        assert!(!third.contains_key(&9));
    }
}

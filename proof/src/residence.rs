//! The time that each process was on the GPU, by the GPU's log.

use softmig_rm::Switch;
use std::collections::BTreeMap;

/// The log, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Residence {
    /// The processes that are there.
    there: Option<u32>,
}

/// The contents of a part of the log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// How long each process was on the GPU, in nanoseconds.
    pub(crate) of: BTreeMap<u32, u64>,
    /// How often one came.
    pub(crate) changes: u32,
    /// Whether there are processes without their numbers.
    pub(crate) is_hidden: bool,
}

impl Residence {
    /// Reads what was logged between these times.
    pub(crate) fn note(&mut self, switches: &[Switch], from: u64, to: u64) -> Times {
        let mut times = Times::default();
        let mut since = from;
        for switch in switches {
            times.is_hidden |= switch.process == Switch::HIDDEN;
            times.changes += u32::from(switch.is_start);
            let is_there = self.there.is_none_or(|there| there == switch.process);
            if !switch.is_start && !is_there {
                // Another one has come before.
                continue;
            }
            // A process whose first record is that it leaves was there before the log began.
            let leaving = self.there.or((!switch.is_start).then_some(switch.process));
            times.add(leaving, since, switch.at);
            since = switch.at.max(from);
            self.there = switch.is_start.then_some(switch.process);
        }
        times.add(self.there, since, to);
        times
    }

    /// The next record does not follow the last one.
    pub(crate) fn forget(&mut self) {
        self.there = None;
    }
}

impl Times {
    /// Adds those of the part that follows.
    pub(crate) fn extend(&mut self, next: Times) {
        for (process, time) in next.of {
            *self.of.entry(process).or_default() += time;
        }
        self.changes += next.changes;
        self.is_hidden |= next.is_hidden;
    }

    fn add(&mut self, process: Option<u32>, from: u64, to: u64) {
        if let Some(process) = process.filter(|process| *process != Switch::DRIVER) {
            *self.of.entry(process).or_default() += to.saturating_sub(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(process: u32, is_start: bool, at: u64) -> Switch {
        Switch {
            process,
            channel: 6,
            is_start,
            at,
        }
    }

    #[test]
    fn each_is_there_from_when_it_comes_until_it_leaves_or_another_comes() {
        let mut log = Residence::default();
        let first = log.note(
            &[
                // It was there when the log began.
                switch(7, false, 130),
                switch(8, true, 140),
                switch(8, false, 160),
                switch(Switch::DRIVER, true, 161),
                switch(Switch::DRIVER, false, 163),
                switch(7, true, 170),
            ],
            100,
            200,
        );
        assert_eq!(first.of, BTreeMap::from([(7, 30 + 30), (8, 20)]));
        assert!(!first.is_hidden);
        // No other process comes, so nothing is logged.
        assert_eq!(log.note(&[], 200, 300).of, BTreeMap::from([(7, 100)]));
        // A record that was logged late counts from the look's beginning.
        let late = log.note(&[switch(7, false, 290), switch(8, true, 295)], 300, 400);
        assert_eq!(late.of, BTreeMap::from([(7, 0), (8, 100)]));
        log.forget();
        assert_eq!(log.note(&[], 400, 500).of, BTreeMap::new());
    }

    #[test]
    fn who_leaves_after_another_came_takes_nothing_from_that_one() {
        let mut log = Residence::default();
        let switches = [
            switch(7, true, 10),
            switch(8, true, 30),
            switch(7, false, 31),
            switch(8, false, 60),
        ];
        let times = log.note(&switches, 0, 100);
        assert_eq!(times.of, BTreeMap::from([(7, 20), (8, 30)]));
    }

    #[test]
    fn processes_without_a_number_are_told() {
        let mut log = Residence::default();
        assert!(log.note(&[switch(Switch::HIDDEN, true, 5)], 0, 9).is_hidden);
    }
}

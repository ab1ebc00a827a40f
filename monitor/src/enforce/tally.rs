//! Counts what was ended, and what would have been.

use crate::enforce::rules::Rule;
use softmig_policy::config::monitor::End;
use softmig_usage::Findings;
use softmig_usage::ending::{ByRule, Ending};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The counts since the daemon started.
#[derive(Debug)]
pub struct Tally {
    since: Instant,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    end: End,
    ended: u64,
    would: BTreeMap<Rule, u64>,
    found: BTreeMap<Rule, u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            counts: Mutex::default(),
        }
    }
}

impl Tally {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the administrator's present settings.
    pub fn set(&self, end: End) {
        self.counts().end = end;
    }

    /// The number of processes that were ended.
    pub fn ended(&self, processes: usize) {
        self.counts().ended += processes as u64;
    }

    /// The number of processes that would have been ended.
    pub fn would_have_ended(&self, rule: Rule, processes: usize) {
        *self.counts().would.entry(rule).or_default() += processes as u64;
    }

    /// A rule found something that it had not found at the last observation.
    pub fn found(&self, rule: Rule) {
        *self.counts().found.entry(rule).or_default() += 1;
    }

    /// How often each rule found something.
    pub fn findings(&self) -> Vec<Findings> {
        let counts = self.counts();
        let found = counts.found.iter().map(|(rule, &count)| Findings {
            kind: rule.as_str().into(),
            count,
        });
        found.collect()
    }

    /// The figures that are told.
    pub fn told(&self) -> Ending {
        let counts = self.counts();
        let would = counts.would.iter().map(|(rule, &processes)| ByRule {
            rule: rule.as_str().into(),
            processes,
        });
        Ending {
            end: counts.end.as_str().into(),
            counted_seconds: self.since.elapsed().as_secs_f64().round(),
            ended: counts.ended,
            would_have_ended: would.collect(),
        }
    }
}

//! The usage of the node's GPUs, for users, administrators and what they look at it with ([`softmig_usage::Node`]).
//!
//! [`books`] adds up what the other rooms know, and keeps it until a job's conf goes. [`mod@ledger`] reads what the library says of a job's
//! memory. [`files`] has the last figures on disk: for each job's user, and for the monitor that comes after this one. [`notices`] says
//! what is new, and [`socket`] tells all to those who ask.

#![forbid(unsafe_code)]

pub mod books;
#[cfg(test)]
mod cost_tests;
pub mod files;
pub mod ledger;
pub mod notices;
pub mod socket;

use crate::arbiter::Arbiter;
use crate::enforce::tally::Tally;
use crate::measure::Sample;
use crate::schedule::Job;
use books::{Books, Moment};
use files::Files;
use notices::Notices;
use softmig_node::node::Node;
use softmig_node::packs::faults;
use softmig_policy::Policy;
use softmig_usage as usage;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The last figures, for all who ask.
#[derive(Debug, Default)]
pub struct Shared(Mutex<usage::Node>);

impl Shared {
    fn node(&self) -> MutexGuard<'_, usage::Node> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The figures that are told.
    pub fn told(&self) -> usage::Node {
        self.node().clone()
    }

    fn set(&self, node: usage::Node) {
        *self.node() = node;
    }
}

/// How often users' files are written.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Keeps the figures of a node.
#[derive(Debug)]
pub struct Keeper {
    node: Node,
    start: Instant,
    books: Books,
    files: Files,
    notices: Notices,
    written: Option<Instant>,
}

impl Keeper {
    /// Of this node; goes on where an earlier one ended.
    pub fn new(node: Node) -> Self {
        let files = Files::new(node.clone());
        let saved = files.load();
        Self {
            start: Instant::now(),
            notices: Notices::new(&saved),
            books: Books::new(
                rustix::system::uname().nodename().to_string_lossy().into(),
                saved,
            ),
            files,
            node,
            written: None,
        }
    }

    /// Takes what was seen just now, and tells it.
    pub fn note(
        &mut self,
        sample: &Sample,
        arbiter: Option<&Arbiter>,
        tally: &Tally,
        policy: Option<&Policy>,
        to: &Shared,
    ) {
        let is_over = |job: Job| books::is_over(sample, job.0);
        let accounts = arbiter.map(|arbiter| arbiter.accounts(is_over));
        let records = ledger::read(&self.node, sample.confs.jobs.keys().copied());
        let uuids = sample.report.gpus.iter().flat_map(|gpu| gpu.uuid.clone());
        let counted = uuids.filter_map(|uuid| Some((uuid.clone(), faults(&self.node, &uuid)?)));
        let pack_faults = counted.collect();
        let moment = Moment {
            now: SystemTime::now(),
            running: self.start.elapsed(),
            accounts: &accounts.unwrap_or_default(),
            records: &records,
            policy,
            pack_faults: &pack_faults,
        };
        let mut node = self.books.note(sample, &moment);
        (node.findings, node.ending) = (tally.findings(), Some(tally.told()));
        for event in self.notices.new_events(&node, Instant::now()) {
            // It stays in the figures.
            let _ = event.write(&self.node);
        }
        // Before it is told: no figure of the monitor that comes after this one is below it.
        self.files.keep(&node, books::are_known(sample));
        let is_due = |at: Instant| at.elapsed() >= WRITE_EVERY;
        if self.written.is_none_or(is_due) {
            self.written = Some(Instant::now());
            self.files.write(&node);
        }
        to.set(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crowd_tests::Crowd;

    /// The seconds for which the first job is known.
    fn known(keeper: &mut Keeper, sample: &Sample) -> f64 {
        let shared = Shared::default();
        keeper.note(sample, None, &Tally::default(), None, &shared);
        shared.told().jobs[0].gpus[0].known_seconds
    }

    #[test]
    fn no_figure_falls_when_a_monitor_is_killed() {
        let crowd = Crowd::new();
        let sample = crowd.sample();
        let mut keeper = Keeper::new(crowd.node.clone());
        known(&mut keeper, &sample);
        std::thread::sleep(Duration::from_millis(100));
        let last = known(&mut keeper, &sample);
        // Nothing more is written.
        drop(keeper);
        let next = known(&mut Keeper::new(crowd.node.clone()), &sample);
        assert!(next >= last, "{next} after {last}");
    }

    #[test]
    fn jobs_are_kept_while_no_conf_can_be_read() {
        let crowd = Crowd::new();
        let sample = crowd.sample();
        let mut keeper = Keeper::new(crowd.node.clone());
        std::thread::sleep(Duration::from_millis(100));
        let last = known(&mut keeper, &sample);
        let mut blind = Sample::default();
        blind.report.error = Some("no".into());
        keeper.written = None;
        keeper.note(&blind, None, &Tally::default(), None, &Shared::default());
        drop(keeper);
        let next = known(&mut Keeper::new(crowd.node.clone()), &sample);
        assert!(next >= last, "{next} after {last}");
    }
}

//! The usage of the node's GPUs, for users, administrators and what they look at it with ([`softmig_usage::Node`]).
//!
//! [`books`] adds up what the other rooms know, and keeps it until a job's conf goes. [`mod@ledger`] reads what the library says of a job's
//! memory. [`files`] has the last figures on disk: for each job's user, and for the monitor that comes after this one. [`acl`] lets one
//! user or group read what is root's, and [`notices`] says what is new.

#![forbid(unsafe_code)]

pub mod acl;
pub mod books;
#[cfg(test)]
mod cost_tests;
pub mod files;
pub mod ledger;
pub mod notices;

use crate::arbiter::Arbiter;
use crate::measure::Sight;
use crate::schedule::turns::Job;
use books::{Books, Moment};
use files::Files;
use notices::Notices;
use softmig_node::node::Node;
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

/// How often the figures are written to disk.
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
        sight: &Sight,
        arbiter: Option<&Arbiter>,
        findings: Vec<usage::Findings>,
        policy: Option<&Policy>,
        to: &Shared,
    ) {
        let is_over = |job: Job| books::is_over(sight, job.0);
        let accounts = arbiter.map(|arbiter| arbiter.accounts(is_over));
        let records = ledger::read(&self.node, sight.confs.jobs.keys().copied());
        let moment = Moment {
            now: SystemTime::now(),
            running: self.start.elapsed(),
            accounts: &accounts.unwrap_or_default(),
            records: &records,
            policy,
        };
        let mut node = self.books.note(sight, &moment);
        node.findings = findings;
        for event in self.notices.of(&node, Instant::now()) {
            // It stays in the figures.
            let _ = event.write(&self.node);
        }
        let is_due = |at: Instant| at.elapsed() >= WRITE_EVERY;
        if self.written.is_none_or(is_due) {
            self.write(&node);
        }
        to.set(node);
    }

    /// Writes the last figures, for the monitor that comes after this one.
    pub fn finish(&mut self, shared: &Shared) {
        if self.written.is_some() {
            self.write(&shared.told());
        }
    }

    fn write(&mut self, node: &usage::Node) {
        self.written = Some(Instant::now());
        self.files.write(node);
    }
}

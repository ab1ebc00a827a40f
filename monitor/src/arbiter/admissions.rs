//! Processes that ask to be let through the device gate.
//!
//! To look at a process's memory may take as long as the process likes, so threads do that: as many for each job as it takes
//! to keep its processes from waiting for each other. A job whose processes hold them up holds up its own alone.

use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::warn;

use super::connections::Connection;
use super::gpu::spawn;
use super::socket::answer;
use crate::gate::Keeper;
use crate::schedule::turns::Job;

/// How many threads a job has at most.
const THREADS: usize = 4;
/// How many of a job's processes wait for them.
const MOST_WAITING: usize = 256;

/// What is asked and not answered yet.
pub(super) struct Admissions {
    keeper: Option<Keeper>,
    jobs: Arc<Mutex<HashMap<Job, Queue>>>,
}

#[derive(Default)]
struct Queue {
    threads: usize,
    waiting: VecDeque<Connection>,
}

impl Admissions {
    pub(super) fn new(keeper: Option<Keeper>) -> Self {
        Self {
            keeper,
            jobs: Arc::default(),
        }
    }

    /// A process of this job asks.
    pub(super) fn ask(&self, job: Job, connection: Connection) {
        let Some(keeper) = self.keeper.clone() else {
            let _ = answer(&connection.socket, Ok(None));
            return;
        };
        let mut jobs = lock(&self.jobs);
        let queue = jobs.entry(job).or_default();
        if queue.waiting.len() >= MOST_WAITING {
            let _ = answer(&connection.socket, Err(Errno::AGAIN));
            return;
        }
        queue.waiting.push_back(connection);
        if queue.threads == THREADS {
            return;
        }
        queue.threads += 1;
        drop(jobs);
        let jobs = Arc::clone(&self.jobs);
        if let Err(error) = spawn("admission", move || serve(&jobs, job, &keeper)) {
            warn!(
                "processes of job {} are not admitted to its GPUs: {error}",
                job.0
            );
            leave(&mut lock(&self.jobs), job);
        }
    }
}

fn lock(jobs: &Mutex<HashMap<Job, Queue>>) -> MutexGuard<'_, HashMap<Job, Queue>> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers a job's processes until none waits.
fn serve(jobs: &Mutex<HashMap<Job, Queue>>, job: Job, keeper: &Keeper) {
    while let Some(connection) = next(jobs, job) {
        let client = connection.client;
        let admitted = keeper.admit(client.pid, client.uid);
        let _ = answer(&connection.socket, admitted.map(|()| None));
    }
}

fn next(jobs: &Mutex<HashMap<Job, Queue>>, job: Job) -> Option<Connection> {
    let mut jobs = lock(jobs);
    let connection = jobs.get_mut(&job)?.waiting.pop_front();
    if connection.is_none() {
        leave(&mut jobs, job);
    }
    connection
}

/// One of a job's threads ends.
fn leave(jobs: &mut HashMap<Job, Queue>, job: Job) {
    if let Some(queue) = jobs.get_mut(&job) {
        queue.threads -= 1;
        if queue.threads == 0 {
            // With those whom no thread could be had for: they ask again.
            jobs.remove(&job);
        }
    }
}

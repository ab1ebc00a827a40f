//! The sums of what jobs had of a GPU. They only grow, and outlive the job's processes and its seats.

use std::collections::BTreeMap;

use super::types::{Job, Nanos};

/// A job's use of a GPU in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// GPU time that it was charged.
    pub charged: Nanos,
    /// The time in which it wanted the GPU and did not have it.
    pub waited: Nanos,
    /// Times that something else kept its work off the GPU, and it was let run again.
    pub interruptions: u64,
}

/// A GPU's sums, and those of its jobs until these are forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    jobs: BTreeMap<Job, Totals>,
    /// The time that jobs were charged, also those that are forgotten.
    pub charged: Nanos,
    /// The time that changes between jobs took. It is charged to no job.
    pub change: Nanos,
    /// The GPU time of processes that belong to no job with a slice, while the GPU's log tells of it.
    pub unclaimed: Nanos,
}

impl Book {
    /// A job's sums.
    pub fn of(&mut self, job: Job) -> &mut Totals {
        self.jobs.entry(job).or_default()
    }

    /// Takes out what a job had, to put it in for others. The GPU's sums stay.
    pub fn take(&mut self, job: Job) -> Totals {
        self.jobs.remove(&job).unwrap_or_default()
    }

    /// Adds what was taken out of another's.
    pub fn put(&mut self, job: Job, more: Totals) {
        let own = self.of(job);
        own.charged += more.charged;
        own.waited += more.waited;
        own.interruptions += more.interruptions;
    }

    /// A job is charged this.
    pub fn charge(&mut self, job: Job, time: Nanos) {
        if time > 0 {
            self.of(job).charged += time;
            self.charged += time;
        }
    }

    /// Notes the time for which a job wanted the GPU and did not have it.
    pub fn wait(&mut self, job: Job, time: Nanos) {
        if time > 0 {
            self.of(job).waited += time;
        }
    }

    /// All jobs that were not forgotten.
    pub fn jobs(&self) -> impl Iterator<Item = (Job, Totals)> {
        self.jobs.iter().map(|(&job, &totals)| (job, totals))
    }

    /// Adds what another book of the same GPU has.
    pub fn add(&mut self, other: &Self) {
        for (job, more) in other.jobs() {
            self.put(job, more);
        }
        self.charged += other.charged;
        self.change += other.change;
        self.unclaimed += other.unclaimed;
    }

    /// Forgets the jobs that are over.
    pub fn forget(&mut self, is_over: impl Fn(Job) -> bool) {
        self.jobs.retain(|&job, _| !is_over(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpus_sum_keeps_what_jobs_had_that_are_forgotten() {
        let (mut book, mut other) = (Book::default(), Book::default());
        book.charge(Job(1), 5);
        book.charge(Job(2), 7);
        book.wait(Job(2), -1);
        other.charge(Job(2), 10);
        other.wait(Job(2), 3);
        other.of(Job(2)).interruptions = 2;
        other.change += 2;
        book.add(&other);
        book.forget(|job| job == Job(1));
        let two = Totals {
            charged: 17,
            waited: 3,
            interruptions: 2,
        };
        assert_eq!(book.jobs().collect::<Vec<_>>(), [(Job(2), two)]);
        assert_eq!((book.charged, book.change), (22, 2));
    }
}

//! The events of jobs and nodes, and the job before each.

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    Cancel,
    Requeue,
    Drain,
    Down,
    KillSlurmd,
    KillSlurmctld,
    KillMonitor,
    FullRun,
    FullLimits,
    FullLog,
}

/// Each kind, how it is called in the report, and how many there are in a thousand jobs.
pub const KINDS: [(Event, &str, usize); 10] = [
    (Event::Cancel, "a job cancelled", 150),
    (Event::Requeue, "a job requeued", 80),
    (Event::Drain, "a node drained", 25),
    (Event::Down, "a node set down", 15),
    (Event::KillSlurmd, "slurmd killed (kill -9)", 30),
    (Event::KillSlurmctld, "slurmctld killed (kill -9)", 20),
    (Event::KillMonitor, "the monitor killed (kill -9)", 30),
    (Event::FullRun, "/run filled by a user", 20),
    (Event::FullLimits, "/run/softmig filled", 15),
    (Event::FullLog, "/var/log/softmig filled", 20),
];

/// The events of a run, each with the step it belongs to.
pub struct Deck(Vec<(usize, Event)>);

impl Deck {
    /// The events for `jobs` jobs: of each kind in proportion, and at least one.
    pub fn shuffled(jobs: usize, rng: &mut fastrand::Rng) -> Deck {
        let mut events = Vec::new();
        for (event, _, in_a_thousand) in KINDS {
            let count = (in_a_thousand * jobs / 1000).max(1);
            // Not before there are jobs to meet, nor after the last one.
            let steps = (jobs / 10).max(1)..jobs;
            events.extend((0..count).map(|_| (rng.usize(steps.clone()), event)));
        }
        rng.shuffle(&mut events);
        Deck(events)
    }

    /// Takes out what happens after this job.
    pub fn of_step(&mut self, step: usize) -> Vec<Event> {
        let taken = self.0.extract_if(.., |(at, _)| *at == step);
        taken.map(|(_, event)| event).collect()
    }
}

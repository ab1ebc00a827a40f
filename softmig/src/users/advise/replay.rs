//! Replays the queue of a type of GPU: when each job would have started.
//!
//! Jobs start in the order in which they could have run. A later one starts before the first that waits only if it does not
//! delay it, and among the first [`DEPTH`] that wait: Slurm's backfill, with its default depth. Parts of a GPU go to the first
//! GPU that has room, as Slurm places shards. Nodes, CPUs and host memory are not replayed.

use std::collections::{BTreeSet, HashMap, VecDeque};

/// How many waiting jobs are looked at: Slurm's default for bf_max_job_test.
const DEPTH: usize = 100;

/// The needs of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// This number of whole GPUs.
    Gpus(u32),
    /// This number of shards of one GPU.
    Shards(u32),
}

/// A job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// From when it may run.
    pub(crate) eligible: i64,
    /// How long it takes.
    pub(crate) takes: i64,
    pub(crate) need: Need,
}

/// For how long each of these jobs waits for `gpus` GPUs of `shards` shards; `None` for one that never fits. The jobs are in
/// the order of `eligible`.
pub(crate) fn waits(gpus: u32, shards: u32, jobs: &[Job]) -> Vec<Option<i64>> {
    let mut replay = Replay {
        jobs,
        pool: Pool::new(gpus, shards),
        running: BTreeSet::new(),
        places: HashMap::new(),
        queue: VecDeque::new(),
        reservation: None,
        waits: vec![None; jobs.len()],
    };
    replay.run();
    replay.waits
}

/// The GPUs, by how much of each is free.
#[derive(Clone)]
struct Pool {
    shards: u32,
    free: Vec<u32>,
    by_free: Vec<BTreeSet<u32>>,
}

/// The part of a GPU that a job has: the GPU, and its shards.
type Place = (u32, u32);

impl Pool {
    fn new(gpus: u32, shards: u32) -> Self {
        let mut by_free = vec![BTreeSet::new(); shards as usize + 1];
        by_free[shards as usize] = (0..gpus).collect();
        Self {
            shards,
            free: vec![shards; gpus as usize],
            by_free,
        }
    }

    fn set(&mut self, gpu: u32, free: u32) {
        let now = &mut self.free[gpu as usize];
        self.by_free[*now as usize].remove(&gpu);
        self.by_free[free as usize].insert(gpu);
        *now = free;
    }

    fn take(&mut self, places: &[Place]) {
        for &(gpu, shards) in places {
            self.set(gpu, self.free[gpu as usize] - shards);
        }
    }

    fn give_back(&mut self, places: &[Place]) {
        for &(gpu, shards) in places {
            self.set(gpu, self.free[gpu as usize] + shards);
        }
    }

    fn could_ever(&self, need: Need) -> bool {
        match need {
            Need::Gpus(count) => count as usize <= self.free.len(),
            Need::Shards(shards) => shards <= self.shards && !self.free.is_empty(),
        }
    }

    /// Where it fits now, on none of these GPUs.
    fn fit(&self, need: Need, without: &[u32]) -> Option<Vec<Place>> {
        let usable = |gpu: &&u32| !without.contains(gpu);
        match need {
            Need::Gpus(count) => {
                let idle = &self.by_free[self.shards as usize];
                if idle.len() < count as usize {
                    return None;
                }
                let places: Vec<Place> = idle
                    .iter()
                    .filter(usable)
                    .take(count as usize)
                    .map(|&gpu| (gpu, self.shards))
                    .collect();
                (places.len() == count as usize).then_some(places)
            }
            Need::Shards(shards) => {
                let enough = self.by_free.get(shards as usize..)?;
                let first = enough.iter().filter_map(|gpus| gpus.iter().find(usable));
                first.min().map(|&gpu| vec![(gpu, shards)])
            }
        }
    }
}

/// The first job that waits begins then at the latest, on these GPUs.
struct Reservation {
    at: i64,
    gpus: Vec<u32>,
}

struct Replay<'a> {
    jobs: &'a [Job],
    pool: Pool,
    /// The end of each job that runs.
    running: BTreeSet<(i64, usize)>,
    places: HashMap<usize, Vec<Place>>,
    queue: VecDeque<usize>,
    reservation: Option<Reservation>,
    waits: Vec<Option<i64>>,
}

impl Replay<'_> {
    fn run(&mut self) {
        let mut next = 0;
        loop {
            let arrival = self.jobs.get(next).map(|job| job.eligible);
            let end = self.running.first().map(|&(end, _)| end);
            let Some(now) = arrival.into_iter().chain(end).min() else {
                return;
            };
            let mut is_freed = false;
            while let Some(&(end, job)) = self.running.first()
                && end <= now
            {
                self.running.pop_first();
                let places = self.places.remove(&job).unwrap_or_default();
                self.pool.give_back(&places);
                is_freed = true;
            }
            let waited = self.queue.len();
            while let Some(job) = self.jobs.get(next)
                && job.eligible <= now
            {
                if self.pool.could_ever(job.need) {
                    self.queue.push_back(next);
                }
                next += 1;
            }
            // If nothing became free, jobs that waited before wait on.
            self.schedule(now, if is_freed { 0 } else { waited });
        }
    }

    /// Starts what can start, of those from this place in the queue on.
    fn schedule(&mut self, now: i64, from: usize) {
        if from == 0 {
            while let Some(&first) = self.queue.front() {
                let Some(places) = self.pool.fit(self.jobs[first].need, &[]) else {
                    break;
                };
                self.start(first, now, places);
                self.queue.pop_front();
                self.reservation = None;
            }
        }
        let Some(&first) = self.queue.front() else {
            return;
        };
        let reservation = match self.reservation.take() {
            Some(reservation) => reservation,
            None => self.reserve(self.jobs[first].need, now),
        };
        let mut at = from.max(1);
        let mut looked = at;
        while at < self.queue.len() && looked < DEPTH {
            looked += 1;
            let job = self.jobs[self.queue[at]];
            let without: &[u32] = if now + job.takes <= reservation.at {
                &[]
            } else {
                &reservation.gpus
            };
            match self.pool.fit(job.need, without) {
                Some(places) => {
                    let job = self.queue.remove(at);
                    self.start(job.unwrap_or(first), now, places);
                }
                None => at += 1,
            }
        }
        self.reservation = Some(reservation);
    }

    fn start(&mut self, job: usize, now: i64, places: Vec<Place>) {
        let Job {
            eligible, takes, ..
        } = self.jobs[job];
        self.waits[job] = Some(now - eligible);
        self.pool.take(&places);
        // A job of no time at all would end before it is looked for.
        self.running.insert((now + takes.max(1), job));
        self.places.insert(job, places);
    }

    /// When and where a job fits once others have ended.
    fn reserve(&self, need: Need, now: i64) -> Reservation {
        let mut free: HashMap<u32, u32> = HashMap::new();
        let mut idle = self.pool.by_free[self.pool.shards as usize].clone();
        for &(at, job) in &self.running {
            for &(gpu, shards) in self.places.get(&job).into_iter().flatten() {
                let free = free.entry(gpu).or_insert(self.pool.free[gpu as usize]);
                *free += shards;
                match need {
                    Need::Shards(needed) if *free >= needed => {
                        let gpus = vec![gpu];
                        return Reservation { at, gpus };
                    }
                    Need::Gpus(_) if *free == self.pool.shards => {
                        idle.insert(gpu);
                    }
                    _ => {}
                }
            }
            if let Need::Gpus(count) = need
                && idle.len() >= count as usize
            {
                let gpus = idle.into_iter().take(count as usize).collect();
                return Reservation { at, gpus };
            }
        }
        // Each job in the queue fits when all others have ended.
        Reservation {
            at: now,
            gpus: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(eligible: i64, takes: i64, need: Need) -> Job {
        Job {
            eligible,
            takes,
            need,
        }
    }

    #[test]
    fn jobs_wait_for_each_other() {
        use Need::*;
        let jobs = [
            job(0, 100, Gpus(1)),
            job(0, 50, Gpus(1)),
            job(10, 10, Gpus(2)),
            // It ends before the one above can begin.
            job(20, 50, Gpus(1)),
            // This one does not.
            job(20, 51, Gpus(1)),
            job(20, 1, Gpus(3)),
        ];
        let waits = waits(2, 4, &jobs);
        assert_eq!(
            waits,
            [Some(0), Some(0), Some(90), Some(30), Some(90), None]
        );
    }

    #[test]
    fn slices_share_a_gpu_and_do_not_delay_a_whole_one() {
        use Need::*;
        let jobs = [
            job(0, 100, Shards(1)),
            job(0, 60, Shards(2)),
            job(1, 10, Gpus(1)),
            job(2, 98, Shards(1)),
            job(3, 98, Shards(1)),
            job(3, 98, Shards(4)),
        ];
        let waits = waits(1, 4, &jobs);
        assert_eq!(waits[..3], [Some(0), Some(0), Some(99)]);
        // The first ends in time, the second would not.
        assert_eq!(waits[3..5], [Some(0), Some(107)]);
        assert_eq!(waits[5], Some(205));
    }

    /// The queue of jobs of one size has an exact answer: each takes the place that is free first.
    #[test]
    fn jobs_of_one_size_wait_exactly_as_long_as_theory_says() {
        let mut random = fastrand::Rng::with_seed(20);
        for (gpus, shards, size) in [(3, 4, 4), (3, 4, 1), (2, 8, 2), (5, 2, 1)] {
            let mut now = 0;
            let jobs: Vec<Job> = (0..5000)
                .map(|_| {
                    now += random.i64(0..600);
                    let takes = random.i64(1..3600);
                    let need = if size == shards {
                        Need::Gpus(1)
                    } else {
                        Need::Shards(size)
                    };
                    job(now, takes, need)
                })
                .collect();
            let mut places = vec![0_i64; (gpus * shards / size) as usize];
            let exact: Vec<Option<i64>> = jobs
                .iter()
                .map(|job| {
                    places.sort_unstable();
                    let start = places[0].max(job.eligible);
                    places[0] = start + job.takes;
                    Some(start - job.eligible)
                })
                .collect();
            assert!(
                waits(gpus, shards, &jobs) == exact,
                "{gpus} {shards} {size}"
            );
        }
    }

    /// By a second way: nothing is ever held twice, and the first that waits is never passed by one that delays it.
    #[test]
    fn nothing_is_given_twice() {
        let mut random = fastrand::Rng::with_seed(21);
        let mut now = 0;
        let jobs: Vec<Job> = (0..20_000)
            .map(|_| {
                now += random.i64(0..300);
                let need = match random.u32(0..10) {
                    0 => Need::Gpus(random.u32(1..4)),
                    _ => Need::Shards(random.u32(1..5)),
                };
                job(now, random.i64(1..3600), need)
            })
            .collect();
        let (gpus, shards) = (4, 8);
        let waits = waits(gpus, shards, &jobs);
        let mut changes: Vec<(i64, i64)> = Vec::new();
        for (job, wait) in jobs.iter().zip(&waits) {
            let start = job.eligible + wait.unwrap();
            let held = match job.need {
                Need::Gpus(count) => i64::from(count * shards),
                Need::Shards(count) => i64::from(count),
            };
            changes.extend([(start, held), (start + job.takes, -held)]);
        }
        changes.sort_unstable();
        let mut held = 0;
        let most = changes
            .iter()
            .map(|&(_, change)| {
                held += change;
                held
            })
            .max()
            .unwrap();
        assert!((1..=i64::from(gpus * shards)).contains(&most), "{most}");
        assert_eq!(held, 0);
    }
}

//! Jobs whose collectives wait for each other on two GPUs.

use super::*;

/// So often it is seen whether a collective runs on both.
const TICK: Nanos = 10 * US;

/// A job's part on one GPU: so many kernels and a collective, again and again.
fn rank(job: u32, share: (u32, u32), kernels: u64) -> Program {
    let gang = Some(Gang {
        kernels: Some(kernels),
        together: true,
        pulls: false,
    });
    Program {
        gang,
        ..Program::hard(job, share, KERNEL)
    }
}

const KERNEL: Nanos = 100 * US;

/// The same where the GPUs do not know of each other.
fn apart(program: Program) -> Program {
    let gang = program.gang.map(|gang| Gang {
        together: false,
        ..gang
    });
    Program { gang, ..program }
}

fn pulling(program: Program) -> Program {
    let gang = program.gang.map(|gang| Gang {
        pulls: true,
        ..gang
    });
    Program { gang, ..program }
}

/// Two GPUs of one node.
struct Pair {
    gpus: [World; 2],
    /// Since when each job's last collective runs on both.
    met: BTreeMap<Job, (u64, Nanos)>,
}

impl Pair {
    fn new(programs: [&[Program]; 2], seed: u64) -> Self {
        let gangs: Rc<RefCell<Gangs>> = Rc::default();
        let gpu = |gpu: usize| World {
            gpu,
            gangs: Rc::clone(&gangs),
            ..World::new(Rules::default(), programs[gpu], seed + gpu as u64)
        };
        Self {
            gpus: [gpu(0), gpu(1)],
            met: BTreeMap::new(),
        }
    }

    fn run_until(&mut self, end: Nanos) {
        while self.gpus[0].now < end {
            let now = self.gpus[0].now + TICK;
            for gpu in &mut self.gpus {
                gpu.run_until(now);
            }
            let [first, second] = &mut self.gpus;
            for (&job, &one) in &first.reached {
                let other = second.reached.get(&job).copied().unwrap_or(0);
                let number = one.min(other);
                let met = self.met.entry(job).or_default();
                if met.0 < number {
                    *met = (number, now);
                }
            }
            for (&job, &(number, since)) in &self.met {
                if since + COLLECTIVE <= now {
                    first.end_collective(job, number);
                    second.end_collective(job, number);
                }
            }
            for at in [0, 1] {
                let is_stuck = |job: Job, world: &World| {
                    let mut its = world.processes.iter().filter(|it| it.program.job == job);
                    its.any(|it| it.is_stuck(now))
                };
                for process in 0..self.gpus[at].processes.len() {
                    let job = self.gpus[at].processes[process].program.job;
                    if self.gpus[at].processes[process]
                        .program
                        .gang
                        .is_some_and(|it| it.pulls)
                    {
                        let is_stuck = is_stuck(job, &self.gpus[1 - at]);
                        self.gpus[at].processes[process].is_waited_for = is_stuck;
                        if is_stuck {
                            self.gpus[at].act(process);
                        }
                    }
                }
            }
        }
    }

    /// How far each job with collectives came, as a part of the time.
    fn progress(&self, job: u32, kernels: u64) -> f64 {
        let rounds = self.met.get(&Job(job)).map_or(0, |met| met.0);
        (rounds as Nanos * (kernels as Nanos * KERNEL + COLLECTIVE)) as f64
    }

    /// What part of its time a job's work on a GPU was at work, without what it spun.
    fn worked(&self, gpu: usize, job: u32) -> f64 {
        let its = self.gpus[gpu].processes.iter();
        let its = its.filter(|it| it.program.job == Job(job));
        its.map(|it| it.worked).sum::<Nanos>() as f64
    }

    /// Each one's part of the time: the rounds of jobs with collectives, and what others' kernels took on a GPU.
    fn parts(
        &mut self,
        jobs: &[(u32, u64)],
        others: &[(usize, u32)],
        time: Nanos,
    ) -> [Vec<f64>; 2] {
        let sums = |pair: &Self| {
            let rounds = jobs
                .iter()
                .map(|&(job, kernels)| pair.progress(job, kernels));
            let worked = others.iter().map(|&(gpu, job)| pair.worked(gpu, job));
            [rounds.collect::<Vec<f64>>(), worked.collect()]
        };
        self.run_until(SECOND);
        let before = sums(self);
        self.run_until(SECOND + time);
        let mut after = sums(self);
        for (after, before) in after.iter_mut().flatten().zip(before.iter().flatten()) {
            *after = (*after - before) / time as f64;
        }
        after
    }
}

/// Its part of a share of a quarter, and the parts of the GPUs that a job beside it has on each.
fn beside(
    ranks: [Program; 2],
    others: [Program; 2],
    kernels: u64,
    seconds: Nanos,
) -> (f64, [f64; 2]) {
    let [first, second] = ranks;
    let mut pair = Pair::new([&[first, others[0]], &[second, others[1]]], 1);
    let names = [0, 1].map(|gpu| (gpu, others[gpu].job.0));
    let result = pair.parts(&[(first.job.0, kernels)], &names, seconds * SECOND);
    let [rounds, worked] = result;
    (rounds[0] * 4.0, [worked[0], worked[1]])
}

#[test]
fn a_job_on_two_gpus_has_its_share_beside_busy_ones() {
    for kernels in [1, 4, 20, 100] {
        for (k, l) in [(1, 1), (1, 3), (3, 1), (3, 3)] {
            let others = [
                Program::hard(2, (k, 4), KERNEL),
                Program::hard(3, (l, 4), KERNEL),
            ];
            let (got, parts) = beside([rank(1, (1, 4), kernels); 2], others, kernels, 20);
            println!("{kernels} {k}/4 {l}/4: {got:.3} {parts:.3?}");
            assert!(got > 0.75, "{kernels} {k} {l}: {got}");
            for (part, share) in parts.into_iter().zip([k, l]) {
                let share = f64::from(share) / 4.0;
                assert!(
                    (part / share - 1.0).abs() < 0.03,
                    "{kernels} {k} {l}: {part} of {share}"
                );
            }
        }
    }
}

/// What it is for.
#[test]
fn where_its_turns_are_not_together_it_comes_to_a_stop() {
    let others = [
        Program::hard(2, (3, 4), KERNEL),
        Program::hard(3, (3, 4), KERNEL),
    ];
    for ranks in [
        apart(rank(1, (1, 4), 20)),
        pulling(apart(rank(1, (1, 4), 20))),
    ] {
        let (got, _) = beside([ranks; 2], others, 20, 20);
        assert!(got < 0.1, "{got}");
    }
}

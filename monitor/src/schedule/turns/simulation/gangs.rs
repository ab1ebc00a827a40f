//! Jobs whose collectives wait for each other on two GPUs.

use proptest::prelude::*;

use super::trouble::troubled;
use super::*;

/// The interval of looks whether a collective runs on both.
const TICK: Nanos = 10 * US;

/// A job's part on one GPU: a number of kernels and a collective, again and again.
fn rank(job: u32, share: (u32, u32), kernels: u64) -> Program {
    let gang = Some(Gang {
        kernels: Some(kernels),
        together: true,
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
            ..World::new(
                Rules::default(),
                programs[gpu],
                seed.wrapping_add(gpu as u64),
            )
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
        }
    }

    /// How far each job with collectives came, as a part of the time.
    fn progress(&self, job: u32, kernels: u64) -> f64 {
        let rounds = self.met.get(&Job(job)).map_or(0, |met| met.0);
        (rounds as Nanos * (kernels as Nanos * KERNEL + COLLECTIVE)) as f64
    }

    /// The part of its time in which a job's work on a GPU was at work, without the time that it spun.
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

/// Whether a part is within `most` of a share of this number of quarters.
fn is_near(part: f64, quarters: u32, most: f64) -> bool {
    (part / f64::from(quarters) * 4.0 - 1.0).abs() < most
}

#[test]
fn a_job_on_two_gpus_has_its_share_beside_busy_ones() {
    for (kernels, least) in [(1, 0.25), (4, 0.7), (20, 0.85), (100, 0.9)] {
        for quarters in [[1, 1], [1, 3], [3, 1], [3, 3]] {
            let [k, l] = quarters;
            let others = [
                Program::hard(2, (k, 4), KERNEL),
                Program::hard(3, (l, 4), KERNEL),
            ];
            let job = rank(1, (1, 4), kernels);
            let (got, parts) = beside([job; 2], others, kernels, 20);
            println!("{kernels} {quarters:?}: {got:.3} {parts:.3?}");
            assert!(got > least, "{kernels} {quarters:?}: {got}");
            for (part, quarters) in parts.into_iter().zip(quarters) {
                assert!(
                    is_near(part, quarters, if kernels == 1 { 0.2 } else { 0.08 }),
                    "{kernels} {quarters}: {part}"
                );
            }
        }
    }
}

/// Its purpose.
#[test]
fn where_its_turns_are_not_together_it_comes_to_a_stop() {
    let others = [2, 3].map(|job| Program::hard(job, (3, 4), KERNEL));
    let (got, _) = beside([apart(rank(1, (1, 4), 20)); 2], others, 20, 20);
    println!("{got:.3}");
    assert!(got < 0.1, "{got}");
}

#[test]
fn it_has_a_part_of_its_share_beside_long_kernels() {
    for (kernels, least) in [(20, 0.5), (100, 0.4)] {
        for lengths in [[5 * MS, 5 * MS], [20 * MS, KERNEL], [20 * MS, 20 * MS]] {
            let others = [2, 3].map(|job| Program::hard(job, (3, 4), lengths[job as usize - 2]));
            let (got, parts) = beside([rank(1, (1, 4), kernels); 2], others, kernels, 20);
            println!("{kernels} {lengths:?}: {got:.3} {parts:.3?}");
            assert!(got > least, "{kernels} {lengths:?}: {got}");
            // A program that spins beside a kernel makes it longer.
            let is_near = |part: &f64| is_near(*part, 3, 0.15);
            assert!(
                parts.iter().all(is_near),
                "{kernels} {lengths:?}: {parts:?}"
            );
        }
    }
}

#[test]
fn two_jobs_on_the_same_gpus_have_their_shares() {
    for (one, other, rest) in [(1, 1, 2), (2, 1, 1), (1, 2, 1), (2, 2, 0), (1, 3, 0)] {
        let jobs = [rank(1, (one, 4), 20), rank(2, (other, 4), 20)];
        let on = |gpu: u32| {
            let rest = Program::hard(3 + gpu, (rest.max(1), 4), KERNEL);
            let mut programs = jobs.to_vec();
            programs.extend((rest.share.0 == 4 - one - other).then_some(rest));
            programs
        };
        let programs = [on(0), on(1)];
        let mut pair = Pair::new([&programs[0], &programs[1]], 1);
        let [rounds, parts] = pair.parts(&[(1, 20), (2, 20)], &[(0, 3), (1, 4)], 20 * SECOND);
        println!("{one} {other} {rest}: {rounds:.3?} {parts:.3?}");
        for (part, quarters) in rounds.into_iter().zip([one, other]) {
            let got = part / f64::from(quarters) * 4.0;
            assert!(got > 0.75 && got < 1.01, "{one} {other} {rest}: {got}");
        }
        if rest > 0 {
            assert!(
                parts.iter().all(|part| is_near(*part, rest, 0.05)),
                "{parts:?}"
            );
        }
    }
}

#[test]
fn soft_jobs_split_what_is_free() {
    let soft = |program: Program| Program {
        mode: Mode::Soft,
        ..program
    };
    let others = [2, 3].map(|job| soft(Program::hard(job, (1, 4), KERNEL)));
    let (got, parts) = beside([soft(rank(1, (1, 4), 20)); 2], others, 20, 20);
    println!("{got:.3} {parts:.3?}");
    assert!(
        got > 1.6 && parts.iter().all(|part| *part > 0.45),
        "{got} {parts:?}"
    );
}

#[test]
fn alone_it_has_its_share_or_everything() {
    let soft = |job: Program| Program {
        mode: Mode::Soft,
        ..job
    };
    let hard = [(1, 4), (3, 4), (1, 1)].map(|share| (rank(1, share, 20), share));
    let soft = (soft(rank(1, (1, 4), 20)), (1, 1));
    for (job, share) in hard.into_iter().chain([soft]) {
        let mut pair = Pair::new([&[job], &[job]], 1);
        let [rounds, _] = pair.parts(&[(1, 20)], &[], 10 * SECOND);
        let got = rounds[0] * f64::from(share.1) / f64::from(share.0);
        println!("{share:?}: {got:.3}");
        assert!(got > 0.93 && got < 1.01, "{share:?}: {got}");
    }
}

/// A job whose GPUs belong together, with work on each that waits for nothing.
fn side(share: (u32, u32)) -> Program {
    let gang = Some(Gang {
        kernels: None,
        together: true,
    });
    Program {
        gang,
        ..Program::hard(1, share, KERNEL)
    }
}

/// Its time on each GPU, and that of greedy jobs beside it, from some second to another.
fn sides(programs: [Program; 2], from: Nanos, to: Nanos) -> [f64; 4] {
    let others = [2, 3].map(|job| Program::hard(job, (3, 4), KERNEL));
    let mut pair = Pair::new([&[programs[0], others[0]], &[programs[1], others[1]]], 1);
    let worked =
        |pair: &Pair| [(0, 1), (1, 1), (0, 2), (1, 3)].map(|(gpu, job)| pair.worked(gpu, job));
    pair.run_until(from * SECOND);
    let before = worked(&pair);
    pair.run_until(to * SECOND);
    let after = worked(&pair);
    let parts = [0, 1, 2, 3].map(|at| (after[at] - before[at]) / ((to - from) * SECOND) as f64);
    println!("{parts:.3?}");
    parts
}

#[test]
fn one_that_uses_a_gpu_now_and_then_has_its_share_of_the_other() {
    let pace = Pace::Bursts {
        work: 5 * MS,
        every: 300 * MS,
    };
    let parts = sides([side((1, 4)), side((1, 4)).paced(pace)], 1, 21);
    assert!(is_near(parts[0], 1, 0.05) && parts[1] > 0.016, "{parts:?}");
    assert!(
        parts[2..].iter().all(|part| is_near(*part, 3, 0.05)),
        "{parts:?}"
    );
}

#[test]
fn one_whose_process_died_in_debt_or_was_stopped_goes_on_with_the_others() {
    let dies = Program {
        kernel: (2 * SECOND, 2 * SECOND),
        dies: Some(3 * SECOND),
        ..side((1, 4))
    };
    let parts = sides([side((1, 4)), dies], 4, 10);
    assert!(is_near(parts[0], 1, 0.05), "{parts:?}");
    assert!(
        parts[2..].iter().all(|part| is_near(*part, 3, 0.05)),
        "{parts:?}"
    );
    let stopped = Program {
        stopped: Some((3 * SECOND, 8 * SECOND)),
        ..side((1, 4))
    };
    let parts = sides([side((1, 4)), stopped], 3, 8);
    assert!(is_near(parts[0], 1, 0.1) && parts[1] < 0.01, "{parts:?}");
    assert!(
        parts[2..].iter().all(|part| is_near(*part, 3, 0.05)),
        "{parts:?}"
    );
}

/// While one GPU owes, the other is for those beside it.
#[test]
fn a_job_in_debt_keeps_no_other_waiting() {
    let long = Program {
        kernel: (SECOND, SECOND),
        ..side((1, 4))
    };
    let parts = sides([side((1, 4)), long], 4, 24);
    assert!(parts[0] > 0.0 && parts[0] < 0.26, "{parts:?}");
    assert!(is_near(parts[2], 3, 0.03), "{parts:?}");
}

proptest! {
    #![proptest_config(cases(32))]

    /// Whatever happens to jobs with two GPUs: an honest one on each has always launched within a bounded time.
    #[test]
    fn no_job_starves_beside_gangs(
        drawn in [troubled(), troubled()],
        kernels in prop::option::of(1u64..50),
        seed in 0..u64::MAX,
    ) {
        let gang = Some(Gang { kernels, together: true });
        let on = |gpu: usize| {
            let ranks = drawn[gpu].iter().map(|&it| Program { gang, ..it });
            let honest = Program::hard(9, (1, 10), MS);
            ranks.chain([honest]).collect::<Vec<Program>>()
        };
        let programs = [on(0), on(1)];
        let mut pair = Pair::new([&programs[0], &programs[1]], seed);
        for second in 1..10 {
            pair.run_until(second * SECOND);
            let before = [0, 1].map(|gpu| pair.worked(gpu, 9));
            pair.run_until((second + 1) * SECOND);
            for gpu in [0, 1] {
                prop_assert!(pair.worked(gpu, 9) > before[gpu], "GPU {gpu} in second {second}");
            }
        }
    }
}

//! Gangs and other jobs on simulated GPUs, each of which is steered by [`Sharing`].

use super::*;
use crate::schedule::shares::{Look, Observed, Sharing};
use proptest::collection::vec;
use proptest::prelude::*;
use softmig_policy::node::limits::{Mode, Share};

/// The step of the simulation.
const STEP: Nanos = MS / 4;
/// The time that a GPU takes to change from one group to another.
const CHANGE: Nanos = 140_000;
/// The steps until a driver's call has an effect.
const CALL: u32 = 2;

/// A job whose kernels wait for each other: its work goes on while it is on all of its GPUs.
#[derive(Clone, Debug)]
struct Program {
    gpus: Vec<GpuNumber>,
    shards: u32,
    mode: Mode,
    /// It rests for the second time after each first time of work, if that is not 0.
    rests: (Nanos, Nanos),
    done: Nanos,
    /// Work until it rests, or below zero the rest of its rest.
    left: Nanos,
}

impl Program {
    fn busy(gpus: &[GpuNumber], shards: u32) -> Self {
        Self {
            gpus: gpus.to_vec(),
            shards,
            mode: Mode::HARD,
            rests: (0, 0),
            done: 0,
            left: 0,
        }
    }

    fn has_work(&self) -> bool {
        self.left >= 0
    }

    fn work(&mut self, time: Nanos) {
        self.done += time;
        if self.rests.1 > 0 {
            self.left -= time;
            if self.left <= 0 {
                self.left = -self.rests.1;
            }
        }
    }

    /// Whether its rest ends.
    fn rest(&mut self) -> bool {
        self.left += STEP;
        if self.left >= 0 {
            self.left = self.rests.0;
        }
        self.left >= 0
    }
}

struct SimGpu {
    sharing: Sharing,
    due: Nanos,
    observed: BTreeMap<Job, Observed>,
    /// Whether each job's channels run, and the steps until that has an effect.
    runs: BTreeMap<Job, (bool, u32)>,
    holder: Option<Job>,
    /// The rest of its slice.
    slice: Nanos,
    stayed: Nanos,
}

struct Node {
    now: Nanos,
    gpus: Vec<SimGpu>,
    gangs: Gangs,
    /// Whether they are asked: without them each GPU decides alone.
    has_gangs: bool,
    programs: Vec<Program>,
}

const SHARDS: u32 = 8;

fn job(number: usize) -> Job {
    Job(u32::try_from(number).unwrap())
}

impl Node {
    fn new(count: usize, programs: Vec<Program>) -> Self {
        let gpu = |number: GpuNumber| {
            let mut sharing = Sharing::new(0);
            for (at, program) in programs.iter().enumerate() {
                if program.gpus.contains(&number) {
                    let share = Share::new(program.shards, SHARDS).unwrap();
                    sharing.add(job(at), share, program.mode);
                }
            }
            SimGpu {
                sharing,
                // Each GPU has looks of its own.
                due: number as Nanos * MS,
                observed: BTreeMap::new(),
                runs: BTreeMap::new(),
                holder: None,
                slice: 0,
                stayed: 0,
            }
        };
        Self {
            now: 0,
            gpus: (0..count).map(gpu).collect(),
            gangs: Gangs::default(),
            has_gangs: true,
            programs,
        }
    }

    fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.now < end {
            self.step();
            self.look();
        }
    }

    /// The GPUs run for a step.
    fn step(&mut self) {
        self.now += STEP;
        let mut on: BTreeMap<Job, (usize, Nanos)> = BTreeMap::new();
        for gpu in &mut self.gpus {
            let mut lost = 0;
            let is_ready = |gpu: &SimGpu, job: Job| {
                let (runs, until) = gpu.runs.get(&job).copied().unwrap_or((true, 0));
                let program = &self.programs[job.0 as usize];
                (runs == (until == 0)) && program.has_work()
            };
            let keeps = gpu
                .holder
                .is_some_and(|it| is_ready(gpu, it) && gpu.slice > 0);
            if !keeps {
                if let Some(holder) = gpu.holder {
                    let is_cut = self.programs[holder.0 as usize].has_work();
                    let observed = gpu.observed.entry(holder).or_default();
                    let count = if is_cut {
                        &mut observed.cut
                    } else {
                        &mut observed.left
                    };
                    *count += 1;
                }
                let jobs: Vec<Job> = gpu.sharing.standings().into_keys().collect();
                let after = jobs.iter().filter(|it| Some(**it) > gpu.holder);
                let before = jobs.iter().filter(|it| Some(**it) <= gpu.holder);
                let next = after.chain(before).find(|it| is_ready(gpu, **it)).copied();
                if next != gpu.holder {
                    lost = CHANGE;
                }
                gpu.holder = next;
                let slice = next.and_then(|it| gpu.sharing.state(it));
                gpu.slice = slice.map_or(2 * MS, |(_, us)| us as Nanos * 1000);
                gpu.stayed = 0;
            }
            if let Some(holder) = gpu.holder {
                gpu.slice -= STEP;
                gpu.observed.entry(holder).or_default().resident += STEP - lost;
                let (count, time) = on.entry(holder).or_insert((0, STEP));
                *count += 1;
                *time = (*time).min(STEP - lost);
            }
            for (_, until) in gpu.runs.values_mut() {
                *until = until.saturating_sub(1);
            }
        }
        for (at, program) in self.programs.iter_mut().enumerate() {
            for &number in &program.gpus {
                let observed = self.gpus[number].observed.entry(job(at)).or_default();
                observed.pending += if program.has_work() { STEP } else { 0 };
            }
            let is_on_all =
                |&(count, time): &(usize, Nanos)| (count == program.gpus.len()).then_some(time);
            if !program.has_work() {
                if program.rest() {
                    // It wakes the monitor.
                    let gpus = program.gpus.iter();
                    gpus.for_each(|&number| self.gpus[number].due = self.now);
                }
            } else if let Some(time) = on.get(&job(at)).and_then(is_on_all) {
                program.work(time);
            }
        }
    }

    /// Those GPUs look that are due, or for which a phase began or ended.
    fn look(&mut self) {
        let due: Vec<GpuNumber> = (0..self.gpus.len())
            .filter(|&number| self.gpus[number].due <= self.now)
            .collect();
        let mut called: BTreeSet<GpuNumber> = due.into_iter().collect();
        while let Some(number) = called.pop_first() {
            let gpu = &mut self.gpus[number];
            let mut observed = std::mem::take(&mut gpu.observed);
            for (at, program) in self.programs.iter().enumerate() {
                let is_here = program.gpus.contains(&number);
                observed.entry(job(at)).or_default().wants_gpu = is_here && program.has_work();
            }
            let Look { mut next, .. } = gpu.sharing.look(self.now, &observed);
            if self.has_gangs {
                let (phase, others) = self.gangs.look(self.now, number, gpu.sharing.standings());
                next = gpu.sharing.set_phase(phase);
                called.extend(others);
            }
            gpu.due = next.unwrap_or(self.now + 25 * MS);
            for job in gpu.sharing.standings().into_keys() {
                let runs = gpu.sharing.state(job).is_none_or(|(runs, _)| runs);
                let state = gpu.runs.entry(job).or_insert((true, 0));
                if state.0 != runs {
                    *state = (runs, CALL);
                }
            }
        }
    }

    /// The work that each job did in this time, as a part of it.
    fn rates(&mut self, time: Nanos) -> Vec<f64> {
        let before: Vec<Nanos> = self.programs.iter().map(|it| it.done).collect();
        self.run(time);
        let after = self.programs.iter().map(|it| it.done);
        let rates = after.zip(before);
        rates
            .map(|(after, before)| (after - before) as f64 / time as f64)
            .collect()
    }
}

const SECOND: Nanos = 1000 * MS;

fn rates(gpus: usize, programs: &[Program]) -> Vec<f64> {
    let mut node = Node::new(gpus, programs.to_vec());
    node.run(SECOND);
    node.rates(10 * SECOND)
}

#[test]
fn two_gangs_get_a_half_of_two_gpus_each() {
    let programs = [Program::busy(&[0, 1], 4), Program::busy(&[0, 1], 4)];
    let with = rates(2, &programs);
    assert!(with.iter().all(|it| *it > 0.95 * 0.5), "{with:?}");
    let mut alone = Node::new(2, programs.to_vec());
    alone.has_gangs = false;
    let without = alone.rates(10 * SECOND);
    assert!(without.iter().sum::<f64>() < 0.9, "{without:?}");
}

#[test]
fn a_gang_and_a_job_with_one_of_its_gpus_get_their_shares() {
    let single = rates(2, &[Program::busy(&[0, 1], 4), Program::busy(&[0], 4)]);
    assert!(single.iter().all(|it| *it > 0.95 * 0.5), "{single:?}");
    let small = rates(
        4,
        &[Program::busy(&[0, 1, 2, 3], 6), Program::busy(&[2], 2)],
    );
    assert!(small[0] > 0.95 * 0.75, "{small:?}");
    assert!(small[1] > 0.95 * 0.25, "{small:?}");
}

/// What a program beside a busy job with these GPUs does, in hundredths of the time. It works and rests, in milliseconds; both have a
/// half.
fn beside((works, rests): (Nanos, Nanos), gpus: &[GpuNumber], is_working: bool) -> f64 {
    let paused = Program {
        rests: (works * MS, rests * MS),
        ..Program::busy(&[0], 4)
    };
    let mut gang = Program::busy(gpus, 4);
    gang.mode = Mode::SOFT;
    let mut node = Node::new(3, vec![gang, paused]);
    if !is_working {
        // Its kernels wait for a third GPU, which never runs them.
        node.programs[0].gpus = vec![0, 1];
    }
    node.run(SECOND);
    100.0 * node.rates(10 * SECOND)[1]
}

#[test]
fn a_gang_leaves_a_program_with_pauses_some_of_the_time() {
    for (program, least) in [
        ((1, 2), 10.0),
        ((4, 6), 25.0),
        ((2, 20), 7.0),
        ((15, 20), 25.0),
        ((40, 60), 25.0),
    ] {
        let single = beside(program, &[0], true);
        for is_working in [true, false] {
            let done = beside(program, &[0, 1, 2], is_working);
            println!("{program:?} ms: {done:.1} of {single:.1} %");
            assert!(done > least, "{program:?}, {is_working}: {done}");
        }
    }
}

#[test]
fn a_gang_that_says_falsely_that_it_has_work_takes_its_share_at_most() {
    // Its kernels wait for a third GPU, which never runs them.
    let mut liar = Program::busy(&[0, 1, 2], 4);
    liar.mode = Mode::SOFT;
    let mut node = Node::new(
        3,
        vec![liar, Program::busy(&[0], 4), Program::busy(&[1], 4)],
    );
    node.programs[0].gpus = vec![0, 1];
    let rates = node.rates(10 * SECOND);
    assert!(rates[1..].iter().all(|it| *it > 0.93 * 0.5), "{rates:?}");
}

#[test]
fn a_job_with_work_on_one_of_its_gpus_is_no_gang() {
    let mut gangs = Gangs::default();
    let standing = |wants_gpu| Standing {
        wants_gpu,
        may_run: true,
        lead: 0,
    };
    let jobs = |first, second| [(Job(1), standing(first)), (Job(2), standing(second))].into();
    let open = Phase::default();
    let phase = |running| Phase {
        gangs: [Job(2)].into(),
        running,
    };
    let (its, without) = (phase(Some(Job(2))), phase(None));
    assert_eq!(gangs.look(0, 0, jobs(true, true)), (open.clone(), vec![]));
    assert_eq!(gangs.look(0, 1, jobs(false, true)), (its.clone(), vec![0]));
    // It has none any more.
    assert_eq!(gangs.look(MS, 0, jobs(true, false)), (its, vec![]));
    assert_eq!(gangs.look(MS, 1, jobs(false, false)), (without, vec![0]));
    // A GPU that is silent keeps nobody waiting.
    assert_eq!(gangs.look(SECOND, 0, jobs(true, true)), (open, vec![1]));
}

fn program() -> impl Strategy<Value = Program> {
    let gpus = prop::sample::subsequence(vec![0, 1, 2, 3], 1..=3);
    let rests = prop_oneof![
        2 => Just((0, 0)),
        1 => (MS..100 * MS, MS..200 * MS),
    ];
    (gpus, 1..=4_u32, any::<bool>(), rests).prop_map(|(gpus, shards, is_hard, rests)| Program {
        mode: if is_hard { Mode::HARD } else { Mode::SOFT },
        rests,
        ..Program::busy(&gpus, shards)
    })
}

/// Runs them for some seconds. A gang in its phase has all of its GPUs for itself, and none waits for long.
fn check(programs: Vec<Program>) -> Result<(), TestCaseError> {
    let mut node = Node::new(4, programs);
    node.run(SECOND);
    let mut longest = vec![0; node.programs.len()];
    let programs = node.programs.iter();
    let mut last: Vec<(Nanos, Nanos)> = programs.map(|it| (it.done, node.now)).collect();
    for _ in 0..8 * SECOND / STEP {
        node.step();
        node.look();
        for gpu in node.gangs.gpus.values() {
            let Some(gang) = gpu.phase.running else {
                continue;
            };
            for &number in &node.programs[gang.0 as usize].gpus {
                let sharing = &node.gpus[number].sharing;
                let (runs, _) = sharing.state(gang).unwrap();
                prop_assert!(runs, "{gang:?} is held at {number} in its phase");
                for other in (0..node.programs.len()).map(job).filter(|it| *it != gang) {
                    let state = sharing.state(other);
                    prop_assert!(state.is_none_or(|(runs, _)| !runs));
                }
            }
        }
        for (at, program) in node.programs.iter().enumerate() {
            let (done, since) = last[at];
            if program.done > done || !program.has_work() {
                last[at] = (program.done, node.now);
            }
            longest[at] = longest[at].max(node.now - since);
        }
    }
    prop_assert!(longest.iter().all(|it| *it < 1500 * MS), "{longest:?}");
    Ok(())
}

#[test]
fn a_gang_stays_one_while_it_is_not_waited_for() {
    let resting = |gpus: &[GpuNumber], mode, rests| Program {
        mode,
        rests,
        ..Program::busy(gpus, 1)
    };
    let gang = Program {
        mode: Mode::SOFT,
        ..Program::busy(&[0, 1, 2], 4)
    };
    // GPU 1 waits for the gang in vain: it has not got GPU 2.
    let first = resting(&[2, 3], Mode::HARD, (36_830_001, 102_750_001));
    let second = resting(&[1, 3], Mode::SOFT, (34_330_001, 121_500_001));
    check(vec![first, gang, second]).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn gangs_run_on_all_of_their_gpus_or_on_none_and_none_starves(all in vec(program(), 1..8)) {
        let mut programs: Vec<Program> = Vec::new();
        for program in all {
            let is_full = |number: &GpuNumber| {
                let there = programs.iter().filter(|it| it.gpus.contains(number));
                there.map(|it| it.shards).sum::<u32>() + program.shards > SHARDS
            };
            if !program.gpus.iter().any(is_full) {
                programs.push(program);
            }
        }
        check(programs)?;
    }
}

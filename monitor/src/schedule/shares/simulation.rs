//! Jobs on a simulated GPU that has a scheduler of its own, steered by [`super::Sharing`].

mod escapes;
mod idle;
mod observations;
mod sampled;
mod waiting;

use super::*;

/// The work of a program.
#[derive(Clone, Copy, Debug)]
enum Program {
    /// Has always work queued.
    Queue,
    /// Gives the GPU `work`, waits until it is done, and does something else for `pause`.
    Waits { work: Nanos, pause: Nanos },
    /// Says that it has work, which waits for something else.
    Stuck,
    /// Says that it always has work, but has only `work` in each `period`.
    Ticks { work: Nanos, period: Nanos },
    /// Prepares `work` in `time`, and launches up to `most` ahead.
    Ahead {
        work: Nanos,
        time: Nanos,
        most: Nanos,
    },
}

#[derive(Clone, Debug)]
struct Sim {
    program: Program,
    /// Work that was launched.
    queued: Nanos,
    /// When there will be more.
    more_at: Nanos,
    is_on: bool,
    /// Whether its channels are to run, and since when.
    allowed: (bool, Nanos),
    slice: Nanos,
    done: Nanos,
    /// The same after each tenth of a second.
    windows: Vec<Nanos>,
    heard: Observed,
    /// Where the program's word of its work is sampled.
    sampler: Option<sampled::Sampler>,
}

const STEP: Nanos = 20_000;
const CHANGE: Nanos = 140_000;
/// The driver's call that takes channels off the GPU, or lets them run, has an effect after this time.
const CALL: Nanos = 300_000;

impl Sim {
    fn new(program: Program) -> Self {
        Self {
            program,
            queued: 0,
            more_at: 0,
            is_on: true,
            allowed: (true, 0),
            slice: 2048 * 1000,
            done: 0,
            windows: Vec::new(),
            heard: Observed::default(),
            sampler: None,
        }
    }

    /// The program's processor.
    fn think(&mut self, now: Nanos) {
        let had_work = self.queued > 0;
        match self.program {
            Program::Queue => self.queued = MS,
            Program::Stuck => self.heard.pending += STEP,
            Program::Waits { work, .. } => {
                if self.queued <= 0 && now >= self.more_at {
                    self.queued = work;
                }
            }
            Program::Ticks { work, period } => {
                self.heard.pending += STEP;
                if now % period == 0 {
                    self.queued = work;
                }
            }
            Program::Ahead { work, time, most } => {
                if now >= self.more_at && self.queued < most {
                    self.queued += work;
                    self.more_at = now.max(self.more_at) + time;
                }
            }
        }
        let has_work = self.queued > 0;
        match &mut self.sampler {
            Some(sampler) => {
                if has_work && !had_work {
                    sampler.launch(now);
                }
                sampler.step(now, has_work);
            }
            None if has_work => self.heard.pending += STEP,
            None => {}
        }
    }

    fn work(&mut self, now: Nanos) {
        self.done += STEP;
        self.queued -= STEP;
        if let Program::Waits { pause, .. } = self.program
            && self.queued <= 0
        {
            self.more_at = now + pause;
        }
    }
}

/// Each program's part of the GPU in some seconds, after one.
fn run(jobs: &[(u32, u32, Mode, Program)]) -> Vec<f64> {
    simulate(jobs)
        .iter()
        .map(|it| it.done as f64 / 4e9)
        .collect()
}

/// By how much what a job gets in a tenth of a second varies: the standard deviation as a part of the mean, of the job that has
/// the largest.
fn unsteadiness(sims: &[Sim]) -> f64 {
    let each = sims.iter().map(|sim| {
        let parts: Vec<f64> = sim
            .windows
            .windows(2)
            .map(|two| (two[1] - two[0]) as f64)
            .collect();
        let mean = parts.iter().sum::<f64>() / parts.len() as f64;
        let squares = parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>();
        (squares / parts.len() as f64).sqrt() / mean
    });
    each.fold(0.0, f64::max)
}

fn simulate(jobs: &[(u32, u32, Mode, Program)]) -> Vec<Sim> {
    simulate_with(jobs, &[]).0
}

/// The same beside programs that have no seat, each of one of these jobs; and the sums of all five seconds.
fn simulate_with(
    jobs: &[(u32, u32, Mode, Program)],
    escapes: &[(usize, Program)],
) -> (Vec<Sim>, Book) {
    simulate_as(jobs, escapes, false)
}

fn simulate_as(
    jobs: &[(u32, u32, Mode, Program)],
    escapes: &[(usize, Program)],
    is_sampled: bool,
) -> (Vec<Sim>, Book) {
    let programs = jobs.iter().map(|job| job.3);
    let programs = programs.chain(escapes.iter().map(|it| it.1));
    let mut sims: Vec<Sim> = programs.map(Sim::new).collect();
    for sim in &mut sims {
        sim.sampler = is_sampled.then(sampled::Sampler::default);
    }
    let mut sharing = Sharing::new(0);
    for (number, &(shards, per_gpu, mode, _)) in jobs.iter().enumerate() {
        let share = Share::new(shards, per_gpu).unwrap();
        sharing.come(
            Job(number as u32),
            share,
            mode,
            -share_of(share, MAX_CREDIT),
        );
    }
    let (mut holder, mut since, mut changing) = (0, 0, 0);
    let mut wished = vec![0; sims.len()];
    let mut due = 0;
    for now in (0..5_000 * MS).step_by(STEP as usize) {
        if now == 1_000 * MS {
            for sim in &mut sims {
                sim.done = 0;
            }
        }
        if now > 1_000 * MS && now % (100 * MS) == 0 {
            sims.iter_mut().for_each(|sim| sim.windows.push(sim.done));
        }
        for (number, sim) in sims.iter_mut().enumerate() {
            if now - sim.allowed.1 >= CALL {
                sim.is_on = sim.allowed.0;
            }
            sim.think(now);
            if sim.queued > 0 || matches!(sim.program, Program::Stuck | Program::Ticks { .. }) {
                wished[number] = now;
            }
        }
        let count = sims.len();
        let ready = |sim: &Sim| sim.is_on && sim.queued > 0;
        let next = (1..=count).map(|by| (holder + by) % count);
        let next = next.clone().find(|&it| it != holder && ready(&sims[it]));
        let is_cut = now - since >= sims[holder].slice;
        if let Some(next) = next
            && changing <= 0
            && (is_cut || !ready(&sims[holder]))
        {
            let is_on = sims[holder].is_on;
            let heard = &mut sims[holder].heard;
            // A job that is held was taken off with work left.
            if is_cut || !is_on {
                heard.cut += 1
            } else {
                heard.left += 1
            }
            (holder, since, changing) = (next, now, CHANGE);
        }
        // A job that may not run is taken from the GPU. No job pays for a change.
        if sims[holder].is_on && changing <= 0 {
            sims[holder].heard.resident += STEP;
        }
        if changing > 0 {
            changing -= STEP;
        } else if ready(&sims[holder]) {
            sims[holder].work(now);
        }
        if now >= due {
            for (at, &(job, _)) in escapes.iter().enumerate() {
                let heard = std::mem::take(&mut sims[jobs.len() + at].heard);
                sims[job].heard.unseated += heard.resident;
            }
            let seated = sims.iter_mut().take(jobs.len());
            let heard = seated.enumerate().map(|(number, sim)| {
                let wishes = now - wished[number] < 3 * MS;
                if let Some(sampler) = &mut sim.sampler {
                    sim.heard.pending += sampler.read(now);
                }
                let heard = Observed {
                    wishes,
                    ..std::mem::take(&mut sim.heard)
                };
                (Job(number as u32), heard)
            });
            let look = sharing.look(now, &heard.collect());
            // A job that wants the GPU again rings.
            due = look.next.unwrap_or(now + MS);
            assert_eq!(look.escaped, [], "no job is where it cannot be");
            for (number, sim) in sims.iter_mut().take(jobs.len()).enumerate() {
                let (is_on, _) = sharing.state(Job(number as u32)).unwrap();
                if sim.allowed.0 != is_on {
                    sim.allowed = (is_on, now);
                }
            }
            for (Job(number), slice) in look.slices {
                sims[number as usize].slice = slice as Nanos * 1000;
            }
        }
    }
    (sims, sharing.take_book())
}

const HARD: Mode = Mode::Hard;
const CUPY: Program = Program::Waits {
    work: 1_600_000,
    pause: 60_000,
};
const JAX: Program = Program::Waits {
    work: 3 * MS,
    pause: 500_000,
};
/// Half of the GPU alone, and a wait each 20 ms is not there: it launches ahead.
const TRAINING: Program = Program::Ahead {
    work: 60_000,
    time: 120_000,
    most: 40 * MS,
};

fn all(program: Program, count: u32) -> Vec<(u32, u32, Mode, Program)> {
    (0..count).map(|_| (1, count, HARD, program)).collect()
}

fn assert_near(got: &[f64], wanted: &[f64], by: f64) {
    let is_near = got
        .iter()
        .zip(wanted)
        .all(|(got, wanted)| (got - wanted).abs() <= by);
    assert!(is_near, "{got:.3?}, not {wanted:.3?}");
}

#[test]
fn busy_jobs_get_their_shares_in_long_slices() {
    assert_near(&run(&all(Program::Queue, 4)), &[0.246; 4], 0.004);
    assert_near(&run(&all(Program::Queue, 8)), &[0.123; 8], 0.003);
    let unequal = [(1, 10, HARD, Program::Queue), (9, 10, HARD, Program::Queue)];
    assert_near(&run(&unequal), &[0.1, 0.89], 0.015);
    let three = [
        (2, 4, HARD, Program::Queue),
        (1, 4, HARD, Program::Queue),
        (1, 4, HARD, Program::Queue),
    ];
    assert_near(&run(&three), &[0.49, 0.245, 0.245], 0.012);
}

#[test]
fn busy_jobs_get_their_shares_in_each_tenth_of_a_second() {
    let unequal = vec![(1, 10, HARD, Program::Queue), (9, 10, HARD, Program::Queue)];
    for (jobs, most) in [
        (all(Program::Queue, 4), 0.1),
        (all(Program::Queue, 8), 0.15),
        (unequal, 0.12),
    ] {
        let by = unsteadiness(&simulate(&jobs));
        assert!(by < most, "{by:.3} of {} jobs", jobs.len());
    }
}

#[test]
fn programs_that_wait_get_their_share_beside_busy_ones() {
    let jobs = [CUPY, Program::Queue, Program::Queue, Program::Queue].map(|it| (1, 4, HARD, it));
    let got = run(&jobs);
    assert!(got.iter().all(|&part| part > 0.225), "{got:.3?}");
    let mixed = [TRAINING, JAX, CUPY, TRAINING].map(|it| (1, 4, HARD, it));
    let got = run(&mixed);
    assert!(got.iter().all(|&part| part > 0.225), "{got:.3?}");
}

#[test]
fn a_cap_is_kept_beside_a_job_that_wants_little() {
    let little = Program::Waits {
        work: MS,
        pause: 30 * MS,
    };
    let got = run(&[(1, 4, HARD, Program::Queue), (1, 4, HARD, little)]);
    assert_near(&got[..1], &[0.25], 0.01);
    assert!(got[1] > 0.028, "{got:.3?}");
    let got = run(&[(1, 4, Mode::Soft, Program::Queue), (1, 4, HARD, little)]);
    assert!(got[0] > 0.9, "{got:.3?}");
}

#[test]
fn a_cap_is_kept_alone() {
    for shards in [1, 2, 4, 7] {
        let part = f64::from(shards) / 8.0;
        assert_near(&run(&[(shards, 8, HARD, Program::Queue)]), &[part], 0.006);
        assert_near(&run(&[(shards, 8, HARD, CUPY)]), &[part.min(0.96)], 0.01);
    }
    // Half of what it could have.
    let pauses = Program::Waits {
        work: 2 * MS,
        pause: 2 * MS,
    };
    assert_near(&run(&[(1, 4, HARD, pauses)]), &[0.25], 0.012);
    assert_near(&run(&[(5, 8, HARD, pauses)]), &[0.5], 0.005);
    assert_near(&run(&[(1, 4, Mode::Soft, Program::Queue)]), &[1.0], 0.001);
}

#[test]
fn no_job_pays_for_a_gpu_that_no_other_wanted() {
    // Each has it for twice as long as it works: alone they would get the same.
    let slow = Program::Waits {
        work: MS,
        pause: 3 * MS,
    };
    let slower = Program::Waits {
        work: 2 * MS,
        pause: 5 * MS,
    };
    let got = run(&[(1, 4, HARD, slow), (1, 4, HARD, slower)]);
    assert!(got.iter().all(|&part| part > 0.19), "{got:.3?}");
}

#[test]
fn a_job_with_pauses_makes_no_other_idle() {
    let pauses = Program::Waits {
        work: 2 * MS,
        pause: 18 * MS,
    };
    let got = run(&[(1, 2, HARD, pauses), (1, 2, Mode::Soft, Program::Queue)]);
    assert!(got[0] > 0.085 && got[1] > 0.8, "{got:.3?}");
}

#[test]
fn a_job_that_waits_for_something_else_keeps_no_other_waiting() {
    let stuck = (1, 2, Mode::Soft, Program::Stuck);
    let got = run(&[stuck, (1, 2, Mode::Soft, Program::Queue)]);
    assert!(got[1] > 0.97, "{got:.3?}");
    let three = [stuck, (1, 4, HARD, CUPY), (1, 4, HARD, Program::Queue)];
    let got = run(&three);
    assert!(got[1] > 0.22 && got[2] > 0.235, "{got:.3?}");
}

#[test]
fn who_always_wants_the_gpu_and_hardly_uses_it_keeps_it_idle_for_no_more_than_its_share() {
    let ticks = Program::Ticks {
        work: 100_000,
        period: 95 * MS,
    };
    let got = run(&[
        (1, 8, HARD, Program::Queue),
        (1, 8, HARD, Program::Queue),
        (1, 8, HARD, ticks),
    ]);
    assert!(got[..2].iter().all(|&part| part > 0.115), "{got:.3?}");
    let got = run(&[(7, 8, HARD, Program::Queue), (1, 8, HARD, ticks)]);
    assert!(got[0] > 0.8, "{got:.3?}");
}

#[test]
fn who_may_borrow_has_what_others_leave() {
    let jobs = [
        (1, 8, HARD, Program::Queue),
        (1, 8, Mode::Soft, Program::Queue),
    ];
    let got = run(&jobs);
    assert!((got[0] - 0.125).abs() < 0.01 && got[1] > 0.83, "{got:.3?}");
    let jobs = [jobs[0], jobs[1], jobs[1]];
    let got = run(&jobs);
    assert!(got[0] > 0.11 && got[1] > 0.4 && got[2] > 0.4, "{got:.3?}");
}

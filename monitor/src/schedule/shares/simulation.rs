//! Jobs on a simulated GPU that has a scheduler of its own, steered by [`super::Sharing`].
//!
//! The simulation goes from event to event: a program launches, a kernel or a time slice ends, channels are off the GPU,
//! the monitor looks. A minute of eight jobs takes some hundredths of a second.

mod escapes;
mod examples;
mod hostile;
mod idle;
mod observations;
mod properties;
mod sampled;
mod waiting;

use std::collections::BTreeSet;

use super::*;

/// The time that the GPU takes to change from one group to another.
const CHANGE: Nanos = 140_000;
/// The driver's call that takes channels off the GPU, or lets them run, has an effect after this time.
const CALL: Nanos = 300_000;
/// A program that had work this long ago still says so: its library looks each 2 ms.
const SAYS_FOR: Nanos = 3 * MS;
/// From a launch until the monitor is woken.
const BELL: Nanos = 20_000;
/// The interval at which the monitor takes the sums, and looks for that.
const MEASURES_EACH: Nanos = 1_000 * MS;

/// The work of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    /// Has nothing to do.
    Rest,
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

/// More work than is ever done.
const ENDLESS: Nanos = Nanos::MAX / 4;

/// A process, its channels, and what is known of them.
#[derive(Clone, Debug)]
struct Sim {
    program: Program,
    /// Work that was launched.
    queued: Nanos,
    /// When it launches next, unless it waits for work to end.
    launches: Option<Nanos>,
    is_on: bool,
    /// Whether its channels are to run, and since when.
    allowed: (bool, Nanos),
    slice: Nanos,
    done: Nanos,
    /// When the work came that it waits for.
    came: Nanos,
    /// The longest time for which it waited for work, less the time that the work takes at its share's pace.
    latest: Nanos,
    share: Option<Share>,
    /// The same at the end of each tenth of a second that is measured.
    windows: Vec<Nanos>,
    observed: Observed,
    /// When it last had work, as it says.
    had_work: Nanos,
    /// Where the program's word of its work is sampled.
    sampler: Option<sampled::Sampler>,
    /// What its page says instead of the truth: whether it wants the GPU, and the hundredths of the time with work.
    lie: (Option<bool>, Option<Nanos>),
}

impl Sim {
    fn new(now: Nanos, program: Program) -> Self {
        let mut sim = Self {
            program: Program::Rest,
            queued: 0,
            launches: None,
            is_on: true,
            allowed: (true, now),
            slice: DEFAULT_SLICE_US as Nanos * 1000,
            done: 0,
            came: 0,
            latest: 0,
            share: None,
            windows: Vec::new(),
            observed: Observed::default(),
            had_work: Nanos::MIN / 2,
            sampler: None,
            lie: (None, None),
        };
        sim.run(now, program);
        sim
    }

    /// Runs another program. What the last one launched is done first, but for endless work.
    fn run(&mut self, now: Nanos, program: Program) {
        self.program = program;
        if self.queued >= ENDLESS / 2 {
            self.queued = 0;
        }
        self.launches = (program != Program::Rest).then_some(now);
    }

    fn says_that_it_always_has_work(&self) -> bool {
        matches!(self.program, Program::Stuck | Program::Ticks { .. })
    }

    fn has_work(&self) -> bool {
        self.queued > 0 || self.says_that_it_always_has_work()
    }

    fn is_ready(&self) -> bool {
        self.is_on && self.queued > 0
    }

    /// The program's processor. Tells whether it wakes the monitor.
    fn launch(&mut self, now: Nanos) -> bool {
        if self.launches.is_none_or(|at| now < at) {
            return false;
        }
        let had_work = self.queued > 0;
        match self.program {
            Program::Rest | Program::Stuck => self.launches = None,
            Program::Queue => (self.queued, self.launches) = (ENDLESS, None),
            Program::Waits { work, .. } => {
                // Work that is left of another program comes first.
                self.came = if had_work { Nanos::MAX / 2 } else { now };
                self.queued += work;
                self.launches = None;
            }
            Program::Ticks { work, period } => {
                self.queued = work;
                self.launches = Some(now + period);
            }
            Program::Ahead { work, time, most } => {
                if self.queued < most {
                    self.queued += work;
                    self.launches = Some(now + time);
                } else {
                    self.launches = None;
                }
            }
        }
        if let Some(sampler) = self.sampler.as_mut().filter(|_| !had_work) {
            sampler.launch(now);
        }
        let is_new = now - self.had_work >= SAYS_FOR;
        self.had_work = now;
        is_new
    }

    /// Its work is on the GPU's processors for this long.
    fn work(&mut self, now: Nanos, time: Nanos) {
        self.done += time;
        self.queued -= time;
        match self.program {
            Program::Waits { pause, work } if self.queued <= 0 => {
                self.launches = Some(now + pause);
                let own = self.share.map_or(work, |share| at_pace(share, work));
                self.latest = self.latest.max(now - self.came - own);
            }
            Program::Ahead { most, .. } if self.queued < most && self.launches.is_none() => {
                self.launches = Some(now);
            }
            _ => {}
        }
    }

    /// When something of its own happens next. `is_working`: its work is on the GPU's processors.
    fn next(&self, now: Nanos, is_working: bool) -> Nanos {
        let effect = (self.is_on != self.allowed.0).then(|| self.allowed.1 + CALL);
        let end = is_working.then(|| now + self.queued);
        let room = match self.program {
            Program::Ahead { most, .. } if is_working && self.queued >= most => {
                Some(now + self.queued - most + 1)
            }
            _ => None,
        };
        let sample = self.sampler.as_ref().and_then(|it| it.next);
        let all = [effect, end, room, self.launches, sample];
        all.into_iter().flatten().min().unwrap_or(Nanos::MAX)
    }
}

/// A GPU, its processes, and the monitor.
struct Gpu {
    began: Nanos,
    now: Nanos,
    sims: Vec<Sim>,
    /// The job of each process, and whether that has a seat.
    owners: Vec<(Job, bool)>,
    sharing: Sharing,
    gone: BTreeSet<Job>,
    /// When the monitor looks, and whether a wake-up brings it earlier.
    due: Nanos,
    /// The most by which it looks late.
    late: Nanos,
    hears_bells: bool,
    /// The process whose group is on the GPU, since when, and until when the change to it takes.
    holder: usize,
    since: Nanos,
    changing: Nanos,
    /// The time in which a soft job had work, and no work was done and no change took place.
    idle_beside_soft: Nanos,
    /// Since when jobs are held for others, and the longest time beyond the bound for which one was.
    ahead: BTreeMap<Job, Nanos>,
    held_too_long: Nanos,
    /// As the arbiter, it looks each 25 ms at least while a job wants the GPU.
    beats: bool,
    last_look: Nanos,
}

impl Gpu {
    fn new(now: Nanos) -> Self {
        Self {
            began: now,
            now,
            sims: Vec::new(),
            owners: Vec::new(),
            sharing: Sharing::new(now),
            gone: BTreeSet::new(),
            due: now,
            late: 0,
            hears_bells: true,
            holder: 0,
            since: now,
            changing: now,
            idle_beside_soft: 0,
            ahead: BTreeMap::new(),
            held_too_long: Nanos::MIN / 2,
            beats: false,
            last_look: now,
        }
    }

    /// A process comes, whose job [`Sharing`] knows.
    fn add(&mut self, job: Job, has_seat: bool, program: Program) -> usize {
        let mut sim = Sim::new(self.now, program);
        let state = self.sharing.state(job).filter(|_| has_seat);
        if let Some((_, slice)) = state.filter(|it| it.1 != 0) {
            sim.slice = slice as Nanos * 1000;
        }
        sim.share = self.sharing.jobs.get(&job).map(|it| it.share);
        self.sims.push(sim);
        self.owners.push((job, has_seat));
        self.sims.len() - 1
    }

    /// A job comes that owes nothing.
    fn add_job(&mut self, job: Job, share: Share, mode: Mode) {
        (self.sharing).add(job, share, mode);
        self.due = self.now;
    }

    /// A process ends, and its job with it.
    fn remove(&mut self, number: usize) {
        self.run(number, Program::Rest);
        self.sims[number].queued = 0;
        self.sharing.remove(self.owners[number].0);
        self.gone.insert(self.owners[number].0);
    }

    /// A process goes on with another program.
    fn run(&mut self, number: usize, program: Program) {
        self.sims[number].run(self.now, program);
    }

    /// Another monitor takes over. It lets all run, and knows nothing of the past.
    fn restart(&mut self) {
        let old = std::mem::replace(&mut self.sharing, Sharing::new(self.now));
        for (&job, state) in &old.jobs {
            if !self.gone.contains(&job) {
                self.add_job(job, state.share, state.mode);
            }
        }
        for sim in &mut self.sims {
            sim.observed = Observed::default();
        }
        self.due = self.now;
        self.obey();
    }

    fn has_soft_work(&self) -> bool {
        let mut all = self.sims.iter().zip(&self.owners);
        all.any(|(sim, (job, _))| {
            let state = self.sharing.jobs.get(job);
            sim.queued > 0 && state.is_some_and(|it| !it.is_capped())
        })
    }

    /// Goes on until then.
    fn run_until(&mut self, end: Nanos) {
        loop {
            self.settle();
            let next = self.next().min(end);
            self.pass(next - self.now);
            if next >= end {
                return;
            }
        }
    }

    fn is_working(&self, number: usize) -> bool {
        let is_holder = number == self.holder && self.now >= self.changing;
        is_holder && self.sims[number].is_ready()
    }

    /// The next that is ready, in turn.
    fn successor(&self) -> Option<usize> {
        let count = self.sims.len();
        let turn = (1..count).map(|by| (self.holder + by) % count);
        turn.into_iter().find(|&it| self.sims[it].is_ready())
    }

    fn next(&self) -> Nanos {
        let sims = self.sims.iter().enumerate();
        let own = sims.map(|(number, sim)| sim.next(self.now, self.is_working(number)));
        let cut = if self.now < self.changing {
            self.changing
        } else {
            let slice = self.since + self.sims.get(self.holder).map_or(0, |it| it.slice);
            if slice > self.now { slice } else { Nanos::MAX }
        };
        let all = own.chain([cut, self.due]);
        all.min().unwrap_or(Nanos::MAX).max(self.now)
    }

    /// Lets time pass in which nothing happens.
    fn pass(&mut self, time: Nanos) {
        if time <= 0 {
            return;
        }
        let is_changing = self.now < self.changing;
        let is_working = (0..self.sims.len()).any(|it| self.is_working(it));
        self.now += time;
        for sim in &mut self.sims {
            if sim.has_work() {
                sim.had_work = self.now;
                if sim.sampler.is_none() {
                    sim.observed.pending += time;
                }
            }
        }
        if is_changing {
            return;
        }
        if !is_working && self.has_soft_work() {
            self.idle_beside_soft += time;
        }
        let Some(holder) = self.sims.get_mut(self.holder) else {
            return;
        };
        // A job that may not run is taken from the GPU. No job pays for a change.
        if holder.is_on {
            holder.observed.resident += time;
        }
        if is_working {
            holder.work(self.now, time);
        }
    }

    /// Does all that is to be done now.
    fn settle(&mut self) {
        let now = self.now;
        for sim in &mut self.sims {
            if sim.is_on != sim.allowed.0 && now - sim.allowed.1 >= CALL {
                sim.is_on = sim.allowed.0;
            }
            if sim.launch(now) && self.hears_bells {
                self.due = self.due.min(now + BELL);
            }
            let has_work = sim.queued > 0;
            if let Some(sampler) = &mut sim.sampler {
                sampler.step(now, has_work);
            }
        }
        self.change();
        if self.due <= now {
            self.look();
        }
    }

    fn change(&mut self) {
        let now = self.now;
        let Some(holder) = self.sims.get(self.holder).filter(|_| now >= self.changing) else {
            return;
        };
        let is_cut = now - self.since >= holder.slice;
        if holder.is_ready() && !is_cut {
            return;
        }
        let Some(next) = self.successor() else {
            return;
        };
        // A job that is held was taken off with work left.
        let is_cut = is_cut || !holder.is_on;
        let observed = &mut self.sims[self.holder].observed;
        if is_cut {
            observed.cut += 1;
        } else {
            observed.left += 1;
        }
        self.sims[next].observed.changing += CHANGE;
        (self.holder, self.since, self.changing) = (next, now, now + CHANGE);
    }

    fn look(&mut self) {
        let now = self.now;
        let passed = now - std::mem::replace(&mut self.last_look, now);
        let mut all: BTreeMap<Job, Observed> = BTreeMap::new();
        for (sim, &(job, has_seat)) in self.sims.iter_mut().zip(&self.owners) {
            let mut one = std::mem::take(&mut sim.observed);
            let of_job = all.entry(job).or_default();
            if !has_seat {
                of_job.unseated += one.resident;
                continue;
            }
            if let Some(sampler) = &mut sim.sampler {
                one.pending = sampler.read(now);
            }
            if let Some(part) = sim.lie.1 {
                one.pending = passed * part / 100;
            }
            of_job.wants_gpu |= sim.lie.0.unwrap_or(now - sim.had_work < SAYS_FOR);
            of_job.pending += one.pending;
            of_job.resident += one.resident;
            of_job.changing += one.changing;
            of_job.cut += one.cut;
            of_job.left += one.left;
        }
        let look = self.sharing.look(now, &all);
        for (&job, state) in &self.sharing.jobs {
            if state.held == Some(Held::Ahead) {
                let since = *self.ahead.entry(job).or_insert(now);
                let most = 72 * MS + at_pace(state.share, 32 * MS);
                self.held_too_long = self.held_too_long.max(now - since - most);
            } else {
                self.ahead.remove(&job);
            }
        }
        let late = ((now - self.began)
            .unsigned_abs()
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 32) as Nanos;
        self.due = look.next.unwrap_or(now + MEASURES_EACH) + ((late * self.late) >> 32);
        self.hears_bells = look.next.is_none();
        if self.beats && self.sharing.jobs.values().any(|it| it.wants_gpu) {
            self.due = self.due.min(now + 25 * MS);
        }
        self.obey();
        for (job, slice) in look.slices {
            let owners = self.owners.iter();
            for (sim, _) in (self.sims.iter_mut().zip(owners)).filter(|(_, it)| **it == (job, true))
            {
                sim.slice = slice as Nanos * 1000;
            }
        }
    }

    /// Lets channels run or wait, as was decided.
    fn obey(&mut self) {
        for (sim, &(job, has_seat)) in self.sims.iter_mut().zip(&self.owners) {
            let is_on = !has_seat || self.sharing.state(job).is_none_or(|(is_on, _)| is_on);
            if sim.allowed.0 != is_on {
                sim.allowed = (is_on, self.now);
            }
        }
    }
}

/// The time that some work takes at a share's pace.
fn at_pace(share: Share, work: Nanos) -> Nanos {
    work * Nanos::from(share.per_gpu()) / Nanos::from(share.shards())
}

/// A job's share, mode and program.
type Mix = (u32, u32, Mode, Program);

/// Each program's part of the GPU in some seconds, after one.
fn run(jobs: &[Mix]) -> Vec<f64> {
    let sims = simulate(jobs);
    sims.iter().map(|it| it.done as f64 / 4e9).collect()
}

fn simulate(jobs: &[Mix]) -> Vec<Sim> {
    simulate_with(jobs, &[]).0
}

/// The same beside programs that have no seat, each of one of these jobs; and the sums of all five seconds.
fn simulate_with(jobs: &[Mix], escapes: &[(usize, Program)]) -> (Vec<Sim>, Book) {
    simulate_as(jobs, escapes, false)
}

fn simulate_as(jobs: &[Mix], escapes: &[(usize, Program)], is_sampled: bool) -> (Vec<Sim>, Book) {
    let mut gpu = Gpu::new(0);
    for (number, &(shards, per_gpu, mode, program)) in (0..).zip(jobs) {
        let share = Share::new(shards, per_gpu).unwrap();
        (gpu.sharing).add(Job(number), share, mode);
        gpu.add(Job(number), true, program);
    }
    for &(job, program) in escapes {
        gpu.add(Job(job as u32), false, program);
    }
    for sim in &mut gpu.sims {
        sim.sampler = is_sampled.then(sampled::Sampler::default);
    }
    gpu.run_until(1_000 * MS);
    gpu.sims.iter_mut().for_each(|sim| sim.done = 0);
    for tenth in 1..=40 {
        gpu.run_until((1_000 + tenth * 100) * MS);
        for sim in &mut gpu.sims {
            sim.windows.push(sim.done);
        }
    }
    (gpu.sims, gpu.sharing.take_book())
}

const HARD: Mode = Mode::HARD;
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

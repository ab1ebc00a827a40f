//! Properties that hold for any jobs with any past.
//!
//! A case divides a GPU into slots. In each slot jobs come one after the other, run programs of different kinds, rest and leave, and
//! the monitor may begin anew at any time. Before all that some of the jobs may have had the GPU for up to a day, which costs
//! nothing here, since the clock is an argument.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use softmig_policy::node::limits::Ceiling;

/// A job of a slot: it comes `gap` after the one before, and runs each program for a time.
#[derive(Clone, Debug)]
struct Plan {
    gap: Nanos,
    mode: Mode,
    programs: Vec<(Nanos, Program)>,
}

#[derive(Clone, Debug)]
struct Slot {
    share: Share,
    plans: Vec<Plan>,
    /// Time in which the first job had been there before, and the hundredths of the GPU that it used.
    past: Option<(Nanos, Nanos)>,
}

#[derive(Clone, Debug)]
struct Case {
    slots: Vec<Slot>,
    length: Nanos,
    restarts: Vec<Nanos>,
    /// The most by which the monitor looks late.
    late: Nanos,
}

/// A job of a case: the number of its slot, when it runs which program, and when it leaves.
struct Life<'a> {
    slot: usize,
    plan: &'a Plan,
    programs: Vec<(Nanos, Program)>,
    leaves: Nanos,
}

/// A job of a run, and the work that was done for it.
#[derive(Clone, Debug)]
struct Outcome {
    share: Share,
    mode: Mode,
    /// Times since the run began.
    comes: Nanos,
    leaves: Nanos,
    /// When it began to have always work, and no longer had.
    busy: Vec<(Nanos, Nanos)>,
    /// The work that was done until each multiple of [`GRAIN`] after the run began.
    done: Vec<Nanos>,
    /// See [`Sim::latest`].
    latest: Nanos,
}

#[derive(Clone, Debug)]
struct Run {
    jobs: Vec<Outcome>,
    /// The time in which the GPU was idle although a soft job had work.
    idle: Nanos,
    held_too_long: Nanos,
}

const GRAIN: Nanos = 50 * MS;
const SECOND: Nanos = 1_000 * MS;
const DAY: Nanos = 86_400 * SECOND;

// --- What a run does ---

impl Case {
    fn lives(&self) -> Vec<Life<'_>> {
        let mut all = Vec::new();
        for (slot, plans) in self.slots.iter().map(|it| &it.plans).enumerate() {
            let mut time = 0;
            for plan in plans {
                time += plan.gap;
                let mut programs = Vec::new();
                for &(length, program) in &plan.programs {
                    programs.push((time, program));
                    time += length;
                }
                if programs[0].0 < self.length {
                    let leaves = time.min(self.length);
                    all.push(Life {
                        slot,
                        plan,
                        programs,
                        leaves,
                    });
                }
            }
        }
        all
    }

    /// Runs it from this time on.
    fn run(&self, begin: Nanos, has_past: bool) -> Run {
        let mut gpu = Gpu::new(begin);
        gpu.late = self.late;
        if has_past {
            gpu.sharing = self.sharing_after_pasts(begin);
        }
        let lives = self.lives();
        let outcome = |life: &Life<'_>| Outcome {
            share: self.slots[life.slot].share,
            mode: life.plan.mode,
            comes: life.programs[0].0,
            leaves: life.leaves,
            busy: busy_times(&life.programs, life.leaves),
            done: Vec::new(),
            latest: 0,
        };
        let mut outcomes: Vec<Outcome> = lives.iter().map(outcome).collect();
        let mut sims: Vec<Option<usize>> = vec![None; lives.len()];
        let starts = lives
            .iter()
            .flat_map(|it| it.programs.iter().map(|it| it.0));
        let ends = lives.iter().map(|it| it.leaves);
        let grains = (0..=self.length / GRAIN).map(|it| it * GRAIN);
        let mut times: Vec<Nanos> = (starts.chain(ends))
            .chain(self.restarts.iter().copied())
            .chain(grains)
            .filter(|&time| time <= self.length)
            .collect();
        times.sort_unstable();
        times.dedup();
        for time in times {
            gpu.run_until(begin + time);
            for ((number, life), sim) in (0..).zip(&lives).zip(&mut sims) {
                let begins = life.programs.iter().find(|it| it.0 == time);
                match (begins, *sim) {
                    _ if time == life.leaves && time < self.length => {
                        sim.iter().for_each(|&it| gpu.remove(it));
                    }
                    (Some(&(_, program)), Some(sim)) => gpu.run(sim, program),
                    (Some(&(_, program)), None) => {
                        gpu.add_job(Job(number), self.slots[life.slot].share, life.plan.mode);
                        *sim = Some(gpu.add(Job(number), true, program));
                    }
                    (None, _) => {}
                }
            }
            if self.restarts.contains(&time) {
                gpu.restart();
            }
            if time % GRAIN == 0 {
                for (outcome, sim) in outcomes.iter_mut().zip(&sims) {
                    outcome.done.push(sim.map_or(0, |it| gpu.sims[it].done));
                }
            }
        }
        for (outcome, sim) in outcomes.iter_mut().zip(&sims) {
            outcome.latest = sim.map_or(0, |it| gpu.sims[it].latest);
        }
        Run {
            jobs: outcomes,
            idle: gpu.idle_beside_soft,
            held_too_long: gpu.held_too_long,
        }
    }

    /// The slots' first jobs used the GPU until then. There are so few looks that a day costs nothing.
    fn sharing_after_pasts(&self, end: Nanos) -> Sharing {
        const LOOKS: Nanos = 64;
        let lives = self.lives();
        let first = |slot: usize| {
            let at = lives.iter().position(|it| it.slot == slot)?;
            Some((Job(at as u32), lives[at].plan.mode))
        };
        let slots = self.slots.iter().enumerate();
        let pasts: Vec<_> = slots
            .filter_map(|(number, slot)| Some((slot.share, slot.past?, first(number)?)))
            .collect();
        let longest = pasts.iter().map(|it| it.1.0).max().unwrap_or(0);
        let mut sharing = Sharing::new(end - longest);
        let each = longest / LOOKS;
        for look in 1..=LOOKS {
            let now = end - (LOOKS - look) * each;
            let mut all = BTreeMap::new();
            for &(share, (length, used), (job, mode)) in &pasts {
                if now - each < end - length {
                    continue;
                }
                if sharing.credit(job).is_none() {
                    sharing.add(job, share, mode);
                }
                let part = each * used / 100 / pasts.len() as Nanos;
                let is_on = sharing.state(job).is_some_and(|(is_on, _)| is_on);
                let most = match mode {
                    _ if !is_on => 0,
                    mode => share_of(mode.ceiling_of(share), each),
                };
                let observed = Observed {
                    resident: part.min(most),
                    pending: part.min(most),
                    wants_gpu: look < LOOKS,
                    ..Observed::default()
                };
                all.insert(job, observed);
            }
            sharing.look(now, &all);
        }
        sharing
    }
}

/// When a job has always work.
fn busy_times(programs: &[(Nanos, Program)], leaves: Nanos) -> Vec<(Nanos, Nanos)> {
    let ends = programs.iter().skip(1).map(|it| it.0).chain([leaves]);
    let mut all: Vec<(Nanos, Nanos)> = Vec::new();
    for (&(begins, program), ends) in programs.iter().zip(ends) {
        if program != Program::Queue {
            continue;
        }
        match all.last_mut().filter(|it| it.1 == begins) {
            Some(last) => last.1 = ends,
            None => all.push((begins, ends)),
        }
    }
    all
}

// --- What holds ---

/// By how much a run keeps each bound: less than 0 is a fault.
#[derive(Clone, Copy, Debug)]
struct Margins {
    /// GPU time of a job that always has work in each window, beyond the least that it is to get.
    service: Nanos,
    /// GPU time that a capped job may get in any time, less what it got.
    cap: Nanos,
    /// GPU time of a job that is alone and always has work, beyond what it saved up and its ceiling's part of the time.
    saved: Nanos,
    /// The time for which a job may be held for others, less the longest time.
    hold: Nanos,
    /// The time that work which a program waits for may take, less the longest time.
    wait: Nanos,
    /// The time for which the GPU may be idle while a soft job has work, less that time.
    idle: Nanos,
}

impl Margins {
    const NONE: Self = Self {
        service: Nanos::MAX,
        cap: Nanos::MAX,
        saved: Nanos::MAX,
        hold: Nanos::MAX,
        wait: Nanos::MAX,
        idle: Nanos::MAX,
    };

    fn all(self) -> [(&'static str, Nanos); 6] {
        [
            ("service in a window", self.service),
            ("cap in any time", self.cap),
            ("what it saved, alone", self.saved),
            ("hold for others", self.hold),
            ("wait for a burst", self.wait),
            ("idle beside a soft job", self.idle),
        ]
    }

    fn least(self, other: Self) -> Self {
        Self {
            service: self.service.min(other.service),
            cap: self.cap.min(other.cap),
            saved: self.saved.min(other.saved),
            hold: self.hold.min(other.hold),
            wait: self.wait.min(other.wait),
            idle: self.idle.min(other.idle),
        }
    }
}

/// The most credit of a job.
fn most_credit(mode: Mode, share: Share) -> Nanos {
    (Nanos::from(mode.burst_ms) * MS).max(most_debt(mode.ceiling_of(share)))
}

impl Outcome {
    /// At least 0.95 of its share, less the smaller of 50 ms and half of its share, in each second or in the time of ten debts.
    fn service(&self) -> Nanos {
        let window = SECOND.max(10 * at_pace(self.share, most_debt(self.share)));
        let entitled = share_of(self.share, window);
        let least = entitled * 95 / 100 - (50 * MS).min(entitled / 2);
        let mut margin = Nanos::MAX;
        for &(begins, ends) in &self.busy {
            let grains = -(-begins).div_euclid(GRAIN)..;
            for first in grains.take_while(|it| it * GRAIN + window <= ends) {
                let at = |time: Nanos| self.done.get((time / GRAIN) as usize);
                if let [Some(before), Some(after)] = [first * GRAIN, first * GRAIN + window].map(at)
                {
                    margin = margin.min(after - before - least);
                }
            }
        }
        margin
    }

    /// At most its ceiling and one burst, in any time. A look can be late, and the driver's call takes a moment: 5 ms, and the ceiling's
    /// part of [`MAX_INTERVAL`]. A new monitor knows no debts. One that is late again and again forgets what is more than a debt.
    fn cap(&self, restarts: Nanos, late: Nanos) -> Nanos {
        let ceiling = self.mode.ceiling_of(self.share);
        let is_capped = ceiling.shards() < ceiling.per_gpu();
        if !is_capped || late > LEAST_DEBT / 2 {
            return Nanos::MAX;
        }
        let (mut least, mut most) = (0, 0);
        for (at, done) in (0..).zip(&self.done) {
            let beyond = done - share_of(ceiling, at * GRAIN);
            least = beyond.min(least);
            most = (beyond - least).max(most);
        }
        let late = 5 * MS + share_of(ceiling, MAX_INTERVAL);
        (1 + restarts) * (most_credit(self.mode, self.share) + late) - most
    }

    /// A job that is alone and always has work gets all that it saved up, and its ceiling's part of the time. It may be held at the
    /// end, until it has some credit again. At first it may owe something for its past.
    fn saved(&self) -> Nanos {
        let ceiling = self.mode.ceiling_of(self.share);
        let held = resume_credit(ceiling) + share_of(ceiling, MAX_INTERVAL) + MS;
        let mut credit = -most_debt(ceiling);
        let mut margin = Nanos::MAX;
        let grains = -(-self.comes).div_euclid(GRAIN)..self.leaves / GRAIN;
        for first in grains {
            let at = |grain: Nanos| self.done[grain as usize];
            let busy = self.busy.iter();
            let busy = busy.filter(|it| (it.0..it.1).contains(&(first * GRAIN)));
            for last in busy.flat_map(|it| first + 1..=it.1.min(self.leaves) / GRAIN) {
                let time = (last - first) * GRAIN;
                let least = time.min(credit + share_of(ceiling, time)) - held;
                margin = margin.min(at(last) - at(first) - least);
            }
            let most = most_credit(self.mode, self.share);
            let more = share_of(ceiling, GRAIN) + at(first) - at(first + 1);
            credit = (credit + more).min(most - (at(first + 1) - at(first)));
        }
        margin
    }

    /// The work that it waits for takes no longer than at its share's pace, and the time of two debts, and 0.3 s.
    fn wait(&self) -> Nanos {
        300 * MS + at_pace(self.share, 2 * most_debt(self.share)) - self.latest
    }

    /// GPU time that it got in all, up to its share.
    fn all(&self) -> Nanos {
        let entitled = share_of(self.share, self.leaves - self.comes);
        self.done.last().map_or(0, |&done| done.min(entitled))
    }

    fn has_pauses(&self) -> bool {
        self.busy != [(self.comes, self.leaves)]
    }
}

impl Run {
    fn margins(&self, case: &Case) -> Margins {
        let restarts = case.restarts.len() as Nanos;
        let pausing = self.jobs.iter().filter(|it| it.has_pauses());
        // A job that wants the GPU now and then may keep its share of it idle. One that says so while it does not may keep it idle for
        // half of the time in which others are held.
        let reserved: Nanos = pausing
            .map(|it| share_of(it.share, it.leaves - it.comes))
            .sum();
        let mut programs = case
            .slots
            .iter()
            .flat_map(|it| &it.plans)
            .flat_map(|it| &it.programs)
            .map(|it| it.1);
        let is_false = |it| matches!(it, Program::Stuck | Program::Ticks { .. });
        let has_false = programs.clone().any(is_false);
        let idle = if has_false { 40 * MS } else { 5 * MS };
        // Who works in pieces pays a little more or less than they take.
        let is_alone = case.slots.len() == 1 && restarts == 0 && case.late == 0;
        let is_alone = is_alone && programs.all(|it| matches!(it, Program::Queue | Program::Rest));
        let of_all = Margins {
            hold: RECHECK + case.late - self.held_too_long,
            idle: reserved + case.length * (idle + case.late) / (100 * MS) + 100 * MS - self.idle,
            ..Margins::NONE
        };
        let jobs = self.jobs.iter().map(|job| Margins {
            // Each look can be late, and a new monitor knows of no lag.
            service: (job.service())
                .saturating_add(10 * case.late + restarts * share_of(job.share, MAX_LEAD)),
            cap: job
                .cap(restarts, case.late)
                .saturating_add((1 + restarts) * case.late),
            saved: if is_alone { job.saved() } else { Nanos::MAX },
            wait: job.wait() + at_pace(job.share, case.late),
            ..Margins::NONE
        });
        jobs.fold(of_all, Margins::least)
    }
}

/// GPU time that a job may get more or less after another past: a tenth, all jobs' credits and debts, and the work that a program waits for.
fn may_differ(case: &Case, job: &Outcome) -> Nanos {
    let programs = case
        .slots
        .iter()
        .flat_map(|it| &it.plans)
        .flat_map(|it| &it.programs);
    let longest = programs.map(|it| match it.1 {
        Program::Waits { work, .. } => work,
        _ => 0,
    });
    let bursts = case
        .slots
        .iter()
        .flat_map(|it| it.plans.iter().map(|plan| (it.share, plan.mode)))
        .map(|(share, mode)| 2 * most_credit(mode, share))
        .sum::<Nanos>();
    job.all() / 10 + bursts + longest.max().unwrap_or(0) + 50 * MS
}

/// The least margins of a case, in runs without a past, with one, and at another time.
fn margins(case: &Case) -> Result<Margins, String> {
    let new = case.run(0, false);
    let old = case.run(DAY + 7, true);
    let late = case.run(DAY + 11, false);
    for (number, (job, other)) in new.jobs.iter().zip(&late.jobs).enumerate() {
        if job.done != other.done {
            return Err(format!("job {number} gets other shares at another time"));
        }
    }
    for (number, (job, other)) in new.jobs.iter().zip(&old.jobs).enumerate() {
        let [all, with_past] = [job, other].map(Outcome::all);
        if (all - with_past).abs() > may_differ(case, job) {
            return Err(format!(
                "job {number} gets {all} ns, and {with_past} ns after a past"
            ));
        }
    }
    Ok(new.margins(case).least(old.margins(case)))
}

// --- Cases ---

fn logarithmic(from: Nanos, to: Nanos) -> impl Strategy<Value = Nanos> {
    ((from as f64).ln()..(to as f64).ln()).prop_map(|it| it.exp() as Nanos)
}

fn program() -> impl Strategy<Value = Program> {
    let waits =
        |work, pause| (work, pause).prop_map(|(work, pause)| Program::Waits { work, pause });
    let ahead = (
        logarithmic(200_000, 2 * MS),
        100..300_i64,
        logarithmic(5 * MS, 40 * MS),
    );
    let ticks = (logarithmic(20_000, 5 * MS), logarithmic(5 * MS, 200 * MS));
    prop_oneof![
        6 => Just(Program::Queue),
        2 => waits(logarithmic(50_000, 40 * MS), logarithmic(10_000, 30 * MS)),
        // Cells of a notebook.
        1 => waits(logarithmic(5 * MS, 300 * MS), logarithmic(20 * MS, 2 * SECOND)),
        1 => ahead.prop_map(|(work, part, most)| {
            let time = work * part / 100;
            Program::Ahead { work, time, most }
        }),
        3 => Just(Program::Rest),
        1 => Just(Program::Stuck),
        1 => ticks.prop_map(|(work, period)| Program::Ticks { work, period }),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let ceiling = prop_oneof![
        4 => Just(Ceiling::Share),
        2 => Just(Ceiling::Gpu),
        1 => (1..100_u8).prop_map(Ceiling::Percent),
    ];
    let burst_ms = prop_oneof![2 => Just(Mode::BURST_MS), 1 => 0..3000_u32];
    let mode = (ceiling, burst_ms).prop_map(|(ceiling, burst_ms)| Mode { ceiling, burst_ms });
    let gap = prop_oneof![Just(0), logarithmic(MS, 2 * SECOND)];
    let programs = vec((logarithmic(20 * MS, 5 * SECOND), program()), 1..4);
    (gap, mode, programs).prop_map(|(gap, mode, programs)| Plan {
        gap,
        mode,
        programs,
    })
}

fn case() -> impl Strategy<Value = Case> {
    let per_gpu = proptest::sample::select(vec![1, 2, 3, 4, 7, 8, 10, 16, 100]);
    let slot = || {
        let shards = prop_oneof![4 => 1..=8_u32, 1 => 1..=60_u32];
        let past = proptest::option::of((logarithmic(SECOND, DAY), 1..=100_i64));
        (shards, vec(plan(), 1..4), past)
    };
    let slots = prop_oneof![2 => vec(slot(), 1..8), 1 => vec(slot(), 1)];
    let length = prop_oneof![8 => 2 * SECOND..8 * SECOND, 1 => 8 * SECOND..65 * SECOND];
    let restarts = prop_oneof![3 => Just(vec![]), 1 => vec(0..8 * SECOND, 1..3)];
    let late = prop_oneof![3 => Just(0), 1 => logarithmic(100_000, 30 * MS)];
    (per_gpu, slots, length, restarts, late).prop_map(|(per_gpu, slots, length, restarts, late)| {
        let mut left: u32 = per_gpu;
        let slots = slots.into_iter().map_while(|(shards, plans, past)| {
            let shards = shards.min(left);
            left -= shards;
            let share = Share::new(shards, per_gpu).ok()?;
            Some(Slot { share, plans, past })
        });
        Case {
            slots: slots.collect(),
            length,
            restarts,
            late,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shares_hold_whatever_was_before(case in case()) {
        let margins = margins(&case).map_err(TestCaseError::fail)?;
        for (what, margin) in margins.all() {
            prop_assert!(margin >= 0, "{what}: {:.3} ms too much or too little", -margin as f64 / MS as f64);
        }
    }
}

/// Prints the cases that fail, how many they are, and the least margins, of as many cases as `CASES` says:
/// `CASES=100000 cargo test --release -p softmig-monitor --lib -- --ignored --nocapture many_cases`.
#[test]
#[ignore = "takes some minutes"]
fn many_cases() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let count = std::env::var("CASES").map_or(1_000, |it| it.parse().unwrap());
    let half = move |seed: u8| {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let (mut least, mut bad) = (Margins::NONE, [0; 7]);
        for _ in 0..count / 2 {
            let case = case().new_tree(&mut runner).unwrap().current();
            let margins = margins(&case).unwrap_or_else(|why| {
                println!("{why}: {case:?}");
                bad[6] += 1;
                Margins::NONE
            });
            for (bad, (what, margin)) in bad.iter_mut().zip(margins.all()) {
                if margin < 0 {
                    println!("{what}: {margin} ns: {case:?}");
                    *bad += 1;
                }
            }
            least = least.least(margins);
        }
        (least, bad)
    };
    let other = std::thread::spawn(move || half(1));
    let (least, bad) = half(0);
    let (other_least, other_bad) = other.join().unwrap();
    let least = least.least(other_least).all();
    println!("{count} cases");
    for ((what, margin), (bad, other)) in least.iter().zip(bad.iter().zip(other_bad)) {
        println!(
            "{what}: {} fail, least margin {:.3} ms",
            bad + other,
            *margin as f64 / MS as f64
        );
    }
    println!("another past or time: {} differ", bad[6] + other_bad[6]);
}

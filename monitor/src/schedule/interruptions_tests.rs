use super::*;
use proptest::prelude::*;

/// The time that a release takes.
const CALL: Nanos = 300_000;
/// The calls that a release has time for.
const MOST_CALLS: usize = 16;
/// Looks come this often, or each 4 ms where that is asked for.
const HEARTBEAT: Nanos = 25 * MS;
const RECHECK: Nanos = 4 * MS;

/// A program that works and then waits for something else, with work that the GPU cannot do yet.
#[derive(Clone, Copy, Debug)]
struct Program {
    works: Nanos,
    waits: Nanos,
}

const BUSY: Program = Program {
    works: Nanos::MAX / 4,
    waits: 0,
};

/// What interrupts a program: from when, how often, and how many calls end it.
#[derive(Clone, Copy, Debug)]
struct Disturbance {
    from: Nanos,
    every: Nanos,
    times: u32,
    /// The calls that a release has time for meanwhile.
    calls: usize,
    /// Whether the first one is held for half of the time, as a job is that has its share.
    is_held: bool,
}

const NOTHING: Disturbance = Disturbance {
    from: Nanos::MAX,
    every: 1,
    times: 0,
    calls: MOST_CALLS,
    is_held: false,
};

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// How often its channels are to wait.
    waits: u32,
    /// Where it is in its work and its wait.
    at: Nanos,
    served: Nanos,
    /// Since the last look.
    pending: Nanos,
    resident: Nanos,
    is_held: bool,
    served_at: Nanos,
}

#[derive(Debug, Default)]
struct Outcome {
    /// The part of the time for which each was on the GPU.
    served: Vec<f64>,
    interrupted: u32,
    releases: u32,
    /// The part of the time that releases took.
    released_for: f64,
}

/// Programs on a GPU in slices of 2 ms, by steps of a tenth of one. The disturbance is the first one's.
fn simulate(
    programs: &[Program],
    disturbance: Disturbance,
    time: Nanos,
    has_release: bool,
) -> Outcome {
    const STEP: Nanos = MS / 5;
    const SLICE_STEPS: Nanos = 10;
    let mut all = vec![State::default(); programs.len()];
    let (mut interruptions, mut outcome) = (Interruptions::default(), Outcome::default());
    let (mut turn, mut left) = (0, 0);
    let (mut next_look, mut next_time, mut took) = (0, disturbance.from, 0);
    for now in (0..time).step_by(STEP as usize) {
        if now >= next_time {
            all[0].waits += disturbance.times;
            next_time += disturbance.every;
        }
        // It is behind, and not held, once it was off for a while.
        let is_ahead = now - all[0].served_at < 40 * MS && now / (40 * MS) % 2 == 0;
        all[0].is_held = disturbance.is_held && is_ahead;
        let is_ready =
            |it: &State, program: &Program| it.waits == 0 && it.at < program.works && !it.is_held;
        if left == 0 || !is_ready(&all[turn], &programs[turn]) {
            let mut order = (1..=all.len()).map(|more| (turn + more) % all.len());
            let next = order.find(|&it| is_ready(&all[it], &programs[it]));
            turn = next.unwrap_or(turn);
            left = SLICE_STEPS;
        }
        left -= 1;
        for (index, (it, program)) in all.iter_mut().zip(programs).enumerate() {
            it.pending += STEP;
            let is_served = index == turn && is_ready(it, program);
            if is_served {
                it.served += STEP;
                it.served_at = now;
                it.resident += STEP;
            }
            // What it waits for goes on whether its channels are held or not.
            if is_served || it.at >= program.works {
                it.at += STEP;
            }
            if it.at >= program.works + program.waits {
                it.at = 0;
            }
        }
        if now < next_look {
            continue;
        }
        let seen = (0..).zip(&mut all).map(|(number, it)| {
            let seen = Seen {
                job: Job(number),
                may_run: !it.is_held,
                pending: std::mem::take(&mut it.pending),
                resident: std::mem::take(&mut it.resident),
            };
            (number, seen)
        });
        let found = interruptions.look(now, &seen.collect());
        outcome.interrupted += found.interrupted.iter().map(|it| it.1).sum::<u32>();
        if let Some((process, amount)) = found.release {
            let calls = match amount {
                Amount::Times(times) => times as usize,
                Amount::Left(calls) => calls,
            };
            let done = calls.min(disturbance.calls);
            outcome.releases += done as u32;
            let cost = CALL * done as Nanos;
            interruptions.note_release(process, Job(process), cost, calls - done);
            took += cost;
            if has_release {
                let it = &mut all[process as usize];
                it.waits = it.waits.saturating_sub(done as u32);
            }
        }
        next_look = now
            + if found.is_near || programs.len() > 1 {
                RECHECK
            } else {
                HEARTBEAT
            };
    }
    outcome.served = all
        .iter()
        .map(|it| it.served as f64 / time as f64)
        .collect();
    outcome.released_for = took as f64 / time as f64;
    outcome
}

#[test]
fn a_program_that_is_interrupted_keeps_nine_tenths_of_its_pace() {
    for others in [0, 1, 3] {
        let programs = vec![BUSY; 1 + others];
        let fair = 1.0 / programs.len() as f64;
        for (every, times) in [(MINUTE, 1), (MINUTE, 30), (1000 * MS, 1), (1000 * MS, 4)] {
            let disturbance = Disturbance {
                from: 1000 * MS,
                every,
                times,
                calls: MOST_CALLS,
                is_held: false,
            };
            let with = simulate(&programs, disturbance, MINUTE, true);
            let without = simulate(&programs, disturbance, MINUTE, false);
            let case = format!("{others} others, each {every} ns, {times} times: {with:?}");
            assert!(with.served[0] > 0.9 * fair, "{case}");
            assert!(without.served[0] < 0.05, "{without:?}");
            assert!(with.released_for < 0.06, "{case}");
            assert_eq!(with.interrupted > 0, every < MINUTE, "{case}");
        }
    }
}

/// On a busy machine a release has time for few calls: it goes on with the others, and is not in vain.
#[test]
fn a_program_that_is_interrupted_many_times_catches_up() {
    for (is_held, times) in [(false, 8), (true, 4)] {
        let disturbance = Disturbance {
            from: 1000 * MS,
            every: 1000 * MS,
            times,
            calls: 4,
            is_held,
        };
        let outcome = simulate(&[BUSY, BUSY], disturbance, MINUTE, true);
        let fair = if is_held { 0.25 } else { 0.5 };
        assert!(outcome.served[0] > 0.6 * fair, "{is_held}: {outcome:?}");
    }
}

#[test]
fn who_claims_to_have_work_keeps_no_other_from_being_released() {
    let liar = Program {
        works: 0,
        waits: Nanos::MAX / 4,
    };
    let mut programs = vec![liar; 65];
    programs[0] = BUSY;
    let disturbance = Disturbance {
        from: 1000 * MS,
        every: 1000 * MS,
        times: 1,
        calls: MOST_CALLS,
        is_held: false,
    };
    let outcome = simulate(&programs, disturbance, MINUTE, true);
    assert!(outcome.served[0] > 0.9, "{outcome:?}");
}

#[test]
fn busy_programs_are_never_released() {
    for count in 1..8 {
        let outcome = simulate(&vec![BUSY; count], NOTHING, MINUTE, true);
        assert_eq!((outcome.releases, outcome.interrupted), (0, 0), "{count}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever honest programs wait for, it costs little, and is seldom taken for an interruption.
    #[test]
    fn who_waits_for_something_else_costs_little(
        programs in prop::collection::vec((1..200 * MS, 0..2_000 * MS), 1..6),
    ) {
        let programs: Vec<Program> = programs
            .into_iter()
            .map(|(works, waits)| Program { works, waits })
            .collect();
        let outcome = simulate(&programs, NOTHING, MINUTE, true);
        let case = format!("{programs:?}: {outcome:?}");
        prop_assert!(outcome.released_for < 0.03, "{case}");
        prop_assert!(outcome.interrupted == 0, "{case}");
    }

    /// Whatever disturbs it beside whatever programs, releases keep within their part of the time.
    #[test]
    fn releases_have_a_part_of_the_time_at_most(
        every in 1..2_000 * MS,
        times in 1..100_u32,
        others in 0..4_usize,
    ) {
        let disturbance = Disturbance { from: 0, every, times, calls: MOST_CALLS, is_held: false };
        let outcome = simulate(&vec![BUSY; 1 + others], disturbance, MINUTE, true);
        prop_assert!(outcome.released_for < 0.06, "{outcome:?}");
    }
}

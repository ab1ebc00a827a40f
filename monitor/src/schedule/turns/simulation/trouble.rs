//! A process that dies, stops or lies costs the others one turn.

use proptest::prelude::*;

use softmig_region::seat::{CONTENDED, OPEN};

use super::super::{Look, Said};
use super::*;

/// Three honest jobs, and what happens to the first program.
fn beside(trouble: Program) -> World {
    let mut programs = vec![trouble];
    programs.extend((1..4).map(|job| Program::hard(job, (1, 4), MS)));
    World::new(Rules::default(), &programs, 1)
}

fn quarter() -> Program {
    Program::hard(0, (1, 4), MS)
}

/// The least part of the others, from then on.
fn least_of_others(world: &mut World, from: Nanos, time: Nanos) -> f64 {
    let got = world.shares_over(from, from + time);
    got[1..].iter().copied().fold(1.0, f64::min)
}

#[test]
fn a_dead_one_costs_nothing() {
    for after in [0, MS, 3 * MS, 6 * MS, 12 * MS, 18 * MS] {
        let dies = Some(SECOND + after);
        let mut world = beside(Program { dies, ..quarter() });
        let least = least_of_others(&mut world, SECOND, 200 * MS);
        assert!(least > 0.23, "{after}: {least}");
    }
}

#[test]
fn a_stopped_one_costs_one_legal_turn() {
    for after in [0, MS, 3 * MS, 6 * MS, 12 * MS, 18 * MS] {
        let stopped = Some((SECOND + after, 3 * SECOND));
        let program = Program {
            stopped,
            ..quarter()
        };
        let mut world = beside(program);
        let least = least_of_others(&mut world, SECOND, 500 * MS);
        // A turn and as long as an epoch in which it did not answer.
        assert!(least > 0.25 * 0.93 - 0.01, "{after}: {least}");
        assert_eq!(world.turns.standings().next().unwrap().overruns, 1);
        // And it is back afterwards.
        let got = world.shares_over(4 * SECOND, 8 * SECOND);
        assert!(got.iter().all(|got| (got - 0.25).abs() < 0.01), "{got:?}");
    }
}

/// One of a job's processes rests in a turn that no other job waits for.
#[test]
fn one_that_rests_keeps_nothing_from_its_own_job() {
    let rests = Pace::Bursts {
        work: MS,
        every: 1000 * SECOND,
    };
    let programs = [quarter().paced(rests), quarter()];
    let mut world = World::new(Rules::default(), &programs, 1);
    let got = world.shares_over(SECOND, 3 * SECOND);
    assert!((got[1] - 0.25).abs() < 0.01, "{got:?}");
}

/// One of a job's processes is busy with what waits for another of them, which has used up what it had.
#[test]
fn one_that_waits_for_another_of_its_job_does_not_keep_it_out() {
    let share = Share::new(1, 4).unwrap();
    let mut turns = Turns::new(0, Rules::default());
    let [busy, other] = [0, 0].map(|_| turns.sit(0, Job(0), share, Mode::Hard));
    let mut words = [0; 2];
    let mut said = [Said::default(); 2];
    said.iter_mut().for_each(|said| said.wishes = true);
    for ms in 0..1000 {
        for (seat, said) in [busy, other].into_iter().zip(said) {
            turns.hear(seat, said);
        }
        for order in turns.look(ms * MS).orders {
            let at = usize::from(order.seat == other);
            let budget = order.terms.map_or(0, |terms| terms.budget);
            words[at] = order.word;
            // The other works as long as it may, and gives the turn back.
            if at == 1 && order.word & OPEN != 0 {
                (said[1].used, said[1].done) = (budget, order.word);
            }
        }
    }
    assert!(words[0] & OPEN != 0 && said[0].done == 0, "{words:?}");
    let used = said[1].used as f64 / 1e9;
    assert!((used - 0.25).abs() < 0.02, "{used}");
}

/// It gives its turn back in the moment in which it is told that another job waits: it finds a turn that it has not
/// given back, and works on in that.
#[test]
fn an_answer_that_crosses_a_new_word_does_not_end_the_turn() {
    let share = Share::new(1, 4).unwrap();
    let mut turns = Turns::new(0, Rules::default());
    let [holder, other] = [0, 1].map(|job| turns.sit(0, Job(job), share, Mode::Hard));
    let words = |look: Look, of: SeatId| -> Vec<u32> {
        let orders = look.orders.into_iter().filter(|order| order.seat == of);
        orders.map(|order| order.word).collect()
    };
    let wishes = Said {
        wishes: true,
        ..Said::default()
    };
    turns.hear(holder, wishes);
    let first = words(turns.look(0), holder);
    turns.hear(other, wishes);
    let second = words(turns.look(MS), holder);
    assert!(first[0] & OPEN != 0 && second[0] & (OPEN | CONTENDED) == OPEN | CONTENDED);
    for (done, ends) in [(first[0], false), (second[0], true)] {
        turns.hear(holder, Said { done, ..wishes });
        let mut gets = Vec::new();
        for time in [2 * MS, 2 * MS + 1] {
            gets.extend(words(turns.look(time), other));
        }
        assert_eq!(gets.first().is_some_and(|word| word & OPEN != 0), ends);
    }
}

/// The other job wants a turn too, but has had its share. No process waits yet for the time when it can have one.
#[test]
fn processes_have_the_turn_one_after_the_other_before_another_job_can_have_it() {
    let share = Share::new(1, 2).unwrap();
    let mut turns = Turns::new(0, Rules::default());
    let [first, second, other] = [0, 0, 1].map(|job| turns.sit(0, Job(job), share, Mode::Hard));
    let wishes = Said {
        wishes: true,
        ..Said::default()
    };
    turns.hear(other, wishes);
    let words = |look: Look| -> BTreeMap<SeatId, u32> {
        let orders = look.orders.into_iter();
        orders.map(|order| (order.seat, order.word)).collect()
    };
    let opened = words(turns.look(0));
    // It has used up all that it had, and owes some.
    let used = 60 * MS as u64;
    let done = opened.get(&other).copied().unwrap();
    turns.hear(
        other,
        Said {
            used,
            done,
            ..wishes
        },
    );
    turns.look(30 * MS);
    turns.hear(first, wishes);
    turns.hear(second, wishes);
    let mut opened = BTreeMap::new();
    for time in [30 * MS, 30 * MS + 1] {
        opened.extend(words(turns.look(time)));
    }
    let is_open = |seat: SeatId| opened.get(&seat).is_some_and(|word| word & OPEN != 0);
    assert!(is_open(first) != is_open(second), "{opened:?}");
}

/// All are let in together once one did not answer, so that they are late together, and not one turn after the other.
#[test]
fn several_that_are_stopped_do_not_keep_one_of_their_job_from_its_turns() {
    let stopped = Program {
        stopped: Some((SECOND, 1000 * SECOND)),
        ..quarter()
    };
    let mut programs = vec![stopped; 8];
    programs.extend([quarter(), Program::hard(2, (3, 4), MS)]);
    let mut world = World::new(Rules::default(), &programs, 1);
    world.run_until(SECOND);
    for second in 1..20 {
        let got = world.shares_over(second * SECOND, (second + 1) * SECOND);
        assert!(got[8] > 0.1 && got[9] > 0.7, "{second}: {got:?}");
    }
}

#[test]
fn one_that_never_answers_costs_one_legal_turn() {
    let lies = Program {
        lies: true,
        ..quarter()
    };
    let mut world = beside(lies);
    let least = least_of_others(&mut world, SECOND, 4 * SECOND);
    assert!(least > 0.24, "{least}");
    let standing = world.turns.standings().next().unwrap();
    assert_eq!((standing.turns, standing.overruns), (1, 1));
    // Now and then it has another chance.
    world.run_until(20 * SECOND);
    let standing = world.turns.standings().next().unwrap();
    assert_eq!((standing.turns, standing.overruns), (3, 3));
}

#[test]
fn one_with_far_too_long_kernels_pays_for_them() {
    // Beyond the longest patience the others have to share the GPU with it.
    for (kernel, part) in [(200 * MS, 0.24), (SECOND, 0.24), (3 * SECOND, 0.18)] {
        let program = Program {
            kernel: (kernel, kernel),
            ..quarter()
        };
        let mut world = beside(program);
        let least = least_of_others(&mut world, 10 * SECOND, 60 * SECOND);
        assert!(least > part, "{kernel}: {least}");
    }
}

#[test]
fn a_new_process_does_not_get_rid_of_the_jobs_debt() {
    // Each kernel is as long as eight turns, and each process launches one.
    let programs: Vec<Program> = (0..40)
        .map(|at| Program {
            kernel: (50 * MS, 50 * MS),
            from: at * 100 * MS,
            dies: Some((at + 1) * 100 * MS - MS),
            ..quarter()
        })
        .collect();
    let mut world = World::new(Rules::default(), &programs, 1);
    let got: f64 = world.shares_over(0, 4 * SECOND).iter().sum();
    assert!(got < 0.25 + 0.02, "{got}");
}

#[test]
fn what_was_used_while_alone_does_not_pay_for_keeping_others_waiting() {
    let mut turns = Turns::new(0, Rules::default());
    let quarter = Share::new(1, 4).unwrap();
    let (keeps, waits) = (Job(1), Job(2));
    let [holder, other] = [keeps, waits].map(|job| turns.sit(0, job, quarter, Mode::Soft));
    let mut said = Said {
        wishes: true,
        ..Said::default()
    };
    turns.hear(holder, said);
    turns.look(0);
    said.used = 5 * SECOND as u64;
    turns.hear(holder, said);
    turns.look(10 * SECOND);
    let charged = turns.standings().next().unwrap().charged;
    assert_eq!(charged, 5 * SECOND);
    // Now it does nothing, and does not answer either.
    turns.hear(
        other,
        Said {
            wishes: true,
            ..Said::default()
        },
    );
    let (mut now, mut next) = (0, 10 * SECOND);
    while !turns.standings().any(|it| it.job == waits && it.holds) {
        now = next;
        next = turns.look(now).next.unwrap();
    }
    let charged = turns.standings().next().unwrap().charged - charged;
    assert_eq!(charged, now - 10 * SECOND);
}

#[test]
fn no_process_wakes_another_while_none_works() {
    let pace = Pace::Bursts {
        work: MS,
        every: 100 * SECOND,
    };
    let programs = [0, 1].map(|job| Program::hard(job, (1, 4), MS).paced(pace));
    let mut world = World::new(Rules::default(), &programs, 1);
    world.run_until(SECOND);
    let events = world.count;
    world.run_until(90 * SECOND);
    assert_eq!(world.count, events);
}

#[test]
fn one_that_was_stopped_is_not_waited_for_longer_the_next_time() {
    let stops = |job, from, to| Program {
        stopped: Some((from, to)),
        ..Program::hard(job, (1, 4), MS)
    };
    let programs = [
        stops(0, SECOND + MS, 3 * SECOND),
        stops(0, 4 * SECOND + MS, 6 * SECOND),
        Program::hard(1, (1, 4), MS),
    ];
    let mut world = World::new(Rules::default(), &programs, 1);
    world.run_until(3500 * MS);
    let got = world.shares_over(4 * SECOND, 4500 * MS);
    assert!(got[2] > 0.22, "{got:?}");
}

pub(super) fn troubled() -> impl Strategy<Value = Vec<Program>> {
    let pace = prop_oneof![
        Just(Pace::Greedy),
        (10 * US..5 * MS).prop_map(Pace::Steps),
        (MS..20 * MS, 20 * MS..300 * MS).prop_map(|(work, every)| Pace::Bursts { work, every }),
    ];
    let stops = (0..10 * SECOND, 0..5 * SECOND).prop_map(|(from, time)| (from, from + time));
    let program = (
        (0u32..5, 5u32..30, any::<bool>()),
        pace,
        (100 * US..30 * MS, 0..5 * SECOND),
        prop::option::weighted(0.3, 0..10 * SECOND),
        prop::option::weighted(0.3, stops),
        prop::bool::weighted(0.1),
    );
    let programs = program.prop_map(|(who, pace, (kernel, from), dies, stopped, lies)| {
        let (job, share, is_soft) = who;
        let mode = if is_soft { Mode::Soft } else { Mode::Hard };
        Program {
            pace,
            from,
            dies: dies.map(|time| time.max(from + 1)),
            stopped,
            lies,
            kernel: (kernel / 2, kernel),
            ..Program::new(job, (share, 100), mode, kernel)
        }
    });
    prop::collection::vec(programs, 1..10)
}

proptest! {
    #![proptest_config(cases(96))]

    /// Whatever happens to whom: an honest job that wants to launch has always launched within a bounded time.
    #[test]
    fn no_job_starves(mut programs in troubled(), seed: u64) {
        let honest = Program::hard(9, (1, 10), MS);
        programs.push(honest);
        let last = programs.len() - 1;
        let mut world = World::new(Rules::default(), &programs, seed);
        for second in 1..15 {
            world.run_until(second * SECOND);
            let before = world.processes[last].worked;
            world.run_until((second + 1) * SECOND);
            prop_assert!(world.processes[last].worked > before, "in second {second}");
        }
    }

    /// As long as a soft job wants to launch, and is not the one whose end is waited for, the GPU works.
    #[test]
    fn nothing_lies_idle_that_a_soft_job_wants(programs in troubled(), seed: u64) {
        let mut programs: Vec<Program> = programs
            .into_iter()
            .filter(|it| !it.lies && it.stopped.is_none() && it.kernel.0 > MS)
            .collect();
        programs.push(Program::soft(9, (1, 10), 5 * MS));
        let mut world = World::new(Rules::default(), &programs, seed);
        world.run_until(SECOND);
        let before = world.busy;
        world.run_until(11 * SECOND);
        let busy = (world.busy - before) as f64 / (10 * SECOND) as f64;
        prop_assert!(busy > 0.8, "{busy}");
    }
}

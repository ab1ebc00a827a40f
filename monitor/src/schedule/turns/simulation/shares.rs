//! Each job gets its share, and no time is idle.

use proptest::prelude::*;

use super::*;

const POINT: f64 = 0.01;

/// The part of one program beside others, or alone.
fn got(programs: &[Program], seconds: Nanos) -> Vec<f64> {
    let mut world = World::new(Rules::default(), programs, 1);
    world.shares_over(SECOND, SECOND + seconds * SECOND)
}

fn near(got: f64, share: f64) -> bool {
    (got - share).abs() <= POINT
}

#[test]
fn alone_a_hard_job_gets_its_share_and_not_more() {
    for share in [(1, 10), (1, 8), (1, 4), (1, 3), (1, 2), (3, 4)] {
        for kernel in [20 * US, 100 * US, MS, 20 * MS, 200 * MS] {
            for pace in [Pace::Greedy, Pace::Steps(20 * US)] {
                let program = Program::hard(1, share, kernel).paced(pace);
                let got = got(&[program], 20)[0];
                let part = f64::from(share.0) / f64::from(share.1);
                // A program that synchronises cannot have more than its own pace.
                let pace = match pace {
                    Pace::Steps(gap) => kernel as f64 / (kernel + gap) as f64,
                    _ => 1.0,
                };
                let part = part.min(pace);
                assert!(near(got, part), "{part} {kernel} {pace:?}: {got}");
            }
        }
    }
}

#[test]
fn alone_a_soft_job_gets_everything() {
    let got = got(&[Program::soft(1, (1, 8), MS)], 10);
    assert!(got[0] > 0.999, "{got:?}");
}

#[test]
fn unequal_shares_and_mixed_kernels_come_out() {
    for shares in [
        vec![(1, 10), (9, 10)],
        vec![(3, 10), (7, 10)],
        vec![(1, 4), (1, 4), (1, 2)],
        vec![(1, 4); 4],
        vec![(1, 8); 8],
    ] {
        for kernels in [[MS; 3], [20 * US, MS, 20 * MS], [50 * MS, 100 * US, 3 * MS]] {
            let programs: Vec<Program> = shares
                .iter()
                .zip(kernels.iter().cycle())
                .enumerate()
                .map(|(job, (&share, &kernel))| Program::hard(job as u32, share, kernel))
                .collect();
            let got = got(&programs, 20);
            for (program, got) in programs.iter().zip(&got) {
                let part = f64::from(program.share.0) / f64::from(program.share.1);
                assert!(near(*got, part), "{shares:?} {kernels:?}: {got}");
            }
        }
    }
}

/// One busy process in a job, and those of another job that has the same share: what both got, and the least and most of these.
fn beside_one(programs: &[Program]) -> ([f64; 2], f64, f64) {
    let mut all = vec![Program::hard(0, (1, 2), 100 * US)];
    all.extend(programs);
    let got = got(&all, 20);
    let several = &got[1..];
    let least = several.iter().copied().fold(1.0, f64::min);
    let most = several.iter().copied().fold(0.0, f64::max);
    ([got[0], several.iter().sum()], least, most)
}

/// The driver would change between them ten times as often.
#[test]
fn eight_processes_of_one_job_have_what_one_of_another_has() {
    for kernel in [100 * US, MS] {
        let ([one, eight], least, most) = beside_one(&[Program::hard(1, (1, 2), kernel); 8]);
        assert!(near(one, 0.5) && one - eight < 0.02, "{one} {eight}");
        assert!(most - least < 0.01, "{least} {most}");
    }
}

/// Also where the other job has to wait for its credit most of the time.
#[test]
fn eight_processes_of_a_job_that_meets_its_cap_go_on_one_after_the_other() {
    for shares in [
        [(1, 2), (1, 4)],
        [(1, 4), (1, 2)],
        [(7, 10), (3, 10)],
        [(1, 2), (1, 2)],
    ] {
        let mut programs = vec![Program::hard(0, shares[0], 100 * US)];
        programs.extend([Program::hard(1, shares[1], 100 * US); 8]);
        let got = got(&programs, 20);
        let eight: f64 = got[1..].iter().sum();
        let part = f64::from(shares[1].0) / f64::from(shares[1].1);
        assert!(eight > 0.96 * part, "{shares:?}: {eight} of {part}");
    }
}

/// Together they keep the GPU busy; one after the other they would not.
#[test]
fn processes_that_do_not_keep_the_gpu_busy_have_the_turns_of_their_job_together() {
    let step = Program::hard(1, (1, 2), 500 * US).paced(Pace::Steps(500 * US));
    let ([_, one], ..) = beside_one(&[step]);
    let ([_, eight], least, _) = beside_one(&[step; 8]);
    assert!(
        one < 0.3 && eight > 0.35 && least > 0.04,
        "{one} {eight} {least}"
    );
}

/// One that keeps the GPU busy would have whole turns, and the others a step in each.
#[test]
fn processes_that_wait_for_the_host_are_not_kept_waiting_by_a_busy_one_of_their_job() {
    let busy = Program::hard(1, (1, 2), MS);
    for gap in [500 * US, 5 * MS] {
        let steps = Program::hard(1, (1, 2), 500 * US).paced(Pace::Steps(gap));
        let ([_, both], least, _) = beside_one(&[busy, steps]);
        let alone = beside_one(&[steps]).0[1];
        assert!(
            both > 0.4 && least > 0.35 * alone,
            "{gap}: {both} {least} of {alone}"
        );
    }
}

#[test]
fn one_of_a_jobs_processes_that_works_little_is_not_kept_from_it() {
    let burst = Pace::Bursts {
        work: MS,
        every: 200 * MS,
    };
    let busy = Program::hard(1, (1, 2), MS);
    let programs = [busy, busy, busy, busy.paced(burst)];
    let ([one, four], least, _) = beside_one(&programs);
    assert!(near(one, 0.5) && one - four < 0.02, "{one} {four}");
    assert!(least > 0.0045, "{least}");
}

#[test]
fn a_job_of_eight_processes_alone_keeps_its_share() {
    for kernel in [100 * US, MS, 20 * MS] {
        let got = got(&[Program::hard(1, (1, 4), kernel); 8], 20);
        let sum: f64 = got.iter().sum();
        assert!(near(sum, 0.25), "{kernel}: {got:?}");
    }
}

#[test]
fn soft_jobs_split_what_is_free_by_their_shares() {
    let programs = [
        Program::soft(0, (1, 10), MS),
        Program::soft(1, (3, 10), 20 * MS),
        Program::hard(2, (2, 10), MS),
    ];
    let got = got(&programs, 30);
    assert!(near(got[2], 0.2), "{got:?}");
    assert!((got[1] / got[0] - 3.0).abs() < 0.1, "{got:?}");
    assert!(got.iter().sum::<f64>() > 0.97, "{got:?}");
}

#[test]
fn a_soft_job_owes_nothing_for_time_that_no_other_wanted() {
    let late = Program {
        from: 20 * SECOND,
        ..Program::soft(1, (1, 4), MS)
    };
    let programs = [Program::soft(0, (1, 4), MS), late];
    let mut world = World::new(Rules::default(), &programs, 1);
    let got = world.shares_over(20 * SECOND, 20 * SECOND + 500 * MS);
    assert!(got.iter().all(|got| (got - 0.5).abs() < 0.03), "{got:?}");
}

#[test]
fn a_job_that_works_little_keeps_its_pace_alone() {
    let pace = Pace::Bursts {
        work: MS,
        every: 10 * MS,
    };
    let got = got(&[Program::hard(1, (1, 4), MS).paced(pace)], 20);
    assert!(got[0] > 0.099, "{got:?}");
}

#[test]
fn idle_notebooks_leave_the_rest_to_a_greedy_job() {
    let pace = Pace::Bursts {
        work: 5 * MS,
        every: 500 * MS,
    };
    let mut programs = vec![Program::soft(0, (1, 8), MS)];
    for job in 1..8 {
        programs.push(Program {
            from: Nanos::from(job) * 37 * MS,
            ..Program::soft(job, (1, 8), MS).paced(pace)
        });
    }
    let mut world = World::new(Rules::default(), &programs, 1);
    let got = world.shares_over(SECOND, 21 * SECOND);
    let others: f64 = got[1..].iter().sum();
    assert!(others > 0.99 * 0.07, "{got:?}");
    assert!(got[0] >= 0.95 * (1.0 - others), "{got:?}");
    // A burst has waited for the kernels in flight, and at most for another's, not for turns.
    let mut steps = world.processes[1].steps.clone();
    steps.sort_unstable();
    let (median, longest) = (steps[steps.len() / 2], steps[steps.len() - 1]);
    assert!(median < 7 * MS && longest < 12 * MS, "{median} {longest}");
}

#[test]
fn one_that_synchronises_beside_greedy_ones_has_its_share() {
    let mut programs = [Program::hard(0, (1, 4), MS); 4];
    for (job, program) in programs.iter_mut().enumerate() {
        program.job = Job(job as u32);
    }
    programs[0].pace = Pace::Steps(20 * US);
    let with_short_gaps = got(&programs, 20);
    // In its turns it has its own pace, and all lose some in handing over.
    assert!(with_short_gaps[0] > 0.235, "{with_short_gaps:?}");
    programs[0].pace = Pace::Steps(MS);
    let with_long_gaps = got(&programs, 20);
    // The others could not have the GPU while it rested and while it was handed over.
    assert!(with_long_gaps[0] > 0.16, "{with_long_gaps:?}");
}

fn programs() -> impl Strategy<Value = Vec<Program>> {
    let kernel = prop_oneof![
        (300 * US..2 * MS).prop_map(|it| (it / 2, it)),
        (2 * MS..40 * MS).prop_map(|it| (it / 3, it)),
        (40 * MS..200 * MS).prop_map(|it| (it, it)),
    ];
    let program = (1u32..40, kernel, 0..SECOND, any::<bool>());
    prop::collection::vec(program, 1..9).prop_map(|drawn| {
        // Shares of 100 that come to no more than that.
        let mut left = 100;
        let programs = drawn.into_iter().enumerate();
        let fitted = programs.map_while(|(job, (share, kernel, from, is_soft))| {
            let share = share.min(left);
            left -= share;
            let mode = if is_soft { Mode::Soft } else { Mode::Hard };
            (share > 0).then_some(Program {
                kernel,
                from,
                ..Program::new(job as u32, (share, 100), mode, 0)
            })
        });
        fitted.collect()
    })
}

/// Of one job: busy ones, ones that wait for each kernel, and ones that work now and then.
fn processes() -> impl Strategy<Value = Vec<Program>> {
    let kernel = 50 * US..5 * MS;
    let pace = prop_oneof![
        Just(Pace::Greedy),
        (20 * US..10 * MS).prop_map(Pace::Steps),
        (MS..5 * MS, 20 * MS..200 * MS).prop_map(|(work, every)| Pace::Bursts { work, every }),
    ];
    let process = (kernel, pace, 0..SECOND).prop_map(|(kernel, pace, from)| {
        let program = Program::hard(1, (1, 2), kernel).paced(pace);
        Program { from, ..program }
    });
    prop::collection::vec(process, 2..7)
}

proptest! {
    #![proptest_config(cases(48))]

    /// Whatever they do, the job beside them has its share, they come to theirs together where one of them is busy, and none
    /// is kept out.
    #[test]
    fn processes_of_all_kinds_share_the_turns_of_their_job(several in processes(), seed: u64) {
        let mut programs = vec![Program::hard(0, (1, 2), 100 * US)];
        programs.extend(&several);
        let mut world = World::new(Rules::default(), &programs, seed);
        let got = world.shares_over(2 * SECOND, 22 * SECOND);
        prop_assert!(got[0] > 0.45, "{got:?}");
        let is_busy = several.iter().any(|it| matches!(it.pace, Pace::Greedy));
        prop_assert!(!is_busy || got[1..].iter().sum::<f64>() > 0.3, "{got:?}");
        prop_assert!(got[1..].iter().all(|&got| got > 0.0005), "{got:?}");
    }

    #[test]
    fn greedy_jobs_get_their_shares(programs in programs(), seed: u64) {
        let mut world = World::new(Rules::default(), &programs, seed);
        let got = world.shares_over(2 * SECOND, 42 * SECOND);
        let sum: f64 = got.iter().sum();
        for (program, got) in programs.iter().zip(&got) {
            let share = f64::from(program.share.0) / 100.0;
            // A kernel more or less at the edges of the window.
            let edge = POINT + program.kernel.1 as f64 / (40 * SECOND) as f64;
            // Of what is lost in handing over each loses its share.
            prop_assert!(*got >= 0.9 * share - edge, "{program:?} got {got}");
            let is_capped = program.mode == Mode::Hard;
            prop_assert!(!is_capped || *got <= share + edge, "{program:?} got {got}");
        }
        let is_any_soft = programs.iter().any(|it| it.mode == Mode::Soft);
        prop_assert!(!is_any_soft || sum > 0.95, "{sum}");
    }
}

//! Single mixes of programs, and the shares that they get.

use super::*;

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
        (all(Program::Queue, 4), 0.07),
        (all(Program::Queue, 8), 0.08),
        (unequal, 0.11),
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
    let got = run(&[(1, 4, Mode::SOFT, Program::Queue), (1, 4, HARD, little)]);
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
    assert_near(&run(&[(1, 4, Mode::SOFT, Program::Queue)]), &[1.0], 0.001);
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
    let got = run(&[(1, 2, HARD, pauses), (1, 2, Mode::SOFT, Program::Queue)]);
    assert!(got[0] > 0.085 && got[1] > 0.8, "{got:.3?}");
}

#[test]
fn a_job_that_waits_for_something_else_keeps_no_other_waiting() {
    let stuck = (1, 2, Mode::SOFT, Program::Stuck);
    let got = run(&[stuck, (1, 2, Mode::SOFT, Program::Queue)]);
    assert!(got[1] > 0.97, "{got:.3?}");
    let three = [stuck, (1, 4, HARD, CUPY), (1, 4, HARD, Program::Queue)];
    let got = run(&three);
    assert!(got[1] > 0.22 && got[2] > 0.235, "{got:.3?}");
}

#[test]
fn a_job_that_hardly_uses_the_gpu_idles_it_only_for_its_share() {
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
        (1, 8, Mode::SOFT, Program::Queue),
    ];
    let got = run(&jobs);
    assert!((got[0] - 0.125).abs() < 0.01 && got[1] > 0.83, "{got:.3?}");
    let jobs = [jobs[0], jobs[1], jobs[1]];
    let got = run(&jobs);
    assert!(got[0] > 0.11 && got[1] > 0.4 && got[2] > 0.4, "{got:.3?}");
}

/// Jobs with equal shares: the first is alone for a minute, and pauses when the others come. Their parts of the next five
/// seconds, and the longest time that work took for which the first waits.
fn after_a_minute_alone(mode: Mode, programs: &[Program]) -> (Vec<f64>, Nanos) {
    let mut gpu = Gpu::new(0);
    let share = Share::new(1, 4).unwrap();
    let come = |gpu: &mut Gpu, number: usize| {
        gpu.add_job(Job(number as u32), share, mode);
        gpu.add(Job(number as u32), true, Program::Rest);
    };
    let minute = 60_000 * MS;
    come(&mut gpu, 0);
    gpu.run(0, programs[0]);
    gpu.run_until(minute);
    gpu.run(0, Program::Rest);
    gpu.run_until(minute + 20 * MS);
    (1..programs.len()).for_each(|number| come(&mut gpu, number));
    for (number, &program) in programs.iter().enumerate().skip(1) {
        gpu.run(number, program);
    }
    gpu.run_until(minute + 40 * MS);
    gpu.run(0, programs[0]);
    gpu.sims[0].latest = Nanos::MIN / 2;
    gpu.sims[0].share = None;
    let before: Vec<Nanos> = gpu.sims.iter().map(|it| it.done).collect();
    gpu.run_until(gpu.now + 5_000 * MS);
    let done = gpu
        .sims
        .iter()
        .zip(before)
        .map(|(it, before)| it.done - before);
    let parts = done.map(|it| it as f64 / 5e9).collect();
    (parts, gpu.sims[0].latest)
}

#[test]
fn what_a_job_did_alone_does_not_count_later() {
    let busy = Program::Queue;
    let (hard, _) = after_a_minute_alone(HARD, &[busy; 4]);
    assert!(hard[0] > 0.237, "{hard:.3?}");
    let (soft, _) = after_a_minute_alone(Mode::SOFT, &[busy; 2]);
    assert_near(&soft, &[0.5; 2], 0.02);
    let cells = Program::Waits {
        work: 37 * MS,
        pause: 163 * MS,
    };
    let (_, wait) = after_a_minute_alone(HARD, &[cells, busy, busy, busy]);
    assert!(37 * MS + wait < 250 * MS, "{} ms", wait / MS);
}

/// The longest time that a cell of 37 ms takes, 0.7 times a second in an eighth; and what a busy program then gets of the next
/// minute. Without a mode nobody steers the GPU.
fn cell_and_minute(mode: Option<Mode>, others: &[Program]) -> (Nanos, f64) {
    let cell = 37 * MS;
    let mut gpu = Gpu::new(0);
    let share = Share::new(1, 8).unwrap();
    let notebook = Program::Waits {
        work: cell,
        pause: 1_390 * MS,
    };
    for (number, &program) in [notebook].iter().chain(others).enumerate() {
        gpu.add_job(Job(number as u32), share, mode.unwrap_or(HARD));
        gpu.add(Job(number as u32), true, program);
    }
    if mode.is_none() {
        (gpu.due, gpu.hears_bells) = (Nanos::MAX, false);
    }
    gpu.run_until(10_000 * MS);
    gpu.sims[0].latest = Nanos::MIN / 2;
    gpu.run_until(40_000 * MS);
    let longest = gpu.sims[0].latest + at_pace(share, cell);
    let before = gpu.sims[0].done;
    gpu.run(0, Program::Queue);
    gpu.run_until(100_000 * MS);
    let got = (gpu.sims[0].done - before) as f64 / 60e9;
    let steering = mode.map_or("plain".to_owned(), |it| it.to_string());
    let longest_ms = longest as f64 / MS as f64;
    println!("{steering}: cell {longest_ms:.1} ms, then {got:.4} of a minute, beside {others:?}");
    (longest, got)
}

#[test]
fn a_cell_runs_on_what_its_slice_saved_and_a_minute_has_its_share() {
    let (longest, got) = cell_and_minute(Some(HARD), &[]);
    assert!(longest < 41 * MS, "{longest}");
    assert!((0.125..0.135).contains(&got), "{got}");
    let saves_little = Mode {
        burst_ms: 20,
        ..HARD
    };
    let (longest, got) = cell_and_minute(Some(saves_little), &[]);
    assert!(longest > 100 * MS, "{longest}");
    assert!((0.124..0.126).contains(&got), "{got}");
    // Beside others its lead bounds it. It takes no longer than without softmig.
    for others in [&[Program::Queue; 7][..], &[CUPY; 3], &[Program::Queue]] {
        let (longest, got) = cell_and_minute(Some(HARD), others);
        let (plain, _) = cell_and_minute(None, others);
        assert!(longest < plain, "{longest}, {plain} without");
        let pace = at_pace(Share::new(1, 8).unwrap(), 37 * MS);
        assert!(longest < pace, "{longest}");
        assert!((0.115..0.135).contains(&got), "{got}");
    }
}

/// The driver's own time-slicing serves it sooner: beside these it gives a busy program more than an eighth.
#[test]
fn a_cell_beside_seven_programs_that_pause_takes_its_shares_time() {
    let waits = |work, pause| Program::Waits { work, pause };
    let (loader, server) = (waits(12 * MS, 14 * MS), waits(3 * MS, 17 * MS));
    let decode = waits(700_000, 90_000);
    let others = [TRAINING, TRAINING, JAX, CUPY, server, loader, decode];
    let (longest, _) = cell_and_minute(Some(HARD), &others);
    cell_and_minute(None, &others);
    let pace = at_pace(Share::new(1, 8).unwrap(), 37 * MS);
    assert!(longest < pace + MAX_LEAD, "{longest}");
}

#[test]
fn a_debt_does_not_grow_with_what_may_be_saved_up() {
    let mut sharing = Sharing::new(0);
    let saves_much = Mode {
        burst_ms: 3000,
        ..HARD
    };
    sharing.add(Job(0), Share::new(1, 8).unwrap(), saves_much);
    let observed = Observed {
        unseated: 1_000 * MS,
        ..Observed::default()
    };
    for second in 1..=10 {
        sharing.look(second * 1_000 * MS, &BTreeMap::from([(Job(0), observed)]));
    }
    assert_eq!(sharing.credit(Job(0)), Some(-LEAST_DEBT));
}

#[test]
fn a_ceiling_between_share_and_gpu_is_kept() {
    let ceiling = Mode::parse("60%").unwrap();
    let alone = run(&[(1, 4, ceiling, Program::Queue)]);
    assert_near(&alone, &[0.6], 0.02);
    let beside = run(&[
        (1, 4, ceiling, Program::Queue),
        (3, 4, ceiling, Program::Queue),
    ]);
    assert_near(&beside, &[0.245, 0.735], 0.02);
}

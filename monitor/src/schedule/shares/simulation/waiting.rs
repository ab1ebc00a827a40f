//! The time in which jobs wanted the GPU and did not have it.

use super::*;

/// Each job's charge and wait, as parts of the time.
fn charged_and_waited(jobs: &[(u32, u32, Mode, Program)]) -> Vec<[f64; 2]> {
    let (_, book) = simulate_with(jobs, &[]);
    let part = |time: Nanos| time as f64 / 5e9;
    let both = book.jobs().map(|(_, it)| [it.charged, it.waited].map(part));
    both.collect()
}

#[test]
fn a_job_that_always_wants_the_gpu_is_charged_or_waits() {
    for (jobs, charged) in [
        (vec![(1, 4, HARD, Program::Queue); 4], vec![0.245; 4]),
        (
            vec![
                (1, 4, Mode::SOFT, Program::Queue),
                (3, 4, Mode::SOFT, Program::Queue),
            ],
            vec![0.245, 0.735],
        ),
        // Only its cap holds it, and not another job.
        (vec![(1, 4, HARD, Program::Queue)], vec![0.25]),
    ] {
        let got = charged_and_waited(&jobs);
        assert_eq!(got.len(), jobs.len());
        for ([own, waited], charged) in got.into_iter().zip(charged) {
            assert!((own - charged).abs() < 0.02, "{own}");
            // The rest is changes, which count for no job.
            assert!((own + waited - 1.0).abs() < 0.04, "{own} {waited}");
        }
    }
}

#[test]
fn a_job_that_is_alone_or_seldom_wants_the_gpu_does_not_wait() {
    let alone = charged_and_waited(&[(1, 4, Mode::SOFT, Program::Queue)]);
    assert!(alone[0][1] < 0.001, "{alone:?}");
    let rest = Program::Waits {
        work: MS,
        pause: 99 * MS,
    };
    let beside = charged_and_waited(&[(1, 2, HARD, rest), (1, 2, HARD, Program::Queue)]);
    // It waits for the other's slice once in 100 ms.
    assert!(beside[0][1] < 0.1, "{beside:?}");
}

#[test]
fn work_that_is_not_for_the_gpu_s_processors_waits_for_none() {
    // It says that it has work, as during a copy, while no other job is on the GPU.
    let copies = charged_and_waited(&[(1, 2, Mode::SOFT, Program::Stuck)]);
    assert!(copies.iter().all(|it| it[1] < 0.001), "{copies:?}");
}

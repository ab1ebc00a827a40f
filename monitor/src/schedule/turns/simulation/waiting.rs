//! The sums that outlive jobs, and the time in which jobs wanted a turn and had none.

use super::*;

/// Each job's charge and wait in ten seconds, as parts of them, and the time of changes.
fn sums(programs: &[Program]) -> (Vec<[f64; 2]>, f64) {
    let mut world = World::new(Rules::default(), programs, 1);
    world.run_until(10 * SECOND);
    // Nothing happens where a job is alone.
    world.look();
    let book = world.turns.book();
    let part = |time: Nanos| time as f64 / (10 * SECOND) as f64;
    let jobs = book.jobs().map(|(_, it)| [it.charged, it.waited].map(part));
    (jobs.collect(), part(book.change))
}

#[test]
fn who_always_wants_a_turn_has_it_or_waits() {
    for shares in [
        vec![(1, 4); 4],
        vec![(1, 10), (9, 10)],
        vec![(1, 2), (1, 4), (1, 4)],
    ] {
        let programs: Vec<Program> = (0..)
            .zip(&shares)
            .map(|(job, &share)| Program::hard(job, share, MS))
            .collect();
        let (jobs, change) = sums(&programs);
        for (&[charged, waited], share) in jobs.iter().zip(shares) {
            let share = f64::from(share.0) / f64::from(share.1);
            assert!((charged - share).abs() < 0.02, "{charged} {share}");
            // The turn is the job's while it changes, and costs nothing.
            assert!((charged + waited - 1.0).abs() < 0.04, "{charged} {waited}");
        }
        let all: f64 = jobs.iter().map(|it| it[0]).sum();
        assert!((all + change - 1.0).abs() < 0.02, "{all} {change}");
    }
}

#[test]
fn a_cap_makes_a_job_wait_and_having_the_gpu_alone_does_not() {
    let (jobs, change) = sums(&[Program::hard(1, (1, 4), MS)]);
    assert!(
        (jobs[0][0] - 0.25).abs() < 0.01 && (jobs[0][1] - 0.75).abs() < 0.02,
        "{jobs:?}"
    );
    assert!(change < 0.001);
    let (jobs, _) = sums(&[Program::soft(1, (1, 4), MS)]);
    assert!(jobs[0][0] > 0.98 && jobs[0][1] < 0.001, "{jobs:?}");
}

#[test]
fn the_sums_of_a_job_stay_when_its_processes_have_gone() {
    let mut first = Program::hard(1, (1, 2), MS);
    first.dies = Some(2 * SECOND);
    let programs = [first, Program::hard(2, (1, 2), MS)];
    let mut world = World::new(Rules::default(), &programs, 1);
    world.run_until(10 * SECOND);
    assert_eq!(world.turns.standings().count(), 1);
    let gone = *world.turns.book().of(Job(1));
    assert!((gone.charged - SECOND).abs() < SECOND / 20, "{gone:?}");
    assert!(gone.turns > 10 && gone.waited > SECOND / 2, "{gone:?}");
    let charged = world.turns.book().charged;
    world.turns.book().forget(|job| job == Job(1));
    assert_eq!(world.turns.book().jobs().count(), 1);
    assert_eq!(world.turns.book().charged, charged);
}

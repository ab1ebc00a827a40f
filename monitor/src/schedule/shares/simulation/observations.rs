//! Single observations of jobs, and the schedule that follows from them.

use super::*;

#[test]
fn a_cap_beside_a_waiting_job_needs_no_word_of_its_job() {
    let mut sharing = Sharing::new(0);
    let eighth = Share::new(1, 8).unwrap();
    sharing.add(Job(1), eighth, HARD);
    sharing.add(Job(2), eighth, Mode::SOFT);
    // It says nothing, and uses the GPU whenever it is not held.
    let (mut used, mut is_on) = (0, true);
    for now in (RECHECK..10_000 * MS).step_by(RECHECK as usize) {
        let resident = if is_on { RECHECK / 2 } else { 0 };
        used += resident;
        let silent = Observed {
            resident,
            ..Observed::default()
        };
        let other = Observed {
            wants_gpu: true,
            resident: RECHECK - resident,
            pending: RECHECK,
            ..Observed::default()
        };
        sharing.look(now, &[(Job(1), silent), (Job(2), other)].into());
        (is_on, _) = sharing.state(Job(1)).unwrap();
    }
    assert!(used < 1_350 * MS, "{used}");
}

#[test]
fn no_clock_and_no_page_makes_more_of_time_than_it_was() {
    let mut sharing = Sharing::new(0);
    sharing.add(Job(1), Share::new(1, 2).unwrap(), Mode::SOFT);
    let wild = Observed {
        resident: Nanos::MAX,
        pending: Nanos::MAX,
        wants_gpu: true,
        ..Observed::default()
    };
    for now in (0..1_000 * MS).step_by(RECHECK as usize) {
        sharing.look(now, &[(Job(1), wild)].into());
    }
    assert!(sharing.take_book().charged <= 1_000 * MS);
}

#[test]
fn a_server_finds_short_slices_also_after_a_pause() {
    let mut sharing = Sharing::new(0);
    let half = Share::new(1, 2).unwrap();
    sharing.add(Job(1), half, HARD);
    sharing.add(Job(2), half, HARD);
    let mut slices = Vec::new();
    for now in (10..2_000).step_by(10).map(|ms| ms * MS) {
        let busy = Observed {
            resident: 5 * MS,
            pending: 10 * MS,
            wants_gpu: true,
            cut: 1,
            left: 0,
            ..Observed::default()
        };
        // It works for 10 ms of each 40, but never when jobs are classified.
        let answers = Observed {
            resident: 3 * MS,
            pending: 10 * MS,
            wants_gpu: true,
            cut: 0,
            left: 9,
            ..Observed::default()
        };
        let is_answering = now % (40 * MS) == 10 * MS;
        let server = if is_answering {
            answers
        } else {
            Observed::default()
        };
        sharing.look(now, &[(Job(1), busy), (Job(2), server)].into());
        slices.push(sharing.state(Job(1)).unwrap().1);
    }
    assert!(
        slices[20..].iter().all(|&it| it == slices::LEAST_SLICE_US),
        "{slices:?}"
    );
    // After it has ended, slices are long again.
    for now in (2_000..2_300).step_by(10).map(|ms| ms * MS) {
        let busy = Observed {
            resident: 10 * MS,
            pending: 10 * MS,
            wants_gpu: true,
            ..Observed::default()
        };
        sharing.look(now, &[(Job(1), busy), (Job(2), Observed::default())].into());
    }
    assert_eq!(sharing.state(Job(1)).unwrap().1, slices::ROUND_US / 2);
}

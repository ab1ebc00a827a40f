//! The time in which no job is on the GPU.

use super::*;

#[test]
fn who_leaves_the_gpu_idle_is_not_waited_for() {
    let quarter = Share::new(1, 4).unwrap();
    // Looks until the first job, which always has work, is held, and then goes on: while it is held, the others do this.
    let held_for = |others: Observed| {
        let mut sharing = Sharing::new(0);
        (0..3).for_each(|it| sharing.add(Job(it), quarter, Mode::SOFT));
        let mut now = 0;
        let mut look = |sharing: &mut Sharing| {
            now += RECHECK;
            let is_held = sharing.jobs[&Job(0)].held.is_some();
            let wanting = Observed {
                pending: RECHECK,
                wants_gpu: true,
                ..Observed::default()
            };
            let busy = Observed {
                resident: if is_held { 0 } else { RECHECK },
                ..wanting
            };
            let other = if is_held { others } else { wanting };
            let third = Observed {
                pending: other.pending,
                ..wanting
            };
            let all = [(Job(0), busy), (Job(1), other), (Job(2), third)];
            sharing.look(now, &all.into());
            sharing.jobs[&Job(0)].held.is_some()
        };
        while !look(&mut sharing) {}
        1 + (0..100).take_while(|_| look(&mut sharing)).count()
    };
    let of = |resident, changing| Observed {
        resident,
        changing,
        pending: RECHECK,
        wants_gpu: true,
        ..Observed::default()
    };
    assert!(held_for(of(RECHECK, 0)) > 2, "they work");
    assert!(held_for(of(RECHECK / 3, RECHECK / 3)) > 2, "they change");
    assert_eq!(held_for(of(RECHECK / 3, 0)), 2, "they mostly do nothing");
    let pauses = Observed {
        pending: RECHECK / 3,
        ..of(RECHECK, 0)
    };
    assert_eq!(held_for(pauses), 2, "it stays there without work");
}

#[test]
fn no_job_leaves_the_gpu_idle_for_anothers_lack_of_work() {
    let quarter = Share::new(1, 4).unwrap();
    let mut sharing = Sharing::new(0);
    (0..3).for_each(|it| sharing.add(Job(it), quarter, Mode::SOFT));
    let mut now = 0;
    let mut look = |sharing: &mut Sharing| {
        now += RECHECK;
        let is_held = sharing.jobs[&Job(0)].held.is_some();
        let wants = Observed {
            pending: RECHECK,
            wants_gpu: true,
            ..Observed::default()
        };
        let first = Observed {
            resident: if is_held { 0 } else { RECHECK },
            ..wants
        };
        let second = Observed {
            resident: if is_held { RECHECK / 4 } else { 0 },
            ..wants
        };
        let silent = Observed {
            resident: if is_held { RECHECK * 3 / 4 } else { 0 },
            ..Observed::default()
        };
        let all = [(Job(0), first), (Job(1), second), (Job(2), silent)];
        sharing.look(now, &all.into());
    };
    for _ in 0..100 {
        look(&mut sharing);
        assert!(sharing.jobs[&Job(1)].waited_for_from <= RECHECK);
    }
}

#[test]
fn what_was_idle_for_one_hold_does_not_count_for_the_next() {
    let half = Share::new(1, 2).unwrap();
    let mut sharing = Sharing::new(0);
    (0..2).for_each(|it| sharing.add(Job(it), half, Mode::SOFT));
    sharing.jobs.get_mut(&Job(0)).unwrap().virtual_time = MAX_LEAD * 2;
    let wants = Observed {
        pending: RECHECK,
        wants_gpu: true,
        ..Observed::default()
    };
    let all = |first, second| {
        let of = |resident| Observed { resident, ..wants };
        [(Job(0), of(first)), (Job(1), of(second))].into()
    };
    sharing.look(RECHECK, &all(0, 0));
    assert_eq!(sharing.jobs[&Job(0)].held, Some(Held::Ahead));
    // The GPU is idle for one look, and then the hold is over.
    sharing.look(2 * RECHECK, &all(0, 0));
    sharing.jobs.get_mut(&Job(0)).unwrap().held = None;
    sharing.jobs.get_mut(&Job(0)).unwrap().virtual_time = sharing.virtual_time;
    sharing.look(3 * RECHECK, &all(0, RECHECK));
    sharing.jobs.get_mut(&Job(0)).unwrap().virtual_time = MAX_LEAD * 4;
    sharing.jobs.get_mut(&Job(0)).unwrap().held = Some(Held::Ahead);
    sharing.look(4 * RECHECK, &all(0, RECHECK / 3));
    assert!(sharing.jobs[&Job(1)].waited_for_from <= 4 * RECHECK);
}

#[test]
fn a_job_pays_nothing_while_another_is_released() {
    let half = Share::new(1, 2).unwrap();
    let mut sharing = Sharing::new(0);
    (0..2).for_each(|it| sharing.add(Job(it), half, HARD));
    let mut now = 0;
    let mut look = |sharing: &mut Sharing, idles: Nanos| {
        now += 4 * MS;
        let is_held = sharing.jobs[&Job(0)].held.is_some();
        let busy = Observed {
            resident: if is_held { 0 } else { 4 * MS - idles },
            pending: 4 * MS,
            wants_gpu: true,
            ..Observed::default()
        };
        // It had work before, and stays on the GPU until another comes.
        let idle = Observed {
            resident: idles,
            ..Observed::default()
        };
        sharing.look(now, &[(Job(0), busy), (Job(1), idle)].into());
        sharing.jobs[&Job(0)].held
    };
    while look(&mut sharing, 0) != Some(Held::Capped) {}
    while look(&mut sharing, 4 * MS).is_some() {}
    let charged = |sharing: &mut Sharing| sharing.take_book().of(Job(1)).charged;
    assert_eq!(charged(&mut sharing), 0, "the other had no credit");
    look(&mut sharing, RELEASING);
    assert_eq!(charged(&mut sharing), 0, "the other could not be there yet");
    look(&mut sharing, RELEASING);
    assert_eq!(charged(&mut sharing), RELEASING, "the other waited");
}

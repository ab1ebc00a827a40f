//! The time in which no job is on the GPU.

use super::*;

#[test]
fn who_leaves_the_gpu_idle_is_not_waited_for() {
    let quarter = Share::new(1, 4).unwrap();
    // Looks until the first job, which always has work, is held, and then goes on: while it is held, the others do this.
    let held_for = |others: Observed| {
        let mut sharing = Sharing::new(0);
        (0..3).for_each(|it| sharing.add(Job(it), quarter, Mode::Soft, 0));
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
            let all = [(Job(0), busy), (Job(1), other), (Job(2), wanting)];
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
fn a_job_pays_nothing_while_another_is_released() {
    let half = Share::new(1, 2).unwrap();
    let mut sharing = Sharing::new(0);
    (0..2).for_each(|it| sharing.add(Job(it), half, HARD, 0));
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
    let charged = |sharing: &Sharing| sharing.jobs[&Job(1)].charged;
    assert_eq!(charged(&sharing), 0, "the other had no credit");
    look(&mut sharing, RELEASING);
    assert_eq!(charged(&sharing), 0, "the other could not be there yet");
    look(&mut sharing, RELEASING);
    assert_eq!(charged(&sharing), RELEASING, "the other waited");
}

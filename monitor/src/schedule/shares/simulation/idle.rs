//! The time in which no job is on the GPU.

use super::*;

#[test]
fn the_time_that_changes_of_groups_take_is_charged_to_no_waiting_job() {
    let quarter = Share::new(1, 4).unwrap();
    let mut sharing = Sharing::new(0);
    (0..3).for_each(|it| sharing.come(Job(it), quarter, Mode::Soft, 0));
    let mut now = 0;
    let mut look = |sharing: &mut Sharing, resident: [Nanos; 3]| {
        now += 4 * MS;
        let seen = (0..).zip(resident).map(|(job, resident)| {
            let observed = Observed {
                resident,
                pending: 4 * MS,
                wishes: true,
                ..Observed::default()
            };
            (Job(job), observed)
        });
        sharing.look(now, &seen.collect());
    };
    while sharing.jobs[&Job(0)].held.is_none() {
        look(&mut sharing, [4 * MS, 0, 0]);
    }
    let of = |sharing: &Sharing| sharing.jobs[&Job(2)].virtual_time;
    let before = of(&sharing);
    look(&mut sharing, [0, 3_600_000, 0]);
    assert_eq!(of(&sharing), before, "it waited for its slice");
    look(&mut sharing, [0, 0, 0]);
    assert!(of(&sharing) > before, "only jobs that may run were there");
}

#[test]
fn a_job_pays_nothing_while_another_is_released() {
    let half = Share::new(1, 2).unwrap();
    let mut sharing = Sharing::new(0);
    (0..2).for_each(|it| sharing.come(Job(it), half, HARD, 0));
    let mut now = 0;
    let mut look = |sharing: &mut Sharing, idles: Nanos| {
        now += 4 * MS;
        let is_held = sharing.jobs[&Job(0)].held.is_some();
        let busy = Observed {
            resident: if is_held { 0 } else { 4 * MS - idles },
            pending: 4 * MS,
            wishes: true,
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

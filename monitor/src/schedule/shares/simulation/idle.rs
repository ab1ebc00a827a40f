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

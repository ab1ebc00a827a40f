//! Jobs that do and say what suits them.

use super::*;

const SECOND: Nanos = 1_000 * MS;

/// A job with half of a GPU that always has work, beside `shares` of jobs with several processes each that have work and say
/// that they have none. The parts of the GPU that they get.
fn beside_silent(mode: Mode, shares: &[(u32, u32)], processes: usize) -> Vec<f64> {
    let mut gpu = Gpu::new(0);
    gpu.add_job(Job(0), Share::new(1, 2).unwrap(), mode);
    gpu.add(Job(0), true, Program::Queue);
    for (number, &(shards, per_gpu)) in (1..).zip(shares) {
        gpu.add_job(Job(number), Share::new(shards, per_gpu).unwrap(), mode);
        for _ in 0..processes {
            let sim = gpu.add(Job(number), true, Program::Queue);
            gpu.sims[sim].lie = (Some(false), Some(0));
        }
    }
    gpu.run_until(SECOND);
    gpu.sims.iter_mut().for_each(|sim| sim.done = 0);
    gpu.run_until(11 * SECOND);
    let mut got = vec![0.0; shares.len() + 1];
    for (sim, (job, _)) in gpu.sims.iter().zip(&gpu.owners) {
        got[job.0 as usize] += sim.done as f64 / (10 * SECOND) as f64;
    }
    got
}

#[test]
fn who_says_nothing_takes_nothing_from_others() {
    for mode in [HARD, Mode::SOFT] {
        for processes in [1, 8] {
            let got = beside_silent(mode, &[(1, 4), (1, 4)], processes);
            assert!(got[0] > 0.475, "{mode:?} {processes}: {got:.3?}");
            assert!(
                got[1..].iter().all(|&it| it < 0.26),
                "{mode:?} {processes}: {got:.3?}"
            );
        }
    }
}

#[test]
fn a_silent_job_is_looked_at_while_another_wants_the_gpu() {
    let half = Share::new(1, 2).unwrap();
    let mut sharing = Sharing::new(0);
    (0..2).for_each(|it| sharing.add(Job(it), half, Mode::SOFT));
    let [busy, silent] = [RECHECK, 0].map(|pending| Observed {
        resident: RECHECK / 2,
        pending,
        wants_gpu: pending > 0,
        ..Observed::default()
    });
    let look = sharing.look(RECHECK, &[(Job(0), busy), (Job(1), silent)].into());
    assert!(
        look.next.is_some_and(|next| next <= RECHECK + MAX_INTERVAL),
        "{look:?}"
    );
}

#[test]
fn a_lead_outlives_the_last_process() {
    let half = Share::new(1, 2).unwrap();
    let mut sharing = Sharing::new(0);
    (0..2).for_each(|it| sharing.add(Job(it), half, Mode::SOFT));
    // The changes of the first take as long as the work of the second, and cost no credit.
    let mut now = 0;
    let mut look = |sharing: &mut Sharing, leaves: bool| {
        now += RECHECK;
        let is_held = sharing.jobs.get(&Job(0)).is_none_or(|it| it.held.is_some());
        let changes = Observed {
            changing: if is_held || leaves {
                0
            } else {
                RECHECK * 3 / 4
            },
            left: 1,
            pending: RECHECK,
            wants_gpu: !leaves,
            ..Observed::default()
        };
        let busy = Observed {
            resident: if is_held { RECHECK } else { RECHECK / 4 },
            pending: RECHECK,
            wants_gpu: true,
            ..Observed::default()
        };
        sharing.look(now, &[(Job(0), changes), (Job(1), busy)].into());
    };
    for _ in 0..100 {
        look(&mut sharing, false);
        if sharing.jobs[&Job(0)].held == Some(Held::Ahead) && sharing.jobs[&Job(0)].credit >= 0 {
            break;
        }
    }
    assert_eq!(sharing.jobs[&Job(0)].held, Some(Held::Ahead));
    sharing.remove(Job(0));
    look(&mut sharing, true);
    sharing.add(Job(0), half, Mode::SOFT);
    assert!(sharing.jobs[&Job(0)].virtual_time > sharing.virtual_time + RESUME_LEAD);
    // It is forgotten when the lead is gone.
    sharing.remove(Job(0));
    (0..30).for_each(|_| look(&mut sharing, true));
    assert!(!sharing.jobs.contains_key(&Job(0)));
}

#[test]
fn changes_for_a_job_that_says_nothing_count() {
    let half = Share::new(1, 2).unwrap();
    let mut sharing = Sharing::new(0);
    (0..2).for_each(|it| sharing.add(Job(it), half, HARD));
    for now in (RECHECK..=300 * MS).step_by(RECHECK as usize) {
        let busy = Observed {
            resident: RECHECK / 2,
            pending: RECHECK,
            wants_gpu: true,
            cut: 1,
            ..Observed::default()
        };
        let silent = Observed {
            resident: RECHECK / 4,
            changing: RECHECK / 4,
            left: 9,
            ..Observed::default()
        };
        sharing.look(now, &[(Job(0), busy), (Job(1), silent)].into());
    }
    assert!(sharing.has_yielding);
}

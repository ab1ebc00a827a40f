//! Tests of [`super`], on a word of their own.

use super::*;
use crate::ledger::ledger_of_test;
use core::num::NonZeroU64;
use softmig_driver_sys::cuda::CUuuid;

const MS: u64 = 1_000_000;
const START: u64 = 1_000_000 * MS;
const QUARTER: u32 = WHOLE / 4;

/// This number of GPUs, of a job that has done nothing yet.
pub(in crate::pacing) fn gpus(count: usize) -> Vec<GpuLedger<'static>> {
    let ledger = ledger_of_test();
    let numbers = (1..).map_while(NonZeroU64::new).take(count);
    numbers.map(|key| ledger.gpu(key).unwrap()).collect()
}

/// The cap of a job, as `N` of its processes have it.
fn of_processes<const N: usize>(share: u32) -> [JobCap; N] {
    let gpu = gpus(1)[0];
    core::array::from_fn(|_| JobCap::new(gpu, share, CUuuid { bytes: [0; 16] }))
}

fn of_share(share: u32) -> JobCap {
    let [cap] = of_processes(share);
    cap
}

#[test]
fn a_job_that_was_idle_has_its_share_of_the_burst() {
    let cap = of_share(QUARTER);
    assert_eq!(cap.may(START, 0, 0), Admission::InFlight(BURST_NS / 4));
    assert_eq!(cap.left(START), BURST_NS / 4);
    assert_eq!(
        cap.may(START + 1000 * MS, 0, 0),
        Admission::InFlight(BURST_NS / 4)
    );
}

#[test]
fn what_was_charged_is_no_longer_to_be_had() {
    let cap = of_share(QUARTER);
    cap.charge(START, MS, 0);
    // A millisecond of the GPU was four on the clock, of which one passed meanwhile.
    assert_eq!(cap.left(START), BURST_NS / 4 - 3 * MS / 4);
    cap.charge(START, 100 * MS, 0);
    assert_eq!(cap.left(START), 0);
}

#[test]
fn a_launch_after_all_is_used_up_waits_for_a_long_turn() {
    let cap = of_share(QUARTER);
    cap.charge(START, BURST_NS / 2, 0);
    let Admission::RetryAfter(time) = cap.may(START, 0, 0) else {
        panic!("{:?}", cap.may(START, 0, 0));
    };
    // Some credit is not enough for one that rests.
    for early in [time / 2, time - 1] {
        assert_eq!(
            cap.may(START + early, 0, 0),
            Admission::RetryAfter(time - early)
        );
    }
    assert_eq!(
        cap.may(START + time, 0, 0),
        Admission::InFlight(RESUME_CREDIT_NS / 4)
    );
    // Once it goes on it does so to the end.
    cap.charge(START + time, RESUME_CREDIT_NS / 4 - MS / 100, 0);
    assert!(matches!(
        cap.may(START + time, 0, 0),
        Admission::InFlight(_)
    ));
}

#[test]
fn a_launch_waits_for_as_much_as_is_in_flight() {
    let cap = of_share(QUARTER);
    assert!(matches!(cap.may(START, MS, 0), Admission::InFlight(_)));
    let cap = of_share(QUARTER);
    let missing = |in_flight| match cap.may(START, in_flight, 0) {
        Admission::RetryAfter(time) => time,
        other => panic!("{other:?}"),
    };
    cap.charge(START, BURST_NS / 2, 0);
    assert_eq!(missing(3 * MS) - missing(0), 12 * MS);
}

#[test]
fn what_is_in_flight_is_not_waited_for_for_ever() {
    let cap = of_share(1);
    for in_flight in [1, MS, u64::MAX] {
        let may = cap.may(START, in_flight, 0);
        let is_soon =
            matches!(may, Admission::RetryAfter(time) if time <= MAX_WAIT_NS + RESUME_CREDIT_NS);
        assert!(
            is_soon || matches!(may, Admission::InFlight(_)),
            "{in_flight}: {may:?}"
        );
        let later = cap.may(START + MAX_WAIT_NS + RESUME_CREDIT_NS, in_flight, 0);
        assert!(
            matches!(later, Admission::InFlight(_)),
            "{in_flight}: {later:?}"
        );
    }
}

#[test]
fn credit_grows_for_what_is_in_flight() {
    // A kernel of 20 ms is reported at its end, and the GPU was not idle meanwhile.
    let [seen, unseen] = [(); 2].map(|()| of_share(QUARTER));
    let end = START + 60 * MS;
    seen.charge(START, MS, 0);
    unseen.charge(START, MS, 0);
    seen.charge(end, MS, 10 * MS);
    unseen.charge(end, MS, 0);
    let debt = |cap: &JobCap| cap.pace.credit(end, cap.rate_with(40 * MS, false));
    assert!(debt(&seen) > debt(&unseen));
    assert!(debt(&seen) <= (BURST_NS + 40 * MS).cast_signed());
}

#[test]
fn all_processes_of_a_job_have_the_share_together() {
    let [one, other] = of_processes(QUARTER);
    one.charge(START, BURST_NS / 2, 0);
    assert!(matches!(other.may(START, 0, 0), Admission::RetryAfter(_)));
    assert_eq!(one.left(START), other.left(START));
}

#[test]
fn a_job_that_launches_whenever_it_may_gets_its_share() {
    for (share, kernel) in [(1, 2 * MS), (4, MS / 10), (13, 30 * MS), (50, 5 * MS)] {
        let cap = of_share(WHOLE / 100 * share);
        let (mut now, mut used) = (START, 0);
        while now < START + 100_000 * MS {
            match cap.may(now, 0, 0) {
                Admission::InFlight(_) => {
                    now += kernel;
                    used += kernel;
                    cap.charge(now, kernel, 0);
                }
                Admission::RetryAfter(time) => now += time,
                other => panic!("there is one GPU, and no turns: {other:?}"),
            }
        }
        let got = used as f64 / (now - START) as f64 * 100.0;
        let off = (got - f64::from(share)).abs();
        assert!(off < 0.2, "{got} of {share}");
    }
}

#[test]
fn no_share_is_one() {
    let cap = of_share(0);
    assert_eq!(cap.rate.share, 1);
    assert_eq!(of_share(u32::MAX).rate.share, WHOLE);
}

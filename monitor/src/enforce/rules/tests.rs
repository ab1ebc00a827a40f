//! Each rule: what it finds, and whom it leaves alone.

use super::*;
use crate::enforce::observation::{Exempt, Process, Seat, Unattributed};

const MIB: u64 = 1 << 20;
const SLICE: u64 = 10_000 * MIB;
const GPU: &str = "GPU-0";

pub(super) fn id(pid: u32) -> ProcessId {
    ProcessId { pid, began: 7 }
}

/// A process of the library's, which has launched.
pub(super) fn process(pid: u32, mib: u64) -> Process {
    Process {
        id: id(pid),
        computes: true,
        memory: Some(mib * MIB),
        busy: 0,
        seat: Seat::Given,
        is_excess: false,
        exempt: None,
    }
}

/// One that got past the library, and works.
fn escaped(pid: u32, mib: u64) -> Process {
    Process {
        busy: 100,
        seat: Seat::None,
        ..process(pid, mib)
    }
}

pub(super) fn slice(job: u32, processes: Vec<Process>) -> Tenant {
    let memory = processes.iter().filter_map(|process| process.memory);
    Tenant {
        holder: Holder::Job(job),
        since: None,
        uid: Some(2001),
        gpu: GPU.into(),
        claim: Claim::Slice {
            memory: SLICE,
            has_seats: true,
        },
        is_assigned: Some(true),
        memory: Some(memory.sum()),
        processes,
    }
}

pub(super) fn all() -> Monitor {
    Monitor {
        end: End::All,
        grace: Duration::ZERO,
        interval: Duration::from_secs(1),
        outside_jobs: OutsideJobs::Allow,
    }
}

fn observation(millis: u64, tenants: Vec<Tenant>) -> Observation {
    Observation {
        at: Duration::from_millis(millis),
        tenants,
        unattributed: Vec::new(),
    }
}

/// The findings of these observations, each half a second after the one before: the rule, the job and the processes that are
/// to end.
fn judged(
    settings: &Monitor,
    observations: Vec<Vec<Tenant>>,
) -> Vec<Vec<(Rule, Holder, Vec<u32>)>> {
    let mut evaluator = Evaluator::default();
    let none = BTreeSet::new();
    let evaluations = (0..).step_by(500).zip(observations).map(|(at, tenants)| {
        let evaluation = evaluator.evaluate(&observation(at, tenants), settings, &none);
        let violations = evaluation.violations.into_iter();
        let told = |it: Violation| {
            let pids = it.processes.iter().map(|id| id.pid).collect();
            (it.rule, it.holder, pids)
        };
        violations.map(told).collect()
    });
    evaluations.collect()
}

/// The same of one tenant that is seen three times.
fn thrice(settings: &Monitor, tenant: &Tenant) -> Vec<(Rule, Vec<u32>)> {
    let one = || vec![tenant.clone()];
    let evaluations = judged(settings, vec![one(), one(), one()]);
    assert_eq!(
        evaluations[0],
        [],
        "nothing is done about what was seen once"
    );
    assert_eq!(evaluations[1], evaluations[2]);
    let last = evaluations[2].iter();
    last.map(|(rule, _, pids)| (*rule, pids.clone())).collect()
}

#[test]
fn who_is_busy_without_a_seat_is_ended() {
    let tenant = slice(12, vec![process(1, 100), escaped(2, 100)]);
    assert_eq!(thrice(&all(), &tenant), [(Rule::Seat, vec![2])]);
    // Another process each time is the same job's work.
    let each = |pid| vec![slice(12, vec![escaped(pid, 100)])];
    let evaluations = judged(&all(), vec![each(1), each(2)]);
    assert_eq!(evaluations[1], [(Rule::Seat, Holder::Job(12), vec![2])]);
}

#[test]
fn who_has_the_library_has_time_to_make_a_context() {
    let making = Process {
        seat: Seat::Expected,
        ..escaped(1, 100)
    };
    let observations = (0..30).map(|_| vec![slice(12, vec![making])]);
    let evaluations = judged(&all(), observations.collect());
    let first = evaluations.iter().position(|it| !it.is_empty());
    assert_eq!(
        first,
        Some(21),
        "half a second after the second observation that counts"
    );
    assert_eq!(evaluations[21], [(Rule::Seat, Holder::Job(12), vec![1])]);
}

#[test]
fn who_only_allocates_is_left_alone() {
    let idle = Process {
        busy: 0,
        ..escaped(1, 9000)
    };
    assert_eq!(thrice(&all(), &slice(12, vec![idle])), []);
}

#[test]
fn who_could_not_have_a_seat_is_left_alone() {
    let excused = Process {
        seat: Seat::Excused,
        ..escaped(1, 100)
    };
    let draws = Process {
        computes: false,
        ..escaped(1, 100)
    };
    for process in [excused, draws] {
        assert_eq!(thrice(&all(), &slice(12, vec![process])), []);
    }
    let mut whole_share = slice(12, vec![escaped(1, 100)]);
    whole_share.claim = Claim::Slice {
        memory: SLICE,
        has_seats: false,
    };
    assert_eq!(thrice(&all(), &whole_share), []);
    // Once in a while is not twice in a row.
    let busy = || vec![slice(12, vec![escaped(1, 100)])];
    let idle = || vec![slice(12, vec![process(1, 100)])];
    let evaluations = judged(&all(), vec![busy(), idle(), busy(), idle(), busy()]);
    assert!(evaluations.iter().all(Vec::is_empty), "{evaluations:?}");
}

/// NVML shows now this process and now that one.
#[test]
fn who_is_seen_at_work_in_some_looks_alone_is_ended() {
    let seen = |busy: [u32; 3]| {
        let processes = (1..).zip(busy).map(|(pid, busy)| Process {
            busy,
            ..escaped(pid, 100)
        });
        vec![slice(12, processes.collect())]
    };
    let observations = vec![
        seen([9, 0, 0]),
        seen([0, 0, 0]),
        seen([0, 9, 0]),
        seen([0, 0, 0]),
        seen([0, 0, 9]),
    ];
    let evaluations = judged(&all(), observations);
    let ended = |pids: &[u32]| vec![(Rule::Seat, Holder::Job(12), pids.to_vec())];
    assert_eq!(evaluations[..2], [vec![], vec![]]);
    assert_eq!(evaluations[2], ended(&[1, 2]));
    assert_eq!(evaluations[4], ended(&[1, 2, 3]));
    let rarely = (0..30).map(|at| seen([if at % 11 == 0 { 9 } else { 0 }, 0, 0]));
    let evaluations = judged(&all(), rarely.collect());
    assert!(evaluations.iter().all(Vec::is_empty), "{evaluations:?}");
}

#[test]
fn a_burst_within_the_grace_is_left_alone() {
    let settings = Monitor {
        grace: Duration::from_secs(2),
        ..all()
    };
    let over = || vec![slice(12, vec![process(1, 11_000)])];
    let within = || vec![slice(12, vec![process(1, 9000)])];
    // Two seconds less half a second, then nothing for long, then all of it again.
    let mut observations: Vec<_> = (0..4).map(|_| over()).collect();
    observations.extend((0..11).map(|_| within()));
    observations.extend((0..4).map(|_| over()));
    let evaluations = judged(&settings, observations);
    assert!(evaluations.iter().all(Vec::is_empty), "{evaluations:?}");
    let evaluations = judged(&settings, (0..6).map(|_| over()).collect());
    let ended = vec![(Rule::Memory, Holder::Job(12), vec![1])];
    assert_eq!(evaluations[3], []);
    assert_eq!(evaluations[4], ended);
    assert_eq!(evaluations[5], ended);
}

#[test]
fn memory_that_is_given_back_between_looks_counts_when_it_comes_again() {
    let over = |pids: [u32; 2], mib| vec![slice(12, pids.map(|pid| process(pid, mib)).into())];
    let within = || vec![slice(12, vec![process(1, 9000)])];
    let ended = |settings: &Monitor, again| {
        let evaluations = judged(
            settings,
            vec![over([1, 2], 6000), within(), within(), again],
        );
        !evaluations[3].is_empty()
    };
    assert!(ended(&all(), over([1, 2], 6000)));
    assert!(ended(&all(), vec![slice(12, vec![process(7, 11_000)])]));
    // A process was still in the list, and another one is now.
    assert!(!ended(&all(), over([2, 3], 6000)));
    let patient = Monitor {
        grace: Duration::from_secs(2),
        ..all()
    };
    assert!(!ended(&patient, over([1, 2], 6000)));
}

/// After how many ms a job is ended that has too much memory for this part of each second, if looks come in these times; `None` if it
/// is not in a minute.
fn ended_after(percent: u64, mut until_next: impl FnMut() -> u64) -> Option<u64> {
    let mut evaluator = Evaluator::default();
    let mut at = until_next();
    while at < 60_000 {
        let mib = if at % 1000 < 10 * percent {
            11_000
        } else {
            9000
        };
        let seen = observation(at, vec![slice(12, vec![process(1, mib)])]);
        let evaluation = evaluator.evaluate(&seen, &all(), &BTreeSet::new());
        if !evaluation.violations.is_empty() {
            return Some(at);
        }
        let next = until_next();
        at += if evaluation.is_in_doubt {
            next.min(500)
        } else {
            next
        };
    }
    None
}

#[test]
fn memory_in_bursts_between_looks_is_seen() {
    let mut random = fastrand::Rng::with_seed(7);
    for (percent, most) in [(80, 6), (50, 12), (20, 60)] {
        let mut times: Vec<_> = (0..1000)
            .map(|_| {
                let wait = || (-1000.0_f64 * random.f64().max(1e-9).ln()).min(3000.0) as u64;
                ended_after(percent, wait).unwrap_or(u64::MAX)
            })
            .collect();
        times.sort_unstable();
        println!(
            "{percent} %: half within {} ms, 95 % within {} ms",
            times[500], times[950]
        );
        assert!(times[950] < 1000 * most, "{percent}: {}", times[950]);
    }
    // Regular looks never see it.
    let mut first = true;
    let regular = || {
        if std::mem::take(&mut first) {
            900
        } else {
            1000
        }
    };
    assert_eq!(ended_after(80, regular), None);
}

#[test]
fn who_was_ended_before_has_no_grace() {
    let settings = Monitor {
        grace: Duration::from_secs(3600),
        ..all()
    };
    let mut evaluator = Evaluator::default();
    let again = BTreeSet::from([Holder::Job(12)]);
    let tenants = || {
        let other = slice(13, vec![process(2, 11_000)]);
        vec![slice(12, vec![process(1, 11_000)]), other]
    };
    assert!(
        evaluator
            .evaluate(&observation(0, tenants()), &settings, &again)
            .is_in_doubt
    );
    let evaluation = evaluator.evaluate(&observation(500, tenants()), &settings, &again);
    let offenders: Vec<_> = evaluation
        .violations
        .iter()
        .map(|it| it.holder.clone())
        .collect();
    assert_eq!(offenders, [Holder::Job(12)]);
}

#[test]
fn a_little_more_than_the_slice_is_left_alone() {
    // 2 % of it are more than 64 MiB.
    assert_eq!(thrice(&all(), &slice(12, vec![process(1, 10_200)])), []);
    let ended = thrice(&all(), &slice(12, vec![process(1, 10_201)]));
    assert_eq!(ended, [(Rule::Memory, vec![1])]);
    let mut small = slice(12, vec![process(1, 1064)]);
    small.claim = Claim::Slice {
        memory: 1000 * MIB,
        has_seats: true,
    };
    assert_eq!(thrice(&all(), &small), []);
}

#[test]
fn as_few_end_as_it_takes_first_those_without_a_seat() {
    let over = |processes| thrice(&all(), &slice(12, processes));
    let ended = over(vec![process(1, 2000), process(2, 7000), process(3, 3000)]);
    assert_eq!(ended, [(Rule::Memory, vec![2])]);
    let idle = |pid, mib| Process {
        busy: 0,
        ..escaped(pid, mib)
    };
    let ended = over(vec![process(1, 9000), idle(2, 1000), idle(3, 2000)]);
    assert_eq!(ended, [(Rule::Memory, vec![3])]);
    let ended = over(vec![process(1, 9000), idle(2, 1000), idle(3, 1500)]);
    assert_eq!(ended, [(Rule::Memory, vec![3])]);
    let many: Vec<_> = (0..20).map(|pid| process(pid, 1000)).collect();
    assert_eq!(over(many)[0].1.len(), 10);
}

#[test]
fn the_neighbour_of_an_offender_lives() {
    let tenants = || {
        let neighbour = slice(13, vec![process(3, 9000)]);
        vec![
            slice(12, vec![escaped(1, 60_000), process(2, 100)]),
            neighbour,
        ]
    };
    let evaluations = judged(&all(), vec![tenants(), tenants()]);
    let own = |rule| (rule, Holder::Job(12), vec![1]);
    assert_eq!(evaluations[1], [own(Rule::Memory), own(Rule::Seat)]);
}

#[test]
fn mps_and_roots_processes_are_never_ended() {
    for exempt in [
        Exempt::Root,
        Exempt::Mps,
        Exempt::Older,
        Exempt::SystemAccount,
    ] {
        let protected = Process {
            exempt: Some(exempt),
            ..escaped(1, 60_000)
        };
        let other = process(2, 500);
        let ended = thrice(&all(), &slice(12, vec![protected, other]));
        // It is told of. Its memory leaves no room for the other one.
        assert_eq!(ended, [(Rule::Memory, vec![2]), (Rule::Seat, vec![])]);
        let mut outside = slice(12, vec![protected]);
        outside.claim = Claim::OutsideJobs;
        outside.holder = Holder::User(2001);
        let settings = Monitor {
            outside_jobs: OutsideJobs::End,
            ..all()
        };
        assert_eq!(thrice(&settings, &outside), []);
    }
}

#[test]
fn a_process_where_it_does_not_belong_is_ended() {
    let mut other_gpu = slice(12, vec![process(1, 100)]);
    other_gpu.is_assigned = Some(false);
    assert_eq!(thrice(&all(), &other_gpu), [(Rule::OtherGpu, vec![1])]);
    other_gpu.claim = Claim::Whole;
    assert_eq!(thrice(&all(), &other_gpu), [(Rule::OtherGpu, vec![1])]);
    other_gpu.is_assigned = None;
    assert_eq!(thrice(&all(), &other_gpu), []);
    let mut no_conf = slice(12, vec![process(1, 100)]);
    no_conf.claim = Claim::NoConf;
    assert_eq!(thrice(&all(), &no_conf), [(Rule::NoConf, vec![1])]);
}

#[test]
fn use_outside_jobs_is_as_the_administrator_says() {
    let draws = Process {
        computes: false,
        ..process(2, 4)
    };
    let mut outside = slice(12, vec![process(1, 100), draws]);
    outside.claim = Claim::OutsideJobs;
    outside.holder = Holder::User(2001);
    let with = |outside_jobs, end| Monitor {
        outside_jobs,
        end,
        ..all()
    };
    assert_eq!(thrice(&with(OutsideJobs::Allow, End::All), &outside), []);
    for (outside_jobs, end, consequence) in [
        (OutsideJobs::Report, End::All, Consequence::Report),
        (OutsideJobs::End, End::All, Consequence::End),
        (OutsideJobs::End, End::Memory, Consequence::WouldEnd),
        (OutsideJobs::End, End::No, Consequence::WouldEnd),
    ] {
        let settings = with(outside_jobs, end);
        assert_eq!(thrice(&settings, &outside), [(Rule::OutsideJobs, vec![1])]);
        assert_eq!(Rule::OutsideJobs.consequence(&settings), consequence);
    }
}

#[test]
fn each_setting_ends_what_it_says() {
    use Consequence::{End as Ends, Report, WouldEnd};
    for (end, memory, seat) in [
        (End::No, WouldEnd, WouldEnd),
        (End::Memory, Ends, WouldEnd),
        (End::All, Ends, Ends),
    ] {
        let settings = Monitor { end, ..all() };
        assert_eq!(Rule::Memory.consequence(&settings), memory);
        for rule in [Rule::Seat, Rule::OtherGpu, Rule::NoConf, Rule::Time] {
            assert_eq!(rule.consequence(&settings), seat);
        }
        assert_eq!(Rule::NoFigure.consequence(&settings), Report);
    }
}

#[test]
fn memory_in_no_figure_is_told_with_those_that_may_keep_it() {
    let mut evaluator = Evaluator::default();
    let unattributed = Unattributed {
        gpu: GPU.into(),
        bytes: 10 << 30,
        holders: vec![(Holder::Job(12), 101), (Holder::Job(12), 102)],
    };
    let mut at = |millis| {
        let observation = Observation {
            unattributed: vec![unattributed.clone()],
            ..observation(millis, Vec::new())
        };
        evaluator
            .evaluate(&observation, &all(), &BTreeSet::new())
            .violations
    };
    assert_eq!(at(0), []);
    let told = at(500);
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].rule, &told[0].pids),
        (Rule::NoFigure, &vec![101, 102])
    );
    assert_eq!(told[0].processes, []);
}

#[test]
fn who_has_more_time_than_its_share_and_cannot_be_held_is_ended() {
    let excess = Process {
        is_excess: true,
        ..process(2, 100)
    };
    let tenant = slice(12, vec![process(1, 100), excess]);
    assert_eq!(thrice(&all(), &tenant), [(Rule::Time, vec![2])]);
    // An MPS server of the site's works for all of its clients.
    let server = Process {
        exempt: Some(Exempt::Mps),
        ..excess
    };
    assert_eq!(
        thrice(&all(), &slice(12, vec![server])),
        [(Rule::Time, vec![])]
    );
}

#[test]
fn a_jobs_own_mps_server_needs_no_seat_and_is_held_to_time_and_memory() {
    let server = Process {
        seat: Seat::OfClients,
        ..escaped(2, 100)
    };
    assert_eq!(
        thrice(&all(), &slice(12, vec![escaped(2, 100)])),
        [(Rule::Seat, vec![2])]
    );
    assert_eq!(
        thrice(&all(), &slice(12, vec![process(1, 100), server])),
        []
    );
    let excess = Process {
        is_excess: true,
        ..server
    };
    assert_eq!(
        thrice(&all(), &slice(12, vec![excess])),
        [(Rule::Time, vec![2])]
    );
}

#[test]
fn only_who_is_still_there_for_the_same_reason_is_confirmed() {
    let mut evaluator = Evaluator::default();
    let none = BTreeSet::new();
    let busy = || vec![slice(12, vec![escaped(1, 100), escaped(2, 20_000)])];
    evaluator.evaluate(&observation(0, busy()), &all(), &none);
    let violations = evaluator
        .evaluate(&observation(500, busy()), &all(), &none)
        .violations;
    let confirmed = |rule, tenants: Vec<Tenant>| {
        let violation = violations.iter().find(|it| it.rule == rule).unwrap();
        let there = evaluator.confirmed(violation, &observation(600, tenants));
        there.iter().map(|id| id.pid).collect::<Vec<_>>()
    };
    let idle = |pid, mib| Process {
        busy: 0,
        ..escaped(pid, mib)
    };
    let both = || vec![slice(12, vec![idle(1, 100), idle(2, 20_000)])];
    assert_eq!(confirmed(Rule::Seat, both()), [1, 2]);
    assert_eq!(confirmed(Rule::Memory, both()), [2]);
    // It has freed its memory, and asked for a seat.
    let right = || vec![slice(12, vec![idle(1, 100), process(2, 200)])];
    assert_eq!(confirmed(Rule::Seat, right()), [1]);
    assert_eq!(confirmed(Rule::Memory, right()), [] as [u32; 0]);
    let other = vec![slice(13, vec![idle(1, 100), idle(2, 20_000)])];
    assert_eq!(confirmed(Rule::Seat, other), [] as [u32; 0]);
    // Its number is another process's.
    let mut reused = both();
    reused[0].processes[1].id.began += 1;
    assert_eq!(confirmed(Rule::Memory, reused), [] as [u32; 0]);
}

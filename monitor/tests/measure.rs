//! A node on which everything happens at once, as JSON and as a table, and the judgement of each case.

use insta::assert_snapshot;
use softmig_monitor::jobs::confs::Confs;
use softmig_monitor::jobs::owner::{Membership, Owner};
use softmig_monitor::measure::reading::{GpuReading, Kind, Memory, Reading, User};
use softmig_monitor::measure::report::{Finding, Report};
use softmig_monitor::measure::report_rows::rows;
use softmig_monitor::measure::table;
use softmig_nvml::Setting;
use softmig_policy::node::job_conf::JobConf;
use softmig_usage::ending::{ByRule, Ending};
use softmig_usage::{Findings, GpuUsage, Job, JobGpu, Node, Seat, Slice, VERSION};
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;

fn uuid(index: u32) -> String {
    format!("GPU-50f7316a-0000-4000-8000-{index:012x}")
}

fn gpu(index: u32, used_mib: u64, users: Vec<User>) -> GpuReading {
    let (total, reserved) = (46068 * MIB, 602 * MIB);
    let used = used_mib * MIB;
    GpuReading {
        index,
        uuid: Some(uuid(index)),
        name: Some("NVIDIA L40S".into()),
        mig: false,
        setting: (index == 1).then_some(Setting::Exclusive),
        memory: Some(Memory {
            total,
            reserved,
            used,
            free: total - reserved - used,
        }),
        users: Some(users),
        error: None,
    }
}

/// A process of CUDA's.
fn on(pid: u32, mib: u64) -> User {
    User {
        pid,
        kinds: vec![Kind::Compute],
        memory: Some(mib * MIB),
        instance: None,
    }
}

fn in_place(uid: u32, place: Membership) -> Owner {
    let name = "python3".into();
    Owner::Process {
        uid,
        name,
        place,
        began: 4711,
    }
}

fn in_job(uid: u32, job: u32) -> Owner {
    in_place(uid, Membership::Job(job))
}

/// The conf of a quarter of an l40s, 11366 MiB.
fn quarter(job: u32, uid: u32, gpus: &[u32]) -> Result<JobConf, String> {
    let gpus: Vec<String> = gpus.iter().map(|&gpu| uuid(gpu)).collect();
    let text = format!(
        "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_JOB={job}\nSOFTMIG_UID={uid}\n\
         SOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS={}\n",
        gpus.join(",")
    );
    JobConf::parse(text.as_bytes()).map_err(|error| error.to_string())
}

fn whole(job: u32, uid: u32, gpus: &str) -> Result<JobConf, String> {
    let text =
        format!("SOFTMIG_JOB={job}\nSOFTMIG_UID={uid}\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS={gpus}\n");
    JobConf::parse(text.as_bytes()).map_err(|error| error.to_string())
}

/// A report of GPUs with these processes, whose these are, in jobs with these confs.
fn judged<const O: usize, const C: usize>(
    gpus: Vec<GpuReading>,
    owners: [(u32, Owner); O],
    jobs: [(u32, Result<JobConf, String>); C],
) -> Report {
    let reading = Reading {
        driver: Some("580.159.03".into()),
        gpus,
    };
    let confs = Confs {
        jobs: jobs.into(),
        sluids: [("sEKNKTV3WPV500".into(), 13)].into(),
        ..Confs::default()
    };
    rows(&reading, &BTreeMap::from(owners), &confs)
}

/// Each finding with its job and what the job has too much.
fn found(report: &Report) -> Vec<(Option<u32>, Finding, Option<u64>)> {
    let found = report.findings();
    found
        .map(|(job, gpu, finding)| (job.job, finding, gpu.excess_bytes.map(|bytes| bytes / MIB)))
        .collect()
}

fn everything_at_once() -> Report {
    let both = User {
        kinds: vec![Kind::Compute, Kind::Graphics],
        ..on(102, 1000)
    };
    let unmeasured = User {
        memory: None,
        kinds: vec![Kind::Mps],
        ..on(103, 0)
    };
    let drawing = User {
        kinds: vec![Kind::Graphics],
        ..on(104, 4)
    };
    let part = |pid, instance| User {
        instance: Some(instance),
        ..on(pid, 700)
    };
    let mig = GpuReading {
        mig: true,
        ..gpu(2, 1500, vec![part(110, 1), part(110, 2)])
    };
    let lost = GpuReading {
        index: 3,
        error: Some("device fell off the bus".into()),
        ..GpuReading::default()
    };
    let first = vec![
        on(101, 11000),
        both,
        unmeasured,
        drawing,
        on(105, 300),
        on(106, 518),
        on(107, 518),
    ];
    let mut report = judged(
        vec![
            gpu(0, 14000, first),
            gpu(1, 600, vec![on(108, 518)]),
            mig,
            lost,
        ],
        [
            (101, in_job(2001, 12)),
            (102, in_job(2001, 12)),
            (
                103,
                in_place(2002, Membership::Sluid("sEKNKTV3WPV500".into())),
            ),
            (104, in_place(0, Membership::Outside)),
            (105, Owner::Gone),
            (106, in_job(2003, 14)),
            (
                107,
                in_place(2004, Membership::Sluid("sEKNKTV3WPV501".into())),
            ),
            (108, in_job(2001, 15)),
            (110, in_job(2001, 16)),
        ],
        [
            (12, quarter(12, 2001, &[0])),
            (13, quarter(13, 2002, &[0])),
            (15, quarter(15, 2001, &[0])),
            (16, whole(16, 2001, &uuid(2))),
            (17, Err("a line is not KEY=VALUE".into())),
            (18, quarter(18, 2001, &[1])),
            (19, quarter(19, 2001, &[7])),
            (20, whole(20, 2001, "")),
        ],
    );
    report.time = "2026-11-21T12:00:00Z".into();
    report.usage = Some(usage());
    report
}

/// The daemon's figures of three jobs on two GPUs, of which NVML shows one.
fn usage() -> Node {
    let slice = |shards, mode: &str| Slice {
        r#type: "l40s".into(),
        shards,
        shards_per_gpu: 8,
        mode: mode.into(),
        memory_bytes: 0,
    };
    let job = |job, slice, gpu| Job {
        job,
        slice: Some(slice),
        gpus: vec![gpu],
        ..Job::default()
    };
    let seat = |pid| Seat {
        pid,
        not_steered: None,
    };
    let busy = JobGpu {
        index: Some(0),
        uuid: uuid(0),
        wants_gpu: true,
        known_seconds: 125.5,
        charged_seconds: 31.2,
        credit_seconds: 0.004,
        seats: vec![seat(101), seat(102)],
        ..JobGpu::default()
    };
    let unsteered = Seat {
        not_steered: Some("none of its channels is known".into()),
        ..seat(103)
    };
    let held = JobGpu {
        is_held: true,
        charged_seconds: 16.0,
        credit_seconds: -0.6,
        seats: vec![unsteered, seat(109)],
        ..busy.clone()
    };
    let idle = JobGpu {
        index: None,
        uuid: uuid(7),
        known_seconds: 125.5,
        credit_seconds: 0.02,
        seats: vec![seat(111)],
        ..JobGpu::default()
    };
    Node {
        schema_version: VERSION,
        gpus: vec![GpuUsage {
            uuid: uuid(0),
            shared_by: Some("scheduler".into()),
            ..GpuUsage::default()
        }],
        jobs: vec![
            job(19, slice(2, "hard"), idle),
            job(12, slice(2, "hard"), busy),
            job(13, slice(1, "soft"), held),
        ],
        findings: vec![Findings {
            kind: "memory".into(),
            count: 3,
        }],
        ending: Some(Ending {
            end: "no".into(),
            counted_seconds: 7200.0,
            ended: 0,
            would_have_ended: vec![ByRule {
                rule: "memory".into(),
                processes: 3,
            }],
        }),
        ..Node::default()
    }
}

#[test]
fn a_report_is_json_as_documented() {
    assert_snapshot!(serde_json::to_string_pretty(&everything_at_once()).unwrap());
}

/// Every key of an object and of those within.
fn keys(value: &serde_json::Value, found: &mut BTreeSet<String>) {
    for inner in value.as_array().into_iter().flatten() {
        keys(inner, found);
    }
    for (key, inner) in value.as_object().into_iter().flatten() {
        found.insert(key.clone());
        keys(inner, found);
    }
}

#[test]
fn the_page_of_formats_names_every_field() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/formats.md");
    let page = std::fs::read_to_string(path).unwrap();
    let words: BTreeSet<&str> = page
        .split('`')
        .map(|word| word.trim_start_matches('.').trim_end_matches("[]"))
        .collect();
    let mut found = BTreeSet::new();
    keys(
        &serde_json::to_value(everything_at_once()).unwrap(),
        &mut found,
    );
    assert!(found.len() > 30, "{found:?}");
    let missing: Vec<_> = found
        .iter()
        .filter(|key| !words.contains(key.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in docs/formats.md: {missing:?}");
}

#[test]
fn a_report_is_a_table_for_people() {
    assert_snapshot!(table::text(&everything_at_once()));
}

#[test]
fn a_node_that_cannot_be_measured_has_its_jobs_all_the_same() {
    let mut report = judged(Vec::new(), [], [(12, quarter(12, 2001, &[0]))]);
    report.driver = None;
    report.error = Some("the NVIDIA driver is not loaded".into());
    assert!(report.is_incomplete());
    assert_eq!(report.jobs[0].gpus[0].holding.memory_bytes, None);
    assert_eq!(report.jobs[0].gpus[0].excess_bytes, None);
    assert_snapshot!(table::text(&report));
}

#[test]
fn a_node_without_anything_says_so() {
    let mut report = judged(Vec::new(), [], []);
    let nobody = "no jobs, and no process uses a GPU\n";
    assert_eq!(table::text(&report), nobody);
    assert!(!report.is_incomplete());
    report.usage = Some(Node {
        ending: Some(Ending::default()),
        ..Node::default()
    });
    let said = format!("{nobody}\nno job shares a GPU\n");
    assert_eq!(table::text(&report), said);
    (report.usage, report.usage_error) = (None, Some("nobody is there".into()));
    let said = format!("{nobody}\nno jobs are shown that share a GPU: nobody is there\n");
    assert_eq!(table::text(&report), said);
    assert!(!report.is_incomplete());
}

#[test]
fn a_daemon_from_before_an_upgrade_is_not_taken_for_an_idle_one() {
    let mut report = judged(Vec::new(), [], []);
    report.usage = Some(Node::default());
    let text = table::text(&report);
    assert!(text.contains("an older softmig-monitor runs"), "{text}");
}

#[test]
fn processes_of_a_job_count_together_up_to_its_limit() {
    for (mib, expected) in [
        (5683, None),
        (5684, Some((Some(12), Finding::OverLimit, Some(1)))),
    ] {
        let report = judged(
            vec![gpu(0, 12000, vec![on(1, 5683), on(2, mib)])],
            [(1, in_job(2001, 12)), (2, in_job(2005, 12))],
            [(12, quarter(12, 2001, &[0]))],
        );
        assert_eq!(found(&report), Vec::from_iter(expected));
        assert_eq!(report.jobs[0].gpus[0].holding.pids, [1, 2]);
    }
}

#[test]
fn each_gpu_of_a_job_has_the_limit_for_itself() {
    let report = judged(
        vec![
            gpu(0, 12000, vec![on(1, 11000)]),
            gpu(1, 12000, vec![on(1, 11500)]),
        ],
        [(1, in_job(2001, 12))],
        [(12, quarter(12, 2001, &[0, 1]))],
    );
    assert_eq!(found(&report), [(Some(12), Finding::OverLimit, Some(134))]);
    assert_eq!(report.jobs[0].gpus[1].finding, Some(Finding::OverLimit));
}

#[test]
fn where_the_conf_names_no_gpu_every_gpu_may_be_the_jobs() {
    let report = judged(
        vec![gpu(0, 600, vec![on(1, 518)])],
        [(1, in_job(2001, 12))],
        [(12, quarter(12, 2001, &[]))],
    );
    assert_eq!(found(&report), []);
    assert_eq!(report.jobs[0].gpus[0].assigned, None);
}

#[test]
fn a_part_of_a_mig_gpu_in_a_conf_makes_no_gpu_strange() {
    let part = "MIG-50f7316a-0000-4000-8000-000000000001";
    let mig = GpuReading {
        mig: true,
        ..gpu(0, 600, vec![on(1, 518)])
    };
    let report = judged(
        vec![mig],
        [(1, in_job(2001, 12))],
        [(12, whole(12, 2001, part))],
    );
    assert_eq!(found(&report), []);
}

#[test]
fn what_mig_divides_has_no_limit_of_softmigs() {
    let mig = GpuReading {
        mig: true,
        ..gpu(0, 30000, vec![on(1, 20000)])
    };
    let conf = quarter(12, 2001, &[0]);
    let report = judged(vec![mig], [(1, in_job(2001, 12))], [(12, conf)]);
    assert_eq!(found(&report), []);
    assert_eq!(report.jobs[0].gpus[0].limit_bytes, None);
}

#[test]
fn a_job_with_whole_gpus_may_have_all_of_them_and_no_others() {
    let report = judged(
        vec![
            gpu(0, 45000, vec![on(1, 44000)]),
            gpu(1, 600, vec![on(1, 518)]),
        ],
        [(1, in_job(2001, 12))],
        [(12, whole(12, 2001, &uuid(0)))],
    );
    assert_eq!(found(&report), [(Some(12), Finding::NotItsGpu, None)]);
}

#[test]
fn a_process_of_unknown_owner_is_counted_without_a_user() {
    let unknown = Owner::Unknown("permission denied".into());
    let report = judged(
        vec![gpu(0, 600, vec![on(1, 100), on(2, 100), on(3, 100)])],
        [(1, Owner::Gone), (2, unknown)],
        [],
    );
    assert_eq!(report.users.len(), 1);
    assert_eq!(report.users[0].uid, None);
    assert_eq!(report.users[0].gpus[0].pids, [1, 2, 3]);
    assert_eq!(found(&report), []);
}

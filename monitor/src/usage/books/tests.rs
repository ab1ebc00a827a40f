//! A node's books, told what the other rooms would say.

use super::*;
use crate::arbiter::Tenant;
use crate::measure::report::{self, Conf, Holding};
use crate::schedule::Book;
use softmig_policy::node::job_conf::Pack;

const GPU: GpuId = [7; 16];
const SECOND: Nanos = 1_000_000_000;

fn conf(job: u32) -> (JobConf, About) {
    let text = format!(
        "CUDA_DEVICE_MEMORY_LIMIT=100M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_JOB={job}\nSOFTMIG_UID=2001\nSOFTMIG_TYPE=l40s\n\
         SOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS={}\n",
        uuid(GPU)
    );
    let about = About {
        since: at(1000),
        user: Some("alice".into()),
        account: Some("phys".into()),
        group: Some(3001),
    };
    (JobConf::parse(text.as_bytes()).unwrap(), about)
}

/// One in which alice's group is idle after a minute, and other users never are.
fn policy() -> Policy {
    Policy::parse(
        "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
         [defaults]\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\n\
         [classes.phys]\nmembers = { groups = [3001] }\nidle_minutes = 1\n",
    )
    .unwrap()
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// The sample while each of these jobs holds its number of MiB.
fn sample(jobs: &[(u32, u64)]) -> Sample {
    let mut sample = Sample::default();
    sample.report.gpus.push(report::GpuReport {
        uuid: Some(uuid(GPU)),
        total_bytes: Some(48 << 30),
        reserved_bytes: Some(1 << 30),
        used_bytes: Some(5 << 30),
        ..report::GpuReport::default()
    });
    for &(job, mib) in jobs {
        let (conf, about) = conf(job);
        sample.confs.jobs.insert(job, Ok(conf));
        sample.confs.about.insert(job, about);
        let holding = Holding {
            index: Some(0),
            uuid: Some(uuid(GPU)),
            memory_bytes: Some(mib << 20),
            pids: vec![job * 10],
            ..Holding::default()
        };
        sample.report.jobs.push(report::Job {
            job: Some(job),
            sluid: None,
            uid: Some(2001),
            conf: Conf::Slice,
            conf_error: None,
            slice: None,
            gpus: vec![JobGpu {
                holding,
                assigned: Some(true),
                limit_bytes: None,
                excess_bytes: None,
                finding: None,
            }],
        });
    }
    sample
}

/// The arbiter's accounts of these jobs: charged and waited, in seconds; the last one has a process that wants the GPU.
fn accounts(jobs: &[(u32, Nanos, Nanos)], wants_gpu: bool) -> BTreeMap<GpuId, Account> {
    let mut book = Book::default();
    for &(job, charged, waited) in jobs {
        book.charge(Job(job), charged * SECOND);
        book.wait(Job(job), waited * SECOND);
    }
    book.change = SECOND / 2;
    book.unclaimed = SECOND;
    let tenant = |&(job, ..): &(u32, Nanos, Nanos)| Tenant {
        job: Job(job),
        wants_gpu,
        is_held: wants_gpu,
        credit: -SECOND,
        members: Vec::new(),
    };
    let account = Account {
        known_for: Duration::from_secs(100),
        sharing: Sharing::Scheduler,
        book,
        excess: BTreeMap::new(),
        tenants: jobs.last().map(tenant).into_iter().collect(),
    };
    [(GPU, account)].into()
}

fn note(
    books: &mut Books,
    sample: &Sample,
    (now, running): (u64, u64),
    accounts: &BTreeMap<GpuId, Account>,
) -> usage::Node {
    let moment = Moment {
        now: at(now),
        running: Duration::from_secs(running),
        accounts,
        records: &BTreeMap::new(),
        policy: Some(&policy()),
        pack_faults: &BTreeMap::new(),
    };
    books.note(sample, &moment)
}

#[test]
fn a_credit_is_told_where_the_scheduler_keeps_it() {
    let told = |sharing| {
        let mut said = accounts(&[(7, 10, 4)], true);
        said.get_mut(&GPU).unwrap().sharing = sharing;
        let mut books = Books::new("n1".into(), usage::Node::default());
        let node = note(&mut books, &sample(&[(7, 50)]), (1060, 200), &said);
        node.jobs[0].gpus[0].credit_seconds
    };
    assert_eq!(told(Sharing::Scheduler), -1.0);
    assert_eq!(told(Sharing::Caps(None)), 0.0);
}

#[test]
fn a_node_is_told_as_it_was_seen() {
    let mut books = Books::new("n1".into(), usage::Node::default());
    let said = accounts(&[(7, 10, 4)], true);
    let node = note(&mut books, &sample(&[(7, 50)]), (1060, 200), &said);
    assert_eq!((node.node.as_str(), node.time), ("n1", 1060.0));
    let gpu = &node.gpus[0];
    assert_eq!(gpu.memory_bytes, Some(47 << 30));
    assert_eq!(gpu.shared_by.as_deref(), Some("scheduler"));
    assert_eq!((gpu.known_seconds, gpu.charged_seconds), (100.0, 10.0));
    assert_eq!((gpu.change_seconds, gpu.unclaimed_seconds), (0.5, 1.0));
    let job = &node.jobs[0];
    assert_eq!((job.job, job.uid, job.since), (7, 2001, 1000.0));
    assert_eq!(job.user.as_deref(), Some("alice"));
    assert_eq!(job.account.as_deref(), Some("phys"));
    assert_eq!(job.idle_after_seconds, Some(60.0));
    let slice = job.slice.as_ref().unwrap();
    assert_eq!((slice.share(), slice.memory_bytes), (0.25, 100 << 20));
    let on = &job.gpus[0];
    assert_eq!((on.charged_seconds, on.waited_seconds), (10.0, 4.0));
    // The conf was written a minute ago.
    assert_eq!((on.known_seconds, on.credit_seconds), (60.0, -1.0));
    assert_eq!(
        (on.memory_bytes, on.memory_peak_bytes),
        (Some(50 << 20), Some(50 << 20))
    );
    assert_eq!((on.idle_seconds, on.processes), (0.0, 1));
}

#[test]
fn what_a_job_had_outlives_its_processes_and_goes_with_its_conf() {
    let mut books = Books::new("n1".into(), usage::Node::default());
    let said = accounts(&[(7, 10, 4)], false);
    note(&mut books, &sample(&[(7, 50)]), (1060, 200), &said);
    // It holds nothing, and the arbiter has no process of it.
    let node = note(
        &mut books,
        &sample(&[(7, 0)]),
        (1070, 210),
        &BTreeMap::new(),
    );
    let on = &node.jobs[0].gpus[0];
    assert_eq!((on.charged_seconds, on.idle_seconds), (10.0, 10.0));
    assert_eq!(
        (on.memory_bytes, on.memory_peak_bytes),
        (Some(0), Some(50 << 20))
    );
    assert_eq!(on.known_seconds, 70.0);
    assert!(
        note(&mut books, &sample(&[]), (1071, 211), &BTreeMap::new())
            .jobs
            .is_empty()
    );
    assert!(books.jobs.is_empty());
}

#[test]
fn confs_that_cannot_be_read_for_once_cost_no_job_its_figures() {
    let mut books = Books::new("n1".into(), usage::Node::default());
    let said = accounts(&[(7, 10, 4)], false);
    note(&mut books, &sample(&[(7, 50)]), (1060, 200), &said);
    let mut blind = Sample::default();
    blind.report.error = Some("no".into());
    let node = note(&mut books, &blind, (1061, 201), &said);
    assert_eq!((node.error.as_deref(), node.jobs.len()), (Some("no"), 0));
    assert_eq!((node.gpus.len(), node.gpus[0].memory_used_bytes), (1, None));
    let node = note(&mut books, &sample(&[(7, 20)]), (1062, 202), &said);
    assert_eq!(node.jobs[0].gpus[0].memory_peak_bytes, Some(50 << 20));
}

#[test]
fn idle_time_ends_when_the_job_uses_or_wants_the_gpu() {
    let mut books = Books::new("n1".into(), usage::Node::default());
    let idle = |node: usage::Node| node.jobs[0].gpus[0].idle_seconds;
    let seen = sample(&[(7, 50)]);
    let still = accounts(&[(7, 10, 0)], false);
    // It never used the GPU.
    assert_eq!(
        idle(note(&mut books, &seen, (1060, 200), &accounts(&[], false))),
        60.0
    );
    assert_eq!(idle(note(&mut books, &seen, (1070, 210), &still)), 0.0);
    assert_eq!(idle(note(&mut books, &seen, (1080, 220), &still)), 10.0);
    assert_eq!(
        idle(note(
            &mut books,
            &seen,
            (1081, 221),
            &accounts(&[(7, 10, 0)], true)
        )),
        0.0
    );
    assert_eq!(idle(note(&mut books, &seen, (1090, 230), &still)), 9.0);
    let mut busy = seen.clone();
    busy.busy.insert(0, [(70, 3)].into());
    assert_eq!(idle(note(&mut books, &busy, (1091, 231), &still)), 0.0);
    busy.busy.insert(0, [(71, 3)].into());
    assert_eq!(idle(note(&mut books, &busy, (1092, 232), &still)), 1.0);
}

#[test]
fn the_next_monitor_goes_on_where_this_one_ended() {
    let mut books = Books::new("n1".into(), usage::Node::default());
    let said = accounts(&[(7, 10, 4), (8, 1, 0)], false);
    let last = note(&mut books, &sample(&[(7, 50), (8, 9)]), (1060, 200), &said);
    let text = serde_json::to_string(&last).unwrap();
    let mut next = Books::new("n1".into(), serde_json::from_str(&text).unwrap());
    // Another job has the number 8 by now.
    let mut seen = sample(&[(7, 20), (8, 3)]);
    seen.confs.about.get_mut(&8).unwrap().since = at(1064);
    let node = note(&mut next, &seen, (1065, 1), &accounts(&[(7, 2, 1)], false));
    let on = &node.jobs[0].gpus[0];
    assert_eq!((on.charged_seconds, on.waited_seconds), (12.0, 5.0));
    assert_eq!(
        (on.known_seconds, on.memory_peak_bytes),
        (61.0, Some(50 << 20))
    );
    let other = &node.jobs[1].gpus[0];
    assert_eq!((other.charged_seconds, other.known_seconds), (0.0, 1.0));
    assert_eq!(other.memory_peak_bytes, Some(3 << 20));
    let gpu = &node.gpus[0];
    assert_eq!((gpu.charged_seconds, gpu.known_seconds), (13.0, 200.0));
}

#[test]
fn a_gpu_is_not_idle_while_no_monitor_runs() {
    let mut books = Books::new("n1".into(), usage::Node::default());
    let still = accounts(&[(7, 10, 0)], false);
    note(&mut books, &sample(&[(7, 50)]), (1060, 200), &still);
    let last = note(&mut books, &sample(&[(7, 50)]), (1090, 230), &still);
    assert_eq!(last.jobs[0].gpus[0].idle_seconds, 30.0);
    // An hour later. Job 8 came meanwhile, and job 9 comes now.
    let mut next = Books::new("n1".into(), last);
    let mut seen = sample(&[(7, 50), (8, 1), (9, 1)]);
    seen.confs.about.get_mut(&8).unwrap().since = at(2000);
    seen.confs.about.get_mut(&9).unwrap().since = at(4696);
    let idle = |node: &usage::Node| -> Vec<f64> {
        let jobs = node.jobs.iter();
        jobs.map(|job| job.gpus[0].idle_seconds).collect()
    };
    let none = BTreeMap::new();
    let node = note(&mut next, &seen, (4698, 8), &none);
    assert_eq!(idle(&node), [38.0, 8.0, 2.0]);
    assert!(!node.jobs[0].is_idle(&node.jobs[0].gpus[0]));
    let node = note(&mut next, &seen, (4720, 30), &none);
    assert_eq!(idle(&node), [60.0, 30.0, 24.0]);
    assert!(node.jobs[0].is_idle(&node.jobs[0].gpus[0]));
}

#[test]
fn a_job_that_slurm_starts_anew_begins_at_nothing() {
    let mut books = Books::new("n1".into(), usage::Node::default());
    let said = accounts(&[(7, 10, 4)], false);
    note(&mut books, &sample(&[(7, 50)]), (1060, 200), &said);
    let mut seen = sample(&[(7, 5)]);
    seen.confs.about.get_mut(&7).unwrap().since = at(1061);
    let node = note(
        &mut books,
        &seen,
        (1062, 202),
        &accounts(&[(7, 13, 4)], false),
    );
    let on = &node.jobs[0].gpus[0];
    assert_eq!((on.charged_seconds, on.waited_seconds), (3.0, 0.0));
    assert_eq!(on.memory_peak_bytes, Some(5 << 20));
}

#[test]
fn the_word_of_the_library_counts_to_the_limit_at_most() {
    let mut books = Books::new("n1".into(), usage::Node::default());
    let record = |peak, orphans| Record {
        key: softmig_region::key(GPU),
        peak: peak / UNIT,
        orphans: orphans / UNIT,
        refused: 3,
        recovered: 2,
        refused_largest: softmig_region::units(7 << 20),
    };
    for (peak, told, orphans, held) in [
        (10 << 20, 50 << 20, 0, 50 << 20),
        (60 << 20, 60 << 20, 8 << 20, 58 << 20),
        (u64::MAX, 100 << 20, u64::MAX, 100 << 20),
    ] {
        let moment = Moment {
            now: at(1060),
            running: Duration::from_secs(200),
            accounts: &BTreeMap::new(),
            records: &[(7, vec![record(peak, orphans)])].into(),
            policy: None,
            pack_faults: &BTreeMap::new(),
        };
        let node = books.note(&sample(&[(7, 50)]), &moment);
        let on = &node.jobs[0].gpus[0];
        assert_eq!(on.memory_bytes, Some(held));
        assert_eq!(on.memory_peak_bytes, Some(told));
        assert_eq!((on.refused, on.recovered), (3, 2));
        assert_eq!(on.refused_largest_bytes, 7 << 20);
    }
}

#[test]
fn refusals_stay_counted_while_the_ledger_is_unread() {
    let mut books = Books::new("n1".into(), usage::Node::default());
    let mut told = |refused: Option<u32>| {
        let record = refused.map(|refused| Record {
            key: softmig_region::key(GPU),
            peak: 0,
            orphans: 0,
            refused,
            recovered: refused - 1,
            refused_largest: softmig_region::units(7 << 20),
        });
        let moment = Moment {
            now: at(1060),
            running: Duration::from_secs(200),
            accounts: &BTreeMap::new(),
            records: &[(7, record.into_iter().collect())].into(),
            policy: None,
            pack_faults: &BTreeMap::new(),
        };
        let node = books.note(&sample(&[(7, 50)]), &moment);
        let on = &node.jobs[0].gpus[0];
        (on.refused, on.recovered, on.refused_largest_bytes)
    };
    // The job's user can write any number there.
    for (refused, known) in [(Some(3), 3), (None, 3), (Some(2), 3), (Some(4), 4)] {
        assert_eq!(told(refused), (known, known - 1, 7 << 20));
    }
}

/// A week with a sample each minute, in which each of eight jobs ends after some hours and another comes.
#[test]
fn after_a_week_the_books_are_as_large_as_after_a_day() {
    let mut books = Books::new("n1".into(), usage::Node::default());
    let mut sizes = Vec::new();
    for minute in 0..7 * 24 * 60_u32 {
        let first = minute / 90;
        let jobs: Vec<(u32, u64)> = (first..first + 8).map(|job| (1 + job, 50)).collect();
        let charged: Vec<_> = jobs.iter().map(|(job, _)| (*job, 10, 4)).collect();
        let now = (1060 + u64::from(minute) * 60, 200 + u64::from(minute) * 60);
        let node = note(&mut books, &sample(&jobs), now, &accounts(&charged, false));
        if minute % (24 * 60) == 24 * 60 - 1 {
            let known: usize = books.jobs.values().map(|job| job.gpus.len()).sum();
            sizes.push((books.jobs.len(), known, books.gpus.len()));
            assert!(serde_json::to_string(&node).unwrap().len() < 8 << 10);
        }
    }
    assert_eq!(sizes, [(8, 8, 1); 7]);
}

/// Two jobs may have 100 MiB each of a GPU that has 1000.
#[test]
fn memory_of_slices_that_others_hold_is_missing() {
    let missing = |jobs: &[(u32, u64)], outside: u64, left: u64| {
        let mut sample = sample(jobs);
        let of_jobs: u64 = jobs.iter().map(|(_, mib)| mib).sum();
        let gpu = &mut sample.report.gpus[0];
        gpu.total_bytes = Some(1000 << 20);
        gpu.reserved_bytes = None;
        gpu.used_bytes = Some((of_jobs + outside + left) << 20);
        gpu.unlisted_bytes = Some(left << 20);
        for job in &mut sample.report.jobs {
            let holding = &mut job.gpus[0].holding;
            if holding.memory_bytes == Some(0) {
                holding.pids.clear();
            }
        }
        let holding = Holding {
            uuid: Some(uuid(GPU)),
            memory_bytes: Some(outside << 20),
            ..sample.report.jobs[0].gpus[0].holding.clone()
        };
        sample.report.users.push(report::User {
            uid: Some(0),
            gpus: vec![holding],
        });
        let mut books = Books::new("n1".into(), usage::Node::default());
        let node = note(&mut books, &sample, (1060, 200), &BTreeMap::new());
        node.gpus[0].missing_bytes >> 20
    };
    assert_eq!(missing(&[(7, 50), (8, 0)], 0, 0), 0);
    assert_eq!(missing(&[(7, 50), (8, 0)], 800, 0), 0);
    assert_eq!(missing(&[(7, 50), (8, 0)], 900, 0), 100);
    // Contexts have some of it, without a figure.
    assert_eq!(missing(&[(7, 50), (8, 0)], 810, 0), 0);
    // What no process has may be a job's own managed memory, unless no job is there.
    assert_eq!(missing(&[(7, 50), (8, 0)], 0, 900), 0);
    assert_eq!(missing(&[(7, 0), (8, 0)], 0, 900), 100);
    // More than the jobs may have is their own excess, and tells of it elsewhere.
    assert_eq!(missing(&[(7, 900), (8, 0)], 5, 0), 0);
}

#[test]
fn jobs_of_a_pack_are_told_with_each_other() {
    let mut books = Books::new("n1".into(), usage::Node::default());
    let mut sample = sample(&[(7, 50), (8, 50), (9, 50)]);
    for (job, pack) in [
        (7, Some(Pack::User)),
        (8, Some(Pack::User)),
        (9, Some(Pack::Account(5))),
    ] {
        let conf = sample.confs.jobs.get_mut(&job).unwrap();
        let conf = conf.as_mut().unwrap();
        conf.pack = pack;
    }
    let moment = Moment {
        now: at(1060),
        running: Duration::from_secs(200),
        accounts: &BTreeMap::new(),
        records: &BTreeMap::new(),
        policy: None,
        pack_faults: &[(uuid(GPU), 3)].into(),
    };
    let node = books.note(&sample, &moment);
    let packs = node.jobs.iter().map(|job| job.pack.clone().unwrap());
    let packs: Vec<(String, Vec<u32>)> = packs.map(|it| (it.name, it.jobs)).collect();
    let name = format!("uid-{}", node.jobs[0].uid);
    let account = PackId::Account(5).to_string();
    let expected = [(name.clone(), vec![8]), (name, vec![7]), (account, vec![])];
    assert_eq!(packs, expected);
    assert_eq!(node.gpus[0].pack_faults, Some(3));
}

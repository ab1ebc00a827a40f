//! Real processes, which get real signals.

use super::*;
use crate::jobs::owner::{Owner, owner};
use crate::measure::report::{Conf, GpuReport, Holding, Job, JobGpu, Report, State};
use crate::measure::{reading, report};
use softmig_policy::config::monitor::OutsideJobs;
use softmig_policy::node::job_conf::JobConf;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

const GPU: &str = "GPU-07070707-0707-0707-0707-070707070707";
const ID: [u8; 16] = [7; 16];
const USER: u32 = 2001;

/// The processes on the GPU: in no job for the kernel, and in job 12 for the measurement.
struct Shown {
    pids: Vec<u32>,
    mib: u64,
    busy: bool,
    /// The job's user.
    uid: u32,
    seats: BTreeSet<u32>,
    answers: bool,
    /// Processes without a seat and their jobs, as the arbiter was told.
    told: BTreeMap<u32, u32>,
}

impl Shown {
    fn shows(&self) -> (Sample, Seats) {
        let owners: BTreeMap<u32, Owner> = (self.pids.iter())
            .map(|&pid| (pid, owner(Path::new("/proc"), pid)))
            .filter(|(_, owner)| matches!(owner, Owner::Process { .. }))
            .collect();
        let pids: Vec<u32> = owners.keys().copied().collect();
        let process = |&pid: &u32| report::Process {
            pid,
            kinds: vec![reading::Kind::Compute],
            memory_bytes: Some(self.mib << 20),
            gpu_instance: None,
            state: State::Known,
            uid: Some(USER),
            name: None,
            job: None,
            sluid: None,
        };
        let holding = Holding {
            index: Some(0),
            uuid: Some(GPU.into()),
            memory_bytes: Some((self.mib << 20) * pids.len() as u64),
            unmeasured: 0,
            pids: pids.clone(),
        };
        let text = format!(
            "CUDA_DEVICE_MEMORY_LIMIT=1000M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_JOB=12\nSOFTMIG_UID={}\n\
             SOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS={GPU}\n",
            self.uid
        );
        let conf = JobConf::parse(text.as_bytes()).unwrap();
        let users = report::User {
            uid: Some(USER),
            gpus: vec![holding.clone()],
        };
        let job = Job {
            job: Some(12),
            sluid: None,
            uid: Some(USER),
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
        };
        let sample = Sample {
            report: Report {
                gpus: vec![GpuReport {
                    uuid: Some(GPU.into()),
                    processes: pids.iter().map(process).collect(),
                    ..GpuReport::default()
                }],
                jobs: vec![job],
                users: vec![users],
                ..Report::default()
            },
            owners,
            confs: Confs {
                jobs: [(12, Ok(conf))].into(),
                ..Confs::default()
            },
            busy: [(
                0,
                pids.iter()
                    .map(|&pid| (pid, 80 * u32::from(self.busy)))
                    .collect(),
            )]
            .into(),
        };
        let seats = Seats {
            given: self.seats.iter().map(|&pid| (ID, pid)).collect(),
            ..Seats::default()
        };
        (sample, seats)
    }
}

impl Probe for Shown {
    fn sample(&mut self, _again: bool) -> (Sample, Seats) {
        self.shows()
    }

    fn arbiter_answers(&mut self) -> bool {
        self.answers
    }

    fn report_unseated(&mut self, unseated: BTreeMap<String, BTreeMap<u32, Unseated>>) {
        let told = unseated.get(GPU).into_iter().flatten();
        self.told = told.map(|(&pid, of)| (pid, of.job.0)).collect();
    }
}

/// A user's processes on a node that enforces, and the daemon there.
struct Stand {
    _folder: tempfile::TempDir,
    node: Node,
    enforcer: Enforcer,
    tally: Arc<Tally>,
    children: Vec<Child>,
}

impl Stand {
    /// `None` where the tests do not run as root, who alone can start processes of users.
    fn new(command: &[&str], count: usize, mode: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let etc = folder.path().join("etc");
        std::fs::create_dir_all(etc.join("softmig")).unwrap();
        std::fs::write(
            etc.join("softmig/node.conf"),
            format!("SOFTMIG_NODE={mode}\n"),
        )
        .unwrap();
        std::fs::write(
            etc.join("ld.so.preload"),
            "/usr/lib/softmig/libsoftmig.so\n",
        )
        .unwrap();
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        for name in ["softmig/node.conf", "ld.so.preload"] {
            let file = std::fs::File::options()
                .append(true)
                .open(etc.join(name))
                .unwrap();
            file.set_modified(long_ago).unwrap();
        }
        let node = Node::in_folder(folder.path(), 0);
        std::fs::create_dir_all(node.run.join("jobs/12")).unwrap();
        let tally = Arc::new(Tally::default());
        let places = Places::in_folder(&etc, 0);
        let start = || {
            let mut line = Command::new(command[0]);
            line.args(&command[1..]).uid(USER).gid(USER);
            line.spawn().unwrap()
        };
        Some(Self {
            enforcer: Enforcer::new(node.clone(), places, Arc::clone(&tally)),
            node,
            tally,
            children: (0..count).map(|_| start()).collect(),
            _folder: folder,
        })
    }

    fn shown(&self, mib: u64) -> Shown {
        Shown {
            pids: self.children.iter().map(Child::id).collect(),
            mib,
            busy: true,
            uid: USER,
            seats: self.children.iter().map(Child::id).collect(),
            answers: true,
            told: BTreeMap::new(),
        }
    }

    /// Runs the daemon so often, as long as it asks for after each observation.
    fn run(&mut self, settings: &Monitor, shown: &mut Shown, times: usize) {
        for _ in 0..times {
            let seen = shown.shows();
            let wait = self.enforcer.act(settings, &seen, shown);
            std::thread::sleep(wait.unwrap_or(Duration::from_millis(10)));
        }
    }

    fn alive(&mut self) -> usize {
        let children = self.children.iter_mut();
        children
            .filter_map(|it| it.try_wait().unwrap().is_none().then_some(()))
            .count()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The kernel says that these processes are in no job, so what is ended is what they are for the kernel.
fn outside() -> Monitor {
    Monitor {
        end: End::All,
        grace: Duration::ZERO,
        interval: Duration::from_secs(1),
        outside_jobs: OutsideJobs::End,
    }
}

#[test]
fn who_is_asked_to_end_and_does_not_is_ended() {
    // An ignored signal stays ignored over an exec.
    let stubborn = ["sh", "-c", "trap '' TERM; exec sleep 1000"];
    for (command, signal) in [(&stubborn[..], 9), (&["sleep", "1000"], 15)] {
        let Some(mut stand) = Stand::new(command, 1, "enforce") else {
            return;
        };
        std::thread::sleep(Duration::from_millis(200));
        let mut shown = stand.shown(100);
        stand.run(&outside(), &mut shown, 8);
        let status = stand.children[0].wait().unwrap();
        assert_eq!(status.signal(), Some(signal), "{command:?}");
        assert_eq!(stand.tally.told().ended, 1);
    }
}

#[test]
fn by_default_nothing_is_ended_and_all_is_counted_once() {
    let Some(mut stand) = Stand::new(&["sleep", "1000"], 3, "enforce") else {
        return;
    };
    let mut shown = stand.shown(1000);
    let settings = Monitor {
        grace: Duration::ZERO,
        ..Monitor::default()
    };
    let job = stand.node.run.join("jobs/12");
    std::fs::write(job.join("log"), "").unwrap();
    stand.run(&settings, &mut shown, 5);
    assert_eq!(stand.alive(), 3);
    let log = std::fs::read_to_string(job.join("log")).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(
        log.contains(" job 12: more memory than its slice, on GPU-"),
        "{log}"
    );
    let told = stand.tally.told();
    assert_eq!((told.end.as_str(), told.ended), ("no", 0));
    let would: Vec<_> = told
        .would_have_ended
        .iter()
        .map(|it| (it.rule.as_str(), it.processes))
        .collect();
    // Two of three: then the rest fits.
    assert_eq!(would, [("memory", 2)]);
}

#[test]
fn a_node_that_does_not_enforce_ends_nothing() {
    for mode in ["observe", "off"] {
        let Some(mut stand) = Stand::new(&["sleep", "1000"], 1, mode) else {
            return;
        };
        let mut shown = stand.shown(100);
        stand.run(&outside(), &mut shown, 4);
        assert_eq!(stand.alive(), 1);
        assert_eq!(stand.tally.told().end, "no");
    }
}

/// For the measurement they are of job 12, for the kernel of none: as if the number had become another's meanwhile.
#[test]
fn who_is_not_where_the_measurement_has_it_is_not_ended() {
    let Some(mut stand) = Stand::new(&["sleep", "1000"], 2, "enforce") else {
        return;
    };
    let mut shown = stand.shown(60_000);
    shown.seats.clear();
    let settings = Monitor {
        outside_jobs: OutsideJobs::Allow,
        ..outside()
    };
    stand.run(&settings, &mut shown, 5);
    assert_eq!(stand.alive(), 2);
    assert_eq!(stand.tally.told().ended, 0);
    assert!(!stand.node.run.join("jobs/12").join(message::NAME).exists());
}

/// How many processes a busy one without a seat is counted as, that would have been ended.
fn counted_without_a_seat(answers: bool, uid: u32) -> Option<u64> {
    let settings = Monitor {
        outside_jobs: OutsideJobs::Allow,
        ..Monitor::default()
    };
    // The arbiter of this process began with it: who came in the same second has an excuse.
    std::thread::sleep(Duration::from_millis(1100));
    let mut stand = Stand::new(&["sleep", "1000"], 1, "enforce")?;
    let mut shown = stand.shown(100);
    (shown.answers, shown.uid) = (answers, uid);
    shown.seats.clear();
    stand.run(&settings, &mut shown, 4);
    // Its job pays for what it uses in any case.
    assert_eq!(shown.told, [(stand.children[0].id(), 12)].into());
    let told = stand.tally.told();
    Some(told.would_have_ended.iter().map(|it| it.processes).sum())
}

#[test]
fn without_an_answer_of_the_arbiter_no_process_lacks_a_seat() {
    let counted = [false, true].map(|answers| counted_without_a_seat(answers, USER));
    assert!(
        matches!(counted, [Some(0) | None, Some(1) | None]),
        "{counted:?}"
    );
}

#[test]
fn another_user_of_the_job_is_judged() {
    let counted = counted_without_a_seat(true, USER + 1);
    assert!(matches!(counted, Some(1) | None), "{counted:?}");
}

#[test]
fn where_nothing_is_seen_no_process_is_told_to_lack_a_seat() {
    let Some(mut stand) = Stand::new(&["sleep", "1000"], 1, "enforce") else {
        return;
    };
    let mut shown = stand.shown(100);
    shown.seats.clear();
    let told = [(stand.children[0].id(), 12)];
    stand.run(&Monitor::default(), &mut shown, 1);
    assert_eq!(shown.told, told.into());
    let mut seen = shown.shows();
    seen.0.report.error = Some("the driver is gone".into());
    stand.enforcer.act(&Monitor::default(), &seen, &mut shown);
    assert_eq!(shown.told, BTreeMap::new());
    stand.run(&Monitor::default(), &mut shown, 1);
    assert_eq!(shown.told, told.into());
    stand.enforcer.rest(&mut shown);
    assert_eq!(shown.told, BTreeMap::new());
}

//! Tests of [`super`], on nodes made of plain data.

use super::{ProcessRules as Rules, *};
use crate::node::limits::{Limits, Mode, Share, TypeName};
use core::ffi::CStr;
use core::num::NonZeroU32;
use std::collections::BTreeMap;

/// A node of a test.
struct Fake {
    files: BTreeMap<String, Result<String, OsError>>,
    cgroup: Result<String, OsError>,
    first_cgroup: bool,
    first_user: bool,
    uid: u32,
    secure: bool,
    variables: BTreeMap<&'static str, &'static str>,
}

const UID: u32 = 2001;
const GPU: &str = "GPU-00000000-1111-2222-3333-444444444444";
const V2: &str = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n";
const OUTSIDE: &str = "0::/user.slice/user-2001.slice/user@2001.service/app.slice\n";

fn limited(memory_mib: u64, shards: u32) -> JobConf {
    let limits = Limits::new(
        TypeName::new("l40s").unwrap(),
        Share::new(shards, 8).unwrap(),
        memory_mib,
        Mode::HARD,
    );
    JobConf {
        job: NonZeroU32::new(12),
        uid: UID,
        run: 0,
        start: None,
        limits: Some(limits.unwrap()),
        gpus: Default::default(),
        gate: false,
        larger: None,
        pack: None,
    }
}

fn whole() -> JobConf {
    JobConf {
        limits: None,
        ..limited(1, 1)
    }
}

impl Fake {
    /// An enforcing node, seen by an ordinary process in job 12.
    fn new() -> Self {
        let node = Self {
            files: BTreeMap::new(),
            cgroup: Ok(V2.into()),
            first_cgroup: true,
            first_user: true,
            uid: UID,
            secure: false,
            variables: BTreeMap::new(),
        };
        node.file("/etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n")
    }

    fn outside() -> Self {
        Self {
            cgroup: Ok(OUTSIDE.into()),
            ..Self::new()
        }
    }

    fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), Ok(text.into()));
        self
    }

    fn broken(mut self, path: &str, error: OsError) -> Self {
        self.files.insert(path.into(), Err(error));
        self
    }

    fn mode(self, mode: &str) -> Self {
        self.file("/etc/softmig/node.conf", &format!("SOFTMIG_NODE={mode}\n"))
    }

    fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.insert(name, value);
        self
    }

    /// A job of the user's, as the prolog writes it.
    fn job(self, id: u32, conf: &JobConf) -> Self {
        let node = self.file(&format!("/var/run/softmig/{id}.conf"), &conf.to_string());
        match conf.limits {
            None => node,
            Some(_) => node
                .file(&format!("/var/run/softmig/uid/{}/{id}", conf.uid), "")
                .file(&format!("/var/run/softmig/gpu/{GPU}/{id}"), ""),
        }
    }

    fn standing(&self) -> Rules {
        find(self).standing
    }

    /// The job whose limits hold, and these.
    fn held(&self) -> (Option<u32>, Rules) {
        let finding = find(self);
        (finding.job, finding.standing)
    }
}

impl ProcessView for Fake {
    fn kept_by_root<T>(
        &self,
        path: &CStr,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, OsError> {
        match self.files.get(path.to_str().unwrap()) {
            None => Ok(None),
            Some(Err(error)) => Err(*error),
            Some(Ok(text)) => Ok(Some(read(text.as_bytes()))),
        }
    }

    fn cgroup<T>(&self, pid: Option<u32>, read: impl FnOnce(&[u8]) -> T) -> Result<T, OsError> {
        assert_eq!(pid, None);
        Ok(read(
            self.cgroup.as_ref().map_err(|error| *error)?.as_bytes(),
        ))
    }

    fn each_name(&self, folder: &CStr, mut visit: impl FnMut(&[u8])) -> Result<(), OsError> {
        let folder = format!("{}/", folder.to_str().unwrap());
        if let Some(Err(error)) = self.files.get(&folder) {
            return Err(*error);
        }
        for name in self
            .files
            .keys()
            .filter_map(|path| path.strip_prefix(&folder))
        {
            visit(name.split('/').next().unwrap().as_bytes());
        }
        Ok(())
    }

    fn environment(&self, _: u32, _: impl FnMut(&[u8]) -> bool) -> Result<bool, OsError> {
        Err(OsError::MISSING)
    }

    fn cgroup_namespace(&self) -> Result<u64, OsError> {
        Ok(if self.first_cgroup { 0xEFFF_FFFB } else { 7 })
    }

    fn user_namespace(&self) -> Result<u64, OsError> {
        Ok(if self.first_user { 0xEFFF_FFFD } else { 7 })
    }

    fn real_uid(&self) -> u32 {
        self.uid
    }

    fn is_secure(&self) -> bool {
        self.secure
    }

    fn variable(&self, name: &CStr) -> Option<&[u8]> {
        self.variables
            .get(name.to_str().unwrap())
            .map(|value| value.as_bytes())
    }
}

#[test]
fn a_process_of_a_job_has_the_jobs_limits() {
    let conf = limited(11366, 2);
    let finding = find(&Fake::new().job(12, &conf));
    assert_eq!(
        finding,
        Finding {
            standing: Rules::Job(conf),
            job: Some(12),
            in_job: true,
            observe: false
        }
    );
}

#[test]
fn a_job_found_by_its_sluid_has_its_limits_too() {
    let conf = limited(11366, 2);
    let mut node = Fake::new().file("/var/run/softmig/sEKNKTV3WPV500.conf", &conf.to_string());
    node.cgroup =
        Ok("0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n".into());
    // Its conf names the job, and so its folder.
    assert!(conf.job.is_some());
    assert_eq!(
        node.held(),
        (conf.job.map(NonZeroU32::get), Rules::Job(conf))
    );
}

#[test]
fn another_process_is_in_the_job_that_its_control_groups_name() {
    let conf = limited(11366, 2);
    let node = Fake::new().file("/var/run/softmig/sEKNKTV3WPV500.conf", &conf.to_string());
    let of = |folder: &str| {
        let text = format!("0::/system.slice/slurmstepd.scope/{folder}/step_0/user/task_0\n");
        job_of(&node, text.as_bytes())
    };
    assert_eq!(of("job_7"), Some(7));
    assert_eq!(of("sEKNKTV3WPV500"), conf.job.map(NonZeroU32::get));
    for other in ["sEKNKTV3WPV501", "job_0", "job_x"] {
        assert_eq!(of(other), None, "{other}");
    }
    assert_eq!(job_of(&node, b"0::/user.slice/job_7\n"), None);
    assert_eq!(job_of(&node, b""), None);
}

#[test]
fn a_job_of_whole_gpus_is_left_alone() {
    assert_eq!(Fake::new().job(12, &whole()).standing(), Rules::Passive);
}

#[test]
fn no_variable_has_a_say_inside_a_job() {
    let conf = limited(11366, 2);
    let node = Fake::new()
        .job(12, &conf)
        .job(9, &whole())
        .variable("SLURM_JOB_ID", "9")
        .variable("CUDA_DEVICE_MEMORY_LIMIT", "90G")
        .variable("CUDA_DEVICE_SM_LIMIT", "100");
    assert_eq!(node.held(), (Some(12), Rules::Job(conf)));
}

#[test]
fn a_job_without_a_conf_or_with_a_broken_one_gets_no_gpu() {
    let denied = Rules::Denied;
    let path = "/var/run/softmig/12.conf";
    assert_eq!(Fake::new().standing(), denied(Reason::NoConf));
    assert_eq!(
        Fake::new().file(path, "SOFTMIG_UID=1\n").standing(),
        denied(Reason::BadConf)
    );
    for error in [1, 40, 24] {
        let node = Fake::new().broken(path, OsError(error));
        assert_eq!(node.standing(), denied(Reason::Unreadable(OsError(error))));
    }
    assert_eq!(
        Fake::new().broken(path, OsError::TOO_LONG).standing(),
        denied(Reason::BadConf)
    );
    // Also when the user has other jobs here, and asks for their own limits.
    let node = Fake::new()
        .job(9, &limited(100, 1))
        .variable("CUDA_DEVICE_MEMORY_LIMIT", "1G");
    assert_eq!(node.standing(), denied(Reason::NoConf));
}

#[test]
fn a_set_uid_program_believes_the_conf_and_nothing_of_the_users() {
    let conf = limited(11366, 2);
    let mut node = Fake::new().job(12, &conf);
    node.secure = true;
    assert_eq!(node.held(), (Some(12), Rules::Job(conf)));
    let mut node = Fake::outside().variable("CUDA_DEVICE_MEMORY_LIMIT", "nonsense");
    node.secure = true;
    assert_eq!(node.standing(), Rules::Passive);
}

#[test]
fn outside_every_job_the_smallest_of_the_users_jobs_holds() {
    let small = limited(5683, 2);
    let node = Fake::outside()
        .job(7, &limited(11366, 2))
        .job(8, &small)
        .job(9, &whole());
    assert_eq!(
        find(&node),
        Finding {
            standing: Rules::Job(small),
            job: Some(8),
            in_job: false,
            observe: false
        }
    );
    // As much memory, less time.
    let slow = limited(5683, 1);
    assert_eq!(node.job(10, &slow).held(), (Some(10), Rules::Job(slow)));
}

#[test]
fn outside_every_job_another_users_jobs_do_not_matter() {
    let other = JobConf {
        uid: 2002,
        ..limited(100, 1)
    };
    assert_eq!(Fake::outside().job(7, &other).standing(), Rules::Passive);
}

#[test]
fn an_unreadable_marked_job_gives_no_gpu_unless_it_ended() {
    let mark = "/var/run/softmig/uid/2001/7";
    assert_eq!(Fake::outside().file(mark, "").standing(), Rules::Passive);
    let node = Fake::outside()
        .file(mark, "")
        .file("/var/run/softmig/7.conf", "x");
    assert_eq!(node.standing(), Rules::Denied(Reason::BadConf));
    let node = Fake::outside().broken("/var/run/softmig/uid/2001/", OsError(24));
    assert_eq!(
        node.standing(),
        Rules::Denied(Reason::Unreadable(OsError(24)))
    );
}

#[test]
fn another_cgroup_namespace_is_as_good_as_outside() {
    let conf = limited(11366, 2);
    // The user decides what it shows.
    let mut node = Fake::new().job(12, &whole()).job(7, &conf);
    node.first_cgroup = false;
    assert_eq!(node.held(), (Some(7), Rules::Job(conf)));
}

#[test]
fn a_root_folder_without_proc_is_as_good_as_outside() {
    let conf = limited(11366, 2);
    let mut node = Fake::new().job(7, &conf);
    node.cgroup = Err(OsError::MISSING);
    assert_eq!(node.held(), (Some(7), Rules::Job(conf)));
    node.cgroup = Err(OsError(24));
    assert_eq!(
        node.standing(),
        Rules::Denied(Reason::Unreadable(OsError(24)))
    );
}

#[test]
fn a_user_namespace_inside_a_job_changes_nothing() {
    let conf = limited(11366, 2);
    let mut node = Fake::new().job(12, &conf);
    node.first_user = false;
    node.uid = 0;
    assert_eq!(node.held(), (Some(12), Rules::Job(conf)));
    let mut node = Fake::new();
    node.first_user = false;
    node.uid = 0;
    assert_eq!(node.standing(), Rules::Denied(Reason::NoConf));
}

#[test]
fn a_user_namespace_outside_jobs_has_the_limits_of_its_gpus() {
    let conf = limited(11366, 2);
    let small = JobConf {
        uid: 2002,
        ..limited(100, 1)
    };
    let mut node = Fake::outside();
    node.first_user = false;
    node.uid = 0;
    assert_eq!(node.standing(), Rules::Passive);
    let node = node.job(7, &conf).job(8, &small);
    assert_eq!(node.standing(), Rules::Neighbours);
    assert_eq!(
        smallest_on(&node, &Uuid::parse(GPU).unwrap()),
        Ok(Some((8, small)))
    );
    let other = Uuid::parse("GPU-99999999-1111-2222-3333-444444444444").unwrap();
    assert_eq!(smallest_on(&node, &other), Ok(None));
}

#[test]
fn root_has_no_job_but_keeps_the_limits_of_one_it_is_in() {
    let conf = limited(11366, 2);
    let root = |node| Fake { uid: 0, ..node };
    assert_eq!(root(Fake::new()).standing(), Rules::Passive);
    assert_eq!(
        root(Fake::new().job(12, &conf)).held(),
        (Some(12), Rules::Job(conf))
    );
    let of_root = JobConf { uid: 0, ..conf };
    assert_eq!(
        root(Fake::outside().job(7, &of_root)).standing(),
        Rules::Passive
    );
    // A broken conf is not treated as a missing one.
    let broken = root(Fake::new().file("/var/run/softmig/12.conf", "x"));
    assert_eq!(broken.standing(), Rules::Denied(Reason::BadConf));
}

#[test]
fn outside_every_job_the_user_may_limit_himself() {
    let node = Fake::outside().variable("CUDA_DEVICE_MEMORY_LIMIT_1", "4G");
    let Rules::Own(limits) = node.standing() else {
        panic!("{:?}", node.standing());
    };
    assert_eq!(limits.for_gpu(1).memory.unwrap().get(), 4 << 30);
    let node = Fake::outside().variable("CUDA_DEVICE_SM_LIMIT", "a quarter");
    assert_eq!(node.standing(), Rules::Denied(Reason::BadVariable));
}

#[test]
fn a_node_without_softmig_has_only_the_environment() {
    let conf = limited(11366, 2);
    let mut none = Fake::new().job(12, &conf);
    none.files.remove("/etc/softmig/node.conf");
    for node in [none, Fake::new().job(12, &conf).mode("off")] {
        assert_eq!(node.standing(), Rules::Passive);
        let node = node.variable("CUDA_DEVICE_SM_LIMIT", "25");
        assert!(matches!(node.standing(), Rules::Own(_)));
    }
}

#[test]
fn a_node_that_observes_finds_the_same() {
    let finding = find(&Fake::new().mode("observe"));
    assert_eq!(
        finding,
        Finding {
            standing: Rules::Denied(Reason::NoConf),
            job: Some(12),
            in_job: true,
            observe: true
        }
    );
}

#[test]
fn a_broken_node_conf_gives_no_gpu() {
    assert_eq!(
        Fake::new().mode("on").standing(),
        Rules::Denied(Reason::BadNodeConf)
    );
    let node = Fake::new().broken("/etc/softmig/node.conf", OsError(24));
    assert_eq!(
        node.standing(),
        Rules::Denied(Reason::Unreadable(OsError(24)))
    );
}

#[test]
fn a_broken_node_conf_does_not_stop_root() {
    let broken = Fake {
        uid: 0,
        ..Fake::outside().mode("on")
    };
    assert_eq!(broken.standing(), Rules::Passive);
}

#[test]
fn the_variable_names_the_job_only_if_the_site_says_so() {
    let conf = limited(11366, 2);
    let node = || {
        Fake::outside().file(
            "/etc/softmig/node.conf",
            "SOFTMIG_NODE=enforce\nSOFTMIG_IDENTITY=env\n",
        )
    };
    let named = node().job(9, &conf).variable("SLURM_JOB_ID", "9");
    assert_eq!(named.held(), (Some(9), Rules::Job(conf)));
    assert_eq!(
        node().variable("SLURM_JOB_ID", "9").standing(),
        Rules::Denied(Reason::NoConf)
    );
    assert_eq!(node().job(9, &conf).held(), (Some(9), Rules::Job(conf)));
    assert_eq!(
        node().variable("SLURM_JOB_ID", "../9").standing(),
        Rules::Passive
    );
    // A user cannot name another user's job.
    let other = JobConf {
        uid: 2002,
        ..limited(90_000, 8)
    };
    let mut node = node()
        .job(9, &conf)
        .job(10, &other)
        .variable("SLURM_JOB_ID", "10");
    assert_eq!(node.held(), (Some(9), Rules::Job(conf)));
    // Not even in a user namespace, where a user can have the other's number.
    node.first_user = false;
    node.uid = 2002;
    assert_eq!(node.standing(), Rules::Neighbours);
}

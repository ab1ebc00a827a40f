//! Which job a client is of, and what that may take: told by the kernel and by root's files, never by the client.

use rustix::io::Errno;
use softmig_node::dir::Dir;
use softmig_node::job::JobId;
use softmig_node::node::{Node, conf_name};
use softmig_policy::node::job_conf::{JobConf, Uuid};
use softmig_policy::node::limits::{Mode, Share};
use softmig_policy::node::paths::LONGEST_CONF;
use std::collections::BTreeSet;
use std::path::PathBuf;

use super::settings::uuid;
use crate::jobs::confs::Confs;
use crate::jobs::owner::{Membership, user_and_place};
use crate::packs::{Key, PackId, users_in};
use crate::schedule::Job;

/// A process that asks for a seat, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its number.
    pub pid: u32,
    /// Its user when it connected.
    pub uid: u32,
}

/// The identity with which a client gets a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Its job.
    pub job: Job,
    /// The job's user, whatever user the process has in a container.
    pub uid: u32,
    /// The job's share of the GPU.
    pub share: Share,
    /// Cap or share.
    pub mode: Mode,
    /// The pack that it is in.
    pub pack: Option<PackId>,
}

/// A job whose GPUs can be opened only by processes that were admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatedJob {
    /// Its number.
    pub job: Job,
    /// Its user.
    pub uid: u32,
    /// Its GPUs.
    pub gpus: Vec<[u8; 16]>,
}

/// A job that is in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedJob {
    /// Its number.
    pub job: Job,
    /// Its user.
    pub uid: u32,
    /// Its GPU.
    pub gpu: [u8; 16],
    /// The pack there.
    pub pack: PackId,
}

impl PackedJob {
    /// Its pack there.
    pub(super) fn key(&self) -> Key {
        (uuid(self.gpu), self.pack.folder())
    }
}

/// The processes that may have a seat, and at which GPU.
pub trait Authorizer: std::fmt::Debug + Send + Sync + 'static {
    /// Says who a client is, or why it gets no seat at that GPU.
    fn admit(&self, client: Client, gpu: [u8; 16]) -> Result<Admission, Errno>;

    /// The job of a client, if only processes that were admitted can open its GPUs.
    fn gated_job(&self, client: Client) -> Option<GatedJob>;

    /// The job of a client, if it is in a pack.
    fn packed_job(&self, _client: Client) -> Option<PackedJob> {
        None
    }

    /// Those users who have jobs that may sit anywhere.
    fn users(&self) -> BTreeSet<u32>;

    /// Those who have jobs in the pack of this one.
    fn users_of(&self, packed: PackedJob) -> Result<BTreeSet<u32>, Errno> {
        Ok([packed.uid].into())
    }
}

/// The jobs of a node.
#[derive(Clone, Debug)]
pub struct Jobs {
    node: Node,
    proc: PathBuf,
}

impl Jobs {
    /// Those of `node`, whose processes are told by the `/proc` at this path.
    pub fn new(node: Node, proc: PathBuf) -> Self {
        Self { node, proc }
    }

    /// The conf of the job there. `IO` says that the system cannot read it now.
    fn conf(&self, place: &Membership) -> Result<JobConf, Errno> {
        let name = match place {
            Membership::Job(id) => conf_name(JobId::parse(&id.to_string()).ok_or(Errno::NOENT)?),
            Membership::Sluid(sluid) => format!("{sluid}.conf"),
            Membership::Outside => return Err(Errno::NOENT),
        };
        let dir = Dir::open(&self.node.run, self.node.owner);
        let dir = dir.map_err(|_| Errno::IO)?.ok_or(Errno::NOENT)?;
        let text = dir.read(&name, LONGEST_CONF);
        let text = text.map_err(|_| Errno::IO)?.ok_or(Errno::NOENT)?;
        JobConf::parse(&text).map_err(|_| Errno::NOENT)
    }

    /// The place and the conf of a client's job.
    fn of(&self, client: Client) -> Option<(Membership, JobConf)> {
        let (_, place) = user_and_place(&self.proc, client.pid).ok()?;
        let conf = self.conf(&place).ok()?;
        Some((place, conf))
    }
}

impl Authorizer for Jobs {
    fn admit(&self, client: Client, gpu: [u8; 16]) -> Result<Admission, Errno> {
        let found = user_and_place(&self.proc, client.pid);
        let (uid, place) = found.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::SRCH) => Errno::NOENT,
            _ => Errno::IO,
        })?;
        let conf = self.conf(&place)?;
        let limits = conf.limits.ok_or(Errno::NOENT)?;
        // The number may be another process's by now, of another job. In a container users differ from the job's.
        if ![conf.uid, uid, 0].contains(&client.uid) {
            return Err(Errno::NOENT);
        }
        let id = number(&place, &conf);
        if conf.gpus.iter().next().is_none() {
            // Its conf does not say which are its own.
            return Err(Errno::NODEV);
        }
        let is_this = |uuid: &Uuid| uuid.bytes() == gpu;
        if !conf.gpus.iter().any(is_this) {
            return Err(Errno::INVAL);
        }
        Ok(Admission {
            job: Job(id.ok_or(Errno::NOENT)?),
            uid: conf.uid,
            share: limits.share(),
            mode: limits.mode(),
            pack: PackId::of(&conf),
        })
    }

    fn gated_job(&self, client: Client) -> Option<GatedJob> {
        let (place, conf) = self.of(client)?;
        if !conf.gate {
            return None;
        }
        Some(GatedJob {
            job: Job(number(&place, &conf)?),
            uid: conf.uid,
            gpus: conf.gpus.iter().map(Uuid::bytes).collect(),
        })
    }

    fn packed_job(&self, client: Client) -> Option<PackedJob> {
        let (place, conf) = self.of(client)?;
        let pack = PackId::of(&conf)?;
        // A slice is on one GPU.
        let mut gpus = conf.gpus.iter().map(Uuid::bytes);
        let gpu = gpus.next().filter(|_| gpus.next().is_none())?;
        Some(PackedJob {
            job: Job(number(&place, &conf)?),
            uid: conf.uid,
            gpu,
            pack,
        })
    }

    fn users(&self) -> BTreeSet<u32> {
        // If they cannot be read, no process is admitted either.
        let confs = Confs::read(&self.node).unwrap_or_default();
        let confs = confs.jobs.into_values().flatten();
        let limited = confs.filter(|conf| conf.limits.is_some());
        // Root's processes may be of any job.
        limited.map(|conf| conf.uid).chain([0]).collect()
    }

    fn users_of(&self, packed: PackedJob) -> Result<BTreeSet<u32>, Errno> {
        if !packed.pack.is_shared() {
            return Ok([packed.uid].into());
        }
        // Those of a conf that cannot be read enter no pack either.
        let confs = Confs::read(&self.node).map_err(|_| Errno::AGAIN)?;
        Ok(users_in(&packed.key(), confs.jobs.into_values().flatten()))
    }
}

fn number(place: &Membership, conf: &JobConf) -> Option<u32> {
    match place {
        Membership::Job(id) => Some(*id),
        Membership::Sluid(_) | Membership::Outside => conf.job.map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: [u8; 16] = [
        0, 0, 0, 0, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x44, 0x44, 0x44, 0xaf,
    ];
    const CONF: &str = "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=12.5\nSOFTMIG_JOB=12\nSOFTMIG_UID=2001\n\
        SOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/8\nSOFTMIG_MODE=soft\n\
        SOFTMIG_GPUS=GPU-00000000-1111-2222-3333-4444444444AF\n";

    const STATUS: &str = "Name:\tpython\nUid:\t2001\t2001\n";
    const STAT: &str = "77 (python) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";

    fn ask(
        cgroup: &str,
        conf: &str,
        name: &str,
        (uid, status): (u32, &str),
        gpu: [u8; 16],
    ) -> Result<Admission, Errno> {
        let folder = tempfile::tempdir().unwrap();
        let me = rustix::process::getuid().as_raw();
        let node = Node::in_folder(folder.path(), me);
        std::fs::create_dir(&node.run).unwrap();
        std::fs::write(node.run.join(name), conf).unwrap();
        let process = folder.path().join("proc/77");
        std::fs::create_dir_all(&process).unwrap();
        std::fs::write(process.join("status"), status).unwrap();
        std::fs::write(process.join("cgroup"), cgroup).unwrap();
        std::fs::write(process.join("stat"), STAT).unwrap();
        let jobs = Jobs::new(node, folder.path().join("proc"));
        jobs.admit(Client { pid: 77, uid }, gpu)
    }

    const STEP: &str = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n";

    #[test]
    fn a_process_is_its_jobs_by_the_kernels_word() {
        // Its user in a container is another than the job's.
        let status = |uid| format!("Name:\tpython\nUid:\t{uid}\t{uid}\n");
        let ask = |cgroup, conf, name, uid, gpu| {
            super::tests::ask(cgroup, conf, name, (uid, &status(uid)), gpu)
        };
        let admission = Admission {
            job: Job(12),
            uid: 2001,
            share: Share::new(1, 8).unwrap(),
            mode: Mode::SOFT,
            pack: None,
        };
        assert_eq!(ask(STEP, CONF, "12.conf", 2001, GPU), Ok(admission));
        assert_eq!(ask(STEP, CONF, "12.conf", 0, GPU), Ok(admission));
        assert_eq!(ask(STEP, CONF, "12.conf", 100_007, GPU), Ok(admission));
        let sluid = "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n";
        let name = "sEKNKTV3WPV500.conf";
        assert_eq!(ask(sluid, CONF, name, 2001, GPU), Ok(admission));
    }

    #[test]
    fn users_with_jobs_that_have_limits_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let me = rustix::process::getuid().as_raw();
        let node = Node::in_folder(folder.path(), me);
        let users = || Jobs::new(node.clone(), "/proc".into()).users();
        assert_eq!(users(), [0].into());
        std::fs::create_dir(&node.run).unwrap();
        let other = CONF.replace("2001", "2002").replace("=12\n", "=13\n");
        let whole = "SOFTMIG_JOB=14\nSOFTMIG_UID=2003\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n";
        let confs = [
            ("12", CONF),
            ("13", &other),
            ("14", whole),
            ("15", "garbage"),
        ];
        for (job, conf) in confs {
            std::fs::write(node.run.join(format!("{job}.conf")), conf).unwrap();
        }
        assert_eq!(users(), [0, 2001, 2002].into());
    }

    #[test]
    fn processes_of_jobs_with_the_gate_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let me = rustix::process::getuid().as_raw();
        let node = Node::in_folder(folder.path(), me);
        std::fs::create_dir(&node.run).unwrap();
        let process = folder.path().join("proc/77");
        std::fs::create_dir_all(&process).unwrap();
        std::fs::write(process.join("status"), "Name:\tpython\nUid:\t2001\t2001\n").unwrap();
        std::fs::write(process.join("cgroup"), STEP).unwrap();
        std::fs::write(process.join("stat"), STAT).unwrap();
        let jobs = Jobs::new(node.clone(), folder.path().join("proc"));
        // Another user's id too, as in a container.
        let job = |pid| jobs.gated_job(Client { pid, uid: 100_000 });
        assert_eq!(job(77), None);
        let conf = node.run.join("12.conf");
        std::fs::write(&conf, CONF).unwrap();
        assert_eq!(job(77), None);
        std::fs::write(&conf, format!("{CONF}SOFTMIG_DEVICE_GATE=1\n")).unwrap();
        let gated = GatedJob {
            job: Job(12),
            uid: 2001,
            gpus: vec![GPU],
        };
        assert_eq!(job(77), Some(gated));
        assert_eq!(job(78), None);
        // The kernel does not read it: links are not followed. That says nothing about the process.
        std::fs::remove_file(&conf).unwrap();
        std::os::unix::fs::symlink("other", &conf).unwrap();
        let client = Client { pid: 77, uid: 2001 };
        assert_eq!(jobs.admit(client, GPU).unwrap_err(), Errno::IO);
    }

    #[test]
    fn others_get_no_seat() {
        let ask = |cgroup, conf, name, uid, gpu| {
            super::tests::ask(cgroup, conf, name, (uid, STATUS), gpu)
        };
        let whole = "SOFTMIG_JOB=12\nSOFTMIG_UID=2001\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n";
        let outside = "0::/user.slice/user-2001.slice/session-3.scope\n";
        for (cgroup, conf, name, uid) in [
            (outside, CONF, "12.conf", 2001),
            (STEP, CONF, "13.conf", 2001),
            (STEP, whole, "12.conf", 2001),
            (STEP, "garbage", "12.conf", 2001),
            (STEP, CONF, "12.conf", 2002),
        ] {
            let asked = ask(cgroup, conf, name, uid, GPU);
            assert_eq!(asked, Err(Errno::NOENT), "{cgroup} {name} {uid}");
        }
        let other = ask(STEP, CONF, "12.conf", 2001, [7; 16]);
        assert_eq!(other, Err(Errno::INVAL));
        let (before, _) = CONF.split_once("SOFTMIG_GPUS=").unwrap();
        let none = ask(
            STEP,
            &format!("{before}SOFTMIG_GPUS=\n"),
            "12.conf",
            2001,
            GPU,
        );
        assert_eq!(none, Err(Errno::NODEV));
    }
}

//! The arbiter: gives the processes of jobs their seats, and sees to it that each job gets its share of a GPU.
//!
//! A process asks once, by a socket (`server`, `connections`), and gets a page ([`softmig_region::seat`]). The kernel says whose it is
//! ([`Authorizer`]). From then on the arbiter hears it by that page and a futex on it (`session`), until the kernel says that it has
//! ended (`jobs::pidfd`).
//!
//! Processes of jobs with the device gate ask there as well to be let through it (`admissions`).
//!
//! Each GPU has a `gpu_state`. `prover` has a process (`measuring`) find out whether the GPU's own scheduler can be steered. Where it
//! can, [`crate::schedule::shares`] decides and `steering` does it. Elsewhere each process keeps its job's cap itself.
//!
//! The arbiter keeps nothing but the list of channels that are held. When it ends, processes notice, and the next arbiter begins anew.

mod admissions;
mod alarm;
mod authorizer;
mod borrower;
mod clock;
mod closer;
mod connections;
mod gpu;
mod gpu_state;
mod gpus;
mod leftovers;
mod measuring;
mod named;
mod other_gpus;
mod page;
mod prover;
mod rate_limit;
mod refusals;
mod scheduler;
mod server;
mod session;
mod settings;
mod socket;
mod steering;
mod switch_log;
mod tenancy;
mod tenant;

pub use authorizer::{Admission, Authorizer, Client, GatedJob, Jobs, PackedJob};
pub use borrower::borrow;
pub use settings::{GpuId, OWN_PROGRAM, Settings, uuid};
pub use steering::Unseated;
pub use tenant::{Account, Member, NotSteered, Seats, Sharing, Tenant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use softmig_node::node::Node;
use softmig_policy::node::job_conf::JobConf;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::jobs::confs::Confs;
use crate::packs::{PROOF, Packs, users_in};
use crate::schedule::Job;
use closer::Closer;
use gpu::{Gpu, spawn};
use gpus::Gpus;
use refusals::Refusals;
use scheduler::left_waiting;
use server::Server;
use socket::{Listener, ask_nothing};

/// An arbiter at work. It ends when this is dropped.
#[derive(Debug)]
pub struct Arbiter {
    gpus: Arc<Gpus>,
    refusals: Arc<Refusals>,
    /// Readable when it is to end.
    end: Arc<OwnedFd>,
    server: Option<JoinHandle<()>>,
    /// GPUs are measured as long as it has this.
    _prover: Option<Sender<()>>,
}

impl Arbiter {
    /// Starts an arbiter.
    pub fn start(settings: Settings, authorizer: impl Authorizer) -> io::Result<Self> {
        let closer = Arc::new(Closer::new()?);
        let listener = Listener::bind(&settings, &closer)?;
        allow_many_files();
        let authorizer: Arc<dyn Authorizer> = Arc::new(authorizer);
        let gpus = Arc::new(Gpus::of(Arc::clone(&authorizer)));
        for id in left_waiting(settings.folder()) {
            gpus.get_or_start(id, &settings)?;
        }
        let refusals = Arc::new(Refusals::default());
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let packs = settings.node.as_ref();
        let packs = packs.map(|node| Arc::new(Packs::new(node, OWN_PROGRAM)));
        let mut prover = None;
        if let (Some(packs), Some(node)) = (&packs, &settings.node) {
            keep_packs(packs, node.clone())?;
            let (gpus, packs) = (Arc::clone(&gpus), Arc::clone(packs));
            prover = Some(prover::start(node.clone(), settings.clone(), gpus, packs)?);
        }
        let mut server = Server::new(
            (listener, closer),
            settings,
            authorizer,
            (Arc::clone(&gpus), Arc::clone(&refusals), packs),
            Arc::clone(&end),
        )?;
        let server = Some(spawn("server", move || server.serve())?);
        Ok(Self {
            gpus,
            refusals,
            end,
            server,
            _prover: prover,
        })
    }

    /// The processes that have a seat at each GPU, and those that asked for one in vain.
    pub fn seats(&self) -> Seats {
        let mut seats = Seats {
            refused: self.refusals.refused(),
            ..Seats::default()
        };
        for (id, gpu) in self.gpus.all() {
            seats.add(id, gpu.account());
        }
        seats
    }

    /// Says which processes of jobs with slices have no seat, by the GPU's UUID. While jobs get the GPU by its own scheduler, their
    /// jobs pay for what they use.
    pub fn set_unseated(&self, mut unseated: BTreeMap<String, BTreeMap<u32, Unseated>>) {
        for (id, gpu) in self.gpus.all() {
            gpu.set_unseated(unseated.remove(&uuid(id)).unwrap_or_default());
        }
    }

    /// The use of each GPU by jobs. The use of jobs that are over is forgotten.
    pub fn accounts(&self, is_over: impl Fn(Job) -> bool) -> BTreeMap<GpuId, Account> {
        let account = |(id, gpu): (GpuId, Arc<Gpu>)| {
            gpu.forget(&is_over);
            (id, gpu.account())
        };
        self.gpus.all().into_iter().map(account).collect()
    }
}

/// Every 5 s ends the servers of packs without jobs, and lets only users with jobs reach the others.
fn keep_packs(packs: &Arc<Packs>, node: Node) -> io::Result<()> {
    const EVERY: Duration = Duration::from_secs(5);
    let packs = Arc::downgrade(packs);
    let look = move || {
        while let Some(packs) = packs.upgrade() {
            // A conf that cannot be read may be of any pack.
            let confs = Confs::read(&node).ok();
            let confs = confs.and_then(|confs| {
                let all: Result<Vec<JobConf>, _> = confs.jobs.into_values().collect();
                all.ok()
            });
            packs.round(|key| {
                if key.1 == PROOF {
                    return Ok(BTreeSet::new());
                }
                let confs = confs.as_ref().ok_or(Errno::AGAIN)?;
                Ok(users_in(key, confs.iter().copied()))
            });
            drop(packs);
            std::thread::sleep(EVERY);
        }
    };
    spawn("packs", look).map(drop)
}

/// Asks the arbiter at this socket whether it is there. Takes at most twice `patience`.
pub fn check(socket: &Path, patience: Duration) -> io::Result<()> {
    ask_nothing(socket, patience)
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
        if let Some(server) = self.server.take() {
            // It ends only by being told, and has nothing to say.
            let _ = server.join();
        }
        for gpu in self.gpus.all().into_values() {
            gpu.end();
        }
    }
}

/// Each process is a file. The usual limit is for programs with `select`.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Without it fewer processes get seats.
    let _ = setrlimit(Resource::Nofile, most);
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_node::proofs::{Failed, Key, Proof, Proofs, path};

    /// A node with a GPU, of which this was measured.
    fn settings(folder: &Path, failed: Option<Failed>) -> Settings {
        let owner = rustix::process::getuid().as_raw();
        let mut node = Node::in_folder(folder, owner);
        node.gpus = folder.join("nvidia/gpus");
        let gpu = node.gpus.join("0000:01:00.0");
        std::fs::create_dir_all(&gpu).unwrap();
        let text = "Model: \t NVIDIA L40S\nGPU UUID: \t GPU-07070707-0707-0707-0707-070707070707\nDevice Minor: \t 0\n";
        std::fs::write(gpu.join("information"), text).unwrap();
        std::fs::write(
            folder.join("nvidia/version"),
            "NVRM version: X 580.159.04 Y\n",
        )
        .unwrap();
        let card = softmig_node::gpu::installed(&node.gpus).remove(0);
        let proof = Proof {
            time: "2026-11-23T12:00:00Z".into(),
            failed,
            ..Proof::default()
        };
        let mut proofs = Proofs::default();
        proofs.add(&Key::of(&node, &card).unwrap(), proof);
        proofs.keep(&node).unwrap();
        Settings {
            node: Some(node),
            socket: folder.join("arbiter.sock"),
            ..Settings::default()
        }
    }

    fn sharing(settings: &Settings, id: GpuId) -> Sharing {
        let gpu = Gpus::default().get_or_start(id, settings).unwrap();
        gpu.end();
        gpu.account().sharing
    }

    fn why(settings: &Settings, id: GpuId) -> String {
        match sharing(settings, id) {
            Sharing::Caps(Some(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_measured_without_effect_or_never_means_caps() {
        let folder = tempfile::tempdir().unwrap();
        let failed = Failed {
            step: "hold".into(),
            why: "it ran on".into(),
        };
        let settings = settings(folder.path(), Some(failed));
        let failed = "it ran on (seen 2026-11-23, driver 580.159.04)";
        assert_eq!(why(&settings, [7; 16]), failed);
        assert!(why(&settings, [8; 16]).contains("lists no GPU"));
        std::fs::write(folder.path().join("nvidia/version"), "X 590.1\n").unwrap();
        assert!(why(&settings, [7; 16]).contains("not measured yet"));
    }

    #[test]
    fn what_was_proved_leaves_it_to_the_driver_and_what_cannot_be_read_means_caps() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), None);
        assert_eq!(sharing(&settings, [7; 16]), Sharing::Caps(None));
        std::fs::write(path(settings.node.as_ref().unwrap()), "{").unwrap();
        assert!(why(&settings, [7; 16]).contains("scheduler.json"));
    }

    #[test]
    fn a_gpu_has_packs_where_their_programs_were_seen_to_end_alone() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), None);
        let node = settings.node.as_ref().unwrap();
        let card = softmig_node::gpu::installed(&node.gpus).remove(0);
        let key = Key::of(node, &card).unwrap();
        let failed = Failed {
            step: "end".into(),
            why: "another ended with it".into(),
        };
        for (pack, may_pack) in [
            (None, false),
            (Some(Ok(())), true),
            (Some(Err(failed)), false),
        ] {
            let mut proofs = Proofs::read(node).unwrap();
            let before = proofs.find(&key).unwrap().clone();
            proofs.add(&key, Proof { pack, ..before });
            proofs.keep(node).unwrap();
            assert_eq!(settings.may_pack([7; 16]), may_pack);
            assert!(!settings.may_pack([8; 16]), "no such GPU");
        }
    }
}

//! The arbiter: gives the processes of jobs their seats, and lets jobs take turns on each GPU.
//!
//! A process asks once, by a socket, and gets a page ([`softmig_region::seat`]). Who it is says the kernel
//! ([`Authorizer`]). From then on it is heard by that page and a futex on it (`gpu`), and it has gone when the kernel says
//! that it has ended. Whose turn it is is decided in [`crate::schedule::turns`], and [`crate::status`] tells it to people.
//!
//! Where several jobs want a GPU whose own scheduler can be steered, they take no turns (`steering`): then the arbiter decides by
//! [`crate::schedule::shares`].
//!
//! Nothing is kept but which channels wait: whatever ends the arbiter, processes find that it is gone, and the next one begins
//! anew.

mod authorizer;
mod connections;
mod gpu;
mod gpu_state;
mod other_gpus;
mod page;
mod pidfd;
mod rate_limit;
mod server;
mod session;
mod socket;
mod steering;

pub use authorizer::{Admission, Authorizer, Client, Jobs};
pub use gpu::{Member, Sharing, Tenant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use softmig_node::gpu::installed;
use softmig_node::node::Node;
use softmig_node::paths::SOCKET;
use softmig_node::proofs::{Proofs, driver_version};
use softmig_policy::node::node_conf;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tracing::warn;

use crate::schedule::turns::{Gangs, Rules};
use gpu::{Gpu, spawn};
use other_gpus::OtherGpus;
use server::Server;
use socket::Listener;
use steering::{Scheduler, release};

/// A GPU's UUID, as programs have it.
pub type GpuId = [u8; 16];

/// How an arbiter is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub socket: PathBuf,
    /// How long turns are.
    pub rules: Rules,
    /// How jobs share a GPU.
    pub scheduler: node_conf::Scheduler,
    /// Where it is kept what was measured of GPUs' own schedulers; `None` if nothing is to be known of that.
    pub node: Option<Node>,
    /// How many seats one user can have, and no more than are left for others: each is a thread and a page.
    pub seats_of_a_user: usize,
    /// How many seats there can be in all.
    pub seats: usize,
}

impl Settings {
    /// Where it keeps what the next arbiter has to know.
    fn folder(&self) -> &Path {
        self.socket.parent().unwrap_or(Path::new("/"))
    }

    /// Why steering this GPU has no effect, if that was measured of its model with the driver that is loaded.
    fn without_effect(&self, id: GpuId) -> Option<String> {
        let node = self.node.as_ref()?;
        let proofs = Proofs::read(node).unwrap_or_else(|why| {
            warn!("what was measured of GPUs' schedulers is not known: {why}");
            Proofs::default()
        });
        let name = crate::status::uuid(id);
        let mut cards = installed(&node.gpus).into_iter();
        let card = cards.find(|card| card.uuid.is_some_and(|uuid| uuid.as_str() == name))?;
        let proof = proofs.of(&card.model, &driver_version(node)?)?;
        let failed = proof.failed.as_ref()?;
        let (day, driver) = (proof.day(), &proof.driver);
        Some(format!("{} (seen {day}, driver {driver})", failed.why))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            socket: SOCKET.into(),
            rules: Rules::default(),
            scheduler: node_conf::Scheduler::Gpu,
            node: None,
            seats_of_a_user: 512,
            seats: 4096,
        }
    }
}

/// The GPUs that somebody asked for.
#[derive(Debug, Default)]
struct Gpus {
    all: Mutex<BTreeMap<GpuId, Arc<Gpu>>>,
    gangs: Arc<Mutex<Gangs>>,
}

impl Gpus {
    fn get_or_start(&self, id: GpuId, settings: &Settings) -> io::Result<Arc<Gpu>> {
        let mut gpus = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = gpus.get(&id) {
            return Ok(Arc::clone(gpu));
        }
        let others = OtherGpus::of(&self.gangs, gpus.len());
        let scheduler = match settings.scheduler {
            node_conf::Scheduler::Gpu => match settings.without_effect(id) {
                None => Scheduler::new(id, settings.folder()),
                Some(why) => Scheduler::off(id, why),
            },
            node_conf::Scheduler::Turns => {
                Scheduler::off(id, "node.conf says so, or is damaged".into())
            }
        };
        let gpu = Gpu::start(settings.rules, others, scheduler)?;
        gpus.insert(id, Arc::clone(&gpu));
        Ok(gpu)
    }

    fn all(&self) -> BTreeMap<GpuId, Arc<Gpu>> {
        let gpus = self.all.lock();
        gpus.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An arbiter at work. It ends when this is dropped.
#[derive(Debug)]
pub struct Arbiter {
    gpus: Arc<Gpus>,
    /// Readable when it is to end.
    end: Arc<OwnedFd>,
    server: Option<JoinHandle<()>>,
}

impl Arbiter {
    /// Starts one.
    pub fn start(settings: Settings, authorizer: impl Authorizer) -> io::Result<Self> {
        let listener = Listener::bind(&settings.socket)?;
        allow_many_files();
        release(settings.folder());
        let gpus = Arc::new(Gpus::default());
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let authorizer = Box::new(authorizer);
        let mut server = Server::new(
            listener,
            settings,
            authorizer,
            Arc::clone(&gpus),
            Arc::clone(&end),
        )?;
        let server = Some(spawn("server", move || server.serve())?);
        Ok(Self { gpus, end, server })
    }

    /// How jobs share each GPU.
    pub fn sharing(&self) -> BTreeMap<GpuId, Sharing> {
        let gpus = self.gpus.all().into_iter();
        gpus.map(|(id, gpu)| (id, gpu.sharing())).collect()
    }

    /// Where each GPU's jobs stand.
    pub fn status(&self) -> BTreeMap<GpuId, Vec<Tenant>> {
        let gpus = self.gpus.all().into_iter();
        gpus.map(|(id, gpu)| (id, gpu.tenants())).collect()
    }
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

/// Each process is a file. What is usual is for programs that call `select`.
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
    use softmig_node::proofs::{Failed, Proof, path};

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
        let mut proofs = Proofs::default();
        proofs.add(Proof {
            gpu: "NVIDIA L40S".into(),
            driver: "580.159.04".into(),
            time: "2026-11-23T12:00:00Z".into(),
            failed,
        });
        std::fs::create_dir(&node.lib).unwrap();
        std::fs::write(path(&node), proofs.text().unwrap()).unwrap();
        Settings {
            node: Some(node),
            socket: folder.join("arbiter.sock"),
            ..Settings::default()
        }
    }

    fn sharing(settings: &Settings, id: GpuId) -> Sharing {
        let gpu = Gpus::default().get_or_start(id, settings).unwrap();
        gpu.end();
        gpu.sharing()
    }

    #[test]
    fn what_was_measured_without_effect_means_turns() {
        let folder = tempfile::tempdir().unwrap();
        let failed = Failed {
            step: "hold".into(),
            why: "it ran on".into(),
        };
        let mut settings = settings(folder.path(), Some(failed));
        let why = "it ran on (seen 2026-11-23, driver 580.159.04)";
        let turns = |why: &str| Sharing::Turns(Some(why.into()));
        assert_eq!(sharing(&settings, [7; 16]), turns(why));
        // Of another GPU nothing is known, nor with another driver.
        assert_eq!(sharing(&settings, [8; 16]), Sharing::Turns(None));
        std::fs::write(folder.path().join("nvidia/version"), "X 590.1\n").unwrap();
        assert_eq!(sharing(&settings, [7; 16]), Sharing::Turns(None));
        settings.scheduler = node_conf::Scheduler::Turns;
        assert_eq!(
            sharing(&settings, [8; 16]),
            turns("node.conf says so, or is damaged")
        );
    }

    #[test]
    fn what_was_proved_or_cannot_be_read_leaves_it_to_the_driver() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), None);
        assert_eq!(sharing(&settings, [7; 16]), Sharing::Turns(None));
        std::fs::write(path(settings.node.as_ref().unwrap()), "{").unwrap();
        assert_eq!(sharing(&settings, [7; 16]), Sharing::Turns(None));
    }
}

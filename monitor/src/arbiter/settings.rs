//! How an arbiter is to be.

use std::path::{Path, PathBuf};

use softmig_node::gpu::installed;
use softmig_node::node::Node;
use softmig_node::proofs::{Key, Proof, Proofs};

use crate::gate::Keeper;
use crate::schedule::shares::DEFAULT_SLICE_US;

/// The executable that is this process.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// A GPU's UUID, as programs have it.
pub type GpuId = [u8; 16];

/// How an arbiter is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub socket: PathBuf,
    /// The node whose GPUs are measured, and steered where that has effect; `None` for devices that are not a node's.
    pub node: Option<Node>,
    /// The part that admits processes to GPUs; `None` where all are admitted.
    pub gate: Option<Keeper>,
    /// How many seats one user can have, and no more than are left for others: each is a thread and a page.
    pub seats_of_a_user: usize,
    /// How many seats there can be in all.
    pub seats: usize,
    /// Whether clients may send descriptors along with a request. They may anyway before Linux 6.16.
    pub takes_descriptors: bool,
}

impl Settings {
    /// Where it keeps what the next arbiter has to know.
    pub(super) fn folder(&self) -> &Path {
        self.socket.parent().unwrap_or(Path::new("/"))
    }

    /// What was measured of this GPU's kind.
    fn proof(node: &Node, id: GpuId) -> Result<Proof, String> {
        let name = uuid(id);
        let mut cards = installed(&node.gpus).into_iter();
        let card = cards.find(|card| card.uuid.is_some_and(|uuid| uuid.as_str() == name));
        let card = card.ok_or("the driver lists no GPU of this UUID")?;
        let key = Key::of(node, &card).ok_or("the driver's version is not known")?;
        let proofs = Proofs::read(node)?;
        let proof = proofs.find(&key).cloned();
        proof.ok_or_else(|| UNPROVED.into())
    }

    /// Whether this GPU may have packs, by the same.
    pub(super) fn may_pack(&self, id: GpuId) -> bool {
        let proof = self.node.as_ref().map(|node| Self::proof(node, id));
        proof.is_none_or(|proof| proof.is_ok_and(|it| it.pack == Some(Ok(()))))
    }

    /// Whether this GPU is to be steered, by the same.
    pub(super) fn standing(&self, id: GpuId) -> Standing {
        let Some(node) = &self.node else {
            return Ok(Proved {
                slice_us: DEFAULT_SLICE_US,
                may_release: true,
            });
        };
        let proof = Self::proof(node, id)?;
        match &proof.failed {
            None => Ok(Proved {
                slice_us: proof.slice_us.unwrap_or(DEFAULT_SLICE_US),
                may_release: proof.may_release == Some(true),
            }),
            Some(failed) => {
                let (day, driver) = (proof.day(), &proof.driver);
                Err(format!("{} (seen {day}, driver {driver})", failed.why))
            }
        }
    }
}

/// What was measured of a GPU that is to be steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proved {
    /// The time slice that its groups have by themselves, in microseconds.
    pub(super) slice_us: u64,
    /// See [`softmig_node::proofs::Proof::may_release`].
    pub(super) may_release: bool,
}

/// Whether a GPU is to be steered, or why not.
pub(super) type Standing = Result<Proved, String>;

/// Why a GPU is not steered of which nothing was measured.
const UNPROVED: &str = "whether its scheduler can be steered is not measured yet, which is done when no process is on it";

impl Default for Settings {
    fn default() -> Self {
        Self {
            socket: Node::this_machine().arbiter_socket(),
            node: None,
            gate: None,
            seats_of_a_user: 512,
            seats: 4096,
            takes_descriptors: false,
        }
    }
}

/// As NVML writes it.
pub fn uuid(id: GpuId) -> String {
    let mut text = "GPU-".to_owned();
    for (at, byte) in id.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

//! How an arbiter is to be.

use std::path::{Path, PathBuf};

use softmig_node::gpu::installed;
use softmig_node::node::Node;
use softmig_node::proofs::{Proofs, driver_version};
use tracing::warn;

use crate::gate::Keeper;

/// A GPU's UUID, as programs have it.
pub type GpuId = [u8; 16];

/// How an arbiter is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub socket: PathBuf,
    /// The node with the results of measuring GPUs' own schedulers; `None` if they are not to be used.
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

    /// Why steering this GPU has no effect, if that was measured of its model with the driver that is loaded.
    pub(super) fn without_effect(&self, id: GpuId) -> Option<String> {
        let node = self.node.as_ref()?;
        let proofs = Proofs::read(node).unwrap_or_else(|why| {
            warn!("what was measured of GPUs' schedulers is not known: {why}");
            Proofs::default()
        });
        let name = uuid(id);
        let mut cards = installed(&node.gpus).into_iter();
        let card = cards.find(|card| card.uuid.is_some_and(|uuid| uuid.as_str() == name))?;
        let proof = proofs.find(&card.model, &driver_version(node)?)?;
        let failed = proof.failed.as_ref()?;
        let (day, driver) = (proof.day(), &proof.driver);
        Some(format!("{} (seen {day}, driver {driver})", failed.why))
    }
}

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

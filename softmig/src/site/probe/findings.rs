//! All that is known of a node.

use super::catalogue::Catalogue;
use serde::Serialize;
use softmig_node::gpu::Card;
use softmig_nvml::Devices;

/// The fact, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Note {
    pub(super) what: String,
    pub(super) remedy: String,
}

/// All that is known of a node.
pub(super) struct Findings {
    /// The node's name.
    pub(super) host: String,
    pub(super) devices: Devices,
    /// GPUs that the driver lists and NVML did not show.
    pub(super) unseen: Vec<Card>,
    pub(super) catalogue: Catalogue,
    pub(super) notes: Vec<Note>,
    /// Its CPUs and its memory, as slurmd says them.
    pub(super) slurm: Option<String>,
}

impl Findings {
    pub(super) fn new(host: String, devices: Devices, cards: &[Card]) -> Self {
        let is_seen = |card: &&Card| devices.gpus.iter().any(|gpu| gpu.minor == Some(card.minor));
        let mut unseen: Vec<Card> = cards
            .iter()
            .filter(|card| !is_seen(card))
            .cloned()
            .collect();
        unseen.sort_by_key(|card| card.minor);
        Self {
            host,
            catalogue: Catalogue::new(&devices),
            devices,
            unseen,
            notes: Vec::new(),
            slurm: None,
        }
    }

    /// Whether this is all that the node has.
    pub(super) fn is_complete(&self) -> bool {
        self.devices.is_complete() && self.unseen.is_empty()
    }
}

//! The GPUs of a node, as data: what the driver's files and Slurm's configuration say of them.

use serde::{Deserialize, Serialize};

use crate::mounts::DRIVER;

/// Some GPUs of one kind.
#[derive(Clone, Debug)]
pub struct Gpus {
    /// Slurm's name for the kind, as in `gpu:l40s`.
    pub gres_type: String,
    /// The driver's name for it.
    pub model: String,
    /// How many a node has.
    pub count: u32,
    /// How many shards each is split into; 0 leaves it whole.
    pub shards: u32,
}

impl Gpus {
    /// `count` L40S of four shards each.
    pub fn l40s(count: u32) -> Gpus {
        Gpus {
            gres_type: "l40s".into(),
            model: "NVIDIA L40S".into(),
            count,
            shards: 4,
        }
    }

    /// `count` GPUs of any other kind, of four shards each.
    pub fn new(gres_type: &str, model: &str, count: u32) -> Gpus {
        Gpus {
            gres_type: gres_type.into(),
            model: model.into(),
            count,
            shards: 4,
        }
    }

    /// Splits each GPU into `shards` shards; 0 leaves them whole.
    pub fn shards(mut self, shards: u32) -> Gpus {
        self.shards = shards;
        self
    }
}

/// One GPU of one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gpu {
    /// N of `/dev/nvidiaN`.
    pub minor: u32,
    /// The driver's name for the kind.
    pub model: String,
    /// `GPU-...`, the same in every run.
    pub uuid: String,
}

impl Gpu {
    /// The GPUs of node number `node`, numbered through all kinds.
    pub fn of_node(node: usize, kinds: &[Gpus]) -> Vec<Gpu> {
        let models = kinds
            .iter()
            .flat_map(|kind| (0..kind.count).map(|_| kind.model.clone()));
        models
            .zip(0u32..)
            .map(|(model, minor)| Gpu {
                minor,
                model,
                uuid: format!("GPU-50f7316a-0000-4000-8000-{:04x}{minor:08x}", node + 1),
            })
            .collect()
    }

    /// Where the GPU sits on the PCI bus.
    pub fn bus(&self) -> String {
        format!(
            "0000:{:02x}:00.0",
            0x21 + self.minor * 0x20 % 0xe0 + self.minor / 7
        )
    }

    /// The driver's `/proc/driver/nvidia/gpus/BUS/information`.
    pub fn information(&self) -> String {
        format!(
            "Model: \t\t {model}\nIRQ:   \t\t {irq}\nGPU UUID: \t {uuid}\nVideo BIOS: \t 95.02.66.00.02\n\
             Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t {bus}\n\
             Device Minor: \t {minor}\nGPU Firmware: \t {DRIVER}\nGPU Excluded:\t No\n",
            model = self.model,
            irq = 140 + self.minor,
            uuid = self.uuid,
            bus = self.bus(),
            minor = self.minor,
        )
    }
}

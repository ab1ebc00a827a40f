//! The fake driver of a node: what libcuda and NVML say there of the GPUs that Slurm and `/proc` know.

use anyhow::{Context, Result};
use softmig_fake_node::{Description, Gpu as Model, PLACE};

use crate::gpus::Gpu;
use crate::mounts::DRIVER;
use crate::node::Node;

/// Makes a GPU of the model that is behind this `/dev/nvidiaN`.
type Make = fn(u32) -> Model;

/// Where the monitor keeps what it has measured.
const PROOFS: &str = "/var/lib/softmig/scheduler.json";

/// The models that the fake driver knows.
const MODELS: [Make; 6] = [
    Model::l40s,
    Model::h200,
    Model::a100,
    Model::v100,
    Model::titanrtx,
    Model::gtx1080ti,
];

impl Node {
    /// Starts the driver with this node's GPUs. Until then its programs have no driver. The returned node sees from
    /// outside what they do with it.
    pub fn start_driver(&self) -> Result<softmig_fake_node::Node> {
        self.start_driver_as(|description| description)
    }

    /// The same, with something about it changed.
    pub fn start_driver_as(
        &self,
        change: impl FnOnce(Description) -> Description,
    ) -> Result<softmig_fake_node::Node> {
        let models = self
            .gpus()
            .iter()
            .map(model)
            .collect::<Result<Vec<Model>>>()?;
        let description = change(Description::new(&models));
        if description.scheduler {
            self.write(PROOFS, &self.proofs())?;
        }
        if description.is_old() {
            let page = format!(
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}\n",
                description.driver
            );
            self.write("/proc/driver/nvidia/version", &page)?;
        }
        let place = self.path(PLACE)?;
        softmig_fake_node::Node::describe(&place, description)
            .with_context(|| format!("starting the driver of {}", self.name()))
    }

    /// What the monitor would have measured of these GPUs: its programs need a GPU that takes their code.
    fn proofs(&self) -> String {
        let proof = |gpu: &Gpu| {
            format!(
                r#"{{"gpu":"{}","driver":"{DRIVER}","firmware":"{DRIVER}","module":"open","time":"2026-11-23T12:00:00Z","failed":null,"may_release":true,"pack":{{"Ok":null}}}}"#,
                gpu.model
            )
        };
        let proofs: Vec<String> = self.gpus().iter().map(proof).collect();
        format!(r#"{{"version":1,"proofs":[{}]}}"#, proofs.join(","))
    }
}

/// The same GPU for CUDA and NVML: same UUID, same place on the bus.
fn model(gpu: &Gpu) -> Result<Model> {
    MODELS
        .iter()
        .map(|make| make(gpu.minor))
        .find(|model| model.name == gpu.model)
        .map(|model| model.with_uuid(&gpu.uuid).with_bus(&gpu.bus()))
        .with_context(|| format!("{}: no such model in the fake driver", gpu.model))
}

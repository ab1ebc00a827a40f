//! What each job has on the node's GPUs, as the driver and the kernel say, whatever its processes
//! are or claim.
//!
//! [`reading`] asks NVML for every process on every GPU, [`mod@crate::jobs::owner`] asks the kernel whose each is, [`crate::jobs::confs`]
//! has what the jobs may have, [`report_rows`] puts it together, [`report`] is what others see of it, and [`table`] what people do.
//!
//! Nothing that a job can write is mapped, believed or waited for.

#![forbid(unsafe_code)]

pub mod reading;
pub mod report;
pub mod report_rows;
pub mod table;

use crate::jobs::confs::Confs;
use crate::jobs::owner::owner;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use reading::Reading;
use report::Report;
use softmig_node::node::Node;
use softmig_nvml::explained;
use std::path::Path;
use std::time::SystemTime;

/// Measures a node again and again.
#[derive(Debug)]
pub struct Measure {
    node: Node,
    /// Kept between two measurements: to start it takes longer than to ask it.
    nvml: Option<Nvml>,
}

impl Measure {
    /// For this node; nothing is measured yet.
    pub fn new(node: Node) -> Self {
        Self { node, nvml: None }
    }

    /// Looks at everything once.
    pub fn look(&mut self) -> Report {
        let (reading, error) = match self.reading() {
            Ok(reading) => (reading, None),
            Err(error) => (Reading::default(), Some(explained(&error))),
        };
        let pids = reading
            .gpus
            .iter()
            .flat_map(|gpu| gpu.users.iter().flatten());
        let owners = pids
            .map(|user| (user.pid, owner(Path::new("/proc"), user.pid)))
            .collect();
        // Last: a job's conf is there before its first process, and goes after its last.
        let (confs, unreadable) = match Confs::read(&self.node) {
            Ok(confs) => (confs, None),
            Err(error) => (Confs::default(), Some(error.to_string())),
        };
        let mut report = report_rows::rows(&reading, &owners, &confs);
        report.time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        report.error = error.or(unreadable);
        report
    }

    /// Lets go of the driver, so that it can be replaced and GPUs be reset.
    pub fn rest(&mut self) {
        self.nvml = None;
    }

    fn reading(&mut self) -> Result<Reading, NvmlError> {
        let nvml = match self.nvml.take() {
            Some(nvml) => nvml,
            None => softmig_nvml::open()?,
        };
        // After a failure it is started anew: the driver may have been replaced.
        let reading = reading::read(&nvml)?;
        if reading.gpus.iter().all(|gpu| gpu.error.is_none()) {
            self.nvml = Some(nvml);
        }
        Ok(reading)
    }
}

//! Each job's use of the node's GPUs, as the driver and the kernel say, whatever its processes
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
mod utilization;

use crate::jobs::confs::Confs;
use crate::jobs::owner::Owner;
use crate::jobs::owners::Owners;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use reading::Reading;
use report::Report;
use softmig_node::node::Node;
use softmig_nvml::explained;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;
use utilization::Utilization;

/// Measures a node again and again.
#[derive(Debug)]
pub struct Measure {
    node: Node,
    /// Kept between two measurements: to start it takes longer than to ask it.
    nvml: Option<Nvml>,
    owners: Owners,
    utilization: Utilization,
}

/// All that one measurement finds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The part that others see.
    pub report: Report,
    /// Whose each process on a GPU is.
    pub owners: BTreeMap<u32, Owner>,
    /// The limits of the jobs.
    pub confs: Confs,
    /// The share of each GPU's time that processes had since the last sample, in percent, by NVML's index; those that had any.
    pub busy: Busy,
}

impl Measure {
    /// For this node; nothing is measured yet.
    pub fn new(node: Node) -> Self {
        Self {
            node,
            nvml: None,
            owners: Owners::new(Path::new("/proc")),
            utilization: Utilization::default(),
        }
    }

    /// Measures once, and reports it.
    pub fn report(&mut self) -> Report {
        self.sample(false, || ()).0.report
    }

    /// Looks at everything once, with `with_busy` also at how busy processes are: each sample is told once. `between` is asked
    /// after NVML, and before it is found out which processes are still there.
    pub fn sample<T>(&mut self, with_busy: bool, between: impl FnOnce() -> T) -> (Sample, T) {
        let (reading, busy, error) = match self.reading(with_busy) {
            Ok((reading, busy)) => (reading, busy, None),
            Err(error) => (Reading::default(), BTreeMap::new(), Some(explained(&error))),
        };
        let asked = between();
        let users = reading.gpus.iter().flat_map(|gpu| &gpu.users).flatten();
        let owners = self.owners.resolve(users.map(|user| user.pid));
        // Last: a job's conf is there before its first process, and goes after its last.
        let (confs, unreadable) = match Confs::read(&self.node) {
            Ok(confs) => (confs, None),
            Err(error) => (Confs::default(), Some(error.to_string())),
        };
        let mut report = report_rows::rows(&reading, &owners, &confs);
        report.time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        report.error = error.or(unreadable);
        let sample = Sample {
            report,
            owners,
            confs,
            busy,
        };
        (sample, asked)
    }

    /// Lets go of the driver, so that it can be replaced and GPUs be reset.
    pub fn rest(&mut self) {
        self.nvml = None;
        self.utilization = Utilization::default();
    }

    fn reading(&mut self, with_busy: bool) -> Result<(Reading, Busy), NvmlError> {
        let nvml = match self.nvml.take() {
            Some(nvml) => nvml,
            None => softmig_nvml::open()?,
        };
        // After a failure it is started anew: the driver may have been replaced.
        let reading = reading::read(&nvml)?;
        // Where it cannot be told, nothing is said of it.
        let asked = reading.gpus.iter().filter(|_| with_busy);
        let busy = asked.filter_map(|gpu| {
            let busy = self.utilization.read(&nvml, gpu.index).ok()?;
            Some((gpu.index, busy))
        });
        let busy = busy.collect();
        if reading.gpus.iter().all(|gpu| gpu.error.is_none()) {
            self.nvml = Some(nvml);
        }
        Ok((reading, busy))
    }
}

/// How busy processes were, by NVML's index of the GPU.
type Busy = BTreeMap<u32, BTreeMap<u32, u32>>;

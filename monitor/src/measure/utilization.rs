//! How busy each process kept a GPU, by NVML's own samples.

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::collections::BTreeMap;

/// The questions of before.
#[derive(Debug, Default)]
pub(crate) struct Utilization {
    /// The time of the last sample of each GPU, by NVML's index.
    seen: BTreeMap<u32, u64>,
}

impl Utilization {
    /// The largest share of a GPU's time, in percent, that each process had in a sample since the last call; those that had
    /// any. Before the first call nothing counts: a sample can be of a process that had the number before.
    pub(crate) fn read(
        &mut self,
        nvml: &Nvml,
        index: u32,
    ) -> Result<BTreeMap<u32, u32>, NvmlError> {
        let before = self.seen.get(&index).copied();
        let device = nvml.device_by_index(index)?;
        let samples = match device.process_utilization_stats(before.unwrap_or(0)) {
            // No process was busy, or the GPU tells this of none.
            Err(
                NvmlError::NotFound
                | NvmlError::NotSupported
                | NvmlError::FailedToLoadSymbol(_)
                | NvmlError::FunctionNotFound,
            ) => Vec::new(),
            samples => samples?,
        };
        let last = samples.iter().map(|sample| sample.timestamp).max();
        self.seen.insert(index, last.or(before).unwrap_or(0));
        let mut busy = BTreeMap::new();
        for sample in samples {
            let is_new = before.is_some_and(|before| sample.timestamp > before);
            // The driver's array can have entries without a process.
            if is_new && sample.sm_util > 0 && sample.pid != 0 {
                let most = busy.entry(sample.pid).or_insert(0);
                *most = sample.sm_util.min(100).max(*most);
            }
        }
        Ok(busy)
    }
}

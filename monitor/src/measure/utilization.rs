//! How busy each process kept a GPU, by NVML's own samples.

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// A sample that is later than now by more than these microseconds is from before the clock was set back.
const AHEAD: u64 = 5_000_000;

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
        let device = nvml.device_by_index(index)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_micros() as u64);
        self.ask(index, now, |after| {
            match device.process_utilization_stats(after) {
                // No process was busy, or the GPU tells this of none.
                Err(
                    NvmlError::NotFound
                    | NvmlError::NotSupported
                    | NvmlError::FailedToLoadSymbol(_)
                    | NvmlError::FunctionNotFound,
                ) => Ok(Vec::new()),
                samples => samples,
            }
        })
    }

    /// The same, where `samples` gives those after a time, at this time in microseconds since 1970.
    fn ask(
        &mut self,
        index: u32,
        now: u64,
        samples: impl FnOnce(u64) -> Result<Vec<ProcessUtilizationSample>, NvmlError>,
    ) -> Result<BTreeMap<u32, u32>, NvmlError> {
        let is_ahead = |time: u64| time > now.saturating_add(AHEAD);
        let before = self
            .seen
            .get(&index)
            .copied()
            .filter(|&before| !is_ahead(before));
        let mut samples = samples(before.unwrap_or(0))?;
        samples.retain(|sample| !is_ahead(sample.timestamp));
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const HOUR: u64 = 3600 * SECOND;

    #[test]
    fn samples_count_after_the_clock_was_set_back() {
        let mut utilization = Utilization::default();
        let mut all = Vec::new();
        let mut busy_at = |now: u64| {
            all.push(ProcessUtilizationSample {
                pid: 7,
                timestamp: now,
                sm_util: 50,
                mem_util: 0,
                enc_util: 0,
                dec_util: 0,
            });
            let newer = |after| {
                let newer = all.iter().filter(|it| it.timestamp > after);
                Ok(newer.cloned().collect())
            };
            utilization.ask(0, now + SECOND / 2, newer).unwrap()
        };
        let ahead = 500_000 * HOUR;
        let busy: BTreeMap<u32, u32> = [(7, 50)].into();
        assert_eq!(busy_at(ahead), BTreeMap::new());
        assert_eq!(busy_at(ahead + SECOND), busy);
        let right = ahead - HOUR;
        // It cannot be known what of this was told before.
        assert_eq!(busy_at(right), BTreeMap::new());
        for second in 1..5 {
            assert_eq!(busy_at(right + second * SECOND), busy);
        }
        // The other way it tells all.
        assert_eq!(busy_at(ahead + HOUR), busy);
    }
}

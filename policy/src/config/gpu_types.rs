//! The GPUs that are shared: how much one has, and how it may be cut.

use crate::node::limits::{Limits, LimitsError, MAX_SHARDS_PER_GPU, Mode, Share, TypeName};
use serde::Deserialize;

/// A type of GPU that may be cut.
#[derive(Clone, Debug)]
pub struct GpuType {
    name: TypeName,
    memory_mib: u32,
    reserved_mib: u32,
    shards: u32,
    slices: Vec<u32>,
    mode: Mode,
    mig: bool,
}

impl GpuType {
    /// The type's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The shards of one GPU.
    pub fn shards_per_gpu(&self) -> u32 {
        self.shards
    }

    /// The memory of one, as NVML reports the total, in MiB.
    pub fn memory_mib(&self) -> u32 {
        self.memory_mib
    }

    /// The part of it that the driver reserves, in MiB.
    pub fn reserved_mib(&self) -> u32 {
        self.reserved_mib
    }

    /// True for a MIG instance, which Slurm and CUDA take for a GPU of its own.
    pub fn is_mig(&self) -> bool {
        self.mig
    }

    /// A slice, as a request names it: `gpu:l40s.4:1` for size 4.
    pub fn slice_request(&self, size: u32) -> String {
        format!("gpu:{}.{size}:1", self.name)
    }

    /// The slices on offer, largest first: 2 is half a GPU.
    pub fn slices(&self) -> &[u32] {
        &self.slices
    }

    /// The limits of a slice that is on offer.
    pub fn slice(&self, size: u32) -> Option<Limits> {
        if !self.slices.contains(&size) {
            return None;
        }
        self.limits(self.shards / size).ok()
    }

    /// The limits of this number of shards, on offer or not.
    pub fn limits(&self, shards: u32) -> Result<Limits, LimitsError> {
        let share = Share::new(shards, self.shards)?;
        Limits::new(
            self.name,
            share,
            share.part_of(u64::from(self.memory_mib - self.reserved_mib)),
            self.mode,
        )
    }

    /// The request for more than this number of shards, as `--gres=gpu:` takes it: the next larger slice, or the whole
    /// GPU.
    pub fn larger_than(&self, shards: u32) -> Option<TypeName> {
        let larger = |size: &&u32| self.shards / **size > shards;
        match self.slices.iter().rev().find(larger) {
            Some(size) => TypeName::new(&format!("{}.{size}", self.name)).ok(),
            None => (shards < self.shards).then_some(self.name),
        }
    }

    /// The slice that has exactly this number of shards.
    pub fn slice_of_shards(&self, shards: u64) -> Option<u32> {
        self.slices
            .iter()
            .copied()
            .find(|size| u64::from(self.shards / size) == shards)
    }
}

/// The words for one such part of a GPU and for several, for parts that have words: 4 is a quarter.
pub fn part_names(size: u32) -> Option<(&'static str, &'static str)> {
    Some(match size {
        2 => ("half", "halves"),
        3 => ("third", "thirds"),
        4 => ("quarter", "quarters"),
        5 => ("fifth", "fifths"),
        6 => ("sixth", "sixths"),
        8 => ("eighth", "eighths"),
        10 => ("tenth", "tenths"),
        _ => return None,
    })
}

/// Less than this is a figure in GiB.
const LEAST_MEMORY_MIB: u32 = 1024;
/// More than this is a figure in KiB.
const MOST_MEMORY_MIB: u32 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuTable {
    memory_mib: u32,
    reserved_mib: u32,
    shards: u32,
    slices: Option<Vec<u32>>,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    mig: bool,
}

impl GpuTable {
    pub(crate) fn check(self, key: &str) -> Result<GpuType, String> {
        let name = TypeName::new(key).map_err(|_| {
            "a type has letters, digits, '-', '_' and '.', at most 63, and is not only a number"
                .to_string()
        })?;
        let beyond = match self.memory_mib {
            ..LEAST_MEMORY_MIB => Some("less"),
            LEAST_MEMORY_MIB..=MOST_MEMORY_MIB => None,
            _ => Some("more"),
        };
        if let Some(beyond) = beyond {
            return Err(format!(
                "memory_mib = {} is {beyond} than any GPU has: it counts MiB, and 'softmig probe' prints it",
                self.memory_mib
            ));
        }
        if self.reserved_mib >= self.memory_mib {
            return Err(format!(
                "reserved_mib = {} leaves nothing of memory_mib = {}",
                self.reserved_mib, self.memory_mib
            ));
        }
        if !(1..=MAX_SHARDS_PER_GPU).contains(&self.shards) {
            return Err(format!(
                "shards = {} is not from 1 to {MAX_SHARDS_PER_GPU} (a shard is at least 1 % of a GPU)",
                self.shards
            ));
        }
        let usable_mib = self.memory_mib - self.reserved_mib;
        if usable_mib < self.shards {
            return Err(format!(
                "{usable_mib} MiB in {} shards leaves less than 1 MiB for one",
                self.shards
            ));
        }
        Ok(GpuType {
            name,
            memory_mib: self.memory_mib,
            reserved_mib: self.reserved_mib,
            slices: check_slices(self.slices, self.shards)?,
            shards: self.shards,
            mode: self.mode,
            mig: self.mig,
        })
    }
}

/// The slices on offer, largest first; all that the shards allow when the table does not say.
fn check_slices(slices: Option<Vec<u32>>, shards: u32) -> Result<Vec<u32>, String> {
    let divisors = (2..=shards).filter(|size| shards.is_multiple_of(*size));
    let Some(mut slices) = slices else {
        return Ok(divisors.collect());
    };
    if let Some(wrong) = slices
        .iter()
        .find(|&&size| size < 2 || !shards.is_multiple_of(size))
    {
        let possible: Vec<String> = divisors.map(|size| size.to_string()).collect();
        if possible.is_empty() {
            return Err("slices is set, but one shard cannot be divided; omit slices".to_string());
        }
        return Err(format!(
            "slices has {wrong}, which does not divide {shards} shards; valid sizes are {}",
            possible.join(", ")
        ));
    }
    slices.sort_unstable();
    slices.dedup();
    Ok(slices)
}

//! Requests of older systems: units of `mps` that mean part of a GPU.

use crate::config::gpu_types::GpuType;
use crate::config::suggest::meant;
use serde::Deserialize;
use std::collections::BTreeMap;

/// `[legacy]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LegacyTable {
    mps: Option<toml::Spanned<MpsTable>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MpsTable {
    r#type: String,
    units_per_gpu: u32,
}

/// The meaning of units of mps.
#[derive(Clone, Debug)]
pub struct Mps {
    kind: String,
    units_per_gpu: u32,
}

impl LegacyTable {
    /// Checks the table; an error comes with its place in the file.
    pub(crate) fn check(
        self,
        gpus: &BTreeMap<String, GpuType>,
    ) -> Result<Option<Mps>, (std::ops::Range<usize>, String)> {
        let Some(table) = self.mps else {
            return Ok(None);
        };
        let span = table.span();
        let table = table.into_inner();
        let Some(gpu) = gpus.get(&table.r#type) else {
            let known = gpus.keys().map(String::as_str);
            let message = format!(
                "type = \"{}\" has no [gpu.*] table; {}",
                table.r#type,
                meant(&table.r#type, known)
            );
            return Err((span, message));
        };
        let mps = Mps {
            kind: table.r#type,
            units_per_gpu: table.units_per_gpu,
        };
        let odd = gpu.slices().iter().find(|&&size| mps.units(size).is_none());
        match odd {
            _ if mps.units_per_gpu == 0 => {
                Err((span, "units_per_gpu = 0 is not valid".to_string()))
            }
            Some(size) => Err((
                span,
                format!(
                    "units_per_gpu = {} is not divisible by {size}, which slices of [gpu.{}] has",
                    mps.units_per_gpu, mps.kind
                ),
            )),
            None => Ok(Some(mps)),
        }
    }
}

impl Mps {
    /// The type of GPU that the units are of.
    pub fn gpu_type(&self) -> &str {
        &self.kind
    }

    /// The units of a whole GPU.
    pub fn units_per_gpu(&self) -> u32 {
        self.units_per_gpu
    }

    /// The units of a slice, where there is a whole number of them.
    pub(crate) fn units(&self, size: u32) -> Option<u32> {
        self.units_per_gpu
            .is_multiple_of(size)
            .then(|| self.units_per_gpu / size)
    }

    /// The size of the slice of this many units: 4 for a quarter.
    pub(crate) fn size(&self, units: u64) -> Option<u32> {
        let per_gpu = u64::from(self.units_per_gpu);
        let size = per_gpu.checked_div(units)?;
        (size * units == per_gpu).then(|| u32::try_from(size).ok())?
    }
}

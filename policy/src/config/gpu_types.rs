//! The GPUs that are shared: how much one has, and how it may be cut.

use crate::node::job_conf::Pack;
use crate::node::limits::{
    Ceiling, Limits, LimitsError, MAX_SHARDS_PER_GPU, Mode, Share, TypeName,
};
use crate::node::size::Bytes;
use serde::Deserialize;

/// A type of GPU that may be cut.
#[derive(Clone, Debug)]
pub struct GpuType {
    name: TypeName,
    memory_mib: u32,
    reserved_mib: u32,
    shards: u32,
    slices: Vec<u32>,
    ceiling: CeilingKey,
    burst_ms: u32,
    pack: PackKey,
    pack_partitions: Option<Vec<String>>,
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

    /// Whose slices of one GPU run at the same time, in some partition.
    pub fn pack(&self) -> PackKey {
        self.pack
    }

    /// The same in this partition. Where that is not known: as in one that has packs.
    pub fn pack_in(&self, partition: Option<&str>) -> PackKey {
        match (&self.pack_partitions, partition) {
            (Some(names), Some(partition)) if names.iter().all(|name| name != partition) => {
                PackKey::No
            }
            _ => self.pack,
        }
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

    /// The smallest slice on offer with at least so much memory.
    pub fn slice_with(&self, least: Bytes) -> Option<Limits> {
        let smallest_first = self.slices.iter().rev();
        let mut all = smallest_first.filter_map(|&size| self.slice(size));
        all.find(|slice| least.is_in(slice.memory_mib()))
    }

    /// The memory that programs can have of a whole GPU, in MiB.
    pub fn usable_mib(&self) -> u32 {
        self.memory_mib - self.reserved_mib
    }

    /// The limits of this number of shards, on offer or not.
    pub fn limits(&self, shards: u32) -> Result<Limits, LimitsError> {
        let share = Share::new(shards, self.shards)?;
        Limits::new(
            self.name,
            share,
            share.part_of(u64::from(self.usable_mib())),
            Mode {
                ceiling: self.ceiling.of(share),
                burst_ms: self.burst_ms,
            },
        )
    }

    /// The name of a slice: `l40s.4`.
    pub fn slice_name(&self, size: u32) -> String {
        format!("{}.{size}", self.name)
    }

    /// The request for more than this number of shards, as `--gres=gpu:` takes it: the next larger slice, or the whole
    /// GPU.
    pub fn larger_than(&self, shards: u32) -> Option<TypeName> {
        let larger = |size: &&u32| self.shards / **size > shards;
        match self.slices.iter().rev().find(larger) {
            Some(&size) => TypeName::new(&self.slice_name(size)).ok(),
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

/// The value of `ceiling`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CeilingKey {
    /// Of every slice.
    Same(Ceiling),
    /// So many times a slice's share, in hundredths.
    Times(u32),
}

impl CeilingKey {
    /// Reads `share`, `gpu`, `50 %` or `2x`.
    fn parse(text: &str) -> Option<Self> {
        let hundredths = |text: &str| {
            let number: f64 = text.trim_end().parse().ok()?;
            let is_plain = text.bytes().next().is_some_and(|it| it.is_ascii_digit());
            let hundredths = (number * 100.0).round();
            (is_plain && (1.0..=10_000.0).contains(&hundredths)).then_some(hundredths as u32)
        };
        Some(match text {
            "share" => Self::Same(Ceiling::Share),
            "gpu" => Self::Same(Ceiling::Gpu),
            _ => match (text.strip_suffix('%'), text.strip_suffix('x')) {
                (Some(percent), _) => {
                    let percent = hundredths(percent).filter(|it| it % 100 == 0)? / 100;
                    match u8::try_from(percent).ok()? {
                        percent @ 1..100 => Self::Same(Ceiling::Percent(percent)),
                        100 => Self::Same(Ceiling::Gpu),
                        _ => return None,
                    }
                }
                (_, Some(times)) => Self::Times(hundredths(times).filter(|it| *it >= 100)?),
                _ => return None,
            },
        })
    }

    /// That of a slice.
    fn of(self, share: Share) -> Ceiling {
        let percent = match self {
            Self::Same(Ceiling::Percent(percent)) => percent.into(),
            Self::Same(ceiling) => return ceiling,
            Self::Times(times) => share.part_of(times.into()),
        };
        match percent {
            _ if percent * 10 <= share.percent_tenths().into() => Ceiling::Share,
            ..100 => Ceiling::Percent(percent as u8),
            _ => Ceiling::Gpu,
        }
    }
}

/// The value of `mode`.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ModeKey {
    Hard,
    Soft,
}

/// The value of `pack`: whose slices of one GPU run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackKey {
    /// Nobody's.
    #[default]
    No,
    /// Those of one user.
    User,
    /// Those of one account.
    Account,
    /// Those in one reservation. A job without one has its share by itself.
    Reservation,
}

impl PackKey {
    /// The pack of a job with these.
    pub fn of(self, account: Option<&str>, reservation: Option<&str>) -> Option<Pack> {
        let number = |name: Option<&str>| name.filter(|name| !name.is_empty()).map(Pack::number);
        match self {
            Self::No => None,
            Self::User => Some(Pack::User),
            Self::Account => number(account).map(Pack::Account),
            Self::Reservation => number(reservation).map(Pack::Reservation),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuTable {
    memory_mib: u32,
    reserved_mib: u32,
    shards: u32,
    slices: Option<Vec<u32>>,
    mode: Option<ModeKey>,
    ceiling: Option<String>,
    burst_ms: Option<u32>,
    #[serde(default)]
    pack: PackKey,
    pack_partitions: Option<Vec<String>>,
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
        let (ceiling, burst_ms) = (self.ceiling()?, self.burst_ms()?);
        self.check_pack()?;
        Ok(GpuType {
            name,
            memory_mib: self.memory_mib,
            reserved_mib: self.reserved_mib,
            slices: check_slices(self.slices, self.shards)?,
            shards: self.shards,
            ceiling,
            burst_ms,
            pack: self.pack,
            pack_partitions: self.pack_partitions,
            mig: self.mig,
        })
    }
}

impl GpuTable {
    fn ceiling(&self) -> Result<CeilingKey, String> {
        match (self.mode, &self.ceiling) {
            (Some(_), Some(ceiling)) => Err(format!(
                "mode and ceiling = \"{ceiling}\" say the same thing; omit mode"
            )),
            (Some(ModeKey::Soft), None) => Ok(CeilingKey::Same(Ceiling::Gpu)),
            (Some(ModeKey::Hard) | None, None) => Ok(CeilingKey::Same(Ceiling::Share)),
            (None, Some(ceiling)) => CeilingKey::parse(ceiling).ok_or_else(|| {
                format!(
                    "ceiling = \"{ceiling}\" is not the most that a slice gets of the GPU's time: write \"share\", \"gpu\", \"50 %\" (of the GPU, from 1 to 100) or \"2x\" (of the share, from 1x)"
                )
            }),
        }
    }

    fn check_pack(&self) -> Result<(), String> {
        let is_none = self.pack == PackKey::No;
        match &self.pack_partitions {
            _ if !is_none && self.mig => Err(
                "pack is for slices of whole GPUs, and this type is a MIG instance; omit pack"
                    .into(),
            ),
            Some(_) if is_none => {
                Err("pack_partitions says where pack holds, and there is no pack; omit it".into())
            }
            Some(names) if names.is_empty() => {
                Err("pack_partitions is empty; omit pack, or name a partition".into())
            }
            _ => Ok(()),
        }
    }

    fn burst_ms(&self) -> Result<u32, String> {
        let burst_ms = self.burst_ms.unwrap_or(Mode::BURST_MS);
        if burst_ms > Mode::MOST_BURST_MS {
            return Err(format!(
                "burst_ms = {burst_ms} is more than {} (a minute of the GPU): it counts milliseconds of GPU time",
                Mode::MOST_BURST_MS
            ));
        }
        Ok(burst_ms)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(keys: &str, shards: u32) -> Result<String, String> {
        let eight = if keys.contains("shards") {
            ""
        } else {
            "shards = 8\n"
        };
        let text = format!("memory_mib = 46068\nreserved_mib = 604\n{eight}{keys}");
        let table: GpuTable = toml::from_str(&text).map_err(|error| error.to_string())?;
        let limits = table.check("l40s")?.limits(shards);
        Ok(limits
            .map_err(|error| error.to_string())?
            .mode()
            .to_string())
    }

    #[test]
    fn a_ceiling_is_the_share_or_the_gpu_or_in_between() {
        for (keys, shards, mode) in [
            ("", 2, "hard"),
            ("mode = 'hard'", 2, "hard"),
            ("mode = 'soft'\nburst_ms = 20", 2, "soft/20"),
            ("ceiling = 'share'", 2, "hard"),
            ("ceiling = 'gpu'", 2, "soft"),
            ("ceiling = '50 %'", 2, "50%"),
            ("ceiling = '100%'", 2, "soft"),
            ("ceiling = '2x'\nburst_ms = 0", 2, "50%/0"),
            ("ceiling = '1.5x'", 1, "18%"),
            ("ceiling = '1x'", 1, "hard"),
            ("ceiling = '4x'", 2, "soft"),
            ("ceiling = '25 %'", 2, "hard"),
            ("shards = 3\nceiling = '3x'", 1, "soft"),
        ] {
            assert_eq!(limits(keys, shards).as_deref(), Ok(mode), "{keys}");
        }
    }

    #[test]
    fn slices_are_packed_where_the_table_says_so() {
        let gpu = |keys: &str| {
            let text = format!("memory_mib = 46068\nreserved_mib = 604\nshards = 4\n{keys}");
            let table: GpuTable = toml::from_str(&text).map_err(|error| error.to_string())?;
            table.check("l40s")
        };
        let pack = |keys: &str| gpu(keys).map(|gpu| gpu.pack());
        assert_eq!(pack(""), Ok(PackKey::No));
        assert_eq!(pack("pack = 'no'"), Ok(PackKey::No));
        assert_eq!(pack("pack = 'user'"), Ok(PackKey::User));
        assert_eq!(pack("pack = 'account'"), Ok(PackKey::Account));
        assert_eq!(pack("pack = 'reservation'"), Ok(PackKey::Reservation));
        for (keys, says) in [
            ("pack = 'user'\nmig = true", "omit pack"),
            ("pack = 'all'", "unknown variant"),
            ("pack_partitions = ['course']", "omit it"),
            ("pack = 'user'\npack_partitions = []", "name a partition"),
        ] {
            let error = pack(keys).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let gpu = gpu("pack = 'user'\npack_partitions = ['course']").unwrap();
        let in_partition = |name| gpu.pack_in(name);
        assert_eq!(in_partition(Some("course")), PackKey::User);
        assert_eq!(in_partition(Some("gpu")), PackKey::No);
        assert_eq!(in_partition(None), PackKey::User);
    }

    #[test]
    fn a_job_is_in_the_pack_of_what_it_has() {
        let of = |key: PackKey, account, reservation| key.of(account, reservation);
        assert_eq!(of(PackKey::No, Some("a"), Some("r")), None);
        assert_eq!(of(PackKey::User, None, None), Some(Pack::User));
        let account = Pack::Account(Pack::number("a"));
        assert_eq!(of(PackKey::Account, Some("a"), None), Some(account));
        assert_eq!(of(PackKey::Account, Some(""), Some("r")), None);
        let reservation = Pack::Reservation(Pack::number("r"));
        assert_eq!(
            of(PackKey::Reservation, Some("a"), Some("r")),
            Some(reservation)
        );
        assert_eq!(of(PackKey::Reservation, Some("a"), None), None);
    }

    #[test]
    fn a_ceiling_that_says_nothing_is_an_error() {
        for ceiling in [
            "", "50", "0 %", "101 %", "12.5 %", "0.5x", "x", "-2x", "NaNx", "inf%", "hard", "2 x 3",
        ] {
            let error = limits(&format!("ceiling = '{ceiling}'"), 2).unwrap_err();
            assert!(error.contains("write \"share\", \"gpu\""), "{error}");
        }
        let both = limits("mode = 'hard'\nceiling = '2x'", 2).unwrap_err();
        assert!(both.contains("omit mode"), "{both}");
        let long = limits("burst_ms = 60001", 2).unwrap_err();
        assert!(long.contains("milliseconds of GPU time"), "{long}");
    }
}

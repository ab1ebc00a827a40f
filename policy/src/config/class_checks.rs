//! The checks of one level of limits: of each figure by itself, and against the others.

use crate::config::gpu_types::GpuType;
use crate::config::limit::Limit;
use crate::config::quota::{Quota, QuotaOverride};
use std::collections::BTreeMap;

/// A week.
const LONGEST_IDLE_MINUTES: u64 = 7 * 24 * 60;
/// Less than this is a figure in GiB.
const LEAST_HOST_MEMORY_MIB: u64 = 64;
/// The letters in names of QOS and classes; sacctmgr takes no upper case.
const NAMES: &str = "lower-case letters, digits, '_' and '-', at most 30";

/// Keys of a quota, each with its name.
macro_rules! figures {
    ($quota:ident: $($key:ident),+) => { [$((stringify!($key), $quota.$key.map(u64::from))),+] };
}

/// The facts that each level is checked against.
pub(crate) struct ClassContext<'a> {
    /// True if every user needs a limit or the word "unlimited".
    pub(crate) strict: bool,
    pub(crate) gpus: &'a BTreeMap<String, GpuType>,
}

impl ClassContext<'_> {
    /// Checks one level by itself.
    pub(crate) fn check(&self, layer: &QuotaOverride) -> Result<(), String> {
        for name in layer.shards_of.iter().flat_map(|types| types.0.keys()) {
            self.known(name, "shards_of", |_| true)?;
        }
        for name in layer.mig.iter().flat_map(|types| types.0.keys()) {
            self.known(name, "mig", GpuType::is_mig)?;
        }
        for qos in layer.other_qos.iter().flatten() {
            if qos.is_empty() || !qos.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!(
                    "other_qos has \"{qos}\", which is not a valid QOS name"
                ));
            }
        }
        let quota = Quota::from_layer(layer, std::iter::empty());
        let cpus = figures!(quota: cpus_per_shard, max_cpus_per_shard);
        let memory = figures!(quota: host_memory_mib_per_shard, max_host_memory_mib_per_shard, host_memory_mib);
        if let Some(Limit(Some(minutes))) = layer.idle_minutes
            && !(1..=LONGEST_IDLE_MINUTES).contains(&minutes)
        {
            return Err(format!(
                "idle_minutes = {minutes} is not from 1 to {LONGEST_IDLE_MINUTES}; omit it, or write \"unlimited\", \
                 where no job is to be called idle"
            ));
        }
        for (key, value) in cpus.into_iter().chain(memory) {
            if value == Some(0) {
                return Err(format!("{key} = 0 would give a job nothing; omit it"));
            }
        }
        for (key, value) in memory {
            if let Some(mib) = value.filter(|&mib| mib < LEAST_HOST_MEMORY_MIB) {
                return Err(format!(
                    "{key} = {mib} is less than any job needs: it counts MiB; for {mib} GiB write {}",
                    mib * 1024
                ));
            }
        }
        Ok(())
    }

    fn known(&self, name: &str, key: &str, fits: impl Fn(&GpuType) -> bool) -> Result<(), String> {
        if self.gpus.get(name).is_some_and(&fits) {
            return Ok(());
        }
        let types: Vec<&str> = self
            .gpus
            .values()
            .filter(|gpu| fits(gpu))
            .map(GpuType::name)
            .collect();
        if self.gpus.contains_key(name) {
            return Err(format!(
                "{key} names {name}, and [gpu.\"{name}\"] does not say mig = true"
            ));
        }
        let such = if key == "mig" { " with mig = true" } else { "" };
        Err(match types.as_slice() {
            [] => format!("{key} names {name}, but there are no [gpu.*] tables{such}"),
            types => format!(
                "{key} names {name}; [gpu.*] tables{such} are {}",
                types.join(", ")
            ),
        })
    }

    /// Checks that all levels together set each limit.
    pub(crate) fn is_complete(&self, layer: &QuotaOverride) -> Result<(), String> {
        let has_mig = self.gpus.values().any(GpuType::is_mig);
        let needed = [
            ("shards", layer.shards.is_none()),
            ("whole_gpus", layer.whole_gpus.is_none()),
            ("mig", has_mig && layer.mig.is_none()),
        ];
        let missing = needed.iter().find(|(_, missing)| self.strict && *missing);
        match missing {
            Some(("mig", _)) => Err(
                "mig is set neither here nor in [defaults]; write how many of each type, such as \
                 mig = { \"h100_1g.10gb\" = 1 }, or mig = {} for none"
                    .to_string(),
            ),
            Some((key, _)) => Err(format!(
                "{key} is set neither here nor in [defaults]; write a number, or {key} = \"unlimited\""
            )),
            None => Ok(()),
        }
    }

    /// Checks that no limit makes another one useless.
    pub(crate) fn is_possible(layer: &QuotaOverride) -> Result<(), String> {
        let quota = Quota::from_layer(layer, std::iter::empty());
        for [(key, given), (above, most)] in [
            figures!(quota: cpus_per_shard, max_cpus_per_shard),
            figures!(quota: cpus_per_shard, cpus),
            figures!(quota: host_memory_mib_per_shard, max_host_memory_mib_per_shard),
            figures!(quota: host_memory_mib_per_shard, host_memory_mib),
        ] {
            if let (Some(given), Some(most)) = (given, most)
                && given > most
            {
                return Err(format!(
                    "{key} = {given} is more than {above} = {most}, so no slice could get it"
                ));
            }
        }
        Ok(())
    }
}

/// Checks the name of a class or QOS.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let known = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    let starts = name.starts_with(|first: char| first.is_ascii_lowercase());
    if name == "normal" {
        return Err(
            "\"normal\" is Slurm's default QOS; choose another name, or qos = \"NAME\"".to_string(),
        );
    }
    if starts && name.len() <= 30 && name.bytes().all(known) {
        return Ok(());
    }
    Err(format!(
        "\"{name}\" cannot be the name of a class and QOS: {NAMES}, a letter first"
    ))
}

//! The text for policy.toml about a node's GPUs: an entry for each type, and the node's own.

use softmig_nvml::{Devices, Gpu, Memory, MigState, types};
use std::collections::BTreeMap;
use std::fmt::Write;

/// How finely a GPU is cut by default.
pub(super) const SUGGESTED_SHARDS: u32 = 4;
/// An instance is not cut by default.
pub(super) const SHARDS_OF_AN_INSTANCE: u32 = 1;

/// The entries of a node.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    /// The types, as they come first on the node.
    pub(super) entries: Vec<Entry>,
    /// The type of each device that a job can have, in the order of the devices' numbers.
    order: Vec<String>,
}

/// A type of GPU or of MIG instance.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The suggested name.
    pub(super) name: String,
    /// The product.
    pub(super) product: String,
    /// The instance's profile.
    pub(super) profile: Option<String>,
    /// The least that one of them has; `None` where one did not tell.
    pub(super) memory: Option<Memory>,
    /// Whether they have different figures.
    pub(super) differ: bool,
    /// Whether several of them have the same memory.
    pub(super) shares_memory: bool,
}

impl Entry {
    /// Whether it is a MIG instance.
    pub(super) fn mig(&self) -> bool {
        self.profile.is_some()
    }

    /// The shards to suggest.
    pub(super) fn shards(&self) -> u32 {
        if self.mig() {
            SHARDS_OF_AN_INSTANCE
        } else {
            SUGGESTED_SHARDS
        }
    }

    /// Its name by `AutoDetect=nvml`.
    pub(super) fn autodetected(&self) -> String {
        types::autodetected(&self.product, self.profile.as_deref())
    }

    /// Takes in another of the same type.
    fn add(&mut self, memory: Option<Memory>) {
        let usable = |memory: Memory| memory.usable_mib();
        let figures = |memory: Memory| (memory.total_mib(), memory.reserved_mib());
        self.differ |= self.memory.map(figures) != memory.map(figures);
        self.memory = match (self.memory, memory) {
            (Some(own), Some(other)) if usable(other) < usable(own) => Some(other),
            (Some(own), Some(_)) => Some(own),
            _ => None,
        };
    }

    /// The entry as policy.toml has it.
    pub(super) fn toml(&self) -> String {
        let mut text = format!("# {}", self.product);
        if let Some(profile) = &self.profile {
            let _ = write!(text, " MIG {profile}");
        }
        let autodetected = self.autodetected();
        let _ = writeln!(text, "; AutoDetect=nvml calls it {autodetected}");
        if !autodetected.contains(&self.name) {
            text += "# and takes a part of that name only: with AutoDetect, change the type.\n";
        }
        if self.differ {
            text += "# Not all on this node have the same figures; these are of the one with the least.\n";
        }
        if self.shares_memory {
            text += "# Compute instances of one GPU instance: each can take all of the memory that they share.\n";
        }
        let Some(memory) = &self.memory else {
            let _ = writeln!(
                text,
                "# [gpu.{}]: no entry, because NVML did not tell the memory of all of them.",
                self.key()
            );
            return text;
        };
        let _ = writeln!(
            text,
            "[gpu.{}]\nmemory_mib = {}\nreserved_mib = {}",
            self.key(),
            memory.total_mib(),
            memory.reserved_mib()
        );
        let shards = self.shards();
        text += &if self.mig() {
            format!(
                "shards = {shards}    # no slices of an instance; more than 1 allows them\nmig = true\n"
            )
        } else {
            format!(
                "shards = {shards}    # a suggestion: into how many parts a GPU is cut is yours to decide\n"
            )
        };
        text
    }

    /// The name as a key: a dot needs quotes.
    fn key(&self) -> String {
        if self.name.contains('.') {
            format!("\"{}\"", self.name)
        } else {
            self.name.clone()
        }
    }
}

impl Catalogue {
    pub(super) fn new(devices: &Devices) -> Self {
        let products = devices.gpus.iter().filter_map(|gpu| gpu.name.as_deref());
        let names = types::suggested(products);
        let mut catalogue = Self::default();
        for gpu in &devices.gpus {
            catalogue.add(gpu, &names);
        }
        catalogue
    }

    fn add(&mut self, gpu: &Gpu, names: &BTreeMap<&str, String>) {
        let product = gpu.name.as_deref().unwrap_or_default();
        let Some(name) = names.get(product) else {
            return;
        };
        let entry = |name: String, profile: Option<&str>, memory, shares_memory| Entry {
            name,
            product: product.to_owned(),
            profile: profile.map(str::to_owned),
            memory,
            differ: false,
            shares_memory,
        };
        match gpu.standing {
            MigState::Whole => self.add_entry(entry(name.clone(), None, gpu.memory, false)),
            MigState::Divided => {
                for part in &gpu.instances {
                    let name = types::of_instance(name, product, &part.profile);
                    let profile = Some(part.profile.as_str());
                    self.add_entry(entry(name, profile, part.memory, part.shares_memory));
                }
            }
            MigState::Empty | MigState::Unreadable => {}
        }
    }

    fn add_entry(&mut self, entry: Entry) {
        self.order.push(entry.name.clone());
        match self
            .entries
            .iter_mut()
            .find(|known| known.name == entry.name)
        {
            Some(known) => known.add(entry.memory),
            None => self.entries.push(entry),
        }
    }

    /// The node's GPUs as the policy counts them, `l40s:4`: neighbours of one type together, in the order of the devices.
    pub(super) fn gpus(&self) -> Vec<String> {
        self.order
            .chunk_by(|one, other| one == other)
            .filter_map(|run| Some(format!("{}:{}", run.first()?, run.len())))
            .collect()
    }

    /// The node's entry in policy.toml.
    pub(super) fn node_toml(&self, host: &str) -> String {
        let gpus: Vec<String> = self.gpus().iter().map(|gpu| format!("\"{gpu}\"")).collect();
        format!(
            "[[nodes]]\nnames = \"{host}\"    # NodeName in slurm.conf\ngpus = [{}]\n",
            gpus.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::probe::text::samples::{divided, gpu, whole};
    use softmig_policy::Policy;

    fn catalogue(gpus: Vec<Gpu>) -> Catalogue {
        Catalogue::new(&Devices { driver: None, gpus })
    }

    fn toml(catalogue: &Catalogue) -> String {
        catalogue.entries.iter().map(Entry::toml).collect()
    }

    #[test]
    fn what_is_printed_of_whole_gpus_is_a_policy() {
        let found = catalogue(vec![whole(0, "NVIDIA L40S"), whole(1, "NVIDIA TITAN RTX")]);
        let policy = Policy::parse(&toml(&found)).unwrap();
        let quarter = policy.gpu("l40s").unwrap().slice(4).unwrap();
        assert_eq!(quarter.memory_mib(), 11366);
        assert_eq!(policy.gpu("titanrtx").unwrap().shards_per_gpu(), 4);
        assert_eq!(found.gpus(), ["l40s:1", "titanrtx:1"]);
    }

    #[test]
    fn an_instance_is_marked_and_not_cut() {
        let found = catalogue(vec![divided(
            0,
            "NVIDIA H100 80GB HBM3",
            &["1g.10gb", "1g.10gb+me"],
        )]);
        assert_eq!(found.gpus(), ["1g.10gb:2"]);
        let text = toml(&found);
        assert!(
            text.contains("calls it nvidia_h100_80gb_hbm3_1g.10gb\n"),
            "{text}"
        );
        assert!(!text.contains("takes a part of that name only"), "{text}");
        let table: toml::Table = toml::from_str(&text).unwrap();
        let entry = &table["gpu"]["1g.10gb"];
        assert_eq!(entry["mig"].as_bool(), Some(true));
        assert_eq!(entry["shards"].as_integer(), Some(1));
        assert_eq!(entry["memory_mib"].as_integer(), Some(9856));
    }

    #[test]
    fn the_devices_are_counted_in_their_order() {
        let gpus = vec![
            whole(0, "NVIDIA L40S"),
            whole(1, "NVIDIA L40S"),
            divided(2, "NVIDIA A100-SXM4-40GB", &["3g.20gb", "1g.5gb", "1g.5gb"]),
            whole(3, "NVIDIA L40S"),
        ];
        let found = catalogue(gpus);
        let line = found.node_toml("gpu1");
        let table: toml::Table = toml::from_str(&line).unwrap();
        let node = &table["nodes"][0];
        assert_eq!(node["names"].as_str(), Some("gpu1"));
        let gpus: Vec<_> = node["gpus"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|gpu| gpu.as_str())
            .collect();
        assert_eq!(
            gpus,
            ["l40s:2", "a100_3g.20gb:1", "a100_1g.5gb:2", "l40s:1"]
        );
        assert_eq!(found.entries.len(), 3);
    }

    #[test]
    fn no_gpu_is_promised_more_than_the_smallest_has() {
        let mut small = whole(1, "NVIDIA L40S");
        let memory = small.memory.as_mut().unwrap();
        memory.reserved += 1;
        let found = catalogue(vec![
            whole(0, "NVIDIA L40S"),
            small,
            whole(2, "NVIDIA L40S"),
        ]);
        let text = toml(&found);
        assert!(text.contains("reserved_mib = 605\n"), "{text}");
        assert!(text.contains("the one with the least"), "{text}");
    }

    #[test]
    fn without_figures_there_is_no_entry() {
        let mut old = whole(1, "NVIDIA L40S");
        old.memory = None;
        let found = catalogue(vec![whole(0, "NVIDIA L40S"), old]);
        let text = toml(&found);
        assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
        assert_eq!(found.gpus(), ["l40s:2"]);
    }

    #[test]
    fn what_no_job_can_have_is_in_no_entry() {
        let found = catalogue(vec![divided(0, "NVIDIA A100-SXM4-40GB", &[]), gpu(1)]);
        assert_eq!(found.entries, []);
        assert!(found.gpus().is_empty());
    }
}

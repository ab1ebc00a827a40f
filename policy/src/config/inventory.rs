//! The inventory: which nodes have which GPUs. Slurm's configuration is made from it.

use crate::config::error::{PolicyError, line_of};
use crate::config::gpu_types::GpuType;
use crate::config::node_line;
use crate::config::reservable::Reservable;
use crate::slurm::{conf, hostlist};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use toml::Spanned;

/// Nodes with the same GPUs.
#[derive(Clone, Debug)]
pub struct Nodes {
    names: String,
    gpus: Vec<NodeGpus>,
    slurm: String,
    /// Its line in policy.toml.
    line: Option<usize>,
}

/// GPUs of one type in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGpus {
    /// The type, as gres.conf and the request have it.
    pub kind: String,
    /// The number of these GPUs.
    pub count: u32,
}

/// The table as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodesTable {
    names: String,
    gpus: Vec<String>,
    #[serde(default)]
    slurm: String,
    #[serde(default)]
    slice_features: bool,
}

/// No machine has more.
const MOST_GPUS: u32 = 1024;

impl NodesTable {
    fn check(
        self,
        gpus: &BTreeMap<String, GpuType>,
        plain_types: &[String],
        reservables: &[Reservable],
        line: Option<usize>,
    ) -> Result<Nodes, String> {
        let known = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']' | b',')
        };
        if self.names.is_empty() || !self.names.bytes().all(known) {
            return Err(format!(
                "names = \"{}\" is not a valid host list; write it as in slurm.conf, for example \"gpu[01-04]\"",
                self.names
            ));
        }
        if self.gpus.is_empty() {
            return Err("gpus is empty; nodes without GPUs need no table here".to_string());
        }
        let mut list = Vec::new();
        for text in &self.gpus {
            let parsed = text.rsplit_once(':').and_then(|(kind, count)| {
                let count = count.parse::<u32>().ok()?;
                (1..=MOST_GPUS)
                    .contains(&count)
                    .then(|| (kind.to_string(), count))
            });
            let (kind, count) = parsed.ok_or_else(|| {
                format!("gpus has \"{text}\"; write TYPE:COUNT, for example \"l40s:4\"")
            })?;
            let known = gpus.contains_key(&kind)
                || plain_types.contains(&kind)
                || reservables
                    .iter()
                    .any(|reservable| reservable.kind() == kind);
            if !known {
                return Err(format!(
                    "gpus has {kind}, which has no [gpu.*] table, is not a [[reservable]] type and is not in plain_types"
                ));
            }
            list.push(NodeGpus { kind, count });
        }
        node_line::check_slurm_words(&self.slurm)?;
        node_line::check(&self.slurm)?;
        check_order(&list, reservables)?;
        let slurm = match self.slice_features {
            true => with_features(&self.slurm, &list, gpus)?,
            false => self.slurm,
        };
        Ok(Nodes {
            names: self.names,
            gpus: list,
            slurm,
            line,
        })
    }
}

/// The words for a node's line, with the slices of its GPUs as features.
fn with_features(
    slurm: &str,
    list: &[NodeGpus],
    gpus: &BTreeMap<String, GpuType>,
) -> Result<String, String> {
    let own = conf::pairs(slurm);
    if ["Feature", "Features"]
        .iter()
        .any(|key| conf::value(&own, key).is_some())
    {
        return Err(
            "slice_features and Features= in slurm both say what features the nodes have; write all into slurm"
                .to_owned(),
        );
    }
    let mut kinds: Vec<&str> = list.iter().map(|one| one.kind.as_str()).collect();
    // GPUs of a type are together.
    kinds.dedup();
    let shared = kinds.into_iter().filter_map(|kind| gpus.get(kind));
    let slices = shared.flat_map(|gpu| gpu.slices().iter().map(|&size| gpu.slice_name(size)));
    let features: Vec<String> = slices.collect();
    if features.is_empty() {
        return Err("slice_features is set, and these GPUs have no slices; omit it".to_owned());
    }
    let features = format!("{slurm} Features={}", features.join(","));
    Ok(features.trim_start().to_owned())
}

/// The type that a GPU has while it is not reserved.
fn otherwise<'a>(kind: &'a str, reservables: &'a [Reservable]) -> &'a str {
    reservables
        .iter()
        .find_map(|own| (own.kind() == kind).then(|| own.base_type()))
        .unwrap_or(kind)
}

/// Slurm numbers a node's GPUs type by type. Its numbers are those of the devices only where each type is in one place.
fn check_order(list: &[NodeGpus], reservables: &[Reservable]) -> Result<(), String> {
    let kinds = || list.iter().map(|gpus| gpus.kind.as_str());
    let shared_again: Vec<&str> = kinds().map(|kind| otherwise(kind, reservables)).collect();
    for kinds in [kinds().collect(), shared_again] {
        if let Some((kind, between)) = apart(&kinds) {
            return Err(format!(
                "gpus has {kind} in two places, with {between} between; Slurm numbers a node's GPUs type by type, and \
                 softmig takes its numbers for those of the devices. Keep the GPUs of a type together: reserve the first or \
                 the last ones of them"
            ));
        }
    }
    Ok(())
}

/// A type that is in two places of a list, and what is between them.
pub fn apart<'a>(kinds: &[&'a str]) -> Option<(&'a str, &'a str)> {
    kinds.windows(2).enumerate().find_map(|(at, pair)| {
        let &[kind, next] = pair else { return None };
        let again = kind != next && kinds.get(at + 2..)?.contains(&kind);
        again.then_some((kind, next))
    })
}

/// Checks the tables. `text` is the whole policy.toml.
pub(crate) fn check(
    tables: Vec<Spanned<NodesTable>>,
    gpus: &BTreeMap<String, GpuType>,
    plain_types: &[String],
    reservables: &[Reservable],
    text: &str,
) -> Result<Vec<Nodes>, PolicyError> {
    tables
        .into_iter()
        .map(|table| {
            let line = line_of(text, &table.span());
            let checked = table
                .into_inner()
                .check(gpus, plain_types, reservables, line);
            checked.map_err(|message| wrong(line, &message))
        })
        .collect()
}

/// Each node may be defined once: slurmctld does not start with a second definition.
pub(crate) fn each_once(all: &[Nodes]) -> Result<(), PolicyError> {
    let mut tables: HashMap<String, &Nodes> = HashMap::new();
    for nodes in all {
        let own = &nodes.names;
        let names = hostlist::parse(own)
            .map_err(|error| wrong(nodes.line, &format!("names = \"{own}\" {error}")))?;
        for name in names {
            // Slurm's name for the defaults of the lines below.
            if name.eq_ignore_ascii_case("DEFAULT") {
                let message =
                    format!("names = \"{own}\" has {name}, which Slurm does not take for a node");
                return Err(wrong(nodes.line, &message));
            }
            let Some(other) = tables.get(&name) else {
                tables.insert(name, nodes);
                continue;
            };
            let other = match other.line {
                same if same == nodes.line => format!("twice in names = \"{own}\""),
                Some(line) => format!(
                    "in names = \"{own}\" and in names = \"{}\" of line {line}",
                    other.names
                ),
                None => format!("in names = \"{own}\" and in names = \"{}\"", other.names),
            };
            return Err(wrong(
                nodes.line,
                &format!("{name} is {other}; write it once"),
            ));
        }
    }
    Ok(())
}

fn wrong(line: Option<usize>, message: &str) -> PolicyError {
    PolicyError::new("[[nodes]]", line, message)
}

/// Whether Slurm has shards of a type on some node; true where no node of the inventory has the type. On a node with MIG
/// instances gres.conf can name no GPU for its shards, unless all there is of one type.
pub(crate) fn shares(all: &[Nodes], kind: &str, is_mig: impl Fn(&str) -> bool) -> bool {
    let has = |nodes: &&Nodes| nodes.gpus.iter().any(|gpus| gpus.kind == kind);
    let mut with = all.iter().filter(has).peekable();
    with.peek().is_none()
        || with.any(|nodes| {
            let mig = nodes.gpus.iter().any(|gpus| is_mig(&gpus.kind));
            !mig || nodes.gpus.iter().all(|gpus| gpus.kind == kind)
        })
}

impl Nodes {
    /// Their names, as slurm.conf takes them.
    pub fn names(&self) -> &str {
        &self.names
    }

    /// Their GPUs, in the order of the devices.
    pub fn gpus(&self) -> &[NodeGpus] {
        &self.gpus
    }

    /// True if each has GPUs of several types.
    pub(crate) fn is_mixed(&self) -> bool {
        let mut kinds = self.gpus.iter().map(|gpus| &gpus.kind);
        let first = kinds.next();
        kinds.any(|kind| Some(kind) != first)
    }

    /// More words for their line in slurm.conf.
    pub fn slurm(&self) -> &str {
        &self.slurm
    }
}

#[cfg(test)]
mod tests {
    use crate::Policy;

    const GPUS: &str = "[gpu.a]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 4\n\
                        [gpu.b]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 8\n\
                        [[reservable]]\ntype = \"b_r\"\nof = \"b\"\nuser = \"alice\"\nend = 2027-01-01T00:00:00Z\nreason = \"x\"\n";

    fn parse(gpus: &str) -> Result<Policy, String> {
        let text = format!("{GPUS}[[nodes]]\nnames = \"n[1-2]\"\ngpus = {gpus}\n");
        Policy::parse(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_gpus_of_a_type_are_together() {
        for gpus in [
            "[\"b_r:1\", \"b:1\", \"a:1\"]",
            "[\"a:1\", \"a:1\", \"b:2\"]",
        ] {
            parse(gpus).unwrap();
        }
        for (gpus, said) in [
            (
                "[\"b:1\", \"a:1\", \"b:1\"]",
                "b in two places, with a between",
            ),
            (
                "[\"b:1\", \"b_r:1\", \"b:1\"]",
                "b in two places, with b_r between",
            ),
            // After its time.
            (
                "[\"b_r:1\", \"a:1\", \"b:1\"]",
                "b in two places, with a between",
            ),
        ] {
            let error = parse(gpus).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn slices_are_features_where_a_site_wants_it() {
        let slurm = |gpus: &str, more: &str| {
            let policy = parse(&format!("{gpus}\n{more}"))?;
            Ok::<_, String>(policy.nodes()[0].slurm().to_owned())
        };
        let two = "[\"a:1\", \"b_r:1\", \"b:1\"]";
        let words = slurm(two, "slice_features = true\nslurm = \"CPUs=4\"");
        assert_eq!(words.as_deref(), Ok("CPUs=4 Features=a.2,a.4,b.2,b.4,b.8"));
        let words = slurm("[\"a:2\"]", "slice_features = true");
        assert_eq!(words.as_deref(), Ok("Features=a.2,a.4"));
        assert_eq!(slurm("[\"a:2\"]", "").as_deref(), Ok(""));
        for (gpus, more, said) in [
            (
                "[\"a:2\"]",
                "slice_features = true\nslurm = \"feature=big\"",
                "both say what features",
            ),
            ("[\"b_r:1\"]", "slice_features = true", "have no slices"),
        ] {
            let error = slurm(gpus, more).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_node_is_in_one_table_once() {
        let with = |lists: [&str; 2]| {
            let tables =
                lists.map(|names| format!("[[nodes]]\nnames = \"{names}\"\ngpus = [\"a:1\"]\n"));
            Policy::parse(&format!("{GPUS}{}", tables.concat())).map_err(|error| error.to_string())
        };
        with(["n[1-2],m", "n[3-4],n1-2"]).unwrap();
        for (lists, said) in [
            (
                ["n[1-4]", "m,n[04,4]"],
                "line 18: [[nodes]]: n4 is in names = \"m,n[04,4]\" and in names = \"n[1-4]\" of line 15; write it once",
            ),
            (
                ["n[1-4]", "m1,m[1-2]"],
                "line 18: [[nodes]]: m1 is twice in names = \"m1,m[1-2]\"; write it once",
            ),
            (
                ["n[1-4", "m"],
                "line 15: [[nodes]]: names = \"n[1-4\" has a bracket without its other",
            ),
            (
                ["n[4-1]", "m"],
                "line 15: [[nodes]]: names = \"n[4-1]\" has \"4-1\" in brackets, which counts backwards",
            ),
            (
                ["n", "n[1-999999999]"],
                "line 18: [[nodes]]: names = \"n[1-999999999]\" means more than 100000 names",
            ),
            (
                ["n", "default"],
                "line 18: [[nodes]]: names = \"default\" has default, which Slurm does not take for a node",
            ),
        ] {
            assert_eq!(with(lists).unwrap_err(), said);
        }
    }

    #[test]
    fn what_slurm_is_to_read_besides_is_told_with_its_line() {
        let text = format!(
            "{GPUS}[[nodes]]\nnames = \"n\"\ngpus = [\"a:1\"]\nslurm = \"RealMemory=512GB\"\n"
        );
        let error = Policy::parse(&text).unwrap_err().to_string();
        assert!(
            error.starts_with("line 15: [[nodes]]: slurm has RealMemory=512GB: it counts MB"),
            "{error}"
        );
    }
}

//! Checks that Slurm numbers a node's GPUs as its devices are numbered. Slurm numbers them type by type, as Gres= of the node
//! has the types, and in each type as gres.conf has the devices.

use crate::site::check::facts::{Cluster, GresLine, Node};
use crate::site::check::finding::{Code, Finding};
use crate::site::check::rules::gres::groups;
use crate::site::check::rules::inventory::lines_for;
use softmig_policy::Policy;
use softmig_policy::config::inventory::apart;
use softmig_policy::slurm::hostlist::compress;
use std::collections::BTreeMap;

/// The fault, its file, and what to do about it.
type Wrong = (&'static str, String, &'static str);

pub(crate) fn check(policy: &Policy, cluster: &Cluster) -> Vec<Finding> {
    // A policy without types limits nothing.
    if policy.gpus().next().is_none() {
        return Vec::new();
    }
    let alike = groups(&cluster.nodes).len() == 1;
    let mut wrong: BTreeMap<Wrong, Vec<&str>> = BTreeMap::new();
    for node in &cluster.nodes {
        let lines = match &cluster.gres_conf {
            Ok(lines) => lines_for(lines, node, alike, "gpu"),
            Err(_) => Vec::new(),
        };
        let found = match devices(&lines) {
            Some(devices) => in_file(node, &devices),
            None => in_two_places("Gres=", &types(node)),
        };
        if let Some(found) = found {
            wrong.entry(found).or_default().push(&node.name);
        }
    }
    let found = wrong.into_iter().map(|((file, what, remedy), names)| {
        let what =
            format!("{what}; softmig takes Slurm's numbers for those of the devices, so jobs get the limits of another GPU");
        Finding::new(Code::GpusOrder, format!("{file} for {}", compress(names)), what, remedy)
    });
    found.collect()
}

/// The number and type of each device, as the lines have them; `None` where they do not name all of these.
fn devices<'a>(lines: &[&'a GresLine]) -> Option<Vec<(u32, &'a str)>> {
    let mut devices = Vec::new();
    for line in lines {
        let minors: Vec<u32> = line.minors().collect();
        if minors.is_empty() || minors.len() < line.files.len() {
            return None;
        }
        let kind = line.kind.as_deref().unwrap_or_default();
        devices.extend(minors.into_iter().map(|minor| (minor, kind)));
    }
    (!devices.is_empty()).then_some(devices)
}

/// The types in the order in which the NodeName line has them.
fn types(node: &Node) -> Vec<&str> {
    let kinds = node.items("gpu").map(|gres| gres.kind.as_deref());
    kinds.map(Option::unwrap_or_default).collect()
}

fn in_file(node: &Node, devices: &[(u32, &str)]) -> Option<Wrong> {
    let mut sorted = devices.to_vec();
    sorted.sort_unstable();
    let kinds: Vec<&str> = sorted.iter().map(|(_, kind)| *kind).collect();
    let apart = in_two_places("gres.conf", &kinds);
    if apart.is_some() {
        return apart;
    }
    let types = types(node);
    let place = |kind: &str| types.iter().position(|own| *own == kind);
    let mut numbered = devices.to_vec();
    numbered.sort_by_key(|(_, kind)| place(kind).unwrap_or(usize::MAX));
    let mut pairs = numbered.iter().zip(&sorted).enumerate();
    let (number, (got, _)) = pairs.find(|(_, (got, right))| got != right)?;
    Some((
        "gres.conf",
        format!(
            "Slurm's GPU {number} is /dev/nvidia{}: it numbers them type by type as Gres= has the types, and in each type as \
             gres.conf has the devices",
            got.0
        ),
        "write the types in Gres=, and the devices in gres.conf, in the order of the devices",
    ))
}

fn in_two_places(file: &'static str, kinds: &[&str]) -> Option<Wrong> {
    let (kind, between) = apart(kinds)?;
    Some((
        file,
        format!(
            "gpu:{kind} is in two places, with {between} between, and Slurm numbers GPUs type by type"
        ),
        "keep the GPUs of a type together: give another type to the first or the last ones of them",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{cluster, node, policy};

    /// Lines of a type and its files.
    fn lines(list: &[(&str, &[&str])]) -> Vec<GresLine> {
        let lines = list.iter().map(|(kind, files)| GresLine {
            nodes: vec!["gpu1".into()],
            name: "gpu".into(),
            kind: Some(kind.to_string()),
            files: files.iter().map(|file| file.to_string()).collect(),
            ..GresLine::default()
        });
        lines.collect()
    }

    fn found(gres: &str, list: &[(&str, &[&str])]) -> Vec<String> {
        let mut cluster = cluster();
        cluster.nodes[0] = node("gpu1", gres);
        cluster.gres_conf = Ok(lines(list));
        let found = check(&policy(), &cluster);
        found
            .iter()
            .map(|finding| {
                assert_eq!(finding.code, Code::GpusOrder);
                format!("{}: {}", finding.place, finding.what)
            })
            .collect()
    }

    #[test]
    fn a_type_on_both_sides_of_another_is_found_in_gres_conf() {
        let gres = "gpu:l40s:3,gpu:l40s_r:1";
        for list in [
            &[
                ("l40s", &["/dev/nvidia0"][..]),
                ("l40s_r", &["/dev/nvidia1"]),
                ("l40s", &["/dev/nvidia2", "/dev/nvidia3"]),
            ][..],
            // Two lines with the same devices.
            &[
                ("l40s", &["/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia3"]),
                ("l40s_r", &["/dev/nvidia1"]),
            ],
        ] {
            let found = found(gres, list);
            assert_eq!(found.len(), 1, "{found:?}");
            let begins =
                "gres.conf for gpu1: gpu:l40s is in two places, with l40s_r between, and Slurm";
            assert!(found[0].starts_with(begins), "{found:?}");
        }
    }

    #[test]
    fn types_and_devices_in_the_order_of_the_devices_are_right() {
        let kept: &[&str] = &["/dev/nvidia0"];
        let shared: &[&str] = &["/dev/nvidia1", "/dev/nvidia2"];
        // Lines of two types may be in any order.
        for list in [
            [("l40s", shared), ("l40s_r", kept)],
            [("l40s_r", kept), ("l40s", shared)],
        ] {
            assert!(found("gpu:l40s_r:1,gpu:l40s:2", &list).is_empty());
            // Only the devices count where they are known.
            assert!(found("gpu:l40s_r:1,gpu:l40s:1,gpu:l40s:1", &list).is_empty());
        }
        assert!(check(&policy(), &cluster()).is_empty());
    }

    #[test]
    fn types_and_devices_in_another_order_are_found() {
        let one = |gres: &str, list: &[(&str, &[&str])], said: &str| {
            let found = found(gres, list);
            assert_eq!(found.len(), 1, "{gres}: {found:?}");
            assert!(
                found[0].starts_with(&format!("gres.conf for gpu1: {said}: ")),
                "{found:?}"
            );
        };
        one(
            "gpu:l40s:2,gpu:l40s_r:1",
            &[
                ("l40s_r", &["/dev/nvidia0"]),
                ("l40s", &["/dev/nvidia1", "/dev/nvidia2"]),
            ],
            "Slurm's GPU 0 is /dev/nvidia1",
        );
        one(
            "gpu:l40s_r:1,gpu:l40s:2",
            &[
                ("l40s_r", &["/dev/nvidia0"]),
                ("l40s", &["/dev/nvidia2", "/dev/nvidia1"]),
            ],
            "Slurm's GPU 1 is /dev/nvidia2",
        );
    }

    #[test]
    fn the_nodename_line_counts_where_gres_conf_names_no_devices() {
        let gres = "gpu:l40s:1,gpu:l40s_r:1,gpu:l40s:2";
        for list in [
            &[][..],
            &[("l40s", &[][..])],
            &[("l40s", &["/dev/nvidia-caps/nvidia-cap21"])],
        ] {
            let found = found(gres, list);
            assert_eq!(found.len(), 1, "{list:?}");
            assert!(found[0].starts_with("Gres= for gpu1: "), "{found:?}");
        }
        assert!(found("gpu:l40s_r:1,gpu:l40s:3", &[]).is_empty());
        let mut cluster = cluster();
        cluster.nodes[0] = node("gpu1", gres);
        assert!(check(&Policy::parse("").unwrap(), &cluster).is_empty());
    }
}

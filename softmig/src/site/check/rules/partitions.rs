//! The policy's partitions, reservations and times, against those that there are.

use crate::output::say::counted;
use crate::site::check::facts::{Cluster, Node, Reservation};
use crate::site::check::finding::{Code, Finding, listed};
use crate::site::check::rules::slices::has_slices;
use softmig_policy::Policy;
use softmig_policy::config::gpu_types::GpuType;
use softmig_policy::config::reservable::Window;
use softmig_policy::slurm::gres_list::Configured;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(policy: &Policy, cluster: &Cluster) -> Vec<Finding> {
    let mut found = routes(policy, cluster);
    found.extend(gates(policy, cluster));
    match &cluster.reservations {
        Ok(reservations) => {
            for reservation in reservations {
                found.extend(invaded_by_slices(policy, cluster, reservation));
                found.extend(moved(policy, cluster, reservation));
            }
        }
        Err(why) => found.push(Finding::skip("reservations", why)),
    }
    found
}

fn routes(policy: &Policy, cluster: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    for route in policy.routes() {
        let name = route.partition();
        let place = format!("[[route]] to {name}");
        let Some(partition) = cluster.partition(name) else {
            found.push(Finding::new(
                Code::RoutePartition,
                place,
                "this partition does not exist, so Slurm refuses each slice job that names no partition",
                "correct it, or add the PartitionName line that 'softmig config' prints",
            ));
            continue;
        };
        let takes =
            |kind: &str| route.types().is_empty() || route.types().iter().any(|own| own == kind);
        let has = |node: &Node| {
            let mut kinds = policy.gpus().map(GpuType::name);
            kinds.any(|kind| takes(kind) && has_slices(policy, node, kind))
        };
        if !cluster.nodes_of(partition).any(has) {
            let types = match route.types() {
                [] => "any type".to_string(),
                types => types.join(" or "),
            };
            found.push(Finding::new(
                Code::RouteGpus,
                place,
                format!("no node of that partition has shards of {types}, so jobs that it takes never start"),
                "correct the route, or the partition's nodes",
            ));
        }
    }
    found
}

fn gates(policy: &Policy, cluster: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, gate) in policy.gates().iter().enumerate() {
        let place = format!("[[gate]] for {}", gate.what());
        let is_known = |name: &&String| cluster.partition(name).is_some();
        if let Some(unknown) = listed(gate.partitions().iter().filter(|name| !is_known(name))) {
            found.push(Finding::new(
                Code::GatePartition,
                &place,
                format!("partition {unknown} does not exist, so this gate has no effect for it"),
                "correct it in policy.toml",
            ));
        }
        if let Ok(reservations) = &cluster.reservations
            && !reservations
                .iter()
                .any(|reservation| policy.gate_opens(number, &reservation.name))
        {
            found.push(Finding::new(
                Code::GateReservation,
                place,
                format!("no current reservation matches {}, so no job passes", gate.reservations().join(" or ")),
                "make the reservation when its time comes, or correct the expression: it has to fit the whole name",
            ));
        }
    }
    found
}

/// A reservation of GPUs keeps whole-GPU jobs off them, but not slices: these are on shards, which cannot be reserved.
fn invaded_by_slices(
    policy: &Policy,
    cluster: &Cluster,
    reservation: &Reservation,
) -> Option<Finding> {
    let nodes = || {
        let nodes = cluster.nodes.iter();
        nodes.filter(|node| reservation.nodes.is_empty() || reservation.nodes.contains(&node.name))
    };
    let is_cut = |kind: &str| nodes().any(|node| has_slices(policy, node, kind));
    let mut gpus = Configured::parse(&reservation.tres);
    gpus.retain(|gres| gres.name == "gpu" && gres.count > 0);
    // Slurm prints both the sum and the GPUs of each type.
    let mut typed = gpus
        .iter()
        .filter_map(|gres| gres.kind.as_deref())
        .peekable();
    let kind = if typed.peek().is_some() {
        typed.find(|kind| is_cut(kind))?
    } else {
        let is_any = !gpus.is_empty() && policy.gpus().any(|gpu| is_cut(gpu.name()));
        is_any.then_some("any type")?
    };
    Some(Finding::new(
        Code::ReservationInvaded,
        format!("reservation {}", reservation.name),
        format!(
            "it reserves GPUs of {kind}, which have shards: other users' slices still run on them"
        ),
        "reserve whole nodes, or give the GPUs a type of their own with [[reservable]]",
    ))
}

/// A reservation that softmig-reservations.sh made, and that is no longer on the nodes of its GPUs.
fn moved(policy: &Policy, cluster: &Cluster, reservation: &Reservation) -> Option<Finding> {
    let rest = reservation.name.strip_prefix("softmig_")?;
    let (kind, start) = rest.rsplit_once('_')?;
    let mut kinds = policy.reservables().iter().map(|own| own.kind());
    if !start.bytes().all(|byte| byte.is_ascii_digit()) || !kinds.any(|own| own == kind) {
        return None;
    }
    let nodes = cluster
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), node.count("gpu", kind)));
    let with: BTreeMap<&str, u64> = nodes.filter(|(_, count)| *count > 0).collect();
    let gpus: u64 = with.values().sum();
    let reserved = Configured::parse(&reservation.tres);
    let of_kind = |gres: &&Configured| gres.name == "gpu" && gres.kind.as_deref() == Some(kind);
    let has = reserved.iter().find(of_kind).map_or(0, |gres| gres.count);
    let own: BTreeSet<&str> = reservation.nodes.iter().map(String::as_str).collect();
    if gpus == 0 || (has == gpus && with.keys().eq(&own)) {
        return None;
    }
    let names: Vec<&str> = with.into_keys().collect();
    Some(Finding::new(
        Code::ReservableMoved,
        format!("reservation {}", reservation.name),
        format!(
            "it is on {} with {} of {kind}, and {} has {gpus}: nothing of that node is kept for the holder",
            match reservation.nodes.as_slice() {
                [] => "no node".to_string(),
                nodes => nodes.join(","),
            },
            counted(has, "GPU"),
            names.join(",")
        ),
        "run softmig-reservations.sh of 'softmig config', which makes it anew",
    ))
}

/// The times of reserved GPUs.
pub(crate) fn windows(policy: &Policy, cluster: Option<&Cluster>, now: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    for reservable in policy.reservables() {
        let kind = reservable.kind();
        let place = format!("[[reservable]] {kind}");
        let whose = format!(
            "for {}, {} ({})",
            reservable.holder().called(),
            reservable.utc(),
            reservable.reason()
        );
        let in_slurm =
            cluster.map(|cluster| cluster.nodes.iter().any(|node| node.count("gpu", kind) > 0));
        let mut others = policy
            .reservables()
            .iter()
            .filter(|other| other.kind() == kind);
        let is_last = others.all(|other| other.window(now) == Window::Over);
        let (code, what, remedy) = match (reservable.window(now), in_slurm) {
            (Window::Over, Some(true)) if is_last => (
                Code::ReservableOver,
                "its time is over, and the GPUs are still kept",
                "take the lines that 'softmig config' prints, which give them back",
            ),
            (Window::Over, _) if is_last => (
                Code::ReservableOver,
                "its time is over",
                "take it out of policy.toml once Slurm has the GPUs as they were",
            ),
            (Window::Over, _) => (
                Code::ReservableOver,
                "its time is over",
                "take it out of policy.toml",
            ),
            (Window::Ahead | Window::Open, Some(false)) => (
                Code::ReservableType,
                "no node in Slurm has a GPU of this type, so nothing is kept",
                "put it in [[nodes]] and take the lines that 'softmig config' prints",
            ),
            (Window::Ahead, _) => (Code::ReservableWindow, "ahead", ""),
            (Window::Open, _) => (Code::ReservableWindow, "now", ""),
        };
        found.push(Finding::new(
            code,
            place,
            format!("{what}: {whose}"),
            remedy,
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{
        cluster, codes, node, policy, policy_with, reservation,
    };

    #[test]
    fn a_policy_without_names_is_clean() {
        assert!(check(&policy(), &cluster()).is_empty());
    }

    #[test]
    fn routes_lead_to_partitions_with_their_gpus() {
        let found = |route: &str| {
            codes(&check(
                &policy_with(&format!("[[route]]\n{route}\n")),
                &cluster(),
            ))
        };
        assert!(found("partition = \"gpu\"").is_empty());
        assert!(found("partition = \"gpu\"\ntypes = [\"h200\"]").is_empty());
        assert_eq!(found("partition = \"quick\""), ["ROUTE_PARTITION"]);
        assert_eq!(found("partition = \"cpu\""), ["ROUTE_GPUS"]);
        let mut cluster = cluster();
        cluster.nodes.remove(2);
        let h200 = policy_with("[[route]]\npartition = \"gpu\"\ntypes = [\"h200\"]\n");
        assert_eq!(codes(&check(&h200, &cluster)), ["ROUTE_GPUS"]);
    }

    #[test]
    fn gates_open_to_a_reservation_that_there_is() {
        let gate = policy_with("[[gate]]\nwhat = \"slice\"\nreservation = [\"course_.*\"]\n");
        let mut cluster = cluster();
        assert_eq!(codes(&check(&gate, &cluster)), ["GATE_RESERVATION"]);
        cluster.reservations = Ok(vec![reservation("xcourse_1", &["gpu1"], "cpu=4")]);
        assert_eq!(codes(&check(&gate, &cluster)), ["GATE_RESERVATION"]);
        cluster.reservations = Ok(vec![reservation("course_1", &["gpu1"], "cpu=4")]);
        assert!(check(&gate, &cluster).is_empty());
        let elsewhere = policy_with(
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"course_.*\"]\npartitions = [\"gpu\", \"old\"]\n",
        );
        assert_eq!(codes(&check(&elsewhere, &cluster)), ["GATE_PARTITION"]);
        cluster.reservations = Err("files do not say".into());
        assert_eq!(codes(&check(&gate, &cluster)), ["NOT_LOOKED_AT"]);
    }

    #[test]
    fn a_reservation_of_shared_gpus_does_not_keep_slices_off() {
        let found = |nodes: &[&str], tres: &str| {
            let mut cluster = cluster();
            cluster.nodes.push(node(
                "gpu4",
                "gpu:l40s:3,gpu:l40s_r:1,shard:l40s:12,shard:l40s_r:1",
            ));
            cluster.reservations = Ok(vec![reservation("r", nodes, tres)]);
            codes(&check(&policy(), &cluster))
        };
        assert_eq!(
            found(&["gpu1"], "cpu=1,gres/gpu:l40s=1"),
            ["RESERVATION_INVADED"]
        );
        assert_eq!(
            found(&["gpu1"], "cpu=1,gres/gpu=1,gres/gpu:l40s=1"),
            ["RESERVATION_INVADED"]
        );
        assert_eq!(found(&["gpu1"], "gres/gpu=2"), ["RESERVATION_INVADED"]);
        assert!(found(&["gpu4"], "cpu=1,gres/gpu=1,gres/gpu:l40s_r=1").is_empty());
        assert!(found(&["gpu1", "gpu2"], "cpu=32").is_empty());
    }

    const KEPT: &str = "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nreason = \"paper\"\n\
        start = 1970-01-01T01:00:00+01:00\nend = 1970-01-01T00:02:00Z\n";

    #[test]
    fn a_reservation_that_left_its_gpus_is_found() {
        let policy = policy_with(KEPT);
        let with = |nodes: &[&str], tres: &str| {
            let mut cluster = cluster();
            cluster.nodes[0] = node("gpu1", "gpu:l40s:3,gpu:l40s_r:1,shard:l40s:12");
            let name = "softmig_l40s_r_19700101000100";
            cluster.reservations = Ok(vec![reservation(name, nodes, tres)]);
            codes(&check(&policy, &cluster))
        };
        let right = "cpu=8,gres/gpu=1,gres/gpu:l40s_r=1";
        assert!(with(&["gpu1"], right).is_empty());
        assert_eq!(with(&["gpu2"], right), ["RESERVABLE_MOVED"]);
        assert_eq!(with(&["gpu1"], "cpu=8"), ["RESERVABLE_MOVED"]);
        assert_eq!(with(&["gpu1", "gpu2"], right), ["RESERVABLE_MOVED"]);
    }

    #[test]
    fn the_next_holder_keeps_the_gpu() {
        let next = "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\naccount = \"b\"\nreason = \"x\"\n\
            start = 1970-01-01T00:10:00Z\nend = 1970-01-01T00:20:00Z\n";
        let both = policy_with(&format!("{KEPT}{next}"));
        let mut cluster = cluster();
        cluster.nodes[0] = node(
            "gpu1",
            "gpu:l40s:3,gpu:l40s_r:1,shard:l40s:12,shard:l40s_r:1",
        );
        let found = windows(&both, Some(&cluster), 120);
        assert_eq!(codes(&found), ["RESERVABLE_OVER", "RESERVABLE_WINDOW"]);
        assert_eq!(found[0].remedy, "take it out of policy.toml");
    }
}

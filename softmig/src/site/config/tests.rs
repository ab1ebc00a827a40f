//! The texts for three sites, and that any policy makes texts that fit together.

use super::*;
use crate::settings::tres::Tres;
use proptest::prelude::*;
use softmig_policy::WallTime;
use std::collections::BTreeMap;
use std::io::Write as _;

const DS01: &str = include_str!("../../../tests/policies/ds01.toml");
const SURF: &str = include_str!("../../../tests/policies/surf.toml");
const MIG: &str = include_str!("../../../tests/policies/mig.toml");

/// 2027-01-11T08:00:00Z, from when a GPU of DS01 is kept for a user.
const START: i64 = 1_799_654_400;
const WEEK: i64 = 7 * 86_400;

fn made(policy: &str, version: &str, now: i64) -> BTreeMap<&'static str, String> {
    let policy = Policy::parse_at(policy, "UTC").unwrap();
    let files = files(&policy, version.parse().unwrap(), now);
    files
        .into_iter()
        .map(|file| (file.name, file.text))
        .collect()
}

/// All texts but what is the same for all sites.
fn texts(policy: &str, version: &str, now: i64) -> String {
    let policy = Policy::parse_at(policy, "UTC").unwrap();
    let mut files = files(&policy, version.parse().unwrap(), now);
    files.retain(|file| file.name != "cgroup.conf");
    as_one(&files)
        .replace(qos::FUNCTIONS, "[functions]\n")
        .replace(reservations::FUNCTIONS, "[functions]\n")
}

/// The lines that are no comments.
fn lines<'a>(files: &'a BTreeMap<&str, String>, name: &str) -> Vec<&'a str> {
    let lines = files[name].lines();
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

#[test]
fn control_groups_are_called_as_before_where_the_release_can() {
    let set = "CgroupJobIdPaths=yes";
    for (version, there, comment) in [
        ("25.11.9", false, false),
        ("26.05", false, true),
        ("26.05.1", false, true),
        ("26.05.2", true, false),
        ("26.11", true, false),
    ] {
        let files = made(DS01, version, START);
        assert_eq!(
            lines(&files, "cgroup.conf").contains(&set),
            there,
            "{version}"
        );
        let proposed = files["cgroup.conf"].contains("# CgroupJobIdPaths=yes");
        assert_eq!(proposed, comment, "{version}");
    }
}

#[test]
fn ds01_before_a_gpu_is_kept_for_a_user() {
    insta::assert_snapshot!(texts(DS01, "24.11", START - 1));
}

#[test]
fn a_kept_gpu_is_set_apart_from_before_its_start() {
    let before = made(DS01, "24.11", START - WEEK);
    for now in [START - 1, START, START + WEEK - 1] {
        assert_eq!(made(DS01, "24.11", now), before, "{now}");
    }
}

#[test]
fn after_its_time_a_gpu_is_shared_again() {
    let after = made(DS01, "24.11", START + WEEK);
    insta::assert_snapshot!(lines(&after, "gres.conf").join("\n"), @r"
    AutoDetect=off
    NodeName=ds01 Name=gpu Type=l40s File=/dev/nvidia[0-3]
    NodeName=ds01 Name=shard Type=l40s Count=16 File=/dev/nvidia[0-3]
    ");
    let node = lines(&after, "softmig.conf")
        .into_iter()
        .find(|line| line.starts_with("NodeName="))
        .unwrap();
    assert_eq!(
        node,
        "NodeName=ds01 Gres=gpu:l40s:4,shard:l40s:16 CPUs=64 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=512000"
    );
    let script = &after["softmig-reservations.sh"];
    assert!(script.contains("\n# This time is over.\n"), "{script}");
    assert!(!script.contains("\nreservation "), "{script}");
}

#[test]
fn slurm_is_told_an_hour_that_comes_twice_as_it_is() {
    // The clocks of Berlin show 02:30 an hour later again.
    let (first, second) = ("2027-10-31T02:30:00+02:00", "2027-10-31T02:30:00+01:00");
    let policy = DS01
        .replace("start = 2027-01-11T08:00:00Z", &format!("start = {first}"))
        .replace("end = 2027-01-18T08:00:00Z", &format!("end = {second}"));
    let policy = Policy::parse_at(&policy, "Europe/Berlin").unwrap();
    let files = files(&policy, "24.11".parse().unwrap(), START);
    let script = files
        .into_iter()
        .find(|it| it.name == "softmig-reservations.sh")
        .unwrap()
        .text;
    let line = script
        .lines()
        .find(|it| it.starts_with("reservation softmig"));
    let words: Vec<&str> = line.unwrap().split(' ').collect();
    assert_eq!(words[2..4], ["1824942600", "1824946200"]);
    assert!(
        script.contains("start=uts$begins") && script.contains("EndTime=\"uts$ends\""),
        "{script}"
    );
}

#[test]
fn a_release_that_cannot_reserve_gpus_says_what_to_do_instead() {
    let files = made(DS01, "22.05", START);
    insta::assert_snapshot!(files["softmig-reservations.sh"], @r"
    #!/bin/sh
    # softmig-reservations.sh: nothing to do. Slurm 22.05 cannot reserve single GPUs (23.11 can).
    # The type of its own keeps others off such a GPU, but not off the node's CPUs; a reservation of the whole node would:
    #   scontrol create reservation ReservationName=NAME Nodes=NODE Users=USER StartTime=... EndTime=... Flags=IGNORE_JOBS
    ");
}

#[test]
fn surf_on_a_release_that_spreads() {
    insta::assert_snapshot!(texts(SURF, "24.11", 0));
}

#[test]
fn a_release_that_cannot_spread_is_not_told_to() {
    let conf = &made(SURF, "22.05", 0)["softmig.conf"];
    assert!(
        conf.contains("\nSelectTypeParameters=CR_Core_Memory\n"),
        "{conf}"
    );
    assert!(conf.contains("needs Slurm 23.11"), "{conf}");
}

#[test]
fn mig_instances_beside_whole_and_shared_gpus() {
    insta::assert_snapshot!(texts(MIG, "24.11", 0));
}

#[test]
fn without_an_inventory_it_says_what_to_add() {
    let policy = DS01.split("[[nodes]]").next().unwrap();
    let files = made(policy, "24.11", 0);
    insta::assert_snapshot!(files["gres.conf"]);
    let conf = files["softmig.conf"]
        .split("PriorityWeightQOS=10000\n")
        .nth(1);
    insta::assert_snapshot!(conf.unwrap());
    let script = files["softmig-reservations.sh"].replace(reservations::FUNCTIONS, "");
    assert!(
        script.contains("since [[nodes]] has no such GPU."),
        "{script}"
    );
}

/// A policy of everything that has to do with these texts, by numbers.
fn any_policy() -> impl Strategy<Value = String> {
    let gpu = (1u32..9, any::<bool>(), 0u32..4);
    let quota = (
        0u64..20,
        0u64..5,
        0u64..5,
        any::<bool>(),
        64u32..5000,
        0u32..100,
    );
    let node = proptest::collection::vec((0usize..4, 1u32..5), 1..4);
    (
        proptest::collection::vec(gpu, 1..4),
        proptest::collection::vec(quota, 0..3),
        proptest::collection::vec(node, 0..3),
        any::<[bool; 4]>(),
    )
        .prop_map(|(gpus, quotas, nodes, [spread, mps, kept, route])| {
            let mut text = format!(
                "[placement]\nshards = \"{}\"\n",
                if spread { "spread" } else { "pack" }
            );
            for (at, (shards, mig, _)) in gpus.iter().enumerate() {
                text += &format!(
                    "[gpu.\"t{at}_1.5\"]\nmemory_mib = 10000\nreserved_mib = 1\nshards = {shards}\nmig = {mig}\n"
                );
            }
            if mps {
                let units = gpus[0].0 * 10;
                text += &format!("[legacy.mps]\ntype = \"t0_1.5\"\nunits_per_gpu = {units}\n");
            }
            if kept {
                text += "[[reservable]]\ntype = \"kept\"\nof = \"t0_1.5\"\naccount = \"a\"\nend = 1970-01-01T00:00:05Z\nreason = \"it's\"\n";
            }
            if route {
                text += "[[route]]\npartition = \"p\"\nmax_time = \"90\"\n";
            }
            for (at, (shards, wholes, jobs, limited, minutes, priority)) in quotas.iter().enumerate() {
                let shards = if *limited { shards.to_string() } else { "\"unlimited\"".to_string() };
                text += &format!(
                    "[classes.c{at}]\nmembers = {{ users = [\"u{at}\"] }}\nshards = {shards}\nwhole_gpus = {wholes}\nmig = {{}}\n\
                     jobs = {jobs}\nwall_time = \"{minutes}\"\npriority = {priority}\nhost_memory_mib = {minutes}\n\
                     shards_of = {{ \"t0_1.5\" = {jobs} }}\n"
                );
            }
            if !quotas.is_empty() {
                text += "[defaults]\nshards = 0\nwhole_gpus = 0\nmig = {}\n";
            }
            for (at, node) in nodes.iter().enumerate() {
                let kinds = node.iter().map(|(kind, count)| match (*kind, kept) {
                    (3, true) => format!("\"kept:{count}\""),
                    (kind, _) => format!("\"t{}_1.5:{count}\"", kind % gpus.len()),
                });
                text += &format!(
                    "[[nodes]]\nnames = \"n{at}[1-2]\"\ngpus = [{}]\nslurm = \"CPUs=8 RealMemory=8000\"\n",
                    kinds.collect::<Vec<_>>().join(", ")
                );
            }
            text
        })
        // The types of a node lie side by side.
        .prop_filter("a policy that is refused makes no files", |text| {
            Policy::parse(text).is_ok()
        })
}

/// `gpu:l40s:4,shard:l40s:16` by name and type.
fn configured(gres: &str) -> BTreeMap<String, u64> {
    let items = gres.split(',').map(|item| {
        let (name, count) = item.rsplit_once(':').unwrap();
        (name.to_string(), count.parse().unwrap())
    });
    items.collect()
}

fn word<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let mut words = line.split(' ').filter_map(|word| word.split_once('='));
    words.find_map(|(name, value)| (name == key).then_some(value))
}

/// `/dev/nvidia[0-2,5]`
fn devices(files: &str) -> Vec<u32> {
    let list = files
        .strip_prefix("/dev/nvidia")
        .unwrap()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let runs = list.split(',').map(|run| match run.split_once('-') {
        Some((first, last)) => first.parse().unwrap()..=last.parse().unwrap(),
        None => run.parse().unwrap()..=run.parse().unwrap(),
    });
    runs.flatten().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_policy_makes_texts_that_fit_together(
        policy in any_policy(),
        version in prop::sample::select(vec!["22.05", "23.11", "24.11", "26.05"]),
        now in 0i64..10,
    ) {
        let parsed = Policy::parse(&policy).unwrap();
        let files = made(&policy, version, now);
        for text in files.values() {
            prop_assert!(text.is_ascii() && text.ends_with('\n'));
        }
        // Node by node: what slurm.conf says is what gres.conf has.
        let gres_lines = lines(&files, "gres.conf");
        let nodes = lines(&files, "softmig.conf").into_iter().filter(|line| line.starts_with("NodeName="));
        let mut seen = 0;
        for line in nodes {
            seen += 1;
            let own: Vec<&str> = gres_lines
                .iter()
                .copied()
                .filter(|other| word(other, "NodeName") == word(line, "NodeName"))
                .collect();
            let stated = configured(word(line, "Gres").unwrap());
            let shards: u64 = stated.iter().filter(|(name, _)| name.starts_with("shard:")).map(|(_, count)| count).sum();
            let counted: u64 = own.iter().filter_map(|line| word(line, "Count")?.parse::<u64>().ok()).sum();
            prop_assert_eq!(shards, counted);
            if own.iter().any(|line| line.contains("AutoDetect=nvml")) {
                continue;
            }
            let mut found: BTreeMap<String, u64> = BTreeMap::new();
            let mut minors = Vec::new();
            for line in own {
                let (name, kind) = (word(line, "Name").unwrap(), word(line, "Type").unwrap());
                let files = devices(word(line, "File").unwrap());
                let count = match word(line, "Count") {
                    Some(count) => count.parse().unwrap(),
                    None => files.len() as u64,
                };
                *found.entry(format!("{name}:{kind}")).or_default() += count;
                if name == "gpu" {
                    minors.extend(files);
                }
            }
            prop_assert_eq!(&found, &stated);
            let gpus = minors.len() as u32;
            prop_assert_eq!(minors, (0..gpus).collect::<Vec<_>>());
        }
        prop_assert_eq!(seen, parsed.nodes().len());
        // Every limit can be read, and is of something that is counted.
        let tracked = lines(&files, "softmig.conf").into_iter().find_map(|line| line.strip_prefix("AccountingStorageTRES="));
        let script = files["softmig-qos.sh"].replace(qos::FUNCTIONS, "");
        let mut qos = 0;
        for line in script.lines().filter(|line| line.starts_with("qos ")) {
            qos += 1;
            let quoted: Vec<&str> = line.split('\'').collect();
            for limits in [quoted[1], quoted[3]] {
                let limits: Tres = limits.parse().unwrap();
                for (name, _) in limits.iter().filter(|(name, _)| name.starts_with("gres/")) {
                    prop_assert!(tracked.unwrap().split(',').any(|other| other == name), "{}", name);
                }
            }
            let time = word(line, "MaxWall").unwrap();
            prop_assert!(time == "-1" || WallTime::parse(time).is_some());
        }
        prop_assert_eq!(qos, parsed.standings().iter().filter(|standing| standing.qos.is_some()).count());
        prop_assert_eq!(qos > 0, tracked.is_some());
        for name in ["softmig-qos.sh", "softmig-reservations.sh"] {
            prop_assert!(is_shell(&files[name]), "{}", files[name]);
        }
    }
}

/// Whether a shell can read it.
fn is_shell(script: &str) -> bool {
    let mut shell = std::process::Command::new("sh")
        .arg("-n")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    input.write_all(script.as_bytes()).unwrap();
    drop(input);
    shell.wait().unwrap().success()
}

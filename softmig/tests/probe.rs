//! `softmig probe` with the fake driver's NVML: what it says of whole, divided, empty, old and lost GPUs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use softmig_fake_node::{Answers, Description, Gpu, Mig, Node, PLACE_VARIABLE};
use softmig_policy::Policy;
use std::os::unix::fs::symlink;
use std::process::Command;
use tempfile::TempDir;

/// The output of the program, and how it ended.
struct Said {
    stdout: String,
    stderr: String,
    status: Option<i32>,
}

/// A folder with a driver's library, and a node with such GPUs where there are any.
struct Place(TempDir);

impl Place {
    fn without_a_driver() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// With the library alone: the kernel's part of the driver is not loaded.
    fn with_the_library() -> Self {
        let place = Self::without_a_driver();
        let built = std::env::current_exe().unwrap();
        let library = built.parent().unwrap().join("libsoftmig_fake_nvml.so");
        assert!(library.exists(), "{}", library.display());
        symlink(library, place.0.path().join("libnvidia-ml.so.1")).unwrap();
        place
    }

    fn with(gpus: &[Gpu]) -> Self {
        let place = Self::with_the_library();
        let folder = place.0.path();
        for gpu in gpus {
            std::fs::write(folder.join(format!("nvidia{}", gpu.minor)), "").unwrap();
        }
        let description = Description::new(gpus).devices(folder);
        Node::describe(folder.join("node"), description).unwrap();
        place
    }

    fn probe(&self, words: &[&str]) -> Said {
        self.probe_with(words, &[])
    }

    fn probe_with(&self, words: &[&str], variables: &[(&str, &str)]) -> Said {
        let output = Command::new(env!("CARGO_BIN_EXE_softmig"))
            .arg("probe")
            .args(words)
            .env("LD_LIBRARY_PATH", self.0.path())
            .env(PLACE_VARIABLE, self.0.path().join("node"))
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        Said {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            status: output.status.code(),
        }
    }

    fn json(&self) -> (Value, Option<i32>) {
        let said = self.probe(&["--json"]);
        let json = serde_json::from_str(&said.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", said.stdout, said.stderr));
        (json, said.status)
    }
}

fn counts(json: &Value) -> [&Value; 3] {
    ["physical_gpus", "mig_instances", "usable_devices"].map(|key| &json[key])
}

/// The text to paste.
fn entries(stdout: &str) -> toml::Table {
    let (_, entries) = stdout.split_once("# For policy.toml.").unwrap();
    toml::from_str(&format!("#{entries}")).unwrap()
}

#[test]
fn four_gpus_of_one_type_are_one_entry_and_a_policy() {
    let place = Place::with(&Gpu::several(4, Gpu::l40s));
    let said = place.probe(&[]);
    assert_eq!(said.status, Some(0), "{}{}", said.stdout, said.stderr);
    assert!(
        said.stdout
            .contains("\n4 physical GPUs, 0 MIG instances, 4 usable devices\n"),
        "{}",
        said.stdout
    );
    let mut entries = entries(&said.stdout);
    let nodes = entries.remove("nodes").unwrap();
    assert_eq!(nodes[0]["gpus"][0].as_str(), Some("l40s:4"));
    let policy = Policy::parse(&toml::to_string(&entries).unwrap()).unwrap();
    let quarter = policy.gpu("l40s").unwrap().slice(4).unwrap();
    assert_eq!(quarter.memory_mib(), 11366);
}

#[test]
fn the_measured_h200_is_told_as_it_was_measured() {
    let (json, status) = Place::with(&[Gpu::h200(0)]).json();
    assert_eq!(status, Some(0));
    let gpu = &json["gpus"][0];
    assert_eq!(
        gpu["memory"],
        json!({"total_mib": 143_771, "reserved_mib": 616, "usable_mib": 143_155})
    );
    assert_eq!(gpu["mig"], json!({"current": false, "pending": false}));
    assert_eq!(json["types"][0]["type"], "h200");
    assert_eq!(json["types"][0]["autodetect_type"], "nvidia_h200");
    assert_eq!(json["driver"], "580.159.04");
}

#[test]
fn mig_without_instances_is_unusable_and_the_remedy_is_named() {
    let empty = |minor| Gpu::a100_divided(minor, &[]);
    let gpus = [Gpu::a100(0), empty(1), empty(2), empty(3)];
    let place = Place::with(&gpus);
    let (json, status) = place.json();
    assert_eq!(status, Some(0), "{json}");
    assert_eq!(counts(&json), [&json!(4), &json!(0), &json!(1)]);
    assert_eq!(json["inventory"], json!(["a100:1"]));
    assert_eq!(json["gpus"][0]["state"], "whole");
    assert_eq!(json["gpus"][3]["state"], "mig_without_instances");
    let said = place.probe(&[]).stdout;
    for part in [
        "4 physical GPUs, 0 MIG instances, 1 usable device\n",
        "  MIG     on, and no instances: UNUSABLE\n",
        "GPU 3: MIG is on and there are no instances",
        "nvidia-smi mig -i 3 -cgi PROFILE,... -C",
        "nvidia-smi -i 3 -mig 0",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn four_instances_on_each_of_three_gpus_are_twelve() {
    let profiles = ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"];
    let divided = |minor| Gpu::a100_divided(minor, &profiles);
    let place = Place::with(&[Gpu::a100(0), divided(1), divided(2), divided(3)]);
    let (json, status) = place.json();
    assert_eq!(status, Some(0), "{json}");
    assert_eq!(counts(&json), [&json!(4), &json!(12), &json!(13)]);
    let run = ["a100_3g.20gb:1", "a100_2g.10gb:1", "a100_1g.5gb:2"];
    let inventory: Vec<_> = [vec!["a100:1"], [run; 3].concat()].concat();
    assert_eq!(json["inventory"], json!(inventory));
    let instance = &json["gpus"][1]["instances"][3];
    assert_eq!(instance["profile"], "1g.5gb");
    assert_eq!(instance["memory"]["usable_mib"], 4864);
    assert!(instance["uuid"].as_str().unwrap().starts_with("MIG-"));

    let said = place.probe(&[]).stdout;
    let entries = entries(&said);
    let small = &entries["gpu"]["a100_1g.5gb"];
    assert_eq!(small["mig"].as_bool(), Some(true));
    assert_eq!(small["shards"].as_integer(), Some(1));
    assert_eq!(small["memory_mib"].as_integer(), Some(4864));
    assert_eq!(entries["gpu"]["a100"].get("mig"), None);
    assert!(
        said.contains("AutoDetect=nvml calls it nvidia_a100_1g.5gb\n"),
        "{said}"
    );
}

#[test]
fn compute_instances_that_share_memory_are_told_apart() {
    let mut gpu = Gpu::a100_divided(0, &["3g.20gb", "3g.20gb"]);
    if let Mig::Enabled(parts) = &mut gpu.mig {
        parts[0].profile = "1c.3g.20gb".into();
    }
    let place = Place::with(&[gpu]);
    let (json, _) = place.json();
    let shares = [0, 1].map(|part| &json["gpus"][0]["instances"][part]["shares_memory"]);
    assert_eq!(shares, [&json!(true), &json!(false)]);
    assert_eq!(
        json["inventory"],
        json!(["a100_1c.3g.20gb:1", "a100_3g.20gb:1"])
    );
    let said = place.probe(&[]).stdout;
    assert!(said.contains("each can take all of the memory"), "{said}");
}

#[test]
fn mig_that_comes_with_the_next_reset_is_announced() {
    let mut gpu = Gpu::a100(0);
    gpu.mig_pending = Some(true);
    let (json, status) = Place::with(&[gpu]).json();
    assert_eq!(
        (status, &json["gpus"][0]["state"]),
        (Some(0), &json!("whole"))
    );
    let note = json["notes"].to_string();
    assert!(note.contains("GPU 0: MIG is off, and on after"), "{note}");
}

#[test]
fn without_a_driver_there_is_an_error_and_no_count() {
    for (place, words) in [
        (Place::without_a_driver(), "NVML is not installed here"),
        (Place::with_the_library(), "the NVIDIA driver is not loaded"),
    ] {
        for form in [&[][..], &["--json"]] {
            let said = place.probe(form);
            assert_eq!((said.status, said.stdout.as_str()), (Some(1), ""));
            assert!(said.stderr.contains(words), "{}", said.stderr);
        }
    }
    let said = Place::without_a_driver().probe(&[]);
    assert!(
        said.stderr.contains("install the NVIDIA driver"),
        "{}",
        said.stderr
    );
    let said = Place::with_the_library().probe(&[]);
    assert!(said.stderr.contains("modprobe nvidia"), "{}", said.stderr);
}

#[test]
fn a_gpu_that_fell_off_the_bus_is_counted_and_not_usable() {
    let mut gpus = Gpu::several(4, Gpu::l40s);
    gpus[2].answers = Answers::Nothing;
    let place = Place::with(&gpus);
    let (json, status) = place.json();
    assert_eq!(status, Some(1), "{json}");
    assert_eq!(counts(&json), [&json!(4), &json!(0), &json!(3)]);
    assert_eq!(json["complete"], false);
    let lost = json["gpus"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&lost["index"], &lost["state"]),
        (&json!(2), &json!("unreadable"))
    );
    let said = place.probe(&[]);
    assert_eq!(said.status, Some(1));
    assert!(
        said.stdout.contains("GPU 2: device fell off the bus"),
        "{}",
        said.stdout
    );
    assert!(said.stdout.contains("Drain the node"), "{}", said.stdout);
    // An administrator who pastes this does not get an inventory with a GPU too few.
    let entries = entries(&said.stdout);
    assert!(
        entries.contains_key("gpu") && !entries.contains_key("nodes"),
        "{entries}"
    );
    assert!(
        said.stdout.contains("# gpus = [\"l40s:3\"]"),
        "{}",
        said.stdout
    );
}

#[test]
fn a_card_without_memory_info_v2_has_no_entry() {
    let place = Place::with(&[Gpu::v100(0).answering(Answers::NoMemoryV2)]);
    let (json, status) = place.json();
    assert_eq!(status, Some(1), "{json}");
    assert_eq!(counts(&json), [&json!(1), &json!(0), &json!(1)]);
    assert_eq!(json["gpus"][0]["memory"], Value::Null);
    assert_eq!(json["gpus"][0]["state"], "whole");
    let said = place.probe(&[]);
    assert!(
        said.stdout.contains("drivers from 510 on"),
        "{}",
        said.stdout
    );
    assert!(
        said.stdout.contains("# [gpu.v100]: no entry"),
        "{}",
        said.stdout
    );
    assert!(!entries(&said.stdout).contains_key("gpu"));
}

#[test]
fn under_limits_nothing_is_probed() {
    let place = Place::with(&[Gpu::l40s(0)]);
    let said = place.probe_with(&[], &[("CUDA_DEVICE_MEMORY_LIMIT_0", "4g")]);
    assert_eq!((said.status, said.stdout.as_str()), (Some(1), ""));
    assert_eq!(
        said.stderr,
        "softmig probe: CUDA_DEVICE_MEMORY_LIMIT_0 is set, which limits what is shown; unset it\n"
    );
}

//! How jobs share each GPU model here: what was measured and is kept, and measuring it.
//!
//! The measuring itself is softmig-proof's, the file softmig-node's (`proofs`). softmig-monitor goes by that file.

use crate::files::config_lock::{explained, replace};
use rustix::fs::{FlockOperation, flock};
use softmig_node::dir::Dir;
use softmig_node::gpu::{Card, installed};
use softmig_node::node::Node;
use softmig_node::proofs::{self, Proof, Proofs};
use softmig_node::whole_node::whole_node;
use softmig_nvml::{Devices, MigState, is_idle};
use softmig_proof::Trouble;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

/// The command that shows the monitor a new result.
pub(crate) const RESTART: &str = "'systemctl restart softmig-monitor'";

/// The executable that is this process.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// A GPU model of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    /// Its name.
    pub(crate) name: String,
    /// The measurement, or why nothing is known.
    pub(crate) known: Result<Proof, String>,
}

/// The models to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// No model.
    Nothing,
    /// Models of which nothing is kept.
    Unknown,
    /// Every model.
    All,
}

/// Each GPU model that the driver lists.
pub(crate) fn look(
    node: &Node,
    devices: &Result<Devices, String>,
    measure: Measure,
    is_idle: impl Fn(&Card) -> bool,
    try_one: impl Fn(&Card) -> Result<Proof, String>,
) -> Vec<Model> {
    let cards = installed(&node.gpus);
    let names: BTreeSet<&String> = cards.iter().map(|card| &card.model).collect();
    let models = names.into_iter().map(|name| {
        let cards = cards.iter().filter(|card| card.model == *name);
        let known = kept(node, name);
        let is_due = match measure {
            Measure::Nothing => false,
            Measure::Unknown => known.is_err(),
            Measure::All => true,
        };
        let new = is_due.then(|| {
            let card = idle(cards, devices, &is_idle)?;
            keep(node, || try_one(card))
        });
        Model {
            name: name.clone(),
            known: match (new, known) {
                (Some(Ok(new)), _) => Ok(new),
                // The results of before still hold.
                (Some(Err(why)), Err(_)) => Err(why),
                (_, known) => known,
            },
        }
    });
    models.collect()
}

/// The kept result of a model with the driver that is loaded.
pub(crate) fn kept(node: &Node, model: &str) -> Result<Proof, String> {
    let driver = proofs::driver_version(node).ok_or("the driver's version is not known")?;
    let proofs = Proofs::read(node)?;
    let proof = proofs.find(model, &driver).cloned();
    proof.ok_or_else(|| {
        format!("not measured with driver {driver} yet: run 'softmig check --node' as root")
    })
}

/// Whether NVML says that no process is on a GPU.
pub(crate) fn has_no_process(card: &Card) -> bool {
    card.uuid
        .is_some_and(|uuid| is_idle(uuid.as_str()).unwrap_or(false))
}

/// A GPU on which nothing runs.
fn idle<'a>(
    mut cards: impl Iterator<Item = &'a Card>,
    devices: &Result<Devices, String>,
    is_idle: impl Fn(&Card) -> bool,
) -> Result<&'a Card, String> {
    let devices = devices.as_ref().map_err(Clone::clone)?;
    let is_whole = |card: &Card| {
        let mut gpus = devices.gpus.iter();
        gpus.any(|gpu| gpu.minor == Some(card.minor) && gpu.standing == MigState::Whole)
    };
    let found = cards.find(|card| is_whole(card) && is_idle(card));
    found.ok_or_else(|| "no GPU of this model is idle and undivided: try it when one is".into())
}

/// Measures, one command at a time, and keeps what came out.
fn keep(node: &Node, measure: impl Fn() -> Result<Proof, String>) -> Result<Proof, String> {
    let said = |error: anyhow::Error| format!("{error:#}");
    // All users may read it.
    softmig_node::node::set_umask();
    let dir = Dir::make(&node.lib, node.owner).map_err(|error| said(explained(error)))?;
    let lock = dir
        .open_or_create(".lock", 0o600)
        .map_err(|error| said(explained(error)))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| "another softmig command measures it now")?;
    let proof = measure()?;
    // A file that cannot be read is made anew.
    let mut all = Proofs::read(node).unwrap_or_default();
    all.add(proof.clone());
    let text = all.text().map_err(|error| error.to_string())?;
    let kept = replace(&dir, proofs::NAME, 0o644, text.as_bytes());
    kept.map_err(|error| format!("measured, but not kept: {error:#}"))?;
    Ok(proof)
}

/// Measures on a GPU.
pub(crate) fn prove(node: &Node, card: &Card) -> Result<Proof, String> {
    whole_node().map_err(|narrowed| narrowed.to_string())?;
    let driver = proofs::driver_version(node).ok_or("the driver's version is not known")?;
    let uuid = card.uuid.ok_or("the GPU's UUID is not known")?;
    match softmig_proof::prove(uuid.as_str(), &PathBuf::from(OWN_PROGRAM)) {
        Ok(outcome) => Ok(Proof {
            gpu: card.model.clone(),
            driver,
            time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            failed: outcome.failed,
        }),
        Err(Trouble::NotMeasured(why) | Trouble::Refused(why)) => Err(why),
    }
}

/// How jobs share a GPU of this model, in words.
pub(crate) fn shared(known: &Result<Proof, String>) -> String {
    const OWN: &str = "by the GPU's scheduler";
    let proof = match known {
        Ok(proof) => proof,
        Err(why) => return format!("{OWN} where the driver lets it be steered ({why})"),
    };
    let (day, driver) = (proof.day(), &proof.driver);
    match &proof.failed {
        None => format!("{OWN} (proved {day}, driver {driver})"),
        Some(failed) => {
            format!(
                "by each job's own cap: {} (seen {day}, driver {driver})",
                failed.why
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_node::proofs::Failed;
    use std::cell::Cell;

    /// A node with two models, and a driver.
    fn node() -> (tempfile::TempDir, Node) {
        let folder = tempfile::tempdir().unwrap();
        let owner = rustix::process::getuid().as_raw();
        let mut node = Node::in_folder(folder.path(), owner);
        node.gpus = folder.path().join("nvidia/gpus");
        for (minor, model) in [(0, "NVIDIA L40S"), (1, "NVIDIA L40S"), (2, "NVIDIA H200")] {
            let gpu = node.gpus.join(format!("0000:0{minor}:00.0"));
            std::fs::create_dir_all(&gpu).unwrap();
            let text = format!("Model: \t {model}\nDevice Minor: \t {minor}\n");
            std::fs::write(gpu.join("information"), text).unwrap();
        }
        let version = folder.path().join("nvidia/version");
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release\n";
        std::fs::write(version, text).unwrap();
        (folder, node)
    }

    fn proof(gpu: &str, why: Option<&str>) -> Proof {
        Proof {
            gpu: gpu.into(),
            driver: "580.159.04".into(),
            time: "2026-11-23T12:00:00Z".into(),
            failed: why.map(|why| Failed {
                step: "hold".into(),
                why: why.into(),
            }),
        }
    }

    #[test]
    fn what_is_measured_is_kept_for_the_model_and_the_driver() {
        let (folder, node) = node();
        let l40s = || kept(&node, "NVIDIA L40S");
        assert!(
            l40s()
                .unwrap_err()
                .starts_with("not measured with driver 580.159.04 yet")
        );
        let failed = keep(&node, || Err("cuInit answers 100".into()));
        assert_eq!(failed, Err("cuInit answers 100".into()));
        assert!(l40s().is_err());
        keep(&node, || Ok(proof("NVIDIA L40S", None))).unwrap();
        assert_eq!(l40s(), Ok(proof("NVIDIA L40S", None)));
        assert!(kept(&node, "NVIDIA H200").is_err());
        // Another one beside it, and a newer one in its place.
        keep(&node, || Ok(proof("NVIDIA H200", Some("it ran on")))).unwrap();
        keep(&node, || Ok(proof("NVIDIA L40S", Some("it ran on")))).unwrap();
        assert_eq!(l40s(), Ok(proof("NVIDIA L40S", Some("it ran on"))));
        let models = look(
            &node,
            &Err(String::new()),
            Measure::Nothing,
            |_| true,
            |_| unreachable!(),
        )
        .into_iter()
        .map(|it| (it.name, it.known.unwrap().gpu));
        let wanted = ["NVIDIA H200", "NVIDIA L40S"].map(|name| (name.into(), name.into()));
        assert_eq!(models.collect::<Vec<(String, String)>>(), wanted);
        // Another driver is another matter.
        std::fs::write(folder.path().join("nvidia/version"), "X 590.1\n").unwrap();
        assert!(l40s().unwrap_err().contains("590.1"));
    }

    #[test]
    fn a_damaged_file_is_told_and_made_anew() {
        let (_folder, node) = node();
        keep(&node, || Ok(proof("NVIDIA L40S", None))).unwrap();
        std::fs::write(proofs::path(&node), "{").unwrap();
        assert!(
            kept(&node, "NVIDIA L40S")
                .unwrap_err()
                .contains("scheduler.json: ")
        );
        keep(&node, || Ok(proof("NVIDIA L40S", None))).unwrap();
        assert_eq!(kept(&node, "NVIDIA L40S"), Ok(proof("NVIDIA L40S", None)));
    }

    #[test]
    fn two_do_not_measure_at_the_same_time() {
        let (_folder, node) = node();
        let inner = Cell::new(None);
        let outer = keep(&node, || {
            inner.set(Some(keep(&node, || unreachable!())));
            Ok(proof("NVIDIA L40S", None))
        });
        assert!(outer.is_ok());
        let refused = inner.into_inner().unwrap().unwrap_err();
        assert!(refused.starts_with("another softmig command"), "{refused}");
    }

    #[test]
    fn without_an_idle_gpu_what_was_known_holds() {
        let (_folder, node) = node();
        keep(&node, || Ok(proof("NVIDIA L40S", None))).unwrap();
        let no_nvml = Err("there is no NVML here".to_string());
        for (measure, h200) in [
            (Measure::Nothing, "not measured with driver"),
            (Measure::Unknown, "there is no NVML here"),
            (Measure::All, "there is no NVML here"),
        ] {
            let models = look(&node, &no_nvml, measure, |_| true, |_| unreachable!());
            assert_eq!(models[1].known, Ok(proof("NVIDIA L40S", None)));
            let why = models[0].known.as_ref().unwrap_err();
            assert!(why.starts_with(h200), "{why}");
        }
        let none = Ok(Devices::default());
        let models = look(&node, &none, Measure::Unknown, |_| true, |_| unreachable!());
        assert!(
            models[0]
                .known
                .as_ref()
                .unwrap_err()
                .starts_with("no GPU of this model")
        );
    }

    #[test]
    fn an_idle_gpu_is_measured_once_or_when_it_is_asked_for() {
        let (_folder, node) = node();
        let gpu = |minor, standing| softmig_nvml::Gpu {
            minor: Some(minor),
            standing,
            ..softmig_nvml::Gpu::default()
        };
        let devices = Ok(Devices {
            driver: None,
            gpus: vec![
                gpu(0, MigState::Whole),
                gpu(1, MigState::Whole),
                gpu(2, MigState::Divided),
            ],
        });
        let tried = Cell::new(0);
        let look = |measure| {
            let is_idle = |card: &Card| card.minor != 0;
            let models = look(&node, &devices, measure, is_idle, |card| {
                assert_eq!(card.minor, 1, "0 is busy, and 2 is divided");
                tried.set(tried.get() + 1);
                Ok(proof(&card.model, None))
            });
            models
                .into_iter()
                .map(|it| it.known.is_ok())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (look(Measure::Nothing), tried.get()),
            (vec![false, false], 0)
        );
        assert_eq!(
            (look(Measure::Unknown), tried.get()),
            (vec![false, true], 1)
        );
        assert_eq!(
            (look(Measure::Unknown), tried.get()),
            (vec![false, true], 1)
        );
        assert_eq!((look(Measure::All), tried.get()), (vec![false, true], 2));
        assert_eq!(
            (look(Measure::Nothing), tried.get()),
            (vec![false, true], 2)
        );
    }

    #[test]
    fn how_jobs_share_a_gpu_is_said_with_the_reason() {
        assert_eq!(
            shared(&Ok(proof("x", None))),
            "by the GPU's scheduler (proved 2026-11-23, driver 580.159.04)"
        );
        assert_eq!(
            shared(&Ok(proof("x", Some("it ran on")))),
            "by each job's own cap: it ran on (seen 2026-11-23, driver 580.159.04)"
        );
        assert_eq!(
            shared(&Err("not measured".into())),
            "by the GPU's scheduler where the driver lets it be steered (not measured)"
        );
    }
}

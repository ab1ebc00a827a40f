//! How jobs share each kind of GPU here: what softmig-monitor has measured.

use softmig_node::gpu::{Card, installed};
use softmig_node::node::Node;
use softmig_node::proofs::{Key, Proof, Proofs};
use std::collections::BTreeMap;

/// A GPU model of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    /// Its name.
    pub(crate) name: String,
    /// The measurement, or why nothing is known.
    pub(crate) known: Result<Proof, String>,
}

/// Each kind of GPU that the driver lists.
pub(crate) fn look(node: &Node) -> Vec<Model> {
    let cards = installed(&node.gpus).into_iter();
    let kinds: BTreeMap<(String, String), Card> = cards
        .map(|card| ((card.model.clone(), card.firmware.clone()), card))
        .collect();
    let model = |card: Card| Model {
        known: kept(node, &card),
        name: card.model,
    };
    kinds.into_values().map(model).collect()
}

/// The measurement that holds for a GPU with the driver that is loaded.
pub(crate) fn kept(node: &Node, card: &Card) -> Result<Proof, String> {
    let key = Key::of(node, card).ok_or("the driver's version is not known")?;
    let proofs = Proofs::read(node)?;
    let proof = proofs.find(&key).cloned();
    proof.ok_or_else(|| {
        format!(
            "not measured yet with driver {}: softmig-monitor does it when no process is on such a GPU. Until then each job keeps its own cap",
            key.driver
        )
    })
}

/// How jobs share a GPU of this model, in words.
pub(crate) fn shared(known: &Result<Proof, String>) -> String {
    let proof = match known {
        Ok(proof) => proof,
        Err(why) => return format!("by each job's own cap: {why}"),
    };
    let (day, driver) = (proof.day(), &proof.driver);
    match &proof.failed {
        None => format!("by the GPU's scheduler (proved {day}, driver {driver})"),
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
    use softmig_node::proofs::{Failed, path};

    fn proof(why: Option<&str>) -> Proof {
        Proof {
            time: "2026-11-23T12:00:00Z".into(),
            failed: why.map(|why| Failed {
                step: "hold".into(),
                why: why.into(),
            }),
            ..Proof::default()
        }
    }

    #[test]
    fn what_was_measured_is_told_for_each_kind_of_gpu() {
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
        let cards = installed(&node.gpus);
        let h200 = cards.iter().find(|card| card.minor == 2).unwrap();
        let mut proofs = Proofs::default();
        proofs.add(&Key::of(&node, h200).unwrap(), proof(Some("it ran on")));
        proofs.keep(&node).unwrap();
        let told: Vec<String> = look(&node)
            .iter()
            .map(|it| format!("{}, {}", it.name, shared(&it.known)))
            .collect();
        assert_eq!(
            told[0],
            "NVIDIA H200, by each job's own cap: it ran on (seen 2026-11-23, driver 580.159.04)"
        );
        assert!(
            told[1].starts_with("NVIDIA L40S, by each job's own cap: not measured yet with driver"),
            "{told:?}"
        );
        let proved = proof(None);
        assert_eq!(
            shared(&Ok(proved)),
            "by the GPU's scheduler (proved 2026-11-23, driver )"
        );
        std::fs::write(path(&node), "{").unwrap();
        assert!(
            look(&node)[0]
                .known
                .as_ref()
                .unwrap_err()
                .contains("scheduler.json: ")
        );
    }
}

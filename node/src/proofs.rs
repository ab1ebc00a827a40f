//! The measurements of steering GPUs by their own schedulers: whether it has effect, for each GPU model and driver
//! version.
//!
//! `softmig check --node` measures it and writes the file. softmig-monitor and `softmig node` read it. Root alone can write
//! there.

use crate::dir::Dir;
use crate::node::Node;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file's name, in [`Node::lib`].
pub const NAME: &str = "scheduler.json";

/// The file is far smaller; a larger one is not valid.
const LONGEST: u64 = 1 << 20;

/// The version of the file's form.
const VERSION: u32 = 1;

/// The measurement of one GPU model with one driver version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The model, as the driver names it, such as `NVIDIA L40S`.
    pub gpu: String,
    /// The driver's version.
    pub driver: String,
    /// When, in UTC: `2026-11-23T12:00:00Z`.
    pub time: String,
    /// The part that had no effect; `None` if all had.
    pub failed: Option<Failed>,
}

impl Proof {
    /// The day on which it was measured.
    pub fn day(&self) -> &str {
        self.time.split('T').next().unwrap_or_default()
    }
}

/// The part that had no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The step: `open`, `log`, `slices`, `hold` or `go_on`.
    pub step: String,
    /// The figures that show it.
    pub why: String,
}

/// All that was measured on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proofs(Vec<Proof>);

/// The file.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    proofs: Vec<Proof>,
}

impl Proofs {
    /// The proofs that the node keeps; none without the file.
    ///
    /// # Errors
    /// Says why the file is not used: others can write there, or it is damaged.
    pub fn read(node: &Node) -> Result<Self, String> {
        let folder = Dir::open(&node.lib, node.owner).map_err(|error| error.to_string())?;
        let text = match folder {
            Some(folder) => folder.read(NAME, LONGEST),
            None => Ok(None),
        };
        match text.map_err(|error| error.to_string())? {
            Some(text) => {
                Self::parse(&text).map_err(|why| format!("{}: {why}", path(node).display()))
            }
            None => Ok(Self::default()),
        }
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let kept: Kept = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        match kept.version {
            VERSION => Ok(Self(kept.proofs)),
            other => Err(format!("version {other}, and this softmig knows {VERSION}")),
        }
    }

    /// The file's text.
    ///
    /// # Errors
    /// None are known.
    pub fn text(&self) -> Result<String, serde_json::Error> {
        let kept = Kept {
            version: VERSION,
            proofs: self.0.clone(),
        };
        Ok(serde_json::to_string_pretty(&kept)? + "\n")
    }

    /// The measurement of a model with a driver version.
    pub fn find(&self, gpu: &str, driver: &str) -> Option<&Proof> {
        self.0
            .iter()
            .find(|it| it.gpu == gpu && it.driver == driver)
    }

    /// Adds one, in the place of an older one of the same model and driver.
    pub fn add(&mut self, proof: Proof) {
        self.0
            .retain(|it| (&it.gpu, &it.driver) != (&proof.gpu, &proof.driver));
        self.0.push(proof);
    }
}

/// Where a node's file is, for messages.
pub fn path(node: &Node) -> std::path::PathBuf {
    node.lib.join(NAME)
}

/// The version of the loaded driver, by the first line of its `version` file; `None` without a driver.
pub fn driver_version(node: &Node) -> Option<String> {
    let folder = node.gpus.parent().unwrap_or(Path::new("/"));
    version_in(&std::fs::read_to_string(folder.join("version")).ok()?)
}

fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        let is_number =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        word.contains('.') && parts.all(is_number)
    };
    let mut words = text.lines().next()?.split_whitespace();
    words.find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> (tempfile::TempDir, Node) {
        let folder = tempfile::tempdir().unwrap();
        let owner = rustix::process::getuid().as_raw();
        let node = Node::in_folder(folder.path(), owner);
        (folder, node)
    }

    fn proof(driver: &str, failed: Option<&str>) -> Proof {
        Proof {
            gpu: "NVIDIA L40S".into(),
            driver: driver.into(),
            time: "2026-11-23T12:00:00Z".into(),
            failed: failed.map(|why| Failed {
                step: "hold".into(),
                why: why.into(),
            }),
        }
    }

    #[test]
    fn what_is_kept_is_read_again_by_model_and_driver() {
        let (_folder, node) = node();
        assert_eq!(Proofs::read(&node), Ok(Proofs::default()));
        let mut proofs = Proofs::default();
        proofs.add(proof("580.1", Some("it ran on")));
        proofs.add(proof("590.2", None));
        // The newer one counts.
        proofs.add(proof("580.1", Some("it ran on again")));
        std::fs::create_dir(&node.lib).unwrap();
        std::fs::write(path(&node), proofs.text().unwrap()).unwrap();
        let read = Proofs::read(&node).unwrap();
        assert_eq!(read.0.len(), 2);
        let found = read.find("NVIDIA L40S", "580.1").unwrap();
        assert_eq!(found.failed.as_ref().unwrap().why, "it ran on again");
        assert_eq!(found.day(), "2026-11-23");
        assert_eq!(read.find("NVIDIA L40S", "590.2").unwrap().failed, None);
        assert_eq!(read.find("NVIDIA L40S", "600.3"), None);
        assert_eq!(read.find("NVIDIA H200", "580.1"), None);
    }

    #[test]
    fn a_damaged_file_or_one_of_others_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let (_folder, node) = node();
        std::fs::create_dir(&node.lib).unwrap();
        for text in [
            "",
            "{\"version\":1}",
            "{\"version\":2,\"proofs\":[]}",
            "\u{1}",
        ] {
            std::fs::write(path(&node), text).unwrap();
            let why = Proofs::read(&node).unwrap_err();
            assert!(why.contains("scheduler.json: "), "{text:?}: {why}");
        }
        std::fs::write(path(&node), Proofs::default().text().unwrap()).unwrap();
        assert_eq!(Proofs::read(&node), Ok(Proofs::default()));
        std::fs::set_permissions(&node.lib, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(
            Proofs::read(&node)
                .unwrap_err()
                .contains("written to by others")
        );
    }

    #[test]
    fn the_drivers_version_is_the_first_number_of_its_page() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n\
            GCC version:  gcc version 12.3.0\n";
        assert_eq!(version_in(closed).as_deref(), Some("535.183.01"));
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n";
        assert_eq!(version_in(open).as_deref(), Some("580.159.04"));
        assert_eq!(version_in("\nGCC version: 12.3.0\n"), None);
        assert_eq!(version_in(""), None);
        let (_folder, node) = node();
        assert_eq!(driver_version(&node), None);
    }
}

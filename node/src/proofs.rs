//! The measurements of steering GPUs by their own schedulers: whether it has effect, for each GPU model, driver version, firmware
//! and flavour of the kernel modules.
//!
//! softmig-monitor measures it and writes the file. `softmig check` and `softmig node` read it. Root alone can write there.

use crate::dir::{Dir, DirError};
use crate::gpu::Card;
use crate::node::Node;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file's name, in [`Node::lib`].
pub const NAME: &str = "scheduler.json";

/// The file is far smaller; a larger one is not valid.
const LONGEST: u64 = 1 << 20;

/// The version of the file's form.
const VERSION: u32 = 1;

/// What a measurement holds for: the driver behaves alike for all GPUs of one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The model, as the driver names it, such as `NVIDIA L40S`.
    pub gpu: String,
    /// The driver's version.
    pub driver: String,
    /// [`Card::firmware`].
    pub firmware: String,
    /// `open` or `proprietary`: the flavour of the kernel modules.
    pub module: String,
}

impl Key {
    /// That of a card, by what the driver tells now; `None` without a driver.
    pub fn of(node: &Node, card: &Card) -> Option<Self> {
        let page = driver_page(node)?;
        let is_open = page.lines().next()?.contains("Open Kernel Module");
        Some(Self {
            gpu: card.model.clone(),
            driver: version_in(&page)?,
            firmware: card.firmware.clone(),
            module: if is_open { "open" } else { "proprietary" }.into(),
        })
    }
}

/// The measurement of one GPU model with one driver version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// [`Key::gpu`].
    pub gpu: String,
    /// [`Key::driver`].
    pub driver: String,
    /// [`Key::firmware`]; `None` if it was measured by a release that did not ask.
    #[serde(default)]
    pub firmware: Option<String>,
    /// [`Key::module`]; the same.
    #[serde(default)]
    pub module: Option<String>,
    /// When, in UTC: `2026-11-23T12:00:00Z`.
    pub time: String,
    /// The part that had no effect; `None` if all had.
    pub failed: Option<Failed>,
    /// The time slice that a CUDA context has by itself, in microseconds.
    #[serde(default)]
    pub slice_us: Option<u64>,
    /// What a change from one group to another costs, in microseconds of work.
    #[serde(default)]
    pub change_us: Option<u64>,
    /// Whether channels that run can be let run once more, and are held by the next call that holds them; `None` if it was measured
    /// by a release that did not ask.
    #[serde(default)]
    pub may_release: Option<bool>,
    /// Whether a program of a pack can be held, and end, without the others; the part in which they could not. `None` where that was not
    /// measured.
    #[serde(default)]
    pub pack: Option<Result<(), Failed>>,
}

impl Proof {
    /// Whether it was measured with all of this.
    pub fn is_of(&self, key: &Key) -> bool {
        self.is_like(key)
            && self.firmware.as_ref() == Some(&key.firmware)
            && self.module.as_ref() == Some(&key.module)
    }

    /// Whether it tells all that a measurement tells now.
    pub fn is_complete(&self) -> bool {
        self.failed.is_some() || self.may_release.is_some()
    }

    /// Whether it was measured with this model and driver.
    fn is_like(&self, key: &Key) -> bool {
        (&self.gpu, &self.driver) == (&key.gpu, &key.driver)
    }

    /// Whether it does not tell with which firmware and modules.
    fn is_old(&self) -> bool {
        self.firmware.is_none() || self.module.is_none()
    }

    /// The day on which it was measured.
    pub fn day(&self) -> &str {
        self.time.split('T').next().unwrap_or_default()
    }
}

/// The part that had no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The step: `open`, `log`, `owner`, `slices`, `hold`, `go_on` or `long`; of packs `clients`, `hold`, `end` or `go_on`.
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

    /// The measurement that holds for a GPU. One that does not tell its firmware and modules holds until there is a better one.
    pub fn find(&self, key: &Key) -> Option<&Proof> {
        let mut all = self.0.iter();
        let exact = all.find(|it| it.is_of(key));
        let mut like = self.0.iter();
        exact.or_else(|| like.find(|it| it.is_like(key) && it.is_old()))
    }

    /// Adds one, in the place of an older one of the same key.
    pub fn add(&mut self, key: &Key, proof: Proof) {
        self.0
            .retain(|it| !(it.is_of(key) || it.is_like(key) && it.is_old()));
        self.0.push(Proof {
            gpu: key.gpu.clone(),
            driver: key.driver.clone(),
            firmware: Some(key.firmware.clone()),
            module: Some(key.module.clone()),
            ..proof
        });
    }

    /// Puts the file in the place of the one that is there.
    ///
    /// # Errors
    /// Says what the system refused.
    pub fn keep(&self, node: &Node) -> Result<(), DirError> {
        /// A name before it has its own: the same each time, so that nothing piles up.
        const NEW: &str = ".scheduler.json.new";
        let text = self.text().unwrap_or_default();
        let folder = Dir::make(&node.lib, node.owner)?;
        folder.remove(NEW)?;
        folder.create(NEW, 0o644, text.as_bytes())?;
        folder.rename(NEW, NAME)
    }
}

/// Where a node's file is, for messages.
pub fn path(node: &Node) -> std::path::PathBuf {
    node.lib.join(NAME)
}

/// The version of the loaded driver, by the first line of its `version` file; `None` without a driver.
pub fn driver_version(node: &Node) -> Option<String> {
    version_in(&driver_page(node)?)
}

fn driver_page(node: &Node) -> Option<String> {
    let folder = node.gpus.parent().unwrap_or(Path::new("/"));
    std::fs::read_to_string(folder.join("version")).ok()
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

    fn key(driver: &str, firmware: &str) -> Key {
        Key {
            gpu: "NVIDIA L40S".into(),
            driver: driver.into(),
            firmware: firmware.into(),
            module: "open".into(),
        }
    }

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
    fn what_is_kept_is_read_again_by_its_key() {
        let (_folder, node) = node();
        assert_eq!(Proofs::read(&node), Ok(Proofs::default()));
        let mut proofs = Proofs::default();
        proofs.add(&key("580.1", "580.1"), proof(Some("it ran on")));
        proofs.add(&key("590.2", "590.2"), proof(None));
        // The newer one counts.
        proofs.add(&key("580.1", "580.1"), proof(Some("it ran on again")));
        proofs.keep(&node).unwrap();
        proofs.keep(&node).unwrap();
        let read = Proofs::read(&node).unwrap();
        assert_eq!(read.0.len(), 2);
        let found = read.find(&key("580.1", "580.1")).unwrap();
        assert_eq!(found.failed.as_ref().unwrap().why, "it ran on again");
        assert_eq!(found.day(), "2026-11-23");
        assert_eq!(read.find(&key("590.2", "590.2")).unwrap().failed, None);
        assert_eq!(read.find(&key("580.1", "N/A")), None);
        assert_eq!(read.find(&key("600.3", "600.3")), None);
        let other = Key {
            gpu: "NVIDIA H200".into(),
            ..key("580.1", "580.1")
        };
        assert_eq!(read.find(&other), None);
    }

    #[test]
    fn a_proof_of_an_earlier_release_holds_until_there_is_a_better_one() {
        let (_folder, node) = node();
        std::fs::create_dir(&node.lib).unwrap();
        let text = r#"{"version":1,"proofs":[{"gpu":"NVIDIA L40S","driver":"580.1","time":"2026-11-23T12:00:00Z","failed":null}]}"#;
        std::fs::write(path(&node), text).unwrap();
        let mut proofs = Proofs::read(&node).unwrap();
        let key = key("580.1", "N/A");
        let old = proofs.find(&key).unwrap();
        assert!(!old.is_of(&key) && old.slice_us.is_none());
        proofs.add(&key, proof(Some("it ran on")));
        assert!(proofs.find(&key).unwrap().is_of(&key) && proofs.0.len() == 1);
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
        let card = Card {
            minor: 0,
            uuid: None,
            model: "NVIDIA L40S".into(),
            firmware: "580.159.04".into(),
        };
        assert_eq!(Key::of(&node, &card), None);
        let page =
            |text| std::fs::write(node.gpus.parent().unwrap().join("version"), text).unwrap();
        for (text, module) in [(open, "open"), (closed, "proprietary")] {
            page(text);
            assert_eq!(Key::of(&node, &card).unwrap().module, module);
        }
    }
}

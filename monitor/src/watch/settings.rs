//! policy.toml as it is now: read again whenever the file changes, so that the daemon needs no restart.

use softmig_node::node::Node;
use softmig_policy::Policy;
use softmig_policy::config::monitor::Monitor;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use tracing::{info, warn};

/// The values that were read last.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// The file that it was read from, and when that was written.
    read: Option<Version>,
    now: Monitor,
    /// node_exporter's textfile, if policy.toml names one.
    pub(super) textfile: Option<String>,
    /// The rules about users.
    pub(super) policy: Option<Policy>,
}

/// The marks that tell a file from the one that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    written: (i64, i64),
}

impl Settings {
    /// The `[monitor]` of the node's policy. If the policy cannot be read, the last one that could be read holds.
    pub(super) fn read_policy(&mut self, node: &Node) -> Monitor {
        let version = std::fs::metadata(&node.policy)
            .ok()
            .map(|file| Version::from_metadata(&file));
        if version.is_none() || version == self.read {
            return self.now;
        }
        let is_first = self.read.is_none();
        self.read = version;
        match node.policy() {
            Ok(policy) => {
                if !is_first && policy.monitor != self.now {
                    info!(
                        "the policy's [monitor] is another one now: {:?}",
                        policy.monitor
                    );
                }
                self.now = policy.monitor;
                self.textfile = policy.metrics.textfile;
            }
            Err(error) => warn!("[monitor] stays as it was: {error}"),
        }
        match node.whole_policy() {
            Ok(policy) => self.policy = Some(policy),
            Err(error) => warn!("idle_minutes stay as they were: {error}"),
        }
        self.now
    }
}

impl Version {
    fn from_metadata(file: &Metadata) -> Self {
        Self {
            inode: file.ino(),
            size: file.len(),
            written: (file.mtime(), file.mtime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_policy::config::monitor::End;

    #[test]
    fn a_change_holds_at_once_and_a_broken_file_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        let mut settings = Settings::default();
        let mut end = |text: Option<&str>| {
            if let Some(text) = text {
                // As an editor does it.
                let new = folder.path().join("new");
                std::fs::write(&new, text).unwrap();
                std::fs::rename(new, &node.policy).unwrap();
            }
            settings.read_policy(&node).end
        };
        assert_eq!(end(None), End::No);
        assert_eq!(end(Some("[monitor]\nend = \"all\"\n")), End::All);
        assert_eq!(end(None), End::All);
        assert_eq!(end(Some("[monitor]\nend = \"everything\"\n")), End::All);
        assert_eq!(end(Some("[monitor]\nend = \"memory\"\n")), End::Memory);
        assert_eq!(end(Some("")), End::No);
        std::fs::remove_file(&node.policy).unwrap();
        assert_eq!(end(None), End::No);
    }
}

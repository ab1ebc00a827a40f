//! The rest of an uninstalled softmig: settings, logs, and what its scripts made in Slurm.

use crate::files::stamp::is_untouched;
use crate::output::say::say;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of softmig's own, and what is in them.
const FOLDERS: [(&str, &str); 4] = [
    (
        "/etc/softmig",
        "the policy, and the node's mode, which a later 'softmig install' goes on with",
    ),
    ("/var/lib/softmig", "what was measured of the GPUs"),
    ("/var/log/softmig", "logs of ended jobs"),
    ("/run/softmig", "empty, until the machine starts again"),
];

/// Files that `softmig config --write` makes beside slurm.conf.
const GENERATED: [&str; 5] = [
    "softmig.conf",
    "gres.conf",
    "cgroup.conf",
    "softmig-qos.sh",
    "softmig-reservations.sh",
];

/// The rest.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    folders: Vec<(PathBuf, &'static str)>,
    /// As `softmig config` wrote them, and not included any more.
    files: Vec<PathBuf>,
    /// Made by softmig and changed since.
    changed: Vec<PathBuf>,
}

impl Leftovers {
    /// Looks below `root`. Of Slurm's own files only what slurm.conf no longer needs is one: it does not include softmig.conf.
    pub(crate) fn find(root: &Path, slurm: &Path, is_included: bool) -> Self {
        let at = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        let mut left = Self::default();
        for (folder, what) in FOLDERS {
            let path = at(Path::new(folder));
            if path.exists() {
                left.folders.push((path, what));
            }
        }
        for name in GENERATED {
            // Slurm goes on reading these two by their names.
            if is_included || matches!(name, "gres.conf" | "cgroup.conf") {
                continue;
            }
            let path = at(&slurm.join(name));
            match fs::read(&path) {
                Ok(text) if is_untouched(&text) => left.files.push(path),
                Ok(_) => left.changed.push(path),
                Err(_) => {}
            }
        }
        left
    }

    /// Prints what is left.
    pub(crate) fn tell(&self) {
        for (path, what) in &self.folders {
            say!("left: {} ({what})", path.display());
        }
        for path in &self.files {
            say!("left: {} (softmig config wrote it)", path.display());
        }
        if !self.folders.is_empty() || !self.files.is_empty() {
            say!("'softmig uninstall --purge' removes these, or by hand: rm -r");
        }
        self.tell_changed();
    }

    fn tell_changed(&self) {
        for path in &self.changed {
            say!(
                "left: {} (changed since softmig wrote it, so it stays in any case)",
                path.display()
            );
        }
    }

    /// Removes all that is as softmig left it.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        for (path, _) in &self.folders {
            // A file system of its own, where jobs had their limits.
            let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::empty());
            if path.exists() {
                fs::remove_dir_all(path).with_context(|| format!("removing {}", path.display()))?;
            }
            say!("{} is removed", path.display());
        }
        for path in &self.files {
            fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
            say!("{} is removed", path.display());
        }
        self.tell_changed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::stamp::stamped;

    #[test]
    fn what_the_site_changed_stays() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("etc/slurm")).unwrap();
        fs::create_dir_all(at("etc/softmig")).unwrap();
        fs::write(at("etc/slurm/softmig.conf"), stamped("a", "#")).unwrap();
        fs::write(at("etc/slurm/softmig-qos.sh"), "changed").unwrap();
        fs::write(at("etc/slurm/gres.conf"), stamped("b", "#")).unwrap();
        let find = |included| Leftovers::find(root.path(), Path::new("/etc/slurm"), included);
        let left = find(true);
        assert_eq!((left.files.len(), left.changed.len()), (0, 0));
        let left = find(false);
        assert_eq!(left.files, [at("etc/slurm/softmig.conf")]);
        assert_eq!(left.changed, [at("etc/slurm/softmig-qos.sh")]);
        left.remove().unwrap();
        assert!(!at("etc/softmig").exists() && !at("etc/slurm/softmig.conf").exists());
        assert!(at("etc/slurm/softmig-qos.sh").exists() && at("etc/slurm/gres.conf").exists());
    }
}

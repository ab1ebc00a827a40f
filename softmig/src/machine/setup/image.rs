//! The image of a diskless node: the same command runs in it, by chroot. So each path, also one that a link leads to, means
//! the image's own file.

use super::tree::Tree;
use crate::machine::hook::rehearsal::leave_the_others;
use anyhow::{Context, anyhow, ensure};
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the tree is seen in the image, on a file system that goes with the mount namespace.
const TREE: &str = "tmp/softmig";

/// An image, as a folder.
#[derive(Debug)]
pub(crate) struct Image {
    root: PathBuf,
}

impl Image {
    /// The image in this folder.
    pub(crate) fn at(root: &Path) -> anyhow::Result<Self> {
        let path = root
            .canonicalize()
            .with_context(|| format!("{}", root.display()))?;
        ensure!(
            path != Path::new("/"),
            "{}: this is the machine itself; leave out --root",
            root.display()
        );
        for folder in ["usr/bin", "etc", "tmp", "proc", "dev"] {
            ensure!(
                path.join(folder).is_dir(),
                "{}: it has no {folder}; --root takes the folder of a whole image",
                root.display()
            );
        }
        Ok(Self { root: path })
    }

    /// Runs a command of softmig's in it, with the tree beside it.
    pub(crate) fn run(&self, tree: &Tree, words: &[String]) -> anyhow::Result<()> {
        let apart = || {
            leave_the_others()?;
            self.furnish(tree).with_context(|| {
                format!("preparing {} to run a program in it", self.root.display())
            })?;
            let command = Path::new("/").join(TREE).join("usr/bin/softmig");
            let status = Command::new("chroot")
                .arg(&self.root)
                .arg(command)
                .args(words)
                .current_dir("/")
                // They are this machine's.
                .env_remove("SLURM_CONF")
                .status()
                .context("running chroot")?;
            ensure!(
                status.success(),
                "it failed in {} ({status}); the message above says why",
                self.root.display()
            );
            Ok(())
        };
        // A thread of its own: what it unshares stays with it and its children.
        let done = std::thread::scope(|scope| scope.spawn(apart).join());
        done.unwrap_or_else(|_| Err(anyhow!("the thread panicked")))
    }

    fn furnish(&self, tree: &Tree) -> anyhow::Result<()> {
        let at = |folder: &str| self.root.join(folder);
        let usr = tree.root().join("usr");
        mount_bind_recursive("/dev", at("dev")).context("showing it /dev")?;
        mount("proc", at("proc"), "proc", MountFlags::empty(), None).context("mounting /proc")?;
        mount(
            "softmig",
            at("tmp"),
            "tmpfs",
            MountFlags::NODEV,
            c"mode=1777",
        )
        .context("mounting /tmp")?;
        let seen = at(TREE).join("usr");
        fs::create_dir_all(&seen)?;
        mount_bind(&usr, &seen).with_context(|| format!("showing it {}", usr.display()))
    }
}

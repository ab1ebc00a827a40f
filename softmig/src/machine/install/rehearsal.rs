//! A place apart where a library can be in /etc/ld.so.preload without the node noticing.
//!
//! It is a mount namespace of one thread and its children: there /etc is a folder of links to everything in the real
//! one, beside a list of libraries of its own, and /tmp is empty. It goes when the last of them ends, however that is.

use crate::machine::install::program::{Program, find};
use anyhow::{Context, anyhow, bail};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
};
use rustix::thread::UnshareFlags;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// The failure in some containers, and the remedy.
const NEEDS: &str = "the library is tried in a mount namespace first, which only a root with all capabilities can make; \
                     run this in a root shell of the node itself";

/// The failure in a chroot, and the remedy.
const NO_MOUNT: &str = "this root is not a mount, which trying the library needs; for the image of a node use 'unshare --mount sh', and in \
                        it 'mount --bind DIR DIR' before chroot";

/// The place, seen by the thread that it was made for.
#[derive(Debug)]
pub(crate) struct Rehearsal(());

impl Rehearsal {
    /// Does this in such a place.
    pub(crate) fn with<T: Send>(
        work: impl FnOnce(&Self) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let apart = || {
            leave_the_others()?;
            furnish().context("preparing a place to try the library")?;
            work(&Self(()))
        };
        // A thread of its own: what it unshares stays with it and its children.
        let done = std::thread::scope(|scope| scope.spawn(apart).join());
        done.unwrap_or_else(|_| Err(anyhow!("trying the library panicked")))
    }

    /// Makes the loader read this list here.
    pub(crate) fn preload(&self, text: &[u8]) -> anyhow::Result<()> {
        fs::write("/tmp/etc/ld.so.preload", text).context("writing the list to try")
    }

    /// A set-uid copy of one of the system's programs, run by an ordinary user.
    pub(crate) fn set_uid(&self, words: &[&str]) -> anyhow::Result<Program> {
        let (name, _) = words.split_first().context("a program without a name")?;
        let mut program = Program::new(words).with_context(|| format!("{name} is missing"))?;
        let original = find(name).with_context(|| format!("{name} is missing"))?;
        let copy = Path::new("/tmp").join(name);
        fs::copy(original, &copy).with_context(|| format!("copying {name}"))?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755))
            .with_context(|| format!("making {name} set-uid"))?;
        program.words.splice(0..1, [copy.display().to_string()]);
        Ok(program.by_ordinary_user())
    }

    /// Fails unless set-uid programs become root here: else trying them would show nothing.
    pub(crate) fn check_set_uid(&self) -> anyhow::Result<()> {
        let ran = self.set_uid(&["id", "-u"])?.run()?;
        match ran {
            Some(ran) if ran.stdout == b"0\n" => Ok(()),
            _ => bail!(
                "set-uid programs do not become root here, so the library cannot be tried with them; {NEEDS}"
            ),
        }
    }
}

/// Gives this thread mounts of its own.
fn leave_the_others() -> anyhow::Result<()> {
    #[expect(
        deprecated,
        reason = "what makes it unsafe is unsharing descriptors, and this unshares mounts alone"
    )]
    rustix::thread::unshare(UnshareFlags::NEWNS).context(NEEDS)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).context(NO_MOUNT)
}

fn furnish() -> anyhow::Result<()> {
    let options = c"mode=0755,size=64m";
    mount("softmig", "/tmp", "tmpfs", MountFlags::NODEV, options).context("mounting on /tmp")?;
    fs::create_dir("/tmp/etc-as-it-is")?;
    mount_bind_recursive("/etc", "/tmp/etc-as-it-is").context("mounting /etc elsewhere")?;
    fs::create_dir("/tmp/etc")?;
    for entry in fs::read_dir("/tmp/etc-as-it-is").context("reading /etc")? {
        let entry = entry?;
        let name = entry.file_name();
        if name == "ld.so.preload" {
            continue;
        }
        // A link that is there may lead upwards, so it stays in /etc; to all else one leads.
        let target = if entry.file_type()?.is_symlink() {
            fs::read_link(entry.path())?
        } else {
            entry.path()
        };
        symlink(target, Path::new("/tmp/etc").join(name))?;
    }
    fs::write("/tmp/etc/ld.so.preload", "")?;
    mount_bind("/tmp/etc", "/etc").context("mounting on /etc")
}

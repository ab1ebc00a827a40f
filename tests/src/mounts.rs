//! The mounts that make a directory look like the `/` of a machine with GPUs.
//!
//! All of it happens in a mount namespace of its own, so that nothing has to be undone.

use std::ffi::CString;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind_recursive, unmount};

use crate::gpus::Gpu;
use crate::place::chmod;

/// The major number of NVIDIA's character devices.
const NVIDIA: u32 = 195;

/// Lays these trees and a throw-away layer over the Debian root, and returns where the result is seen.
///
/// The layer lives in memory, mounted on the root's own empty `/mnt`: no directory is needed outside, and the
/// memory is given back with the mount namespace.
pub fn layer_over(root: &Path, layers: &[std::path::PathBuf]) -> Result<std::path::PathBuf> {
    std::env::set_current_dir(root).with_context(|| format!("entering {}", root.display()))?;
    tmpfs(Path::new("mnt"), 0o755)?;
    for dir in ["mnt/upper", "mnt/work", "mnt/merged"] {
        std::fs::create_dir(dir).with_context(|| format!("making {dir}"))?;
    }
    // Relative names, since those of the layers may hold neither `,` nor `:`.
    let mut lower = String::new();
    for (number, layer) in layers.iter().enumerate() {
        let at = format!("mnt/layer{number}");
        std::fs::create_dir(&at).with_context(|| format!("making {at}"))?;
        mount_bind_recursive(layer, &at).with_context(|| format!("binding {}", layer.display()))?;
        // The last one lies on top.
        lower = format!("{at}:{lower}");
    }
    let options = format!("lowerdir={lower}.,upperdir=mnt/upper,workdir=mnt/work");
    mount(
        "overlay",
        "mnt/merged",
        "overlay",
        MountFlags::empty(),
        CString::new(options)?.as_c_str(),
    )
    .context("mounting the layer over the root")?;
    Ok(root.join("mnt/merged"))
}

/// An empty file system in memory.
pub fn tmpfs(at: &Path, mode: u32) -> Result<()> {
    let options = CString::new(format!("mode={mode:04o}"))?;
    mount(
        "tmpfs",
        at,
        "tmpfs",
        MountFlags::empty(),
        options.as_c_str(),
    )
    .with_context(|| format!("mounting a tmpfs on {}", at.display()))
}

/// Fresh `/proc`, `/run`, `/tmp`, and this machine's `/sys`: Slurm makes its control groups there.
pub fn base(root: &Path) -> Result<()> {
    let none: Option<&std::ffi::CStr> = None;
    mount("proc", root.join("proc"), "proc", MountFlags::empty(), none)
        .context("mounting /proc")?;
    mount_bind_recursive("/sys", root.join("sys")).context("binding /sys")?;
    tmpfs(&root.join("run"), 0o755)?;
    tmpfs(&root.join("tmp"), 0o1777)
}

/// A `/dev` with what programs expect, and a device for each GPU.
///
/// Opening a GPU fails with "No such device or address", since the device has no driver. In a job that Slurm fences off
/// from the GPU it fails with "Operation not permitted".
pub fn dev(root: &Path, gpus: &[Gpu]) -> Result<()> {
    let dev = root.join("dev");
    tmpfs(&dev, 0o755)?;
    for (name, major, minor) in [
        ("null", 1, 3),
        ("zero", 1, 5),
        ("full", 1, 7),
        ("random", 1, 8),
        ("urandom", 1, 9),
        ("tty", 5, 0),
        ("nvidiactl", NVIDIA, 255),
    ] {
        device(&dev.join(name), major, minor)?;
    }
    for gpu in gpus {
        device(&dev.join(format!("nvidia{}", gpu.minor)), NVIDIA, gpu.minor)?;
    }
    for (name, target) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(target, dev.join(name)).with_context(|| format!("linking /dev/{name}"))?;
    }
    for dir in ["pts", "shm"] {
        std::fs::create_dir(dev.join(dir)).with_context(|| format!("making /dev/{dir}"))?;
    }
    let options = c"newinstance,ptmxmode=0666,mode=0620";
    mount(
        "devpts",
        dev.join("pts"),
        "devpts",
        MountFlags::empty(),
        options,
    )
    .context("mounting /dev/pts")?;
    tmpfs(&dev.join("shm"), 0o1777)
}

fn device(at: &Path, major: u32, minor: u32) -> Result<()> {
    mknodat(
        CWD,
        at,
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        makedev(major, minor),
    )
    .with_context(|| format!("making the device {}", at.display()))?;
    chmod(at, 0o666)
}

/// The driver's version in `/proc/driver/nvidia`.
pub const DRIVER: &str = "580.105.08";

/// The driver's files under `/proc/driver/nvidia`.
pub fn driver(root: &Path, gpus: &[Gpu]) -> Result<()> {
    let driver = root.join("proc/driver");
    tmpfs(&driver, 0o755)?;
    if !gpus.is_empty() {
        let text = format!(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build\n"
        );
        std::fs::create_dir(driver.join("nvidia")).context("making the driver's folder")?;
        std::fs::write(driver.join("nvidia/version"), text).context("writing the version")?;
    }
    for gpu in gpus {
        let dir = driver.join("nvidia/gpus").join(gpu.bus());
        std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        std::fs::write(dir.join("information"), gpu.information())
            .with_context(|| format!("writing {}/information", dir.display()))?;
    }
    Ok(())
}

/// Makes `root` the `/` of this mount namespace; everything else disappears from it.
pub fn move_into(root: &Path) -> Result<()> {
    std::env::set_current_dir(root).context("entering the new root")?;
    // The old root lands on top of the new one and is taken off it: no directory has to be set aside for it.
    rustix::process::pivot_root(".", ".").context("changing the root")?;
    unmount(".", UnmountFlags::DETACH).context("leaving the old root")?;
    std::env::set_current_dir("/").context("entering the new root")
}

//! The kernel of the guests: fetched once with apt, which needs no installation and no configuration for it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

/// The Debian package; not installed, only unpacked.
const PACKAGE: &str = "user-mode-linux";

/// Names what `ensure` makes. To be changed with it, so that what an older one made is made anew.
const RECIPE: &str = "linux.uml and overlay.ko, 1\n";

/// A kernel and the one module of it that the guest needs.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The kernel, a program.
    pub linux: PathBuf,
    /// The overlay file system.
    pub overlay: PathBuf,
}

/// Puts what guests need beside their Debian roots into `target/uml`, if it is not there yet.
pub fn ensure(target: &Path) -> Result<()> {
    made_in(target).map(|_| ())
}

/// The kernel in the target folder that holds the Debian roots.
pub fn beside_the_roots() -> Result<Kernel> {
    let roots = crate::slurm::roots_dir();
    made_in(roots.parent().context("the Debian roots lie nowhere")?)
}

fn made_in(target: &Path) -> Result<Kernel> {
    if !cfg!(target_arch = "x86_64") {
        bail!("User Mode Linux runs on x86_64 only");
    }
    fs::create_dir_all(target).with_context(|| format!("making {}", target.display()))?;
    let target = target
        .canonicalize()
        .with_context(|| format!("finding {}", target.display()))?;
    let dir = target.join("uml");
    let kernel = Kernel {
        linux: dir.join("linux.uml"),
        overlay: dir.join("overlay.ko"),
    };
    // Tests run side by side, and all of them would fetch it.
    let lock = File::create(target.join("uml.lock")).context("making target/uml.lock")?;
    lock.lock().context("locking target/uml.lock")?;
    if fs::read_to_string(dir.join("recipe")).is_ok_and(|recipe| recipe == RECIPE) {
        return Ok(kernel);
    }
    make(&target, &dir).context("making target/uml, the kernel of the cgroup v2 tests")?;
    Ok(kernel)
}

fn make(target: &Path, dir: &Path) -> Result<()> {
    println!("Fetching the User Mode Linux kernel with apt-get, 41 MB.");
    let work = tempfile::Builder::new()
        .prefix("uml-")
        .tempdir_in(target)
        .context("making a folder")?;
    let new = work.path().join("new");
    let unpacked = work.path().join("unpacked");
    fs::create_dir(&new).context("making a folder")?;

    let package = download(work.path())?;
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(&package)
        .arg(&unpacked))?;
    let linux = unpacked.join("usr/bin/linux.uml");
    fs::rename(&linux, new.join("linux.uml")).context("taking linux.uml from the package")?;
    let modules = unpacked.join("usr/lib/uml/modules");
    let release = only_entry(&modules)?;
    let overlay = release.join("kernel/fs/overlayfs/overlay.ko");
    fs::rename(&overlay, new.join("overlay.ko")).context("taking overlay.ko from the package")?;
    // It answers without booting, and so shows that this machine can run it.
    let version = run(Command::new(new.join("linux.uml")).arg("--version"))?;
    fs::write(new.join("recipe"), RECIPE).context("writing the recipe")?;

    // The folder of an older recipe goes first: a folder is not renamed over a full one.
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::rename(&new, dir).with_context(|| format!("making {}", dir.display()))?;
    let version = String::from_utf8_lossy(&version.stdout);
    println!("User Mode Linux {} is in target/uml.", version.trim());
    Ok(())
}

/// Fetches the package into `dir` and returns where it is.
fn download(dir: &Path) -> Result<PathBuf> {
    let fetch = || {
        run(Command::new("apt-get")
            .args(["--quiet", "download", PACKAGE])
            .current_dir(dir))
    };
    if fetch().is_err() {
        // A fresh machine has no package lists, and an old one may look for a version that is gone.
        run(Command::new("apt-get").args(["--quiet", "update"]))?;
        fetch().with_context(|| format!("{PACKAGE} is a package of Debian"))?;
    }
    let entries = fs::read_dir(dir).context("looking for the package")?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get download {PACKAGE} left no package"))
}

/// The only thing in a folder.
fn only_entry(dir: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    match (entries.next(), entries.next()) {
        (Some(entry), None) => Ok(entry?.path()),
        _ => bail!("{}: expected one kernel release there", dir.display()),
    }
}

fn run(command: &mut Command) -> Result<Output> {
    let name = format!("{command:?}");
    let output = command
        .env("LC_ALL", "C.UTF-8")
        .output()
        .with_context(|| format!("starting {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name}: {}\n{}", output.status, said.trim_end());
    }
    Ok(output)
}

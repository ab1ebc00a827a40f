//! The Debian roots that test clusters run in: built once by debootstrap, only read after that.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use softmig_tests::Slurm;
use softmig_tests::accounting::{DATABASE, MAKE_DATABASE};
use softmig_tests::slurm::roots_dir;

use crate::packages::need;

/// In each root, what it was built from: another list of packages means another root.
const STAMP: &str = ".softmig-root";

/// Builds all roots that are missing or out of date.
pub(crate) fn build() -> Result<()> {
    build_for(&Slurm::ALL)
}

/// Builds those of the roots for these versions that are missing or out of date, all at the same time.
pub(crate) fn build_for(versions: &[Slurm]) -> Result<()> {
    let dir = roots_dir();
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    // Two of us would build into the same place. The lock goes with the file.
    let lock = File::create(dir.join(".lock")).context("making the lock of the roots")?;
    lock.lock().context("waiting for the lock of the roots")?;

    let missing: Vec<Slurm> = versions
        .iter()
        .copied()
        .filter(|&slurm| !is_current(slurm))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    need("debootstrap", "debootstrap", "makes Debian roots")?;
    std::thread::scope(|scope| {
        let builds: Vec<_> = missing
            .iter()
            .map(|&slurm| scope.spawn(move || build_one(slurm)))
            .collect();
        builds.into_iter().try_for_each(|build| match build.join() {
            Ok(built) => built,
            Err(_) => bail!("building a root panicked"),
        })
    })
}

/// What the stamp of an up-to-date root says.
pub(crate) fn stamp(slurm: Slurm) -> String {
    let packages = slurm.packages().join("\n");
    format!("{}\n{packages}\n{MAKE_DATABASE}{DATABASE}", slurm.suite())
}

fn is_current(slurm: Slurm) -> bool {
    fs::read_to_string(slurm.root().join(STAMP)).is_ok_and(|text| text == stamp(slurm))
}

/// Builds one root beside its place and moves it there when it is whole.
fn build_one(slurm: Slurm) -> Result<()> {
    let (suite, root) = (slurm.suite(), slurm.root());
    println!("Building a Debian {suite} root with Slurm {slurm}: 300 to 600 MB, a minute or two.");
    let new = beside(&root, "new")?;
    let log_path = beside(&root, "log")?;
    let log_file = File::create(&log_path).context("making the log of debootstrap")?;
    let log = || log_file.try_clone();
    let told = |what: &str| format!("{what} the {suite} root; {} tells more", log_path.display());

    remove(&new)?;
    // In mounts of its own: an interrupted debootstrap leaves none of its mounts behind.
    let mut debootstrap = as_root("unshare");
    debootstrap
        .args(["--mount", "--", "debootstrap", "--variant=minbase"])
        .arg(format!("--include={}", slurm.packages().join(",")))
        .arg(suite)
        .arg(&new)
        .stdin(Stdio::null())
        .stdout(log()?)
        .stderr(log()?);
    run(&mut debootstrap).with_context(|| told("building"))?;

    // The packages themselves have served: a sixth of the root.
    run(as_root("chroot").arg(&new).args(["apt-get", "clean"]))?;
    run(as_root("chroot")
        .arg(&new)
        .args(["sh", "-e", "-c", MAKE_DATABASE, "sh", DATABASE])
        .stdin(Stdio::null())
        .stdout(log()?)
        .stderr(log()?))
    .with_context(|| told("making the database of"))?;

    let mark = beside(&root, "stamp")?;
    fs::write(&mark, stamp(slurm)).context("writing the stamp")?;
    run(as_root("cp").arg(&mark).arg(new.join(STAMP)))?;
    remove(&root)?;
    run(as_root("mv")
        .arg("--no-target-directory")
        .arg(&new)
        .arg(&root))?;
    remove(&mark)?;
    println!("The {suite} root is ready: {}", root.display());
    Ok(())
}

/// `.NAME.WHAT` in the folder of `root`.
pub(crate) fn beside(root: &Path, what: &str) -> Result<PathBuf> {
    let name = root.file_name().context("a root has a name")?;
    Ok(root.with_file_name(format!(".{}.{what}", name.display())))
}

/// Removes a tree of root's.
pub(crate) fn remove(path: &Path) -> Result<()> {
    run(as_root("rm")
        .args(["-rf", "--one-file-system", "--"])
        .arg(path))
}

/// The program, through sudo where this is not root.
pub(crate) fn as_root(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.arg(program);
    command
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

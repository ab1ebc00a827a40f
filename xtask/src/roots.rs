//! The Debian roots that test clusters and packages run in: built once by debootstrap, only read after that.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use softmig_tests::Slurm;
use softmig_tests::accounting::{DATABASE, MAKE_DATABASE};
use softmig_tests::slurm::{OLDEST, OLDEST_PACKAGES, oldest, roots_dir};

use crate::packages::need;

/// In each root, what it was built from: another list of packages means another root.
const STAMP: &str = ".softmig-root";

/// Builds all roots with Slurm that are missing or out of date.
pub(crate) fn build() -> Result<()> {
    needs()?;
    build_for(&Slurm::ALL)
}

/// Builds those of the roots for these versions that are missing or out of date.
pub(crate) fn build_for(versions: &[Slurm]) -> Result<()> {
    match build_what_debian_has(versions)?.as_slice() {
        [] => Ok(()),
        [gone, ..] => bail!("{gone}"),
    }
}

/// Installs debootstrap where it is missing.
pub(crate) fn needs() -> Result<()> {
    need("debootstrap", "debootstrap", "makes Debian roots")
}

/// A version that Debian does not have any more: the Slurm of a release that is not out yet changes.
pub(crate) struct Gone {
    /// The version.
    pub(crate) slurm: Slurm,
    /// The version that Debian has in its place.
    instead: String,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slurm, suite, instead) = (self.slurm, self.slurm.suite(), &self.instead);
        write!(
            f,
            "Debian {suite} does not have Slurm {slurm} any more, but {instead}; CONTRIBUTING.md says where a release of \
             Slurm is named"
        )
    }
}

/// The same for all that Debian has, at the same time, and says which it does not have.
pub(crate) fn build_what_debian_has(versions: &[Slurm]) -> Result<Vec<Gone>> {
    build_all(versions.iter().copied().map(Plan::of).collect())
}

/// Builds the root with the oldest C library that packages are tried with.
pub(crate) fn build_oldest() -> Result<()> {
    needs()?;
    build_all(vec![Plan {
        slurm: None,
        suite: OLDEST,
        packages: OLDEST_PACKAGES,
        root: oldest(),
        finish: "true",
    }])?;
    Ok(())
}

/// The text of the stamp of an up-to-date root.
pub(crate) fn stamp(slurm: Slurm) -> String {
    Plan::of(slurm).stamp()
}

fn build_all(plans: Vec<Plan>) -> Result<Vec<Gone>> {
    let dir = roots_dir();
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    // Two of us would build into the same place. The lock goes with the file.
    let lock = File::create(dir.join(".lock")).context("making the lock of the roots")?;
    lock.lock().context("waiting for the lock of the roots")?;

    let missing: Vec<Plan> = plans
        .into_iter()
        .filter(|plan| !plan.is_current())
        .collect();
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    std::thread::scope(|scope| {
        let builds: Vec<_> = missing
            .iter()
            .map(|plan| scope.spawn(move || plan.build()))
            .collect();
        let built = builds.into_iter().map(|build| match build.join() {
            Ok(built) => built,
            Err(_) => bail!("building a root panicked"),
        });
        let built: Vec<Option<Gone>> = built.collect::<Result<_>>()?;
        Ok(built.into_iter().flatten().collect())
    })
}

/// A root as it is wanted.
struct Plan {
    /// Which Slurm it has, if any.
    slurm: Option<Slurm>,
    suite: &'static str,
    packages: &'static [&'static str],
    root: PathBuf,
    /// A script that is run in it at the end; its first word is the name of the database.
    finish: &'static str,
}

impl Plan {
    fn of(slurm: Slurm) -> Plan {
        Plan {
            slurm: Some(slurm),
            suite: slurm.suite(),
            packages: slurm.packages(),
            root: slurm.root(),
            finish: MAKE_DATABASE,
        }
    }

    fn stamp(&self) -> String {
        let packages = self.packages.join("\n");
        format!("{}\n{packages}\n{}{DATABASE}", self.suite, self.finish)
    }

    fn is_current(&self) -> bool {
        fs::read_to_string(self.root.join(STAMP)).is_ok_and(|text| text == self.stamp())
    }

    /// Builds the root beside its place and moves it there when it is whole.
    fn build(&self) -> Result<Option<Gone>> {
        let Plan {
            slurm: _,
            suite,
            packages,
            root,
            finish,
        } = self;
        println!("Building a Debian {suite} root: 300 to 600 MB, a minute or two.");
        let new = beside(root, "new")?;
        let log_path = beside(root, "log")?;
        let log_file = File::create(&log_path).context("making the log of debootstrap")?;
        let log = || log_file.try_clone();
        let told =
            |what: &str| format!("{what} the {suite} root; {} tells more", log_path.display());

        remove(&new)?;
        // In mounts of its own: an interrupted debootstrap leaves none of its mounts behind.
        let mut debootstrap = as_root("unshare");
        debootstrap
            .args(["--mount", "--", "debootstrap", "--variant=minbase"])
            .arg(format!("--include={}", packages.join(",")))
            .arg(suite)
            .arg(&new)
            // The usual mirror. All suites since 2018 are made in the one way that is named here: debootstrap itself need
            // not know the newest by their names.
            .args(["", "sid"])
            .stdin(Stdio::null())
            .stdout(log()?)
            .stderr(log()?);
        run(&mut debootstrap).with_context(|| told("building"))?;
        if let Some(gone) = self.gone(&new)? {
            remove(&new)?;
            return Ok(Some(gone));
        }

        // The packages themselves have served: a sixth of the root.
        run(as_root("chroot").arg(&new).args(["apt-get", "clean"]))?;
        run(as_root("chroot")
            .arg(&new)
            .args(["sh", "-e", "-c", finish, "sh", DATABASE])
            .stdin(Stdio::null())
            .stdout(log()?)
            .stderr(log()?))
        .with_context(|| told("making the database of"))?;

        let mark = beside(root, "stamp")?;
        fs::write(&mark, self.stamp()).context("writing the stamp")?;
        run(as_root("cp").arg(&mark).arg(new.join(STAMP)))?;
        remove(root)?;
        run(as_root("mv")
            .arg("--no-target-directory")
            .arg(&new)
            .arg(root))?;
        remove(&mark)?;
        println!("The {suite} root is ready: {}", root.display());
        Ok(None)
    }

    /// Says which release of Slurm a new root has, if it is not the one that is wanted.
    fn gone(&self, new: &Path) -> Result<Option<Gone>> {
        let Some(slurm) = self.slurm else {
            return Ok(None);
        };
        let said = as_root("chroot")
            .arg(new)
            .args(["slurmctld", "-V"])
            .output()
            .context("asking Slurm for its version")?;
        let said = String::from_utf8_lossy(&said.stdout);
        let version = said.split_whitespace().last().unwrap_or("none");
        let is_it = version.starts_with(&format!("{slurm}."));
        let instead = version.to_string();
        Ok((!is_it).then_some(Gone { slurm, instead }))
    }
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

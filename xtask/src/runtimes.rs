//! The container runtimes that tests run: installed once by apt-get, in a layer over the Debian root of Slurm 24.11.

use std::fs::{self, File};
use std::process::Stdio;

use anyhow::{Context, Result};
use softmig_tests::Slurm;
use softmig_tests::runtimes::{PACKAGES, layer};

use crate::place::run;
use crate::roots::{as_root, beside, remove, stamp};

/// The list and the root from which the layer was made: if one of them differs, the layer is made anew.
const STAMP: &str = "etc/softmig-runtimes";

/// Installs packages into `tree`, a layer over a Debian root. The words: a new folder, the root, the packages.
const INSTALL: &str = r#"
set -e
cd "$1"
mkdir lower tree work merged
mount --bind "$2" lower
shift 2
mount -t overlay overlay -o lowerdir=lower,upperdir=tree,workdir=work merged
mount -t proc proc merged/proc
unstable=merged/etc/apt/sources.list.d/unstable.list
sed -n 's/^\(deb [^ ]*\) trixie .*/\1 sid main/p' merged/etc/apt/sources.list >$unstable
export DEBIAN_FRONTEND=noninteractive
# A mirror may be some weeks behind unstable. Its signature counts all the same.
apt="chroot merged apt-get -q -o APT::Default-Release=trixie -o Acquire::Check-Valid-Until=false"
$apt update
$apt -y install --no-install-recommends "$@"
rm -rf $unstable merged/var/lib/apt/lists
chroot merged apt-get clean
"#;

/// Makes the layer where it is missing or out of date.
pub(crate) fn build() -> Result<()> {
    let slurm = Slurm::V24_11;
    let layer = layer();
    let folder = layer.parent().context("the layer is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    // Two of us would build into the same place. The lock goes with the file.
    let lock = File::create(folder.join(".lock")).context("making the lock of the runtimes")?;
    lock.lock()
        .context("waiting for the lock of the runtimes")?;
    let wanted = format!("{}\n{INSTALL}{}\n", stamp(slurm), PACKAGES.join("\n"));
    if fs::read_to_string(layer.join(STAMP)).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    println!("Installing Apptainer, Podman and Docker for tests: 500 MB, half a minute.");
    let (new, log) = (beside(&layer, "new")?, beside(&layer, "log")?);
    remove(&new)?;
    fs::create_dir(&new).with_context(|| format!("making {}", new.display()))?;
    let log_file = File::create(&log).context("making the log of the runtimes")?;
    // In mounts of its own, which go with it.
    let mut install = as_root("unshare");
    install
        .args(["--mount", "--", "sh", "-c", INSTALL, "sh"])
        .args([&new, &slurm.root()])
        .args(PACKAGES)
        .stdin(Stdio::null())
        .stdout(log_file.try_clone()?)
        .stderr(log_file);
    run(&mut install)
        .with_context(|| format!("installing runtimes; {} tells more", log.display()))?;
    let mark = beside(&layer, "stamp")?;
    fs::write(&mark, wanted).context("writing the stamp")?;
    run(as_root("mv").arg(&mark).arg(new.join("tree").join(STAMP)))?;
    remove(&layer)?;
    run(as_root("mv")
        .arg("--no-target-directory")
        .arg(new.join("tree"))
        .arg(&layer))?;
    remove(&new)
}

//! Two releases of softmig, unpacked in a machine. They differ in a byte at the end of each program, which nothing reads.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use softmig_tests::softmig::stage;

/// Where the one lies.
pub(crate) const OLD: &str = "/opt/old";
/// Where the other lies.
pub(crate) const NEW: &str = "/opt/new";

/// The files that differ.
const PROGRAMS: [&str; 9] = [
    "usr/bin/softmig",
    "usr/libexec/softmig-prolog",
    "usr/libexec/softmig-epilog",
    "usr/libexec/softmig-monitor",
    "usr/lib/softmig/staged/libsoftmig.so",
    "usr/lib/softmig/lua/5.1/softmig_job_submit.so",
    "usr/lib/softmig/lua/5.1/softmig_cli_filter.so",
    "usr/lib/softmig/lua/5.3/softmig_job_submit.so",
    "usr/lib/softmig/lua/5.4/softmig_cli_filter.so",
];

/// A folder with both, to be laid under a machine.
pub(crate) struct Trees(tempfile::TempDir);

impl Trees {
    pub(crate) fn make() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let opt = folder.path().join("opt");
        std::fs::create_dir(&opt)?;
        for tree in [OLD, NEW] {
            let to = folder.path().join(&tree[1..]);
            let copied = Command::new("cp")
                .arg("-a")
                .arg(stage().canonicalize()?)
                .arg(&to)
                .status()?;
            ensure!(copied.success(), "copying {}", stage().display());
        }
        for program in PROGRAMS {
            let path: PathBuf = Path::new(&NEW[1..]).join(program);
            let mut file = OpenOptions::new()
                .append(true)
                .open(folder.path().join(path))?;
            file.write_all(b"\n")?;
        }
        // Every user goes through it.
        std::fs::set_permissions(
            folder.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )?;
        Ok(Self(folder))
    }

    pub(crate) fn layer(&self) -> PathBuf {
        self.0.path().to_path_buf()
    }
}

//! The last good policy on disk, beside slurmctld's own state: a slurmctld that starts while policy.toml is no good decides by
//! it. Without it slices would be refused and whole GPUs pass without anybody's limits.

use softmig_policy::Policy;
use softmig_policy::slurm::conf::state_save_location;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Its name in `StateSaveLocation`.
const NAME: &str = "softmig-policy.toml";

/// Where it is kept; `None` where slurm.conf itself does not say where slurmctld's state is.
fn path(slurm_conf: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(slurm_conf).ok()?;
    Some(Path::new(&state_save_location(&text)?).join(NAME))
}

/// Keeps a policy that was found good.
pub(crate) fn keep(slurm_conf: &Path, text: &str) -> io::Result<()> {
    let Some(path) = path(slurm_conf) else {
        return Ok(());
    };
    if fs::read(&path).is_ok_and(|kept| kept == text.as_bytes()) {
        return Ok(());
    }
    let new = path.with_extension("toml.new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    // A machine that loses power must not leave an empty file, which is a policy too.
    file.sync_all()?;
    fs::rename(&new, &path)
}

/// The policy that was kept, and where.
pub(crate) fn kept(slurm_conf: &Path) -> Option<(Policy, PathBuf)> {
    let path = path(slurm_conf)?;
    let policy = Policy::parse_whole(&fs::read_to_string(&path).ok()?).ok()?;
    Some((policy, path))
}

//! The last good policy, stored beside slurmctld's own state. A slurmctld that starts with a wrong policy.toml decides by it.
//! Without it, slices would be refused, and whole GPUs would pass without limits.

use softmig_policy::Policy;
use softmig_policy::slurm::conf::state_save_location;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Its name in `StateSaveLocation`.
const NAME: &str = "softmig-policy.toml";

/// Its path; `None` if slurm.conf does not name the folder of slurmctld's state.
fn path(slurm_conf: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(slurm_conf).ok()?;
    Some(Path::new(&state_save_location(&text)?).join(NAME))
}

/// Stores a good policy.
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
    // A power failure must not leave an empty file, which is a valid policy.
    file.sync_all()?;
    fs::rename(&new, &path)
}

/// The stored policy, and its path.
pub(crate) fn kept(slurm_conf: &Path) -> Option<(Policy, PathBuf)> {
    let path = path(slurm_conf)?;
    let policy = Policy::parse_whole(&fs::read_to_string(&path).ok()?).ok()?;
    Some((policy, path))
}

//! The policy that slurmctld goes by: whether its user can read policy.toml, and the last good policy that it has
//! stored.

use crate::site::check::facts::InForce;
use softmig_policy::slurm::conf::state_save_location;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use uzers::{get_user_by_name, get_user_groups};

/// The last good policy's name in `StateSaveLocation`; job_submit stores it.
const LAST_GOOD: &str = "softmig-policy.toml";

/// Looks at the policy as the user of `SlurmUser=` would, and at the last good one.
pub(crate) fn look(policy: &Path, slurm_user: &str, slurm_conf: &str) -> InForce {
    // scontrol prints `slurm(64030)`.
    let name = slurm_user.split('(').next().unwrap_or_default();
    let name = if name.is_empty() { "root" } else { name };
    let closed = ids(name).and_then(|ids| closed(policy, &ids));
    let last_good =
        state_save_location(slurm_conf).map(|folder| Path::new(&folder).join(LAST_GOOD));
    InForce {
        user: name.to_string(),
        closed,
        last_good: last_good.filter(|path| differs(policy, path)),
    }
}

/// A user's number, and the numbers of the user's groups.
struct Ids {
    user: u32,
    groups: Vec<u32>,
}

fn ids(name: &str) -> Option<Ids> {
    let user = get_user_by_name(name)?;
    let groups = get_user_groups(name, user.primary_group_id()).unwrap_or_default();
    Some(Ids {
        user: user.uid(),
        groups: groups.iter().map(|group| group.gid()).collect(),
    })
}

/// The file, or the folder on the way to it, that this user may not read or pass.
fn closed(path: &Path, ids: &Ids) -> Option<PathBuf> {
    if ids.user == 0 {
        return None;
    }
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    parts
        .into_iter()
        .find(|part| {
            let wanted = if *part == path { 0o4 } else { 0o1 };
            fs::metadata(part).is_ok_and(|stat| !may(&stat, ids, wanted))
        })
        .map(Path::to_path_buf)
}

fn may(stat: &fs::Metadata, ids: &Ids, wanted: u32) -> bool {
    let shift = if stat.uid() == ids.user {
        6
    } else if ids.groups.contains(&stat.gid()) {
        3
    } else {
        0
    };
    stat.mode() >> shift & wanted == wanted
}

/// Whether both can be read and differ.
fn differs(policy: &Path, last_good: &Path) -> bool {
    match (fs::read(policy), fs::read(last_good)) {
        (Ok(policy), Ok(last_good)) => policy != last_good,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_closed_by_its_owner_group_or_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml");
        fs::write(&path, "x").unwrap();
        let own = fs::metadata(&path).unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let other = Ids {
            user: own.uid() + 4321,
            groups: vec![own.gid() + 4321],
        };
        let same_group = Ids {
            user: own.uid() + 4321,
            groups: vec![own.gid()],
        };
        mode(folder.path(), 0o755);
        for (bits, by_others, by_group) in [
            (0o644, true, true),
            (0o640, false, true),
            (0o600, false, false),
        ] {
            mode(&path, bits);
            assert_eq!(closed(&path, &other).is_none(), by_others, "{bits:o}");
            assert_eq!(closed(&path, &same_group).is_none(), by_group, "{bits:o}");
        }
        mode(&path, 0o644);
        mode(folder.path(), 0o700);
        assert_eq!(closed(&path, &other).as_deref(), Some(folder.path()));
        let root = Ids {
            user: 0,
            groups: vec![0],
        };
        assert_eq!(closed(&path, &root), None);
    }

    #[test]
    fn another_last_good_policy_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy.toml");
        let conf = format!("StateSaveLocation={}\n", folder.path().display());
        let last_good = folder.path().join(LAST_GOOD);
        fs::write(&policy, "a").unwrap();
        let seen = || look(&policy, "root(0)", &conf).last_good;
        assert_eq!(seen(), None);
        fs::write(&last_good, "b").unwrap();
        assert_eq!(seen(), Some(last_good.clone()));
        fs::write(&last_good, "a").unwrap();
        assert_eq!(seen(), None);
    }
}

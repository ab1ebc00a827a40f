//! Lets one user or one group at a file of root's, and no other: by an access list, since the monitor's capabilities do not let it give
//! files away.

use rustix::fs::{XattrFlags, fsetxattr, lsetxattr};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::Path;

/// The reader beside the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who<'a> {
    /// May read.
    User(u32),
    /// May read and write, as one has to for a socket.
    Group(u32),
    /// May list a folder, and enter it: these, in order.
    Visitors(&'a BTreeSet<u32>),
    /// May read and write: these, in order.
    Users(&'a BTreeSet<u32>),
}

const NAME: &str = "system.posix_acl_access";

/// The list as the kernel takes it: its version, then the kind, the rights and the number of each entry.
fn list(who: Who<'_>) -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    let (owner, group, others) = ((1_u16, 6_u16, NONE), (4, 0, NONE), (32, 0, NONE));
    let owner_of_folder = (1, 7, NONE);
    let several = |owner, rights, uids: &BTreeSet<u32>| {
        let users = uids.iter().map(|&uid| (2, rights, uid));
        let all = [owner].into_iter().chain(users);
        all.chain([group, (16, rights, NONE), others]).collect()
    };
    let entries = match who {
        Who::User(uid) => vec![owner, (2, 4, uid), group, (16, 4, NONE), others],
        Who::Group(gid) => vec![owner, group, (8, 6, gid), (16, 6, NONE), others],
        Who::Visitors(uids) => several(owner_of_folder, 5, uids),
        Who::Users(uids) => several(owner, 6, uids),
    };
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (kind, rights, number) in entries {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

/// Gives the user or group access to an open file, which belongs to this process's user.
pub fn let_in(file: impl AsFd, who: Who<'_>) -> rustix::io::Result<()> {
    fsetxattr(file, NAME, &list(who), XattrFlags::empty())
}

/// The same by path, for a file that cannot be opened. Only this process's user may write to the folder.
pub fn let_in_at(path: &Path, who: Who<'_>) -> rustix::io::Result<()> {
    lsetxattr(path, NAME, &list(who), XattrFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fgetxattr;

    #[test]
    fn the_kernel_takes_the_list_and_the_mode_shows_it() {
        // A file system with such lists, as /run is.
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        for (who, mode) in [
            (Who::User(2001), 0o640),
            (Who::Group(3001), 0o660),
            (Who::Visitors(&[2001, 2002].into()), 0o750),
            (Who::Users(&[2001, 2002].into()), 0o660),
        ] {
            let_in(&file, who).unwrap();
            let mut kept = [0_u8; 64];
            let length = fgetxattr(&file, NAME, &mut kept[..]).unwrap();
            assert_eq!(kept[..length], list(who));
            assert_eq!(rustix::fs::fstat(&file).unwrap().st_mode & 0o777, mode);
        }
    }
}

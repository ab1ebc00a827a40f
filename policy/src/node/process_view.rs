//! A process's view of its node and itself: the questions of [`identity`](crate::node::identity).
//!
//! The hook answers them without std and without an allocator, root's programs and `softmig` with std.

use core::ffi::CStr;

/// The kernel's inode numbers of the first namespaces (`include/linux/proc_ns.h`).
const FIRST_CGROUP_NAMESPACE: u64 = 0xEFFF_FFFB;
/// The first user namespace, whose user ids are those of the node.
pub const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;
/// The owner of a file whose owner this user namespace does not know (`/proc/sys/kernel/overflowuid`).
const UNKNOWN_OWNER: u32 = 65534;

/// The error number of a system call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OsError(pub i32);

impl OsError {
    /// `ENOENT`: the file does not exist.
    pub const MISSING: Self = Self(2);
    /// `EFBIG`: the file is larger than what may be read of it.
    pub const TOO_LONG: Self = Self(27);
    /// `EPERM`: others than root can write to the file.
    pub const NOT_KEPT: Self = Self(1);
}

/// A process's view of its node and itself.
pub trait ProcessView {
    /// Reads a file for which [`Self::is_kept_by_root`] holds; `Ok(None)` if it does not exist. For other files it fails.
    fn kept_by_root<T>(
        &self,
        path: &CStr,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, OsError>;
    /// Reads `/proc/PID/cgroup`, of this process without a number.
    fn cgroup<T>(&self, pid: Option<u32>, read: impl FnOnce(&[u8]) -> T) -> Result<T, OsError>;
    /// Calls `visit` with the pieces of `/proc/PID/environ` in turn, until it returns true.
    fn environment(&self, pid: u32, visit: impl FnMut(&[u8]) -> bool) -> Result<bool, OsError>;
    /// Calls `visit` with each name in a folder; there may be none.
    fn each_name(&self, folder: &CStr, visit: impl FnMut(&[u8])) -> Result<(), OsError>;
    /// The inode number of `/proc/self/ns/cgroup`.
    fn cgroup_namespace(&self) -> Result<u64, OsError>;
    /// The inode number of `/proc/self/ns/user`.
    fn user_namespace(&self) -> Result<u64, OsError>;
    /// The user who started the process.
    fn real_uid(&self) -> u32;
    /// Whether the process has other rights than its user (`AT_SECURE`). The user's environment then does not count.
    fn is_secure(&self) -> bool;
    /// A variable of the environment.
    fn variable(&self, name: &CStr) -> Option<&[u8]>;

    /// Whether `/proc/self/cgroup` shows whole paths.
    fn is_in_first_cgroup_namespace(&self) -> bool {
        // A kernel without such namespaces has no file for them; without /proc the list cannot be read at all.
        matches!(
            self.cgroup_namespace(),
            Ok(FIRST_CGROUP_NAMESPACE) | Err(OsError::MISSING)
        )
    }

    /// Whether user ids are those of the node. Without `/proc` they may be others.
    fn is_in_first_user_namespace(&self) -> bool {
        self.user_namespace() == Ok(FIRST_USER_NAMESPACE)
    }

    /// Whether this is root, and not the root of a user namespace.
    fn is_root(&self) -> bool {
        self.real_uid() == 0 && self.is_in_first_user_namespace()
    }

    /// Whether a file with this owner and mode is a plain file that root alone can write to.
    ///
    /// A user namespace shows root's files with an unknown owner. It may also show a user's own files as root's: the user can
    /// cover any path with mounts, also the hook's. The monitor detects that.
    fn is_kept_by_root(&self, owner: u32, mode: u32) -> bool {
        let by_root = owner == 0 || (owner == UNKNOWN_OWNER && !self.is_in_first_user_namespace());
        by_root && mode & 0o170_000 == 0o100_000 && mode & 0o022 == 0
    }
}

//! Where the real nvidia-smi is, also when softmig has taken its place.

use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Its name.
pub(crate) const NAME: &str = "nvidia-smi";

/// Its name after softmig was put in its place.
const MOVED: &str = "nvidia-smi.real";

/// Where drivers, containers and toolkits put it, in this order.
const FOLDERS: [&str; 5] = [
    "/usr/bin",
    "/usr/local/bin",
    "/usr/local/nvidia/bin",
    "/opt/bin",
    "/usr/lib/wsl/lib",
];

/// The node has no nvidia-smi.
#[derive(Debug)]
pub(crate) struct NotFound;

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{NAME} is not in {}, nor in a folder of PATH; it comes with NVIDIA's driver, so try this on a \
             node with GPUs",
            FOLDERS.join(", ")
        )
    }
}

/// Finds it: beside the name that the caller used, in the usual folders, then in PATH. In each folder the moved one
/// comes first, since the usual name may be softmig's, or a script that calls it.
pub(crate) fn find(called_as: &OsStr) -> Result<PathBuf, NotFound> {
    // A name without a folder was found in PATH.
    let beside = Path::new(called_as)
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside
        .into_iter()
        .map(Path::to_owned)
        .chain(FOLDERS.map(PathBuf::from))
        // A relative one would be any folder, also one that another user writes to.
        .chain(std::env::split_paths(&path).filter(|folder| folder.is_absolute()));
    first_in(folders, Path::new("/proc/self/exe")).ok_or(NotFound)
}

/// The first one in these folders that is not softmig.
fn first_in(folders: impl Iterator<Item = PathBuf>, softmig: &Path) -> Option<PathBuf> {
    folders
        .flat_map(|folder| [folder.join(MOVED), folder.join(NAME)])
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok() && !is(file, softmig))
}

/// Whether two names lead to the same program: to one file, or to copies of it.
fn is(one: &Path, other: &Path) -> bool {
    let (Ok(first), Ok(second)) = (one.metadata(), other.metadata()) else {
        return false;
    };
    (first.dev(), first.ino()) == (second.dev(), second.ino())
        || first.len() == second.len()
            && matches!((std::fs::read(one), std::fs::read(other)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn program(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Looks in the folders `a` and `b`; finds a path below them.
    fn found(root: &Path) -> Option<String> {
        let folders = ["a", "b"].map(|name| root.join(name)).into_iter();
        let found = first_in(folders, &root.join("softmig"))?;
        let found = found.strip_prefix(root).unwrap();
        Some(found.to_str().unwrap().to_owned())
    }

    #[test]
    fn what_is_softmig_itself_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        program(&root.join("softmig"), "softmig");
        assert_eq!(found(root), None);
        std::fs::create_dir(root.join("a")).unwrap();
        symlink("../softmig", root.join("a/nvidia-smi")).unwrap();
        program(&root.join("b/nvidia-smi"), "softmig");
        assert_eq!(found(root), None);
        program(&root.join("b/nvidia-smi"), "nvidia-");
        assert_eq!(found(root).unwrap(), "b/nvidia-smi");
    }

    #[test]
    fn the_moved_one_comes_before_what_stands_in_its_place() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        program(&root.join("softmig"), "softmig");
        program(&root.join("b/nvidia-smi"), "another");
        program(&root.join("a/nvidia-smi"), "a script that calls softmig");
        assert_eq!(found(root).unwrap(), "a/nvidia-smi");
        program(&root.join("a/nvidia-smi.real"), "moved");
        assert_eq!(found(root).unwrap(), "a/nvidia-smi.real");
    }

    #[test]
    fn a_folder_or_a_plain_file_by_that_name_is_none() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        program(&root.join("softmig"), "softmig");
        std::fs::create_dir_all(root.join("a/nvidia-smi")).unwrap();
        std::fs::create_dir(root.join("b")).unwrap();
        std::fs::write(root.join("b/nvidia-smi"), "").unwrap();
        assert_eq!(found(root), None);
    }
}

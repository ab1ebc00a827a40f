//! Where the library may lie: in folders that only root can change, all the way down from `/`. Every process of the
//! node loads it, root's and set-uid ones too.

use crate::machine::preload::is_plain;
use anyhow::{Context, bail, ensure};
use softmig_node::dir::Dir;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Finds the true path of a folder, which need not exist yet but whose parent must, and checks the way to it.
pub(crate) fn trusted(folder: &Path) -> anyhow::Result<PathBuf> {
    ensure!(
        folder.is_absolute() && folder.components().all(|part| part != Component::ParentDir),
        "{}: give the folder as a path from / without '..'",
        folder.display()
    );
    let there = if folder.exists() {
        folder.canonicalize()
    } else {
        let parent = folder.parent().unwrap_or(folder);
        let name = folder.file_name().unwrap_or_default();
        parent.canonicalize().map(|parent| parent.join(name))
    };
    let path = there.with_context(|| {
        let parent = folder.parent().unwrap_or(folder);
        format!("{}: make {} first", folder.display(), parent.display())
    })?;
    plain(&path)?;
    for part in path.ancestors() {
        check(part)?;
    }
    Ok(path)
}

/// Opens it, made when missing.
pub(crate) fn open(folder: &Path) -> anyhow::Result<Dir> {
    Dir::make(folder, 0).map_err(crate::files::config_lock::explained)
}

fn plain(path: &Path) -> anyhow::Result<()> {
    ensure!(
        is_plain(path),
        "{}: the loader cannot take such a path; use letters, digits and . _ + - @",
        path.display()
    );
    Ok(())
}

fn check(part: &Path) -> anyhow::Result<()> {
    let stat = match fs::symlink_metadata(part) {
        Ok(stat) => stat,
        // Only the last one may be missing; then softmig makes it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("looking at {}", part.display())),
    };
    let (part, mode) = (part.display(), stat.mode());
    if !stat.is_dir() {
        bail!("{part} is not a folder; give another with --libdir");
    }
    if stat.uid() != 0 {
        bail!(
            "{part} belongs to user {}, who could change what every process loads; give it to root, or give another \
               folder with --libdir",
            stat.uid()
        );
    }
    if mode & 0o022 != 0 {
        bail!(
            "{part} can be written to by others than root (mode {:04o}), who could change what every process loads; \
               use 'chmod go-w {part}', or give another folder with --libdir",
            mode & 0o7777
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_on_the_way_that_others_can_change_is_refused() {
        for folder in ["/tmp", "/tmp/softmig", "/var/tmp"] {
            let refused = trusted(Path::new(folder)).unwrap_err().to_string();
            assert!(
                refused.contains("tmp can be written to by others than root (mode 1777)"),
                "{refused}"
            );
        }
    }

    #[test]
    fn only_a_plain_path_is_taken() {
        for folder in [
            "lib",
            "/usr/lib/../lib",
            "/usr/$LIB",
            "/usr/a b",
            "/usr/a:b",
            "/usr/a#b",
            "/no/such/folder",
        ] {
            assert!(trusted(Path::new(folder)).is_err(), "{folder}");
        }
    }

    #[test]
    fn the_usual_folder_is_taken_and_links_on_the_way_are_resolved() {
        let path = trusted(Path::new("/usr/lib/softmig-not-there")).unwrap();
        assert_eq!(path, Path::new("/usr/lib/softmig-not-there"));
        let path = trusted(Path::new("/lib/softmig-not-there")).unwrap();
        assert_eq!(
            path,
            Path::new("/lib")
                .canonicalize()
                .unwrap()
                .join("softmig-not-there")
        );
    }
}

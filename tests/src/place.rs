//! Paths and files of a machine, handled from outside it without ever leaving it.

use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Where `path` of the machine whose `/` lies at `root` is found from here.
///
/// Symbolic links are followed as the machine would: `/var/run` means its own `/run`, not ours. A part that is
/// not there yet is kept as it is, so that the answer can be written to.
pub fn inside(root: &Path, path: &Path) -> Result<PathBuf> {
    let mut todo: Vec<OsString> = parts(path);
    let mut at = PathBuf::new();
    let mut links = 0;
    while let Some(part) = todo.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let Ok(target) = std::fs::read_link(root.join(&at).join(&part)) else {
            at.push(part);
            continue;
        };
        links += 1;
        if links > 40 {
            bail!("{}: too many symbolic links", path.display());
        }
        if target.is_absolute() {
            at.clear();
        }
        todo.extend(parts(&target));
    }
    Ok(root.join(at))
}

/// The parts of a path, last one first.
fn parts(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

/// Writes a file of the machine, with the directories above it.
pub fn write(root: &Path, path: &Path, contents: &[u8], mode: u32) -> Result<()> {
    let place = inside(root, path)?;
    make_parents(&place)?;
    // An existing file is removed first, since it could be a program that runs.
    let _ = std::fs::remove_file(&place);
    std::fs::write(&place, contents).with_context(|| format!("writing {}", place.display()))?;
    chmod(&place, mode)
}

/// The text of a file of the machine, or nothing when it is not there.
pub fn read(root: &Path, path: &Path) -> Result<Option<String>> {
    let place = inside(root, path)?;
    match std::fs::read(&place) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", place.display())),
    }
}

/// Copies one file into the machine.
pub fn install(root: &Path, from: &Path, to: &Path, mode: u32) -> Result<()> {
    let contents = std::fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    write(root, to, &contents, mode)
}

/// The files of softmig's tree that an administrator puts in place: the library, by `softmig install --hook`, and
/// examples.
const PUT: [(&str, &str); 4] = [
    (
        "usr/lib/softmig/staged/libsoftmig.so",
        "/usr/lib/softmig/libsoftmig.so",
    ),
    (
        "usr/share/softmig/examples/policy.toml",
        "/etc/softmig/policy.toml",
    ),
    (
        "usr/share/softmig/examples/job_submit.lua",
        "/etc/slurm/job_submit.lua",
    ),
    (
        "usr/share/softmig/examples/cli_filter.lua",
        "/etc/slurm/cli_filter.lua",
    ),
];

/// Whether laying this tree puts a file there.
pub fn puts(tree: &Path, path: &Path) -> bool {
    PUT.iter()
        .any(|(from, to)| Path::new(to) == path && tree.join(from).exists())
}

/// Lays a tree arranged like `/` over the machine. All of it then belongs to root, as installed files do.
pub fn stage(root: &Path, tree: &Path) -> Result<()> {
    stage_dir(root, tree, Path::new("/"))?;
    for (from, to) in PUT {
        let from = tree.join(from);
        if from.exists() {
            let mode = from.metadata()?.permissions().mode() & 0o777;
            install(root, &from, Path::new(to), mode)?;
        }
    }
    Ok(())
}

fn stage_dir(root: &Path, tree: &Path, dir: &Path) -> Result<()> {
    let entries = std::fs::read_dir(tree).with_context(|| format!("reading {}", tree.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("reading {}", tree.display()))?;
        let (from, to) = (entry.path(), dir.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let place = inside(root, &to)?;
            std::fs::create_dir_all(&place)
                .with_context(|| format!("making {}", place.display()))?;
            stage_dir(root, &from, &to)?;
        } else if kind.is_symlink() {
            let place = inside(root, dir)?.join(entry.file_name());
            let _ = std::fs::remove_file(&place);
            symlink(std::fs::read_link(&from)?, &place)
                .with_context(|| format!("linking {}", place.display()))?;
        } else {
            // A stage made under any umask gives what an installer gives: 0755 or 0644.
            let runs = entry.metadata()?.permissions().mode() & 0o100 != 0;
            install(root, &from, &to, if runs { 0o755 } else { 0o644 })?;
        }
    }
    Ok(())
}

fn make_parents(place: &Path) -> Result<()> {
    let parent = place.parent().context("a file needs a directory")?;
    std::fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))
}

/// Sets a mode whatever the umask is.
pub fn chmod(place: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(place, PermissionsExt::from_mode(mode))
        .with_context(|| format!("setting the mode of {}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_inside_the_root_only() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("var")).unwrap();
        std::fs::create_dir_all(root.join("run/softmig")).unwrap();
        symlink("/run", root.join("var/run")).unwrap();
        symlink("../../../../run", root.join("var/up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let at = |path: &str| inside(root, Path::new(path));
        assert_eq!(
            at("/var/run/softmig/1.conf").unwrap(),
            root.join("run/softmig/1.conf")
        );
        assert_eq!(at("/var/up/softmig").unwrap(), root.join("run/softmig"));
        assert_eq!(at("/new/file").unwrap(), root.join("new/file"));
        assert!(at("/loop").is_err());
    }

    #[test]
    fn a_stage_keeps_what_is_executable_so() {
        let dir = tempfile::tempdir().unwrap();
        let (root, tree) = (dir.path().join("root"), dir.path().join("tree"));
        std::fs::create_dir_all(tree.join("usr/libexec")).unwrap();
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(tree.join("usr/libexec/softmig-prolog"), "x").unwrap();
        chmod(&tree.join("usr/libexec/softmig-prolog"), 0o700).unwrap();
        stage(&root, &tree).unwrap();
        let mode = root
            .join("usr/libexec/softmig-prolog")
            .metadata()
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o755);
    }
}

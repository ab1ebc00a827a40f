//! `--write`: the files in a folder, each whole or not at all. One that softmig wrote before gives way to the new one, unless
//! it was changed since.

use super::merge::merged;
use super::text::Generated;
use crate::files::stamp::{is_untouched, stamped, unstamped};
use anyhow::{Context, bail};
use std::fmt;
use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The outcome for a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The file did not exist.
    New(PathBuf),
    /// The file said the same already.
    Unchanged(PathBuf),
    /// An earlier one of softmig's was there, as it had been written.
    Renewed(PathBuf),
    /// Another was there and is left; the new one is beside it.
    Beside { there: PathBuf, new: PathBuf },
    /// Another was there; it is beside it now.
    Replaced { path: PathBuf, old: PathBuf },
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New(path) => write!(f, "{}: written", path.display()),
            Self::Unchanged(path) => write!(f, "{}: unchanged", path.display()),
            Self::Renewed(path) => write!(
                f,
                "{}: written over softmig's earlier one, which was not changed",
                path.display()
            ),
            Self::Beside { there, new } => write!(
                f,
                "{there}: differs, and is left as it is; see what would change with\n  \
                 diff -u {there} {new}\nand take it over with\n  mv {new} {there}",
                there = there.display(),
                new = new.display()
            ),
            Self::Replaced { path, old } => write!(
                f,
                "{}: written; what was there is {}",
                path.display(),
                old.display()
            ),
        }
    }
}

/// Writes them all. An error leaves those before it written.
pub(super) fn all(files: &[Generated], folder: &Path, force: bool) -> anyhow::Result<Vec<Written>> {
    if !folder.is_dir() {
        bail!(
            "{}: the folder does not exist; make it first",
            folder.display()
        );
    }
    let written = files.iter().map(|file| one(file, folder, force));
    written.collect()
}

fn one(file: &Generated, folder: &Path, force: bool) -> anyhow::Result<Written> {
    let path = folder.join(file.name);
    let there = match std::fs::read(&path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            place(file, &path)?;
            return Ok(Written::New(path));
        }
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    let said = unstamped(&there);
    let file = &Generated {
        text: merged(file.name, &file.text, &String::from_utf8_lossy(&said)),
        ..file.clone()
    };
    if said == file.text.as_bytes() {
        return Ok(Written::Unchanged(path));
    }
    if is_untouched(&there) {
        // The file itself, where a link leads to it.
        let file_itself =
            std::fs::canonicalize(&path).with_context(|| format!("{}", path.display()))?;
        place(file, &file_itself)?;
        return Ok(Written::Renewed(path));
    }
    if force {
        let old = beside(&path, "old");
        // The file itself, where a link leads to it.
        let path = std::fs::canonicalize(&path).with_context(|| format!("{}", path.display()))?;
        std::fs::copy(&path, &old).with_context(|| format!("writing {}", old.display()))?;
        place(file, &path)?;
        return Ok(Written::Replaced { path, old });
    }
    let new = beside(&path, "new");
    place(file, &new)?;
    Ok(Written::Beside { there: path, new })
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// It is always the old one or the new one.
fn place(file: &Generated, path: &Path) -> anyhow::Result<()> {
    let mode = if file.program { 0o755 } else { 0o644 };
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(stamped(&file.text).as_bytes())?;
        new.as_file()
            .set_permissions(Permissions::from_mode(mode))?;
        new.as_file().sync_all()?;
        new.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Vec<Generated> {
        vec![Generated {
            name: "softmig-qos.sh",
            text: text.to_string(),
            program: true,
        }]
    }

    fn write(folder: &Path, text: &str, force: bool) -> Written {
        all(&file(text), folder, force).unwrap().remove(0)
    }

    fn read(path: PathBuf) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_file_that_softmig_wrote_gives_way_until_it_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let path = at("softmig-qos.sh");
        assert_eq!(write(folder.path(), "a", false), Written::New(path.clone()));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(
            write(folder.path(), "a", false),
            Written::Unchanged(path.clone())
        );
        assert_eq!(
            write(folder.path(), "b", false),
            Written::Renewed(path.clone())
        );
        assert_eq!(read(path.clone()), stamped("b"));
        assert!(!at("softmig-qos.sh.new").exists());
        // One without the line that says the same, as of an earlier release.
        std::fs::write(&path, "c").unwrap();
        assert_eq!(
            write(folder.path(), "c", false),
            Written::Unchanged(path.clone())
        );
        assert_eq!(read(path.clone()), "c");
        let changed = format!("{}# ours\n", stamped("c"));
        std::fs::write(&path, &changed).unwrap();
        let written = write(folder.path(), "d", false);
        let new = at("softmig-qos.sh.new");
        assert_eq!(
            written.to_string(),
            format!(
                "{there}: differs, and is left as it is; see what would change with\n  diff -u {there} {new}\n\
                 and take it over with\n  mv {new} {there}",
                there = path.display(),
                new = new.display()
            )
        );
        assert_eq!((read(path), read(new)), (changed, stamped("d")));
    }

    #[test]
    fn force_keeps_the_old_one_beside() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("elsewhere"), "old").unwrap();
        std::os::unix::fs::symlink("elsewhere", at("softmig-qos.sh")).unwrap();
        let written = write(folder.path(), "new", true);
        assert!(matches!(written, Written::Replaced { .. }), "{written:?}");
        assert_eq!(read(at("softmig-qos.sh.old")), "old");
        assert_eq!(read(at("elsewhere")), stamped("new"));
        assert!(at("softmig-qos.sh").is_symlink());
    }

    #[test]
    fn nothing_else_is_left_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("softmig-qos.sh"), "a").unwrap();
        write(folder.path(), "b", false);
        let there = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(there, 2);
        let missing = folder.path().join("missing");
        let error = all(&file("a"), &missing, false).unwrap_err().to_string();
        assert!(error.ends_with("make it first"), "{error}");
    }
}

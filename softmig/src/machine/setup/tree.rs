//! The tree that softmig is installed from: `cargo xtask stage` makes it, packages unpack it over `/`.

use super::role::Role;
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// The command in it, by which it is known.
const COMMAND: &str = "usr/bin/softmig";

/// Folders below its root, and the role that needs them; `None` means all machines.
const PARTS: [(&str, Option<&[Role]>); 9] = [
    ("usr/bin", None),
    ("usr/share", None),
    (
        "usr/lib/softmig/lua",
        Some(&[Role::Controller, Role::SubmitHost, Role::GpuNode]),
    ),
    ("usr/lib/softmig/staged", Some(&[Role::GpuNode])),
    ("usr/lib/systemd/system", Some(&[Role::GpuNode])),
    ("usr/lib/systemd/system-preset", Some(&[Role::GpuNode])),
    ("usr/lib/sysusers.d", Some(&[Role::GpuNode])),
    ("usr/lib/tmpfiles.d", Some(&[Role::GpuNode])),
    ("usr/libexec", Some(&[Role::GpuNode])),
];

/// A tree like `/`.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The one that is named, or that this command is in.
    pub(crate) fn find(named: Option<&Path>) -> anyhow::Result<Self> {
        let root = match named {
            Some(root) => root
                .canonicalize()
                .with_context(|| format!("{}", root.display()))?,
            None => {
                let command = std::env::current_exe().context("finding this command's own file")?;
                let root = command.ancestors().nth(3).map(Path::to_path_buf);
                root.filter(|root| root.join(COMMAND) == command)
                    .with_context(|| {
                        format!(
                            "{} is not in a tree that softmig can be installed from; name one with --from, such as \
                             target/stage",
                            command.display()
                        )
                    })?
            }
        };
        ensure!(
            root.join(COMMAND).is_file(),
            "{}: it has no {COMMAND}; 'cargo xtask stage' makes such a tree",
            root.display()
        );
        Ok(Self { root })
    }

    /// Whether it lies elsewhere than where it is to be, as what packages bring does not.
    pub(crate) fn is_apart(&self) -> bool {
        self.root != Path::new("/")
    }

    /// Its folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where a file of the machine lies in it.
    pub(crate) fn path(&self, file: &Path) -> PathBuf {
        self.root.join(file.strip_prefix("/").unwrap_or(file))
    }

    /// The files that these roles need, as paths of the machine. Nothing outside of the known folders is one.
    pub(crate) fn files(&self, roles: &[Role]) -> anyhow::Result<Vec<PathBuf>> {
        if !self.is_apart() {
            return Ok(Vec::new());
        }
        let mut files = Vec::new();
        for (part, needed) in PARTS {
            if needed.is_none_or(|needed| roles.iter().any(|role| needed.contains(role))) {
                let folder = self.root.join(part);
                ensure!(
                    folder.is_dir(),
                    "{}: it has no {part}; is it complete? 'cargo xtask stage' makes all of it",
                    self.root.display()
                );
                self.collect(&folder, &mut files)?;
            }
        }
        files.sort();
        Ok(files)
    }

    fn collect(&self, folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
        let reading = || format!("reading {}", folder.display());
        for entry in fs::read_dir(folder).with_context(reading)? {
            let entry = entry.with_context(reading)?;
            let path = entry.path();
            let kind = entry.file_type().with_context(reading)?;
            if kind.is_dir() {
                self.collect(&path, files)?;
                continue;
            }
            ensure!(
                kind.is_file(),
                "{}: only plain files belong in the tree",
                path.display()
            );
            files.push(Path::new("/").join(path.strip_prefix(&self.root)?));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        for file in [
            "usr/bin/softmig",
            "usr/share/man/man1/softmig.1",
            "usr/lib/softmig/lua/5.1/a.so",
            "usr/lib/softmig/staged/libsoftmig.so",
            "usr/lib/systemd/system/softmig-monitor.service",
            "usr/lib/systemd/system-preset/90-softmig-exporter.preset",
            "usr/lib/sysusers.d/softmig-exporter.conf",
            "usr/lib/tmpfiles.d/softmig.conf",
            "usr/libexec/softmig-prolog",
            "etc/passwd",
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let tree = Tree::find(Some(folder.path())).unwrap();
        (folder, tree)
    }

    #[test]
    fn each_role_gets_what_it_needs_and_none_gets_the_sites_files() {
        let (_folder, tree) = tree();
        let of = |roles: &[Role]| tree.files(roles).unwrap().len();
        assert_eq!(of(&[Role::SubmitHost]), 3);
        assert_eq!(of(&[Role::Controller, Role::SubmitHost]), 3);
        assert_eq!(of(&[Role::GpuNode]), 9);
        let all = tree.files(&[Role::GpuNode]).unwrap();
        assert!(!all.iter().any(|file| file.starts_with("/etc")));
        assert!(all.contains(&PathBuf::from("/usr/bin/softmig")));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = Tree::find(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains("cargo xtask stage"), "{error}");
        let (folder, tree) = tree();
        fs::remove_dir_all(folder.path().join("usr/libexec")).unwrap();
        let error = tree.files(&[Role::GpuNode]).unwrap_err().to_string();
        assert!(error.contains("no usr/libexec"), "{error}");
    }
}

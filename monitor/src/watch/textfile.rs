//! node_exporter's textfile: written whole and by rename, in a folder to which no user's link can lead.

use anyhow::Context;
use softmig_node::dir::Dir;
use softmig_usage::Node;
use std::io::Write;
use std::path::Path;
use tracing::{info, warn};

/// Keeps the textfile that policy.toml names.
#[derive(Debug, Default)]
pub(super) struct Textfile {
    /// The one that is there.
    written: Option<String>,
    /// The last trouble, so that it is said once.
    trouble: Option<String>,
}

impl Textfile {
    /// Writes what jobs use to `path`, and removes a file that is not wanted any more: node_exporter would go on to tell
    /// what is in it.
    pub(super) fn keep(&mut self, path: Option<&str>, owner: u32, tell: impl FnOnce() -> Node) {
        if let Some(old) = self.written.take_if(|old| Some(old.as_str()) != path) {
            // Its folder may be gone.
            let _ = remove(Path::new(&old), owner);
        }
        let Some(path) = path else {
            self.trouble = None;
            return;
        };
        let text = softmig_usage::metrics::page(&tell()).text();
        let trouble = write(Path::new(path), owner, &text)
            .err()
            .map(|error| format!("writing {path}: {error}"));
        if trouble != self.trouble {
            match &trouble {
                Some(trouble) => warn!("no metrics for node_exporter: {trouble}"),
                None => info!("metrics for node_exporter are in {path} again"),
            }
        }
        if trouble.is_none() {
            self.written = Some(path.into());
        }
        self.trouble = trouble;
    }
}

/// The folder of the file at `path`, to which no user's link can lead, and the file's name.
fn place(path: &Path, owner: u32) -> anyhow::Result<(Dir, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    let folder = Dir::open_each(path.parent().context("no folder")?, owner)?;
    Ok((folder, name.context("no name")?))
}

/// Removes the file at `path`.
fn remove(path: &Path, owner: u32) -> anyhow::Result<bool> {
    let (folder, name) = place(path, owner)?;
    Ok(folder.remove_file(name)?)
}

/// Puts `text` in the place of the file at `path`, as `owner`.
pub fn write(path: &Path, owner: u32, text: &str) -> anyhow::Result<()> {
    let (folder, name) = place(path, owner)?;
    // node_exporter reads no name with this ending.
    let new = format!("{name}.new");
    folder.remove_file(&new)?;
    // It need not outlive the node, so nothing waits for the disk.
    folder
        .create(&new, 0o644, b"")?
        .write_all(text.as_bytes())?;
    Ok(folder.rename(&new, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir_all, read_to_string, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn own() -> u32 {
        rustix::process::getuid().as_raw()
    }

    fn said(path: &Path) -> String {
        write(path, own(), "new\n").unwrap_err().to_string()
    }

    #[test]
    fn the_file_is_replaced_whole_and_can_be_read_by_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("softmig.prom");
        // Left by a monitor that was killed.
        std::fs::write(folder.path().join("softmig.prom.new"), "half").unwrap();
        for text in ["first\n", "second\n"] {
            write(&path, own(), text).unwrap();
            assert_eq!(read_to_string(&path).unwrap(), text);
        }
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_not_wanted_any_more_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a.prom", "b.prom"].map(|name| folder.path().join(name));
        let mut textfile = Textfile::default();
        let mut keep = |path: Option<&Path>| {
            let path = path.map(|path| path.to_str().unwrap());
            textfile.keep(path, own(), Node::default);
            textfile.trouble.is_some()
        };
        assert!(!keep(Some(&first)));
        assert!(
            read_to_string(&first)
                .unwrap()
                .contains("softmig_build_info")
        );
        assert!(!keep(Some(&second)));
        assert!(!first.exists() && second.exists());
        assert!(!keep(None));
        assert!(!second.exists());
        // A folder that is made later is used without a restart.
        let later = folder.path().join("later/c.prom");
        assert!(keep(Some(&later)));
        create_dir_all(later.parent().unwrap()).unwrap();
        assert!(!keep(Some(&later)));
    }

    #[test]
    fn no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        create_dir_all(at("real/in")).unwrap();
        symlink(at("real"), at("link")).unwrap();
        assert!(said(&at("link/in/softmig.prom")).contains("link is not used: it is a link"));
        assert!(said(&at("link/softmig.prom")).contains("link is not used: it is a link"));
        // A link in the place of either file is replaced, and what it led to stays.
        std::fs::write(at("victim"), "kept").unwrap();
        for name in ["real/softmig.prom", "real/softmig.prom.new"] {
            symlink(at("victim"), at(name)).unwrap();
        }
        write(&at("real/softmig.prom"), own(), "new\n").unwrap();
        assert_eq!(read_to_string(at("victim")).unwrap(), "kept");
        assert_eq!(read_to_string(at("real/softmig.prom")).unwrap(), "new\n");
    }

    #[test]
    fn a_folder_that_others_can_change_is_refused_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        create_dir_all(open.join("in")).unwrap();
        for (mode, in_it, below) in [
            (0o755, true, true),
            (0o775, false, false),
            (0o1777, false, true),
        ] {
            set_permissions(&open, Permissions::from_mode(mode)).unwrap();
            let may = |path: &str| write(&open.join(path), own(), "").is_ok();
            assert_eq!(may("softmig.prom"), in_it, "{mode:o}");
            assert_eq!(may("in/softmig.prom"), below, "{mode:o}");
        }
        if own() == 0 {
            std::os::unix::fs::chown(&open, Some(12_345), None).unwrap();
            assert!(said(&open.join("in/softmig.prom")).contains("belongs to another user"));
        }
    }
}

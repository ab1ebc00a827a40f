//! job_submit.lua and cli_filter.lua in Slurm's folder. A site's own one is never touched: what to add to it is said.

use super::role::Role;
use super::step::Step;
use super::tree::Tree;
use crate::files::stamp::{is_untouched, stamped};
use crate::output::say::say;
use anyhow::{Context, ensure};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// One of the two.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Its name.
    pub(crate) name: &'static str,
    /// The module that it loads.
    pub(crate) module: &'static str,
    /// The role that needs it; `None` is all machines.
    pub(crate) role: Option<Role>,
    /// The default, without a site's own words.
    pub(crate) example: &'static str,
}

/// Slurm's two scripts.
pub(crate) const SCRIPTS: [Kind; 2] = [
    Kind {
        name: "job_submit.lua",
        module: "softmig_job_submit",
        role: Some(Role::Controller),
        example: include_str!("../../../../conf/job_submit.lua"),
    },
    Kind {
        name: "cli_filter.lua",
        module: "softmig_cli_filter",
        role: None,
        example: include_str!("../../../../conf/cli_filter.lua"),
    },
];

impl Kind {
    /// The lines that a site adds to a script of its own.
    pub(crate) fn lines(&self) -> Vec<&'static str> {
        let code = |line: &&str| {
            let is_comment = line.trim_start().starts_with("--");
            !line.is_empty() && !is_comment && !line.starts_with("return")
        };
        self.example.lines().filter(code).collect()
    }

    /// Whether a script loads the module.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        let mut lines = text.lines().map(str::trim_start);
        lines.any(|line| !line.starts_with("--") && line.contains(self.module))
    }
}

/// Whether softmig may replace or remove a script.
pub(crate) fn is_softmigs(text: &[u8], kind: &Kind) -> bool {
    is_untouched(text) || text == kind.example.as_bytes()
}

/// Slurm's folder on this machine.
pub(crate) fn folder() -> PathBuf {
    let conf = std::env::var_os("SLURM_CONF").map(PathBuf::from);
    let folder = conf.and_then(|conf| conf.parent().map(Path::to_path_buf));
    folder.unwrap_or_else(|| PathBuf::from("/etc/slurm"))
}

/// The step that places one.
#[derive(Debug)]
pub(crate) struct Script {
    kind: &'static Kind,
    text: String,
    path: PathBuf,
    earlier: Option<Vec<u8>>,
}

impl Script {
    pub(crate) fn new(tree: &Tree, kind: &'static Kind, folder: &Path) -> Self {
        let example = tree.path(&Path::new("/usr/share/softmig/examples").join(kind.name));
        // The tree may be of another release than this command.
        let text = fs::read_to_string(example).unwrap_or_else(|_| kind.example.to_string());
        Self {
            kind,
            text: stamped(&text, "--"),
            path: folder.join(kind.name),
            earlier: None,
        }
    }

    /// Says what is left to the administrator.
    fn leave_to_site(&self, text: &[u8]) {
        if self.kind.is_in(&String::from_utf8_lossy(text)) {
            return;
        }
        say!(
            "{} is the site's own and stays as it is; add these lines at its end, before its return:",
            self.path.display()
        );
        for line in self.kind.lines() {
            say!("  {line}");
        }
    }
}

impl Step for Script {
    fn needed(&mut self) -> anyhow::Result<Option<String>> {
        let path = self.path.display();
        match fs::read(&self.path) {
            Ok(there) if there == self.text.as_bytes() => Ok(None),
            Ok(there) if is_softmigs(&there, self.kind) => {
                self.earlier = Some(there);
                Ok(Some(format!("replace softmig's own {path}")))
            }
            Ok(there) => {
                self.leave_to_site(&there);
                Ok(None)
            }
            Err(_) if !self.path.parent().is_some_and(Path::is_dir) => {
                say!(
                    "{path} is not made, because its folder does not exist; where slurmctld serves the files (configless), it goes to \
                     the controller's"
                );
                Ok(None)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Some(format!("place {path}")))
            }
            Err(error) => Err(error).with_context(|| format!("reading {path}")),
        }
    }

    fn take(&mut self) -> anyhow::Result<()> {
        put(&self.path, self.text.as_bytes())
    }

    fn check(&self) -> anyhow::Result<()> {
        let there = fs::read(&self.path).with_context(|| format!("{}", self.path.display()))?;
        ensure!(
            is_untouched(&there),
            "{} says something else",
            self.path.display()
        );
        Ok(())
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        match &self.earlier {
            Some(text) => put(&self.path, text),
            None if self.path.exists() => fs::remove_file(&self.path)
                .with_context(|| format!("removing {}", self.path.display())),
            None => Ok(()),
        }
    }
}

/// By rename: slurmctld may read it now.
fn put(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    // The file itself, where a link leads to it.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(text)?;
        new.as_file()
            .set_permissions(Permissions::from_mode(0o644))?;
        new.as_file().sync_all()?;
        new.persist(&path)?;
        Ok(())
    };
    write().with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(folder: &Path) -> Script {
        let kind = &SCRIPTS[1];
        Script {
            kind,
            text: stamped(kind.example, "--"),
            path: folder.join(kind.name),
            earlier: None,
        }
    }

    #[test]
    fn the_lines_to_add_are_the_ones_that_load_the_module() {
        for kind in &SCRIPTS {
            let lines = kind.lines();
            assert!(lines[0].contains(kind.module), "{lines:?}");
            assert!(!lines.contains(&"return slurm.SUCCESS"), "{lines:?}");
            assert!(kind.is_in(&lines.join("\n")));
            assert!(!kind.is_in(&format!("-- {}", lines[0])));
        }
    }

    #[test]
    fn a_script_is_made_renewed_and_brought_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cli_filter.lua");
        let mut new = step(folder.path());
        assert!(new.needed().unwrap().unwrap().starts_with("place "));
        new.take().unwrap();
        new.check().unwrap();
        assert_eq!(step(folder.path()).needed().unwrap(), None);
        new.undo().unwrap();
        assert!(!path.exists());
        let earlier = stamped("-- an older one\n", "--");
        fs::write(&path, &earlier).unwrap();
        let mut newer = step(folder.path());
        assert!(newer.needed().unwrap().unwrap().starts_with("replace "));
        newer.take().unwrap();
        newer.undo().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), earlier);
    }

    #[test]
    fn a_sites_own_script_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cli_filter.lua");
        let changed = format!("{}-- ours\n", stamped(SCRIPTS[1].example, "--"));
        for text in ["return slurm.SUCCESS\n", &changed] {
            fs::write(&path, text).unwrap();
            assert_eq!(step(folder.path()).needed().unwrap(), None);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        // A file that was copied by hand is softmig's.
        fs::write(&path, SCRIPTS[1].example).unwrap();
        assert!(step(folder.path()).needed().unwrap().is_some());
    }
}

//! The library as a step: `softmig install --hook`, which tries it first, and back.

use super::step::Step;
use super::tree::Tree;
use crate::files::config_lock::{FOLDER as ETC, explained, replace};
use crate::machine::hook::Hook;
use crate::machine::hook::unhook;
use crate::machine::node::{Mode, Settings};
use crate::machine::preload::{FOLDER, LIBRARY, named_libraries};
use anyhow::{Context, ensure};
use softmig_node::dir::Dir;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a tree has it.
pub(crate) const STAGED: &str = "/usr/lib/softmig/staged/libsoftmig.so";

/// The step.
#[derive(Debug)]
pub(crate) struct Library {
    hook: Hook,
    from: PathBuf,
    /// The library before, and whether processes loaded it.
    earlier: Option<Vec<u8>>,
    was_named: bool,
    had_mode: bool,
}

/// The library that processes load.
pub(crate) fn live() -> PathBuf {
    Path::new(FOLDER).join(LIBRARY)
}

impl Library {
    pub(crate) fn new(tree: &Tree, mode: Mode) -> Self {
        let from = tree.path(Path::new(STAGED));
        Self {
            hook: Hook {
                from: Some(from.clone()),
                libdir: PathBuf::from(FOLDER),
                mode,
            },
            from,
            earlier: None,
            was_named: false,
            had_mode: false,
        }
    }

    fn is_named() -> anyhow::Result<bool> {
        let named = named_libraries()?;
        Ok(named.iter().any(|path| Path::new(path) == live()))
    }
}

impl Step for Library {
    fn needed(&mut self) -> anyhow::Result<Option<String>> {
        let new = fs::read(&self.from).with_context(|| format!("{}", self.from.display()))?;
        self.earlier = fs::read(live()).ok();
        self.was_named = Self::is_named()?;
        self.had_mode = Settings::read()?.is_some();
        let same = self.earlier.as_ref() == Some(&new);
        Ok(
            match (same && self.was_named && self.had_mode, self.was_named) {
                (true, _) => None,
                (false, true) => Some("try the new library, and let new processes load it".into()),
                (false, false) => Some("try the library, and name it in /etc/ld.so.preload".into()),
            },
        )
    }

    fn take(&mut self) -> anyhow::Result<()> {
        self.hook.install()
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            Self::is_named()?,
            "/etc/ld.so.preload does not name {}",
            live().display()
        );
        Ok(())
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        if self.was_named {
            if let (Some(earlier), Some(dir)) = (
                &self.earlier,
                Dir::open(Path::new(FOLDER), 0).map_err(explained)?,
            ) {
                replace(&dir, LIBRARY, 0o755, earlier)?;
            }
        } else {
            unhook::run(Path::new(FOLDER), false)?;
        }
        if !self.had_mode
            && let Some(etc) = Dir::open(Path::new(ETC), 0).map_err(explained)?
        {
            etc.remove("node.conf").map_err(explained)?;
        }
        Ok(())
    }
}

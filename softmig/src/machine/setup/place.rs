//! Files of softmig's own below /usr: each comes beside its place and takes its name by rename. A process that has the old
//! one mapped keeps it, and one that starts finds the old one or the new one.

use super::step::Step;
use crate::files::config_lock::{explained, fresh, fresh_name};
use anyhow::{Context, ensure};
use softmig_node::dir::Dir;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file that comes to its place.
#[derive(Debug)]
pub(crate) struct PlacedFile {
    bytes: Vec<u8>,
    mode: u32,
    place: Target,
    made: Vec<PathBuf>,
    earlier: bool,
    taken: bool,
}

/// Where a file is or is to be.
#[derive(Debug)]
struct Target {
    folder: PathBuf,
    name: String,
}

impl Target {
    fn new(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().and_then(|name| name.to_str());
        Ok(Self {
            folder: path.parent().context("a file at the root")?.to_path_buf(),
            name: name.context("a file without a name")?.to_string(),
        })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    fn dir(&self) -> anyhow::Result<Dir> {
        // A folder such as /usr/lib may be reached through a link.
        let folder = self
            .folder
            .canonicalize()
            .with_context(|| format!("{}", self.folder.display()))?;
        let dir = Dir::open(&folder, 0).map_err(explained)?;
        dir.with_context(|| format!("{} does not exist", folder.display()))
    }

    /// Its name while it may still have to come back.
    fn old(&self) -> String {
        format!(".{}.softmig-old", self.name)
    }
}

impl PlacedFile {
    /// From this file of the tree to this place.
    pub(crate) fn new(from: &Path, to: &Path) -> anyhow::Result<Self> {
        let reading = || format!("reading {}", from.display());
        let mut file = fs::File::open(from).with_context(reading)?;
        let runs = file.metadata().with_context(reading)?.permissions().mode() & 0o100 != 0;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(reading)?;
        Ok(Self {
            bytes,
            mode: if runs { 0o755 } else { 0o644 },
            place: Target::new(to)?,
            made: Vec::new(),
            earlier: false,
            taken: false,
        })
    }

    /// Whether the place has exactly this.
    fn holds(&self) -> bool {
        let path = self.place.path();
        let Ok(stat) = fs::symlink_metadata(&path) else {
            return false;
        };
        stat.is_file()
            && stat.uid() == 0
            && stat.mode() & 0o7777 == self.mode
            && fs::read(&path).is_ok_and(|there| there == self.bytes)
    }

    fn make_folder(&mut self) -> anyhow::Result<()> {
        let mut missing: Vec<PathBuf> = Vec::new();
        for folder in self.place.folder.ancestors() {
            if folder.exists() {
                break;
            }
            missing.push(folder.to_path_buf());
        }
        for folder in missing.into_iter().rev() {
            fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
            self.made.push(folder);
        }
        Ok(())
    }
}

impl Step for PlacedFile {
    fn needed(&mut self) -> anyhow::Result<Option<String>> {
        let path = self.place.path();
        Ok(match (self.holds(), path.exists()) {
            (true, _) => None,
            (false, true) => Some(format!("replace {}", path.display())),
            (false, false) => Some(format!("place {}", path.display())),
        })
    }

    fn take(&mut self) -> anyhow::Result<()> {
        self.make_folder()?;
        let (dir, name) = (self.place.dir()?, self.place.name.clone());
        fresh(&dir, &name, self.mode, &self.bytes)?;
        let old = self.place.old();
        dir.remove(&old).map_err(explained)?;
        self.earlier = dir.stat_of(&name).map_err(explained)?.is_some();
        if self.earlier {
            dir.link(&name, &old).map_err(explained)?;
        }
        dir.rename(&fresh_name(&name), &name).map_err(explained)?;
        self.taken = true;
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        let path = self.place.path();
        ensure!(
            self.holds(),
            "{} is another file than was just placed; does another program write there?",
            path.display()
        );
        Ok(())
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        if self.place.folder.exists() {
            let (dir, name) = (self.place.dir()?, &self.place.name);
            dir.remove(&fresh_name(name)).map_err(explained)?;
            match (self.taken, self.earlier) {
                (true, true) => dir.rename(&self.place.old(), name).map_err(explained)?,
                (true, false) => drop(dir.remove(name).map_err(explained)?),
                (false, _) => drop(dir.remove(&self.place.old()).map_err(explained)?),
            }
        }
        for folder in self.made.iter().rev() {
            fs::remove_dir(folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        Ok(())
    }

    fn keep(&mut self) {
        // A second name of the old file may be left; the next installation removes it.
        let _ = self.place.dir().map(|dir| dir.remove(&self.place.old()));
    }
}

/// A file that goes.
#[derive(Debug)]
pub(crate) struct TakeAway {
    path: PathBuf,
    taken: bool,
}

impl TakeAway {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            taken: false,
        }
    }
}

impl Step for TakeAway {
    fn needed(&mut self) -> anyhow::Result<Option<String>> {
        let there = fs::symlink_metadata(&self.path).is_ok();
        Ok(there.then(|| format!("remove {}", self.path.display())))
    }

    fn take(&mut self) -> anyhow::Result<()> {
        let target = Target::new(&self.path)?;
        let dir = target.dir()?;
        dir.rename(&target.name, &target.old()).map_err(explained)?;
        self.taken = true;
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.path.exists(),
            "{} is still there",
            self.path.display()
        );
        Ok(())
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        let target = Target::new(&self.path)?;
        if self.taken {
            let dir = target.dir()?;
            dir.rename(&target.old(), &target.name).map_err(explained)?;
        }
        Ok(())
    }

    fn keep(&mut self) {
        let Ok(target) = Target::new(&self.path) else {
            return;
        };
        let _ = target.dir().map(|dir| dir.remove(&target.old()));
        // Folders of softmig's own go with their last file; others do not.
        let ours = |folder: &&Path| {
            folder
                .components()
                .any(|part| part.as_os_str() == "softmig")
        };
        for folder in self.path.ancestors().skip(1).take_while(ours) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

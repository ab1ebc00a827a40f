//! The lists of loaders of other software stacks (`--list`). softmig keeps a note of those that it changed, for uninstall.

use crate::files::config_lock::{Etc, explained, replace};
use crate::machine::install::folder::trusted;
use crate::machine::preload::Preload;
use crate::output::say::say;
use anyhow::{Context, bail, ensure};
use softmig_node::dir::Dir;
use std::path::{Path, PathBuf};

/// The note, in softmig's own folder: a path in each line.
const NOTE: &str = ".lists";
const LONGEST: u64 = 1 << 20;

/// Names the library in each of these lists. One that cannot be changed, as on another site's file system, keeps no other from it.
pub(super) fn name(lists: &[PathBuf], library: &Path, etc: &Etc) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for list in lists {
        let path = list.display();
        match name_in(list, library, etc) {
            Ok(true) => say!("{path}: names {} now", library.display()),
            Ok(false) => say!("{path}: named {} already", library.display()),
            Err(error) => failed.push(format!("{path}: {error:#}")),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn name_in(list: &Path, library: &Path, etc: &Etc) -> anyhow::Result<bool> {
    let ending = list.file_name().and_then(|name| name.to_str());
    ensure!(
        list.is_absolute() && ending.is_some_and(|name| name.ends_with(".preload")),
        "give the path of a list from /, such as /etc/ld-nix.so.preload"
    );
    trusted(list.parent().context("it has no folder")?)?;
    let preload = Preload::read_from(list)?;
    preload.check()?;
    if preload.names(library) {
        return Ok(false);
    }
    if let Some(other) = preload.others(library).first() {
        bail!("it names {other}, and two of them must not share a process; take that out first");
    }
    let before = noted(&etc.dir)?;
    let mut known = before.clone();
    known.retain(|it| it != list);
    known.push(list.to_path_buf());
    note(&known, etc)?;
    match preload.add(library, &etc.dir) {
        Ok(change) => change.keep(),
        Err(error) => {
            note(&before, etc)?;
            return Err(error);
        }
    }
    Ok(true)
}

/// The lists that softmig changed.
pub(crate) fn noted(ours: &Dir) -> anyhow::Result<Vec<PathBuf>> {
    let text = ours.read(NOTE, LONGEST).map_err(explained)?;
    let text = String::from_utf8(text.unwrap_or_default())?;
    Ok(text.lines().map(PathBuf::from).collect())
}

/// Keeps the note; none of no lists.
pub(crate) fn note(lists: &[PathBuf], etc: &Etc) -> anyhow::Result<()> {
    if lists.is_empty() {
        return etc.dir.remove(NOTE).map(drop).map_err(explained);
    }
    let lines: String = lists
        .iter()
        .map(|list| format!("{}\n", list.display()))
        .collect();
    replace(&etc.dir, NOTE, 0o600, lines.as_bytes()).map(drop)
}

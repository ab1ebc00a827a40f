//! /etc/ld.so.preload: the list of libraries that the loader puts into every process.
//!
//! It belongs to the administrator. softmig adds one line at its end and takes that away again; whatever else stands
//! there stays as it is, byte for byte. A reader finds the old file or the new one, never a part.

use crate::etc::{explained, fresh, fresh_name};
use anyhow::{Context, ensure};
use rustix::fs::{Gid, Uid, fchown};
use softmig_prolog::dir::Dir;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const NAME: &str = "ld.so.preload";
/// Where the old file waits until the new one has proved itself.
const OLD: &str = ".ld.so.preload.softmig-old";

/// Where it is, for messages.
pub(crate) const PATH: &str = "/etc/ld.so.preload";

/// The library's file name.
pub(crate) const LIBRARY: &str = "libsoftmig.so";

/// In softmig's own folder: a note that softmig made the list, so that it may remove it when it is empty. A comment in
/// the list would say it better, but glibc takes only the first comment of a file for one in every case, and that one
/// is the administrator's.
const MADE_BY_US: &str = ".made-ld.so.preload";

/// No loader gets through a longer one in reasonable time.
const LONGEST: u64 = 1 << 20;

/// The file as it was found.
#[derive(Debug)]
pub(crate) struct Preload {
    etc: Dir,
    found: Option<Found>,
}

#[derive(Debug, PartialEq, Eq)]
struct Found {
    text: Vec<u8>,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Preload {
    /// Reads it.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let etc = Dir::open(Path::new("/etc"), 0)
            .map_err(explained)?
            .context("there is no /etc")?;
        let Some(file) = etc.open_file(NAME).map_err(|error| match etc.stat_of(NAME) {
            Ok(Some(stat)) if stat.st_mode & 0o170_000 == 0o120_000 => anyhow::anyhow!(
                "{PATH} is a link; put a file in its place that says the same, since softmig changes no other file"
            ),
            _ => explained(error),
        })?
        else {
            return Ok(Self { etc, found: None });
        };
        let stat = file
            .metadata()
            .with_context(|| format!("looking at {PATH}"))?;
        let text = etc
            .read(NAME, LONGEST)
            .map_err(explained)?
            .unwrap_or_default();
        ensure!(
            stat.len() < LONGEST,
            "{PATH} is too long to be a list of libraries; look at it by hand"
        );
        let found = Found {
            text,
            mode: stat.mode() & 0o7777,
            uid: stat.uid(),
            gid: stat.gid(),
        };
        Ok(Self {
            etc,
            found: Some(found),
        })
    }

    /// Fails when others than root could change it.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if let Some(Found { mode, uid, .. }) = &self.found {
            ensure!(
                *uid == 0 && mode & 0o022 == 0,
                "{PATH} can be changed by others than root (owner {uid}, mode {mode:04o}); \
                 use 'chown root:root {PATH}' and 'chmod 644 {PATH}'"
            );
        }
        Ok(())
    }

    /// What it says.
    pub(crate) fn text(&self) -> &[u8] {
        self.found.as_ref().map_or(&[], |found| &found.text)
    }

    /// Whether it names this library.
    pub(crate) fn names(&self, library: &Path) -> bool {
        entries(self.text()).any(|entry| entry == library.as_os_str().as_encoded_bytes())
    }

    /// All libraries of softmig's name in it.
    pub(crate) fn named(&self) -> Vec<String> {
        entries(self.text())
            .filter(|entry| {
                Path::new(OsStr::from_bytes(entry)).file_name() == Some(LIBRARY.as_ref())
            })
            .map(|entry| entry.escape_ascii().to_string())
            .collect()
    }

    /// Makes it name the library too.
    pub(crate) fn add<'a>(&'a self, library: &Path, ours: &'a Dir) -> anyhow::Result<Change<'a>> {
        self.check_unchanged()?;
        if self.found.is_none() {
            ours.open_or_create(MADE_BY_US, 0o600).map_err(explained)?;
        }
        self.keep_old()?;
        self.write(&with(self.text(), library))?;
        Ok(Change {
            preload: self,
            ours,
        })
    }

    /// Makes it name the library no more. A file that softmig made goes with its last entry.
    pub(crate) fn take_out(&self, library: &Path, ours: &Dir) -> anyhow::Result<()> {
        self.check_unchanged()?;
        let text = without(self.text(), library);
        self.etc.remove(OLD).map_err(explained)?;
        let made_by_us = ours.stat_of(MADE_BY_US).map_err(explained)?.is_some();
        if !(text.is_empty() && made_by_us) {
            return self.write(&text);
        }
        self.etc.remove(NAME).map_err(explained)?;
        ours.remove(MADE_BY_US).map(drop).map_err(explained)
    }

    /// Others may have changed it while the library was tried.
    fn check_unchanged(&self) -> anyhow::Result<()> {
        ensure!(
            Self::read()?.found == self.found,
            "somebody else changed {PATH} just now; look at it and try again"
        );
        Ok(())
    }

    /// Gives the old file a second name, so that it can come back as it was.
    fn keep_old(&self) -> anyhow::Result<()> {
        self.etc.remove(OLD).map_err(explained)?;
        if self.found.is_some() {
            self.etc.link(NAME, OLD).map_err(explained)?;
        }
        Ok(())
    }

    fn write(&self, text: &[u8]) -> anyhow::Result<()> {
        let mode = self.found.as_ref().map_or(0o644, |found| found.mode);
        let file = fresh(&self.etc, NAME, mode, text)?;
        if let Some(Found { uid, gid, .. }) = self.found {
            fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
                .with_context(|| format!("giving {PATH} its owner"))?;
        }
        self.etc.rename(&fresh_name(NAME), NAME).map_err(explained)
    }
}

/// The libraries of softmig's name that the loader loads now.
pub(crate) fn named_libraries() -> anyhow::Result<Vec<String>> {
    Ok(Preload::read()?.named())
}

/// A change that can still be taken back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Change<'a> {
    preload: &'a Preload,
    ours: &'a Dir,
}

impl Change<'_> {
    /// Brings back the very file that was there.
    pub(crate) fn undo(self) -> anyhow::Result<()> {
        let Preload { etc, found } = self.preload;
        if found.is_some() {
            return etc.rename(OLD, NAME).map_err(explained);
        }
        etc.remove(NAME).map_err(explained)?;
        self.ours.remove(MADE_BY_US).map(drop).map_err(explained)
    }

    /// Leaves it so.
    pub(crate) fn keep(self) {
        // What stays behind is another name of a file that says what was; the next change removes it.
        let _ = self.preload.etc.remove(OLD);
    }
}

/// The part of a line that is no comment, and the rest of it.
fn split_comment(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line.iter().position(|byte| matches!(byte, b'#' | b'\n'));
    line.split_at(end.unwrap_or(line.len()))
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b':')
}

/// The paths in the file, as the loader finds them.
fn entries(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
        .flat_map(|line| split_comment(line).0.split(is_blank))
        .filter(|entry| !entry.is_empty())
}

/// The text with this entry, at its end unless it is there already.
pub(crate) fn with(text: &[u8], library: &Path) -> Vec<u8> {
    let library = library.as_os_str().as_encoded_bytes();
    let mut new = text.to_vec();
    if entries(text).any(|entry| entry == library) {
        return new;
    }
    if new.last().is_some_and(|byte| *byte != b'\n') {
        new.push(b'\n');
    }
    new.extend(library);
    new.push(b'\n');
    new
}

/// The text without this entry, wherever it stands. A line that had nothing else goes with it.
pub(crate) fn without(text: &[u8], library: &Path) -> Vec<u8> {
    let library = library.as_os_str().as_encoded_bytes();
    let mut new = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let (list, rest) = split_comment(line);
        if !list.split(is_blank).any(|entry| entry == library) {
            new.extend(line);
            continue;
        }
        // Each entry has the blanks before it.
        let mut kept = Vec::new();
        let mut from = 0;
        while from < list.len() {
            let left = list.get(from..).unwrap_or_default();
            let begin = left
                .iter()
                .position(|byte| !is_blank(byte))
                .unwrap_or(left.len());
            let (blanks, left) = left.split_at(begin);
            let end = left.iter().position(is_blank).unwrap_or(left.len());
            let (entry, _) = left.split_at(end);
            if entry != library {
                kept.extend(blanks);
                kept.extend(entry);
            }
            from += begin + end;
        }
        let is_empty = kept.iter().all(is_blank) && rest.trim_ascii().is_empty();
        if !is_empty {
            new.extend(kept);
            new.extend(rest);
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OURS: &str = "/usr/lib/softmig/libsoftmig.so";

    fn added(text: &str) -> String {
        String::from_utf8(with(text.as_bytes(), Path::new(OURS))).unwrap()
    }

    fn removed(text: &str) -> String {
        String::from_utf8(without(text.as_bytes(), Path::new(OURS))).unwrap()
    }

    #[test]
    fn our_line_comes_last_and_once() {
        assert_eq!(added(""), format!("{OURS}\n"));
        assert_eq!(added("/a.so"), format!("/a.so\n{OURS}\n"));
        assert_eq!(added("/a.so # why\n\n"), format!("/a.so # why\n\n{OURS}\n"));
        assert_eq!(added(&format!("# {OURS}")), format!("# {OURS}\n{OURS}\n"));
        for there in [
            OURS.to_string(),
            format!("/a.so:{OURS} # x\n"),
            format!("\t{OURS}\t/b.so"),
        ] {
            assert_eq!(added(&there), there);
        }
    }

    #[test]
    fn only_our_entry_goes() {
        for (text, rest) in [
            (format!("{OURS}\n"), "".to_string()),
            (OURS.to_string(), "".into()),
            (format!("/a.so\n{OURS}\n/b.so\n"), "/a.so\n/b.so\n".into()),
            (
                format!("/a.so:{OURS} /b.so # two\n"),
                "/a.so /b.so # two\n".into(),
            ),
            (format!("{OURS} /b.so\n"), " /b.so\n".into()),
            (format!("{OURS} # ours\n"), " # ours\n".into()),
            (
                format!("{OURS}{OURS}\n# {OURS}\n"),
                format!("{OURS}{OURS}\n# {OURS}\n"),
            ),
            (format!("{OURS}\n\n{OURS}:{OURS}\n"), "\n".into()),
        ] {
            assert_eq!(removed(&text), rest, "{text}");
        }
    }

    fn texts() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            Just(OURS.to_string()),
            "/[a-c]{1,3}\\.so",
            "[ \t:]{1,2}",
            "\n",
            "#[ a-z]{0,5}",
        ];
        proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    fn list(text: &str) -> Vec<String> {
        entries(text.as_bytes())
            .map(|entry| String::from_utf8(entry.to_vec()).unwrap())
            .collect()
    }

    proptest! {
        #[test]
        fn adding_and_removing_change_our_entry_alone(text in texts()) {
            let others: Vec<String> = list(&text).into_iter().filter(|entry| entry != OURS).collect();
            prop_assert_eq!(list(&removed(&text)), &others[..]);
            let with_ours = added(&text);
            prop_assert!(with_ours.starts_with(&text));
            prop_assert_eq!(list(&with_ours).contains(&OURS.to_string()), true);
            prop_assert_eq!(added(&with_ours), with_ours.clone());
            if !list(&text).contains(&OURS.to_string()) {
                let back = removed(&with_ours);
                prop_assert_eq!(back.strip_suffix('\n').unwrap_or(&back), text.strip_suffix('\n').unwrap_or(&text));
            }
        }
    }
}

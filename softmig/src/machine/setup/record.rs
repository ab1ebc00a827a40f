//! The record of `softmig install`, for `upgrade`, `uninstall` and `doctor`: the machine's roles, and the files that it
//! placed. Where packages brought the files none are in it.

use super::role::Role;
use super::step::Step;
use crate::files::config_lock::{explained, replace};
use anyhow::{Context, ensure};
use clap::ValueEnum;
use softmig_node::dir::Dir;
use std::path::{Path, PathBuf};

/// The folder of what softmig keeps here.
pub(crate) const FOLDER: &str = "/var/lib/softmig";

const NAME: &str = "installed";

const LONGEST: u64 = 1 << 20;

/// The record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The machine's roles.
    pub(crate) roles: Vec<Role>,
    /// The files that were placed.
    pub(crate) files: Vec<PathBuf>,
}

impl Record {
    /// Reads it; an empty one if the file does not exist.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let text = match Dir::open(Path::new(FOLDER), 0).map_err(explained)? {
            Some(dir) => dir.read(NAME, LONGEST).map_err(explained)?,
            None => None,
        };
        Self::parse(&String::from_utf8_lossy(&text.unwrap_or_default()))
            .with_context(|| format!("{FOLDER}/{NAME}"))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut record = Self::default();
        for (number, line) in text.lines().enumerate() {
            let wrong = || {
                format!(
                    "line {}: {line}: neither 'role NAME' nor 'file PATH'",
                    number + 1
                )
            };
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            match line.split_once(' ').with_context(wrong)? {
                ("role", name) => {
                    let role = Role::from_str(name, false).ok().with_context(wrong)?;
                    record.roles.push(role);
                }
                ("file", path) => {
                    // Files that softmig would remove one day.
                    let path = PathBuf::from(path);
                    ensure!(path.starts_with("/usr"), "{}", wrong());
                    record.files.push(path);
                }
                _ => ensure!(false, "{}", wrong()),
            }
        }
        Ok(record)
    }

    fn text(&self) -> String {
        let mut text = "# What 'softmig install' did here. 'softmig upgrade' and 'softmig uninstall' read it.\n".to_string();
        for role in &self.roles {
            text += &format!("role {}\n", role.as_str());
        }
        for file in &self.files {
            text += &format!("file {}\n", file.display());
        }
        text
    }
}

/// The step that writes it.
#[derive(Debug)]
pub(crate) struct Written {
    new: Record,
    old: Option<Vec<u8>>,
}

impl Written {
    pub(crate) fn new(new: Record) -> Self {
        Self { new, old: None }
    }
}

fn dir() -> anyhow::Result<Dir> {
    Dir::make(Path::new(FOLDER), 0).map_err(explained)
}

impl Step for Written {
    fn needed(&mut self) -> anyhow::Result<Option<String>> {
        Ok((Record::read()? != self.new)
            .then(|| format!("write down what is here, in {FOLDER}/{NAME}")))
    }

    fn take(&mut self) -> anyhow::Result<()> {
        let dir = dir()?;
        self.old = dir.read(NAME, LONGEST).map_err(explained)?;
        replace(&dir, NAME, 0o644, self.new.text().as_bytes()).map(drop)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            Record::read()? == self.new,
            "{FOLDER}/{NAME} says something else"
        );
        Ok(())
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        let dir = dir()?;
        match &self.old {
            Some(old) => replace(&dir, NAME, 0o644, old).map(drop),
            None => dir.remove(NAME).map(drop).map_err(explained),
        }
    }
}

/// Removes the record.
pub(crate) fn remove() -> anyhow::Result<()> {
    if let Some(dir) = Dir::open(Path::new(FOLDER), 0).map_err(explained)? {
        dir.remove(NAME).map_err(explained)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let record = Record {
            roles: vec![Role::Controller, Role::GpuNode],
            files: vec!["/usr/bin/softmig".into(), "/usr/lib/a b".into()],
        };
        assert_eq!(Record::parse(&record.text()).unwrap(), record);
        assert_eq!(Record::parse("").unwrap(), Record::default());
    }

    #[test]
    fn a_damaged_record_is_no_list_of_files_to_remove() {
        for text in [
            "role chief\n",
            "file /etc/passwd\n",
            "files\n",
            "x /usr/a\n",
        ] {
            let error = Record::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("line 1: "), "{error}");
        }
    }
}

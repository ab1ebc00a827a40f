//! /etc/softmig/node.conf: read for showing, and changed in one setting without losing what else stands in it.

use crate::etc::{Etc, FOLDER, explained, replace};
use anyhow::{Context, bail, ensure};
use softmig_policy::node_conf::{NODE, NodeConf, NodeMode, Setting};
use softmig_prolog::dir::Dir;
use std::path::Path;
use std::time::SystemTime;

const NAME: &str = "node.conf";

/// Where it is, for messages.
pub(crate) const PATH: &str = "/etc/softmig/node.conf";

/// What a new one says, in the mode that is wanted.
const EXAMPLE: &str = include_str!("../../../conf/node.conf");

/// The library reads no longer one.
const LONGEST: u64 = 8191;

/// The file as it is.
#[derive(Debug)]
pub(crate) struct Settings {
    text: Vec<u8>,
    /// When it was last written.
    pub(crate) since: SystemTime,
}

impl Settings {
    /// Reads the file; `None` when there is none.
    pub(crate) fn read() -> anyhow::Result<Option<Self>> {
        match Dir::open(Path::new(FOLDER), 0).map_err(explained)? {
            Some(dir) => Self::read_in(&dir),
            None => Ok(None),
        }
    }

    /// Reads the file in the folder that is already open.
    pub(crate) fn read_in(dir: &Dir) -> anyhow::Result<Option<Self>> {
        let Some(file) = dir.open_file(NAME).map_err(explained)? else {
            return Ok(None);
        };
        let since = file
            .metadata()
            .and_then(|file| file.modified())
            .with_context(|| format!("looking at {PATH}"))?;
        let text = dir
            .read(NAME, LONGEST + 1)
            .map_err(explained)?
            .unwrap_or_default();
        Ok(Some(Self { text, since }))
    }

    /// What it says.
    pub(crate) fn conf(&self) -> anyhow::Result<NodeConf> {
        check_length(&self.text)?;
        NodeConf::parse(&self.text).with_context(|| {
            format!(
                "{PATH} cannot be read, so no process gets a GPU; mend it by hand, or with 'softmig node MODE'"
            )
        })
    }
}

/// Makes the file say this mode. Returns what had to be put into a comment because nobody could read it.
pub(crate) fn set(etc: &Etc, mode: NodeMode) -> anyhow::Result<Vec<String>> {
    let old = match Settings::read_in(&etc.dir)? {
        Some(settings) => settings.text,
        None => EXAMPLE.into(),
    };
    let Edited { text, set_aside } = with_mode(&old, mode);
    check_length(&text)?;
    if let Err(error) = NodeConf::parse(&text) {
        bail!("{PATH}: {error}; mend it by hand");
    }
    replace(&etc.dir, NAME, 0o644, &text)?;
    Ok(set_aside)
}

fn check_length(text: &[u8]) -> anyhow::Result<()> {
    ensure!(
        text.len() as u64 <= LONGEST,
        "{PATH} has more than {LONGEST} bytes, which the library does not read; shorten its comments by hand"
    );
    Ok(())
}

/// A changed file.
#[derive(Debug, PartialEq, Eq)]
struct Edited {
    text: Vec<u8>,
    set_aside: Vec<String>,
}

/// Changes the mode and leaves all else, comments too. A line that would make the whole file unreadable becomes a
/// comment: a node must never be stuck in a mode because somebody mistyped.
fn with_mode(old: &[u8], mode: NodeMode) -> Edited {
    let mut text = Vec::new();
    let mut set_aside = Vec::new();
    let mut set = false;
    for line in old.split_inclusive(|byte| *byte == b'\n') {
        let is_mode =
            matches!(Setting::read(line), Ok(Some(setting)) if setting.key == NODE.as_bytes());
        if is_mode && !set {
            text.extend(format!("{NODE}={mode}\n").bytes());
            set = true;
        } else if is_mode || !readable(&text, line) {
            text.extend(b"# not understood: ");
            text.extend(line);
            set_aside.push(line.trim_ascii().escape_ascii().to_string());
        } else {
            text.extend(line);
        }
    }
    if !set {
        if text.last().is_some_and(|byte| *byte != b'\n') {
            text.push(b'\n');
        }
        text.extend(format!("{NODE}={mode}\n").bytes());
    }
    Edited { text, set_aside }
}

/// Whether the file can still be read with this line after what stands before it.
fn readable(before: &[u8], line: &[u8]) -> bool {
    use softmig_policy::node_conf::NodeConfError::Missing;
    let text = [before, line].concat();
    matches!(NodeConf::parse(&text), Ok(_) | Err(Missing(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_policy::node_conf::Identity;

    fn edited(old: &str, mode: NodeMode) -> (String, Vec<String>) {
        let Edited { text, set_aside } = with_mode(old.as_bytes(), mode);
        (String::from_utf8(text).unwrap(), set_aside)
    }

    #[test]
    fn the_mode_changes_and_nothing_else() {
        let old =
            "# ticket 12\n SOFTMIG_NODE = off \nSOFTMIG_IDENTITY=env\nCONTEXT_MIB=518\n\n# end";
        let (text, set_aside) = edited(old, NodeMode::Enforce);
        assert_eq!(
            text,
            "# ticket 12\nSOFTMIG_NODE=enforce\nSOFTMIG_IDENTITY=env\nCONTEXT_MIB=518\n\n# end"
        );
        assert_eq!(set_aside, Vec::<String>::new());
        assert_eq!(edited("# x", NodeMode::Off).0, "# x\nSOFTMIG_NODE=off\n");
        assert_eq!(edited("", NodeMode::Off).0, "SOFTMIG_NODE=off\n");
    }

    #[test]
    fn a_file_that_nobody_can_read_is_mended_on_the_way() {
        let old = "SOFTMIG_NODE=enfroce\nSOFTMIG_NODE=off\nrubbish \x1b[31m\nSOFTMIG_IDENTITY=pid\n\
                   SOFTMIG_IDENTITY=env\nSOFTMIG_IDENTITY=env\n";
        let (text, set_aside) = edited(old, NodeMode::Off);
        assert_eq!(
            text,
            "SOFTMIG_NODE=off\n# not understood: SOFTMIG_NODE=off\n# not understood: rubbish \x1b[31m\n\
             # not understood: SOFTMIG_IDENTITY=pid\nSOFTMIG_IDENTITY=env\n\
             # not understood: SOFTMIG_IDENTITY=env\n"
        );
        assert_eq!(set_aside.len(), 4);
        assert_eq!(set_aside[1], "rubbish \\x1b[31m");
        let conf = NodeConf::parse(text.as_bytes()).unwrap();
        assert_eq!((conf.mode, conf.identity), (NodeMode::Off, Identity::Env));
    }

    #[test]
    fn a_new_file_is_the_documented_example() {
        for mode in [NodeMode::Enforce, NodeMode::Observe, NodeMode::Off] {
            let (text, set_aside) = edited(EXAMPLE, mode);
            assert_eq!(set_aside, Vec::<String>::new());
            assert_eq!(NodeConf::parse(text.as_bytes()).unwrap().mode, mode);
        }
        assert_eq!(edited(EXAMPLE, NodeMode::Observe).0, EXAMPLE);
    }
}

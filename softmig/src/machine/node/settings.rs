//! /etc/softmig/node.conf: read for showing, and changed in one setting without losing the rest of it.

use crate::files::config_lock::{Etc, FOLDER, explained, replace};
use anyhow::{Context, bail, ensure};
use rustix::fs::{FileType, Stat};
use softmig_node::dir::Dir;
use softmig_policy::node::node_conf::{LONGEST, NODE, NodeConf, NodeMode, Setting};
use softmig_policy::node::paths::NODE_CONF;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NAME: &str = "node.conf";

/// The text of a new one, in the mode that is wanted.
const EXAMPLE: &str = include_str!("../../../../conf/node.conf");

/// The file as it is.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `None` where it is not a plain file, which is never read.
    text: Option<Vec<u8>>,
    /// Why the library does not read it, whatever it says.
    refused: Option<&'static str>,
    /// When it was last written.
    pub(crate) since: SystemTime,
}

impl Settings {
    /// Reads the file; `None` if it does not exist.
    pub(crate) fn read() -> anyhow::Result<Option<Self>> {
        match Dir::open(Path::new(FOLDER), 0).map_err(explained)? {
            Some(dir) => Self::read_in(&dir),
            None => Ok(None),
        }
    }

    /// Reads the file in the folder that is already open.
    pub(crate) fn read_in(dir: &Dir) -> anyhow::Result<Option<Self>> {
        let Some(stat) = dir.stat_of(NAME).map_err(explained)? else {
            return Ok(None);
        };
        let text = if is_plain(&stat) {
            dir.read(NAME, LONGEST as u64 + 1).map_err(explained)?
        } else {
            None
        };
        let written = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
        Ok(Some(Self {
            text,
            refused: refusal(&stat),
            since: UNIX_EPOCH + written,
        }))
    }

    /// Its text.
    pub(crate) fn conf(&self) -> anyhow::Result<NodeConf> {
        if let Some(why) = self.refused {
            bail!(
                "{NODE_CONF} is unreadable: the library refuses it, since it {why}, so no process gets a GPU; \
                 'softmig node MODE' writes it anew"
            );
        }
        let text = self.text.as_deref().unwrap_or_default();
        ensure!(
            is_short(text),
            "{NODE_CONF} has more than {LONGEST} bytes, so the library does not read it and no process gets a GPU; \
             shorten its comments by hand, or write it anew with 'softmig node MODE'"
        );
        NodeConf::parse(text).with_context(|| {
            format!(
                "{NODE_CONF} cannot be read, so no process gets a GPU; mend it by hand, or with 'softmig node MODE'"
            )
        })
    }
}

/// Makes the file say this mode. Returns in sentences what of the old one is lost.
pub(crate) fn set(etc: &Etc, mode: NodeMode) -> anyhow::Result<Vec<String>> {
    let old = Settings::read_in(&etc.dir)?;
    let (Edited { text, set_aside }, afresh) = changed(old.as_ref(), mode);
    if let Err(error) = NodeConf::parse(&text) {
        bail!("{NODE_CONF}: {error}; mend it by hand");
    }
    // Only a folder prevents the rename.
    let is_folder = etc.dir.stat_of(NAME).map_err(explained)?;
    if is_folder.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir()) {
        etc.dir.remove_if_empty(NAME).map_err(explained)?;
    }
    replace(&etc.dir, NAME, 0o644, &text)?;
    let afresh = afresh.map(|why| {
        format!("{NODE_CONF} {why}; it is a new file now, and what was set there is not kept")
    });
    let lines = set_aside.into_iter().map(|line| {
        format!("{NODE_CONF} had a line that is not a setting; it is a comment now: {line}")
    });
    Ok(afresh.into_iter().chain(lines).collect())
}

/// The new text, and why it is not the old one's. A node must never be stuck in a mode because of what the file is.
fn changed(old: Option<&Settings>, mode: NodeMode) -> (Edited, Option<&'static str>) {
    let example = || with_mode(EXAMPLE.as_bytes(), mode);
    let Some(old) = old else {
        return (example(), None);
    };
    let Some(text) = &old.text else {
        return (example(), Some("was a link or not a plain file"));
    };
    let edited = with_mode(text, mode);
    if is_short(text) && is_short(&edited.text) {
        (edited, None)
    } else {
        (example(), Some("was longer than the library reads"))
    }
}

fn is_short(text: &[u8]) -> bool {
    text.len() <= LONGEST
}

fn is_plain(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}

/// The library's objection to a file, by the same rule.
fn refusal(stat: &Stat) -> Option<&'static str> {
    if !is_plain(stat) {
        Some("is a link or not a plain file")
    } else if stat.st_uid != 0 {
        Some("belongs to another user than root")
    } else if stat.st_mode & 0o022 != 0 {
        Some("can be written to by others than root")
    } else {
        None
    }
}

/// A changed file.
#[derive(Debug, PartialEq, Eq)]
struct Edited {
    text: Vec<u8>,
    set_aside: Vec<String>,
}

/// Changes the mode and leaves all else, comments too. A line that would make the whole file unreadable becomes a
/// comment: a node must never be stuck in a mode because of a typing error.
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

/// Whether the file can still be read with this line added to the lines before it.
fn readable(before: &[u8], line: &[u8]) -> bool {
    use softmig_policy::node::node_conf::NodeConfError::Missing;
    let text = [before, line].concat();
    matches!(NodeConf::parse(&text), Ok(_) | Err(Missing(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_policy::node::node_conf::Identity;

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
    fn a_file_that_cannot_be_read_is_mended_on_the_way() {
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
    fn an_unreadable_file_gives_way_to_a_new_one() {
        let settings = |text: Option<Vec<u8>>| Settings {
            text,
            refused: None,
            since: UNIX_EPOCH,
        };
        let of_length = |length: usize| {
            let mut text = b"SOFTMIG_NODE=off\n#".to_vec();
            text.resize(length, b'x');
            settings(Some(text))
        };
        assert_eq!(of_length(LONGEST).conf().unwrap().mode, NodeMode::Off);
        assert_eq!(changed(Some(&of_length(LONGEST)), NodeMode::Off).1, None);
        assert!(of_length(LONGEST + 1).conf().is_err());
        // The longer word makes it too long.
        for old in [
            (of_length(LONGEST + 1), NodeMode::Off),
            (of_length(LONGEST), NodeMode::Observe),
            (settings(None), NodeMode::Off),
        ] {
            let (Edited { text, .. }, why) = changed(Some(&old.0), old.1);
            assert!(why.is_some());
            assert_eq!(text, with_mode(EXAMPLE.as_bytes(), old.1).text);
        }
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

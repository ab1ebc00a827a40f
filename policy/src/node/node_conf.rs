//! A node's own settings, /etc/softmig/node.conf: whether the hook limits anything here, and how it knows a job.
//!
//! `KEY=VALUE` lines that `softmig node` and `softmig install --hook` write, and an administrator may edit: comments and
//! blank lines are allowed, and keys of other versions are passed over. The hook reads it in every process that uses
//! a GPU, so nothing here allocates or panics.

use core::fmt;

/// The longest file that the hook reads, in bytes.
pub const LONGEST: usize = (16 << 10) - 1;

/// The mode of the hook on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMode {
    /// Jobs are held to their limits.
    Enforce,
    /// Nothing is refused; what would have been is counted and reported.
    Observe,
    /// The hook does nothing, as if it were not there.
    Off,
}

impl NodeMode {
    /// Reads the word in the file.
    pub fn parse(word: &[u8]) -> Option<Self> {
        match word {
            b"enforce" => Some(Self::Enforce),
            b"observe" => Some(Self::Observe),
            b"off" => Some(Self::Off),
            _ => None,
        }
    }

    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for NodeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The way in which the hook finds out to which job a process belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// By its control group, which no job can change.
    #[default]
    Cgroup,
    /// By its environment, for nodes whose Slurm gives jobs no control group. A job can change that.
    Env,
}

impl Identity {
    /// Reads the word in the file.
    pub fn parse(word: &[u8]) -> Option<Self> {
        match word {
            b"cgroup" => Some(Self::Cgroup),
            b"env" => Some(Self::Env),
            _ => None,
        }
    }

    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Env => "env",
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The reason why a text is not a node's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeConfError {
    /// A line that is neither `KEY=VALUE` nor a comment nor blank.
    Line,
    /// A key is written twice.
    Twice(&'static str),
    /// A key is missing.
    Missing(&'static str),
    /// The value of this key is not one of its words.
    Value(&'static str),
}

impl fmt::Display for NodeConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Line => f.write_str("a line is neither KEY=VALUE nor a comment"),
            Self::Twice(key) => write!(f, "{key} is there twice"),
            Self::Missing(key) => write!(f, "{key} is missing"),
            Self::Value(key) => write!(f, "{key} is none of {}", words(key)),
        }
    }
}

impl core::error::Error for NodeConfError {}

/// The key that holds the mode.
pub const NODE: &str = "SOFTMIG_NODE";
/// The key that holds the identity.
pub const IDENTITY: &str = "SOFTMIG_IDENTITY";

/// The words that are valid after a key.
fn words(key: &str) -> &'static str {
    match key {
        NODE => "enforce, observe, off",
        _ => "cgroup, env",
    }
}

/// A node's settings.
///
/// ```
/// use softmig_policy::node::node_conf::{Identity, NodeConf, NodeMode};
/// let conf = NodeConf::parse(b"# since the spring maintenance\nSOFTMIG_NODE=enforce\n").unwrap();
/// assert_eq!(conf, NodeConf { mode: NodeMode::Enforce, identity: Identity::Cgroup });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConf {
    /// The mode of the hook.
    pub mode: NodeMode,
    /// How it tells whose process it is in.
    pub identity: Identity,
}

impl fmt::Display for NodeConf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{NODE}={}", self.mode)?;
        writeln!(f, "{IDENTITY}={}", self.identity)
    }
}

impl NodeConf {
    /// Reads a node.conf.
    pub fn parse(text: &[u8]) -> Result<Self, NodeConfError> {
        let mode = value(text, NODE, NodeMode::parse)?;
        let identity = value(text, IDENTITY, Identity::parse)?;
        Ok(Self {
            mode: mode.ok_or(NodeConfError::Missing(NODE))?,
            identity: identity.unwrap_or_default(),
        })
    }
}

/// The value of a key, which may be there once.
fn value<T>(
    text: &[u8],
    key: &'static str,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, NodeConfError> {
    let mut found = None;
    for line in text.split(|byte| *byte == b'\n') {
        let setting = Setting::read(line)?;
        let Some(setting) = setting.filter(|setting| setting.key == key.as_bytes()) else {
            continue;
        };
        let value = parse(setting.value).ok_or(NodeConfError::Value(key))?;
        if found.replace(value).is_some() {
            return Err(NodeConfError::Twice(key));
        }
    }
    Ok(found)
}

/// A line that sets something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting<'a> {
    /// The key that is set.
    pub key: &'a [u8],
    /// The value that it gets.
    pub value: &'a [u8],
}

impl<'a> Setting<'a> {
    /// Reads a line; `None` for a comment or a blank line. Spaces around key and value do not count.
    pub fn read(line: &'a [u8]) -> Result<Option<Self>, NodeConfError> {
        let line = line.trim_ascii();
        if matches!(line.first(), None | Some(b'#')) {
            return Ok(None);
        }
        let mut parts = line.splitn(2, |byte| *byte == b'=');
        let (key, value) = (parts.next(), parts.next());
        match (key.map(<[u8]>::trim_ascii), value.map(<[u8]>::trim_ascii)) {
            (Some(key), Some(value)) if !key.is_empty() => Ok(Some(Self { key, value })),
            _ => Err(NodeConfError::Line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn confs() -> impl Strategy<Value = NodeConf> {
        let mode = prop_oneof![
            Just(NodeMode::Enforce),
            Just(NodeMode::Observe),
            Just(NodeMode::Off)
        ];
        let identity = prop_oneof![Just(Identity::Cgroup), Just(Identity::Env)];
        (mode, identity).prop_map(|(mode, identity)| NodeConf { mode, identity })
    }

    #[test]
    fn a_conf_reads_as_documented() {
        let conf = NodeConf {
            mode: NodeMode::Observe,
            identity: Identity::Env,
        };
        assert_eq!(
            conf.to_string(),
            "SOFTMIG_NODE=observe\nSOFTMIG_IDENTITY=env\n"
        );
    }

    #[test]
    fn an_edited_conf_is_read() {
        let text = "\n# why: ticket 12, \u{e9}\u{e8}\r\n\t SOFTMIG_NODE = off \r\nCONTEXT_MIB=518\nX==\n  # end";
        let conf = NodeConf {
            mode: NodeMode::Off,
            identity: Identity::Cgroup,
        };
        assert_eq!(NodeConf::parse(text.as_bytes()), Ok(conf));
    }

    #[test]
    fn what_is_no_conf_is_refused_with_the_reason() {
        use NodeConfError::{Line, Missing, Twice, Value};
        for (text, error, words) in [
            ("", Missing(NODE), "SOFTMIG_NODE is missing"),
            (
                "SOFTMIG_IDENTITY=env\n",
                Missing(NODE),
                "SOFTMIG_NODE is missing",
            ),
            (
                "#SOFTMIG_NODE=off\n",
                Missing(NODE),
                "SOFTMIG_NODE is missing",
            ),
            (
                "SOFTMIG_NODE=Enforce\n",
                Value(NODE),
                "SOFTMIG_NODE is none of enforce, observe, off",
            ),
            (
                "SOFTMIG_NODE=\n",
                Value(NODE),
                "SOFTMIG_NODE is none of enforce, observe, off",
            ),
            (
                "SOFTMIG_NODE=off # for now\n",
                Value(NODE),
                "SOFTMIG_NODE is none of enforce, observe, off",
            ),
            (
                "SOFTMIG_NODE=off\nSOFTMIG_IDENTITY=pid\n",
                Value(IDENTITY),
                "SOFTMIG_IDENTITY is none of cgroup, env",
            ),
            (
                "SOFTMIG_NODE=off\nSOFTMIG_NODE=off\n",
                Twice(NODE),
                "SOFTMIG_NODE is there twice",
            ),
            (
                "SOFTMIG_NODE=off\nenforce\n",
                Line,
                "a line is neither KEY=VALUE nor a comment",
            ),
            (
                "SOFTMIG_NODE=off\n=enforce\n",
                Line,
                "a line is neither KEY=VALUE nor a comment",
            ),
        ] {
            assert_eq!(NodeConf::parse(text.as_bytes()), Err(error), "{text}");
            assert_eq!(error.to_string(), words);
        }
    }

    #[test]
    fn a_conf_cut_off_in_its_mode_is_no_conf() {
        for mode in ["enforce", "observe", "off"] {
            let text = format!("SOFTMIG_NODE={mode}");
            for end in 0..text.len() {
                assert!(
                    NodeConf::parse(&text.as_bytes()[..end]).is_err(),
                    "cut at {end}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(conf in confs(), noise in "(#[^\n]*|[A-Z]{1,7}=[^\n]*| *)") {
            let text = format!("{noise}\n{conf}{noise}");
            prop_assert_eq!(NodeConf::parse(text.as_bytes()), Ok(conf));
        }

        #[test]
        fn any_bytes_get_an_answer(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = NodeConf::parse(&text);
        }
    }
}

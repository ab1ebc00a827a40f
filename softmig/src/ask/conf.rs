//! Slurm's configuration as plain data, whether a running slurmctld printed it or files have it.

pub(crate) mod files;
pub(crate) mod running;

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Something that was looked at, or why it could not be.
pub(crate) type Seen<T> = Result<T, String>;

/// KEY=VALUE of a configuration file. Keys are the same in upper and lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Adds one. Values of one key follow each other, as `Prolog[0]` and `Prolog[1]` do.
    pub(crate) fn add(&mut self, key: &str, value: &str) {
        let key = key.split('[').next().unwrap_or(key).to_ascii_lowercase();
        let value = match value {
            "(null)" | "N/A" | "" => return,
            value => value.trim_matches('"'),
        };
        self.0
            .entry(key)
            .and_modify(|old| {
                old.push(',');
                old.push_str(value);
            })
            .or_insert_with(|| value.to_string());
    }

    /// All values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(String::as_str)
    }

    /// Sets a value in the place of the one before.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.remove(key);
        self.add(key, value);
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &str) {
        self.0.remove(&key.to_ascii_lowercase());
    }

    /// The value; empty without one.
    pub(crate) fn get(&self, key: &str) -> &str {
        let value = self.0.get(&key.to_ascii_lowercase());
        value.map_or("", String::as_str)
    }

    /// The words of a list, as they are written.
    pub(crate) fn words(&self, key: &str) -> impl Iterator<Item = &str> {
        let words = self.get(key).split(',').map(str::trim);
        words.filter(|word| !word.is_empty())
    }

    /// Whether a list has a word, in whatever case.
    pub(crate) fn has(&self, key: &str, word: &str) -> bool {
        self.words(key).any(|own| own.eq_ignore_ascii_case(word))
    }

    /// Whether the value is a yes.
    pub(crate) fn is_yes(&self, key: &str) -> bool {
        let value = self.get(key).to_ascii_lowercase();
        matches!(value.as_str(), "yes" | "true" | "1" | "on" | "up")
    }
}

/// Reads `KEY=VALUE` pairs, one after the other.
impl<'a> FromIterator<(&'a str, &'a str)> for Settings {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut settings = Self::default();
        for (key, value) in pairs {
            settings.add(key, value);
        }
        settings
    }
}

/// Definitions in slurm.conf and included files that may each be made only once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    /// Each node of each NodeName line.
    pub(crate) nodes: Vec<Declared>,
    /// Each PartitionName line.
    pub(crate) partitions: Vec<Declared>,
    /// Each node of a partition that no NodeName line defines, and the partition's line.
    pub(crate) undefined: Vec<Declared>,
    /// Each other setting.
    pub(crate) settings: Vec<Setting>,
}

/// A setting, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Its key as it is written.
    pub(crate) key: String,
    /// Its value.
    pub(crate) value: String,
    /// The line.
    pub(crate) at: Line,
}

/// A node or partition, and where it is defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    /// Its name.
    pub(crate) name: String,
    /// The line.
    pub(crate) at: Line,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    /// The file.
    pub(crate) file: PathBuf,
    /// Its number, counted from 1. Of lines that Slurm joins to one, the number of the first.
    pub(crate) number: usize,
}

impl Line {
    /// Whether `softmig config` made it.
    pub(crate) fn is_softmigs(&self) -> bool {
        self.file
            .file_name()
            .is_some_and(|name| name == "softmig.conf")
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} line {}", self.file.display(), self.number)
    }
}

/// A line of gres.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GresLine {
    /// The nodes that it is for; empty for all nodes.
    pub(crate) nodes: Vec<String>,
    /// `gpu`, `shard` and so on.
    pub(crate) name: String,
    /// Its type.
    pub(crate) kind: Option<String>,
    /// The count, if the line has one.
    pub(crate) count: Option<u64>,
    /// Its devices.
    pub(crate) files: Vec<String>,
}

impl GresLine {
    /// The number N of each device that is a `/dev/nvidiaN`.
    pub(crate) fn minors(&self) -> impl Iterator<Item = u32> {
        let files = self.files.iter();
        files.filter_map(|file| file.strip_prefix("/dev/nvidia")?.parse().ok())
    }

    /// Whether it is for that node.
    pub(crate) fn is_for(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|name| name == node)
    }
}

/// A partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Its name.
    pub(crate) name: String,
    /// Its nodes.
    pub(crate) nodes: Vec<String>,
    /// All that its line says.
    pub(crate) settings: Settings,
}

/// A reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// Its name.
    pub(crate) name: String,
    /// Its nodes.
    pub(crate) nodes: Vec<String>,
    /// Its TRES: `cpu=4,gres/gpu:l40s=1`.
    pub(crate) tres: String,
}

/// The records of slurmdbd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accounting {
    /// The QOS.
    pub(crate) qos: Vec<Qos>,
    /// The associations.
    pub(crate) associations: Vec<Association>,
}

/// A QOS, each of its limits as sacctmgr prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Qos {
    /// Its name.
    pub(crate) name: String,
    /// By sacctmgr's names of columns.
    pub(crate) fields: Settings,
}

/// The association of a user, or of an account alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Association {
    /// The account.
    pub(crate) account: String,
    /// The user; empty for the account's own.
    pub(crate) user: String,
    /// The QOS that are allowed.
    pub(crate) qos: Vec<String>,
    /// All its limits by TRES: `gres/gpu=4`.
    pub(crate) limits: String,
}

impl Association {
    /// "account teaching", "alice in teaching".
    pub(crate) fn called(&self) -> String {
        match self.user.as_str() {
            "" => format!("account {}", self.account),
            user => format!("{user} in {}", self.account),
        }
    }
}

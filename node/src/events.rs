//! The events of jobs on this node, one JSON object a line, in `/var/log/softmig/events.jsonl`.
//!
//! Prolog, epilog and monitor write there, each line at once to the file's end. Trouble with it fails no job.

use crate::dir::{Dir, DirError, failed};
use crate::job::Job;
use crate::lock::lock;
use crate::node::Node;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::SystemTime;

/// The number of this form. A newer one can have more kinds and details. If one goes or changes its meaning, the number changes.
pub const VERSION: u32 = 1;

/// The file, in the folder of logs.
pub const NAME: &str = "events.jsonl";
/// The one before it.
pub const OLD: &str = "events.jsonl.1";
const LOCK: &str = ".events.lock";

/// Each line is shorter: what reads them may have a page for each.
pub const LONGEST_LINE: usize = 4000;
/// Longer names are left out of a line that would be too long. Each of their bytes may take six.
const LONGEST_NAME: usize = 128;
/// A file that has become larger makes room for a new one.
const LONGEST: u64 = 16 << 20;

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// [`VERSION`].
    pub schema_version: u32,
    /// When: seconds since 1970.
    pub time: f64,
    /// The node's name.
    pub node: String,
    /// What: `grant`, `start`, `refusal`, `finding`, `end` and others.
    pub event: String,
    /// The job's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u32>,
    /// The user's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The user's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The GPU, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Its other facts.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

impl Event {
    /// Of this kind, now.
    pub fn new(event: &str) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            schema_version: VERSION,
            time: (since.unwrap_or_default().as_secs_f64() * 1e3).round() / 1e3,
            node: rustix::system::uname().nodename().to_string_lossy().into(),
            event: event.into(),
            ..Self::default()
        }
    }

    /// Of this kind, about a job that begins or ends now.
    pub fn of_job(event: &str, job: &Job) -> Self {
        let names = job.names();
        Self {
            job: Some(job.id.get()),
            uid: Some(job.uid),
            user: names.user.map(str::to_owned),
            account: names.account.map(str::to_owned),
            ..Self::new(event)
        }
    }

    /// With one more thing to say.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.into(), value.into());
        self
    }

    /// The line, with its end. If it would be too long, details and long names are left out.
    fn line(&self) -> String {
        let text = |event: &Self| serde_json::to_string(event).unwrap_or_default() + "\n";
        let whole = text(self);
        if whole.len() < LONGEST_LINE {
            return whole;
        }
        let mut short = self.clone();
        short.details = Map::from_iter([("shortened".into(), true.into())]);
        for name in [&mut short.user, &mut short.account, &mut short.gpu] {
            name.take_if(|name| name.len() > LONGEST_NAME);
        }
        text(&short)
    }

    /// Writes it down.
    pub fn write(&self, node: &Node) -> Result<(), DirError> {
        let folder = Dir::make(&node.log, node.owner)?;
        let file = open(&folder)?;
        let mut line = self.line();
        if is_cut(&folder)? {
            line.insert(0, '\n');
        }
        (&file)
            .write_all(line.as_bytes())
            .map_err(failed("writing", folder.path().join(NAME)))
    }
}

/// Whether the last line has no end, since the disk was full.
fn is_cut(folder: &Dir) -> Result<bool, DirError> {
    let mut last = [b'\n'];
    if let Some(mut file) = folder.open_file(NAME)? {
        let read = file.seek(SeekFrom::End(-1));
        // An empty file has no last byte.
        let _ = read.and_then(|_| file.read_exact(&mut last));
    }
    Ok(last != *b"\n")
}

/// The file to write to, at its end.
fn open(folder: &Dir) -> Result<File, DirError> {
    let is_full = |folder: &Dir| -> Result<bool, DirError> {
        let stat = folder.stat_of(NAME)?;
        Ok(stat.is_some_and(|stat| stat.st_size.unsigned_abs() > LONGEST))
    };
    if is_full(folder)? {
        let _lock = lock(folder, LOCK);
        // Another program may have done it meanwhile.
        if is_full(folder)? {
            folder.rename(NAME, OLD)?;
        }
    }
    if let Some(file) = folder.open_at_end(NAME)? {
        return Ok(file);
    }
    // Another program may make it at the same moment.
    let made = folder.create(NAME, 0o640, b"");
    folder.open_at_end(NAME)?.map_or(made, Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn node() -> (tempfile::TempDir, Node) {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        (folder, node)
    }

    fn lines(node: &Node) -> Vec<Event> {
        let text = std::fs::read_to_string(node.log.join(NAME)).unwrap();
        let line = |line: &str| serde_json::from_str(line).unwrap();
        text.lines().map(line).collect()
    }

    #[test]
    fn each_event_is_a_line_that_reads_as_it_was() {
        let (_folder, node) = node();
        let mut grant = Event::new("grant").with("shards", 1);
        grant.job = Some(7);
        let end = Event::new("end");
        grant.write(&node).unwrap();
        end.write(&node).unwrap();
        assert_eq!(lines(&node), [grant, end]);
        let mode = std::fs::metadata(node.log.join(NAME))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o137, 0);
    }

    #[test]
    fn a_line_that_a_full_disk_cut_spoils_no_other() {
        let (_folder, node) = node();
        let [first, second, third] = ["first", "second", "third"].map(Event::new);
        first.write(&node).unwrap();
        let path = node.log.join(NAME);
        let file = File::options().append(true).open(&path).unwrap();
        (&file).write_all(b"{\"half").unwrap();
        second.write(&node).unwrap();
        third.write(&node).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let whole = text.lines().filter_map(|it| serde_json::from_str(it).ok());
        assert_eq!(whole.collect::<Vec<Event>>(), [first, second, third]);
        assert_eq!(text.lines().count(), 4);
    }

    #[test]
    fn a_line_is_never_too_long() {
        let long = Event::new("end").with("gpus", vec!["x".repeat(100); 100]);
        assert!(long.line().len() < LONGEST_LINE);
        let short: Event = serde_json::from_str(&long.line()).unwrap();
        assert_eq!(short.details["shortened"], true);
        // One byte less is written whole.
        let event = Event::new("end");
        let of = |length: usize| event.clone().with("text", "x".repeat(length)).line();
        let most = LONGEST_LINE - 1 - of(0).len();
        for (length, is_short) in [(most, false), (most + 1, true)] {
            let line = of(length);
            assert!(line.len() < LONGEST_LINE);
            assert_eq!(line.contains("shortened"), is_short, "{length}");
        }
    }

    #[test]
    fn a_line_is_never_too_long_with_any_names() {
        for (length, is_kept) in [
            (LONGEST_NAME, true),
            (LONGEST_NAME + 1, false),
            (9000, false),
        ] {
            let name = Some("\u{1}".repeat(length));
            let mut event = Event::new("refusal").with("text", "x".repeat(4000));
            (event.user, event.account, event.gpu) = (name.clone(), name.clone(), name);
            let line = event.line();
            assert!(line.len() < LONGEST_LINE, "{}", line.len());
            let read: Event = serde_json::from_str(&line).unwrap();
            assert_eq!(read.user.is_some(), is_kept);
        }
    }

    #[test]
    fn the_file_does_not_grow_without_end() {
        let (_folder, node) = node();
        Event::new("first").write(&node).unwrap();
        let file = File::options()
            .write(true)
            .open(node.log.join(NAME))
            .unwrap();
        file.set_len(LONGEST + 1).unwrap();
        Event::new("second").write(&node).unwrap();
        assert_eq!(lines(&node)[0].event, "second");
        let old = std::fs::metadata(node.log.join(OLD)).unwrap();
        assert_eq!(old.len(), LONGEST + 1);
    }

    #[test]
    fn what_is_no_plain_file_is_not_written_to() {
        let (folder, node) = node();
        std::fs::create_dir_all(&node.log).unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, "").unwrap();
        symlink(&other, node.log.join(NAME)).unwrap();
        assert!(Event::new("end").write(&node).is_err());
        assert_eq!(std::fs::read(&other).unwrap(), b"");
    }
}

//! `softmig events`: what happened to jobs on this node.

mod notice;

use crate::output::say::plain;
use anyhow::{Context, bail};
use clap::Args;
use notice::Notifier;
use softmig_node::events::{Event, LONGEST_LINE, NAME, OLD};
use softmig_node::node::Node;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Shows what happened to jobs on this node: grants, starts, refused memory, findings of the monitor, ends.
///
/// Reads /var/log/softmig/events.jsonl and the file before it, which root can read.
///
/// Exit status: 0 shown, 1 the events cannot be read, 2 wrong usage.
#[derive(Args)]
pub(crate) struct Events {
    /// Go on with new events until it is ended
    #[arg(long)]
    follow: bool,
    /// Tell jobs' users of new events by 'scontrol notify', if policy.toml names the events in notices under [report]
    #[arg(long, requires = "follow", conflicts_with = "since")]
    tell_users: bool,
    /// Only this job's
    #[arg(long, value_name = "JOBID")]
    job: Option<u32>,
    /// Only those of the last time, such as 30m, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    since: Option<Duration>,
    /// Print the lines as they are: one JSON object each (docs/formats.md)
    #[arg(long)]
    json: bool,
}

/// The interval at which the file is looked at.
const INTERVAL: Duration = Duration::from_millis(500);

impl Events {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = Node::this_machine().log;
        let mut out = std::io::stdout().lock();
        let notifier = self.tell_users.then(Notifier::new).transpose()?;
        match self.show(&folder, &mut out, notifier, |_| true) {
            // The reader has seen enough.
            Err(error) if is_closed(&error) => Ok(()),
            done => done,
        }
    }

    /// Shows the events of this folder, and then new ones as long as `goes_on` says.
    fn show(
        &self,
        folder: &Path,
        out: &mut impl Write,
        mut notifier: Option<Notifier>,
        goes_on: impl Fn(usize) -> bool,
    ) -> anyhow::Result<()> {
        let begin = self
            .since
            .and_then(|time| SystemTime::now().checked_sub(time))
            .and_then(|begin| begin.duration_since(SystemTime::UNIX_EPOCH).ok())
            .map_or(0.0, |begin| begin.as_secs_f64());
        // Users are told of new events only. The events' times do not say which are new: a clock may be set back.
        let is_all = !self.tell_users;
        if let Some(old) = open(&folder.join(OLD))?.filter(|_| is_all) {
            self.print(&mut Lines::new(old), begin, out, &mut notifier)?;
        }
        let path = folder.join(NAME);
        let mut file = open(&path)?;
        if let Some(file) = file.as_mut().filter(|_| !is_all) {
            file.seek(SeekFrom::End(0)).context("reading the events")?;
        }
        let mut lines = file.map(Lines::new);
        if lines.is_none() && !self.follow {
            let path = path.display();
            bail!("{path} is not there: no GPU job has started on this node");
        }
        for round in 0.. {
            if let Some(lines) = &mut lines {
                self.print(lines, begin, out, &mut notifier)?;
            }
            out.flush()?;
            if !self.follow || !goes_on(round) {
                break;
            }
            std::thread::sleep(INTERVAL);
            // A full file has another name by now.
            let new = open(&path)?;
            let inode = new
                .as_ref()
                .and_then(|new| Some(new.metadata().ok()?.ino()));
            if inode != lines.as_ref().and_then(Lines::inode) {
                if let Some(lines) = &mut lines {
                    self.print(lines, begin, out, &mut notifier)?;
                }
                lines = new.map(Lines::new);
            }
        }
        Ok(())
    }

    fn print(
        &self,
        lines: &mut Lines,
        begin: f64,
        out: &mut impl Write,
        notifier: &mut Option<Notifier>,
    ) -> anyhow::Result<()> {
        while let Some(line) = lines.next().context("reading the events")? {
            let Ok(event) = serde_json::from_str::<Event>(&line) else {
                continue;
            };
            let is_asked = self.job.is_none_or(|job| event.job == Some(job));
            if !is_asked || event.time < begin {
                continue;
            }
            if self.json {
                out.write_all(line.as_bytes())?;
            } else {
                writeln!(out, "{}", sentence(&event))?;
            }
            if let Some(notifier) = notifier {
                notifier.tell(&event);
            }
        }
        Ok(())
    }
}

fn is_closed(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// The file; `None` if it does not exist.
fn open(path: &Path) -> anyhow::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("{} is for root alone; try it with sudo", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("opening {}", path.display())),
    }
}

/// The lines of a file that may grow.
struct Lines {
    file: BufReader<File>,
    /// The beginning of a line that is not whole yet.
    part: Vec<u8>,
}

impl Lines {
    fn new(file: File) -> Self {
        Self {
            file: BufReader::new(file),
            part: Vec::new(),
        }
    }

    fn inode(&self) -> Option<u64> {
        Some(self.file.get_ref().metadata().ok()?.ino())
    }

    /// The next one that is whole.
    fn next(&mut self) -> std::io::Result<Option<String>> {
        loop {
            let most = LONGEST_LINE as u64;
            let read = self
                .file
                .by_ref()
                .take(most)
                .read_until(b'\n', &mut self.part)?;
            if read == 0 {
                return Ok(None);
            }
            let is_whole = self.part.ends_with(b"\n");
            if !is_whole && self.part.len() < LONGEST_LINE {
                continue;
            }
            let line = String::from_utf8(std::mem::take(&mut self.part));
            // A longer line is not an event.
            if let Ok(line) = line
                && is_whole
            {
                return Ok(Some(line));
            }
        }
    }
}

/// An event in words.
fn sentence(event: &Event) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::try_from_secs_f64(event.time).unwrap_or_default();
    let mut line = format!(
        "{} {:<8}",
        humantime::format_rfc3339_seconds(time),
        plain(&event.event)
    );
    let words = [
        ("job", event.job.map(|job| job.to_string())),
        (
            "user",
            event.user.clone().or(event.uid.map(|uid| uid.to_string())),
        ),
        ("account", event.account.clone()),
        ("gpu", event.gpu.clone()),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let details = event.details.iter().map(|(key, value)| match value {
        serde_json::Value::String(text) => (key.clone(), text.clone()),
        value => (key.clone(), value.to_string()),
    });
    for (key, value) in words.chain(details) {
        line += &format!(" {}={}", plain(&key), plain(&value));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const FIRST: &str = r#"{"schema_version":1,"time":1000.0,"node":"n1","event":"grant","job":7,"uid":2001,"user":"alice","details":{"gpus":["GPU-1"],"mode":"hard"}}"#;
    const SECOND: &str = r#"{"schema_version":1,"time":2000.5,"node":"n1","event":"end","job":8,"uid":2002,"details":{"x\u001b[31m":1.5}}"#;

    fn events(job: Option<u32>, json: bool, follow: bool) -> Events {
        Events {
            follow,
            tell_users: false,
            job,
            since: None,
            json,
        }
    }

    fn shown(events: &Events, folder: &Path) -> String {
        let mut out = Vec::new();
        events.show(folder, &mut out, None, |_| false).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_event_is_a_line_of_plain_words() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(OLD), format!("{FIRST}\ngarbage\n")).unwrap();
        fs::write(folder.path().join(NAME), format!("{SECOND}\n{{\"half")).unwrap();
        let all = shown(&events(None, false, false), folder.path());
        assert_eq!(
            all,
            "1970-01-01T00:16:40Z grant    job=7 user=alice gpus=[\"GPU-1\"] mode=hard\n\
             1970-01-01T00:33:20Z end      job=8 user=2002 x?[31m=1.5\n"
        );
        let one = shown(&events(Some(7), true, false), folder.path());
        assert_eq!(one, format!("{FIRST}\n"));
        let late = Events {
            since: Some(Duration::from_secs(60)),
            ..events(None, true, false)
        };
        assert_eq!(shown(&late, folder.path()), "");
    }

    #[test]
    fn new_events_are_followed_into_the_next_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        fs::write(&path, format!("{FIRST}\n{}", &SECOND[..20])).unwrap();
        let mut out = Vec::new();
        let follow = events(None, true, true);
        let goes_on = |round: usize| {
            if round == 0 {
                let rest = format!("{}\n", &SECOND[20..]);
                let mut file = File::options().append(true).open(&path).unwrap();
                file.write_all(rest.as_bytes()).unwrap();
                fs::rename(&path, folder.path().join(OLD)).unwrap();
                fs::write(&path, format!("{FIRST}\n")).unwrap();
            }
            round < 1
        };
        follow.show(folder.path(), &mut out, None, goes_on).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out, format!("{FIRST}\n{SECOND}\n{FIRST}\n"));
    }

    #[test]
    fn users_are_told_of_all_that_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        fs::write(folder.path().join(OLD), format!("{FIRST}\n")).unwrap();
        fs::write(&path, format!("{FIRST}\n")).unwrap();
        let tell = Events {
            tell_users: true,
            ..events(None, true, true)
        };
        let mut out = Vec::new();
        let goes_on = |round: usize| {
            // The clock was set back since then.
            let mut file = File::options().append(true).open(&path).unwrap();
            file.write_all(format!("{SECOND}\n").as_bytes()).unwrap();
            round < 1
        };
        tell.show(folder.path(), &mut out, None, goes_on).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("{SECOND}\n"));
    }

    #[test]
    fn a_node_without_events_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let done = events(None, false, false).show(folder.path(), &mut Vec::new(), None, |_| false);
        assert!(done.unwrap_err().to_string().contains("no GPU job"));
    }

    #[test]
    fn lines_that_are_far_too_long_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(3 * LONGEST_LINE + 5);
        fs::write(folder.path().join(NAME), format!("{long}\n{FIRST}\n")).unwrap();
        let all = shown(&events(None, true, false), folder.path());
        assert_eq!(all, format!("{FIRST}\n"));
    }
}

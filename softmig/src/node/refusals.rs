//! What the hook would have refused, counted from the logs of jobs.
//!
//! A job writes its log itself and may write anything there. So nothing of it is believed beyond this summary, no file
//! is followed or waited for, none is read beyond its first part, and nothing in it acts on the terminal.

use softmig_prolog::dir::{Dir, DirError};
use softmig_prolog::node::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::SystemTime;

/// The most that is read of one log.
const LONGEST: u64 = 1 << 20;
/// The most that is shown of one kind of refusal, in letters.
const WIDEST: usize = 100;
/// The most kinds that are shown.
const MOST: usize = 20;

/// The words between the job and the call in a line of the hook's:
/// `2026-11-21T06:45:40Z softmig[PID] job 12: would refuse cuInit: no conf for this job (10)`.
const WOULD_REFUSE: &str = " would refuse ";

/// All that would have been refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    kinds: BTreeMap<String, Kind>,
    logs: usize,
    unread: Vec<String>,
}

/// Refusals of one call for one reason.
#[derive(Debug, Default)]
struct Kind {
    times: u64,
    jobs: BTreeSet<String>,
}

impl Refusals {
    /// Counts in all logs of this node what was written since then.
    pub(crate) fn count(node: &Node, since: SystemTime) -> Self {
        let since = humantime::format_rfc3339_seconds(since).to_string();
        let mut refusals = Self::default();
        for (name, log) in logs(node) {
            match log {
                Ok(bytes) => refusals.add(&name, &String::from_utf8_lossy(&bytes), &since),
                Err(error) => refusals.unread.push(error.to_string()),
            }
        }
        refusals
    }

    fn add(&mut self, job: &str, log: &str, since: &str) {
        self.logs += 1;
        // A process tells now and then how many calls it were so far, whichever they were.
        let mut processes: BTreeMap<&str, u64> = BTreeMap::new();
        for line in log.lines() {
            let Some(report) = Report::read(line).filter(|report| report.is_since(since)) else {
                continue;
            };
            let kind = self.kinds.entry(shown(report.what)).or_default();
            kind.jobs.insert(job.to_string());
            let before = processes.entry(report.process).or_default();
            // Another process may have come by the same number: then its count begins again.
            let more = match report.times.checked_sub(*before) {
                None | Some(0) => report.times,
                Some(more) => more,
            };
            kind.times = kind.times.saturating_add(more);
            *before = report.times;
        }
    }
}

/// A line of the hook's.
struct Report<'a> {
    time: &'a str,
    process: &'a str,
    what: &'a str,
    times: u64,
}

impl<'a> Report<'a> {
    /// Reads a line; `None` when it says something else. What is missing in it is not missed.
    fn read(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(WOULD_REFUSE)?;
        let counted = after
            .trim_end()
            .strip_suffix(')')
            .and_then(|after| after.rsplit_once(" ("))
            .and_then(|(what, times)| Some((what, times.parse().ok()?)));
        let (what, times) = counted.unwrap_or((after, 1));
        let mut words = before.split(' ');
        Some(Self {
            time: words.next().unwrap_or_default(),
            process: words.next().unwrap_or_default(),
            what,
            times,
        })
    }

    /// Whether it was written since then, as far as the line says when it was. Times in this form order as words do.
    fn is_since(&self, since: &str) -> bool {
        self.time.len() != since.len() || self.time >= since
    }
}

/// The part of a line that is shown, in letters that do nothing but be seen.
fn shown(what: &str) -> String {
    let plain = |letter: char| match letter {
        ' '..='~' => letter,
        _ => '?',
    };
    what.trim().chars().map(plain).take(WIDEST).collect()
}

/// A log: a job's name, and what it has written or why that cannot be read.
type Log = (String, Result<Vec<u8>, DirError>);

/// The logs of the jobs that are here and of those that were.
fn logs(node: &Node) -> Vec<Log> {
    [running(node), ended(node)]
        .into_iter()
        .flat_map(|logs| logs.unwrap_or_else(|error| vec![(String::new(), Err(error))]))
        .collect()
}

fn running(node: &Node) -> Result<Vec<Log>, DirError> {
    let Some(run) = Dir::open(&node.run, node.owner)? else {
        return Ok(Vec::new());
    };
    let Some(jobs) = run.child("jobs")? else {
        return Ok(Vec::new());
    };
    let log_of = |job: &str| match jobs.child(job)? {
        Some(folder) => folder.read("log", LONGEST),
        None => Ok(None),
    };
    Ok(jobs
        .names()?
        .into_iter()
        .filter_map(|job| {
            let log = log_of(&job).transpose()?;
            Some((job, log))
        })
        .collect())
}

fn ended(node: &Node) -> Result<Vec<Log>, DirError> {
    let Some(logs) = Dir::open(&node.log, node.owner)? else {
        return Ok(Vec::new());
    };
    Ok(logs
        .names()?
        .into_iter()
        .filter_map(|name| {
            let job = name.strip_suffix(".log")?;
            Some((job.to_string(), logs.read(&name, LONGEST).transpose()?))
        })
        .collect())
}

/// So many jobs, in words.
fn jobs(count: usize) -> String {
    match count {
        1 => "1 job".to_string(),
        _ => format!("{count} jobs"),
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let logs = jobs(self.logs);
        if self.kinds.is_empty() {
            writeln!(f, "would have refused nothing, by the logs of {logs}")?;
        } else {
            writeln!(
                f,
                "would have refused, by the logs of {logs} (who can write anything there):"
            )?;
        }
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by_key(|(_, kind)| std::cmp::Reverse(kind.times));
        for (what, kind) in kinds.iter().take(MOST) {
            writeln!(
                f,
                "{:>9}+ times in {}: {what}",
                kind.times,
                jobs(kind.jobs.len())
            )?;
        }
        if kinds.len() > MOST {
            writeln!(f, "{:>9}  other reasons", kinds.len() - MOST)?;
        }
        if let Some(first) = self.unread.first() {
            writeln!(
                f,
                "{} logs could not be read, such as: {}",
                self.unread.len(),
                shown(first)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(logs: &[(&str, &str)]) -> String {
        let mut refusals = Refusals::default();
        for (job, log) in logs {
            refusals.add(job, log, "2026-11-21T06:00:00Z");
        }
        refusals.to_string()
    }

    fn line(pid: u32, what: &str) -> String {
        format!("2026-11-21T06:45:40Z softmig[{pid}] job 12: would refuse {what}\n")
    }

    #[test]
    fn the_highest_number_of_each_process_counts() {
        let log = [
            line(7, "cuInit: no conf for this job (1)"),
            line(8, "cuInit: no conf for this job (1)"),
            line(7, "cuMemAlloc_v2: over the limit (10)"),
            line(7, "cuInit: no conf for this job (100)"),
            "2026-11-21T06:45:41Z softmig[7] job 12: something else\n".into(),
        ]
        .concat();
        let other = line(9, "cuMemAlloc_v2: over the limit (1)");
        assert_eq!(
            counted(&[("12", &log), ("13", &other), ("14", "")]),
            "would have refused, by the logs of 3 jobs (who can write anything there):\n\
             \x20      92+ times in 1 job: cuInit: no conf for this job\n\
             \x20      10+ times in 2 jobs: cuMemAlloc_v2: over the limit\n"
        );
    }

    #[test]
    fn a_process_with_the_number_of_an_older_one_counts_anew() {
        let log = [
            line(7, "cuInit: x (1)"),
            line(7, "cuInit: x (10)"),
            line(7, "cuInit: x (1)"),
        ]
        .concat();
        assert!(counted(&[("1", &log)]).contains(" 11+ times"));
    }

    #[test]
    fn what_was_before_the_mode_does_not_count() {
        let log = line(7, "cuInit: x (5)").replace("06:45", "05:45");
        assert_eq!(
            counted(&[("1", &log)]),
            "would have refused nothing, by the logs of 1 job\n"
        );
    }

    #[test]
    fn a_hostile_log_does_nothing_to_the_terminal() {
        let log = [
            " would refuse \x1b[2J\x1b]0;x\x07 (99999999999999999999)\n".to_string(),
            " would refuse \u{9b}31m (18446744073709551615)\n".into(),
            format!("x would refuse {}\n", "y".repeat(500)),
            " would refuse  (18446744073709551615)\n would refuse  (3)\n".into(),
            (0..50)
                .map(|kind| line(1, &format!("kind{kind} (1)")))
                .collect(),
        ]
        .concat();
        let text = counted(&[("1", &log)]);
        assert!(
            text.bytes()
                .all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() < 140), "{text}");
        assert!(text.lines().count() < 25, "{text}");
    }
}

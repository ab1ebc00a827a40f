//! The refusals that the hook would have made, counted from the logs of jobs.
//!
//! A job writes its log itself and may write anything there. So nothing of it is believed beyond this summary, no file
//! is followed or waited for, none is read beyond its first part, and nothing in it acts on the terminal.

use softmig_node::dir::{Dir, DirError};
use softmig_node::node::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::SystemTime;

/// The most that is read of one log.
const LONGEST: u64 = 1 << 20;
/// The most that is shown of one kind of refusal, in letters.
const WIDEST: usize = 100;
/// The most kinds that are shown.
const MOST: usize = 20;
/// The most kinds that are told apart; the hook has far fewer.
const MOST_KINDS: usize = 1000;
/// The kind of all further ones.
const OTHER: &str = "other";

/// The words between the job and the call in a line of the hook's:
/// `2026-11-21T06:45:40Z softmig[PID] job 12: would refuse cuInit: no conf for this job (10)`.
const WOULD_REFUSE: &str = " would refuse ";

/// Those of a line about memory, which has the GPU and the figures behind them:
/// `... job 12: would be out of memory on GPU 0: cuMemAlloc asked for 512 MiB, the job holds 26994 MiB ...`.
const OUT_OF_MEMORY: &str = " would be out of memory on GPU ";

/// Behind the call in such a line.
const ASKED_FOR: &str = " asked for ";

/// All that would have been refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    kinds: BTreeMap<String, Kind>,
    logs: usize,
    unread: usize,
    /// The first that could not be read, and why.
    unread_first: Option<String>,
}

/// Refusals of one call for one reason.
#[derive(Debug, Default)]
struct Kind {
    times: u64,
    jobs: usize,
    /// The number of the last log that told of it.
    last: usize,
}

impl Refusals {
    /// Counts in all logs of this node what was written since then.
    pub(crate) fn count(node: &Node, since: SystemTime) -> Self {
        let since = humantime::format_rfc3339_seconds(since).to_string();
        let mut refusals = Self::default();
        // The log of a job that ends just now is in both places.
        let mut seen = BTreeSet::new();
        for logs in [running, ended] {
            // One at a time: together they may be more than the node's memory.
            let read = logs(node, &mut |job, log| match log {
                _ if !seen.insert(job.to_string()) => {}
                Ok(bytes) => refusals.add(&String::from_utf8_lossy(&bytes), &since),
                Err(error) => refusals.miss(&error),
            });
            if let Err(error) = read {
                refusals.miss(&error);
            }
        }
        refusals
    }

    fn miss(&mut self, error: &DirError) {
        self.unread += 1;
        self.unread_first.get_or_insert_with(|| error.to_string());
    }

    fn add(&mut self, log: &str, since: &str) {
        self.logs += 1;
        // A process tells now and then how many calls were refused in all, of any kind.
        let mut processes: BTreeMap<&str, u64> = BTreeMap::new();
        for line in log.lines() {
            let Some(report) = Report::read(line).filter(|report| report.is_since(since)) else {
                continue;
            };
            let mut what = report.what.shown();
            if self.kinds.len() >= MOST_KINDS && !self.kinds.contains_key(&what) {
                what = OTHER.to_string();
            }
            let kind = self.kinds.entry(what).or_default();
            if kind.last != self.logs {
                kind.jobs += 1;
                kind.last = self.logs;
            }
            let Some(so_far) = report.so_far else {
                kind.times = kind.times.saturating_add(1);
                continue;
            };
            let before = processes.entry(report.process).or_default();
            // Another process may have come by the same number: then its count begins again.
            let more = match so_far.checked_sub(*before) {
                None | Some(0) => so_far,
                Some(more) => more,
            };
            kind.times = kind.times.saturating_add(more);
            *before = so_far;
        }
    }
}

/// A line of the hook's.
struct Report<'a> {
    time: &'a str,
    process: &'a str,
    what: What<'a>,
    /// How many were refused until then, if the line says so. Otherwise it tells of one.
    so_far: Option<u64>,
}

/// The refusal that a line tells of.
enum What<'a> {
    /// A call, and why.
    Call(&'a str),
    /// More memory than the slice has, by this call.
    Memory(&'a str),
}

impl What<'_> {
    fn shown(&self) -> String {
        match self {
            Self::Call(what) => shown(what),
            Self::Memory(call) => shown(&format!("{call}: out of memory")),
        }
    }
}

impl<'a> Report<'a> {
    /// Reads a line; `None` when it says something else. A missing part reads as empty.
    fn read(line: &'a str) -> Option<Self> {
        let (before, what, so_far) = match line.split_once(OUT_OF_MEMORY) {
            Some((before, after)) => {
                // Each of these lines has other figures.
                let (_, after) = after.split_once(": ").unwrap_or_default();
                let (call, _) = after.split_once(ASKED_FOR).unwrap_or((after, ""));
                (before, What::Memory(call), None)
            }
            None => {
                let (before, after) = line.split_once(WOULD_REFUSE)?;
                let counted = after
                    .trim_end()
                    .strip_suffix(')')
                    .and_then(|after| after.rsplit_once(" ("))
                    .and_then(|(what, times)| Some((what, times.parse().ok()?)));
                match counted {
                    Some((what, times)) => (before, What::Call(what), Some(times)),
                    None => (before, What::Call(after), None),
                }
            }
        };
        let mut words = before.split(' ');
        Some(Self {
            time: words.next().unwrap_or_default(),
            process: words.next().unwrap_or_default(),
            what,
            so_far,
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

/// The text of a log, or why it cannot be read.
type Log = Result<Vec<u8>, DirError>;

/// Reads the logs of the jobs that are here.
fn running(node: &Node, visit: &mut dyn FnMut(&str, Log)) -> Result<(), DirError> {
    let Some(run) = Dir::open(&node.run, node.owner)? else {
        return Ok(());
    };
    let Some(jobs) = run.child("jobs")? else {
        return Ok(());
    };
    let log_of = |job: &str| match jobs.child(job)? {
        Some(folder) => folder.read("log", LONGEST),
        None => Ok(None),
    };
    let names = jobs.names()?;
    names
        .iter()
        .filter_map(|job| Some((job, log_of(job).transpose()?)))
        .for_each(|(job, log)| visit(job, log));
    Ok(())
}

/// Reads the logs of the jobs that were.
fn ended(node: &Node, visit: &mut dyn FnMut(&str, Log)) -> Result<(), DirError> {
    let Some(logs) = Dir::open(&node.log, node.owner)? else {
        return Ok(());
    };
    let names = logs.names()?;
    names
        .iter()
        .filter_map(|name| {
            let job = name.strip_suffix(".log")?;
            Some((job, logs.read(name, LONGEST).transpose()?))
        })
        .for_each(|(job, log)| visit(job, log));
    Ok(())
}

/// A number of jobs, in words.
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
            writeln!(f, "{:>9}+ times in {}: {what}", kind.times, jobs(kind.jobs))?;
        }
        if kinds.len() > MOST {
            writeln!(f, "{:>9}  other reasons", kinds.len() - MOST)?;
        }
        if let Some(first) = &self.unread_first {
            writeln!(
                f,
                "{} logs could not be read, such as: {}",
                self.unread,
                shown(first)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(logs: &[&str]) -> String {
        let mut refusals = Refusals::default();
        for log in logs {
            refusals.add(log, "2026-11-21T06:00:00Z");
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
            counted(&[&log, &other, ""]),
            "would have refused, by the logs of 3 jobs (who can write anything there):\n\
             \x20      92+ times in 1 job: cuInit: no conf for this job\n\
             \x20      10+ times in 2 jobs: cuMemAlloc_v2: over the limit\n"
        );
    }

    #[test]
    fn memory_beyond_the_slice_counts() {
        let line = |held: u32| {
            format!(
                "2026-11-21T06:45:40Z softmig[7] job 12: would be out of memory on GPU 0: cuMemAlloc asked for 512 MiB, \
                 the job holds {held} MiB (this process {held} MiB) and may hold 11366 MiB\n"
            )
        };
        let log = [line(11000), line(26994)].concat();
        assert_eq!(
            counted(&[&log, &line(12000)]),
            "would have refused, by the logs of 2 jobs (who can write anything there):\n\
             \x20       3+ times in 2 jobs: cuMemAlloc: out of memory\n"
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
        assert!(counted(&[&log]).contains(" 11+ times"));
    }

    #[test]
    fn what_was_before_the_mode_does_not_count() {
        let log = line(7, "cuInit: x (5)").replace("06:45", "05:45");
        assert_eq!(
            counted(&[&log]),
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
        let text = counted(&[&log]);
        assert!(
            text.bytes()
                .all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() < 140), "{text}");
        assert!(text.lines().count() < 25, "{text}");
    }

    #[test]
    fn no_log_makes_more_kinds_than_the_hook_has() {
        let log: String = (0..2 * MOST_KINDS)
            .map(|kind| line(1, &format!("kind{kind} (1)")))
            .collect();
        let mut refusals = Refusals::default();
        refusals.add(&log, "2026-11-21T06:00:00Z");
        assert_eq!(refusals.kinds.len(), MOST_KINDS + 1);
        assert_eq!(refusals.kinds[OTHER].times, MOST_KINDS as u64);
    }
}

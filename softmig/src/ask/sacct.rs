//! Slurm's accounting: the jobs with GPUs that ended, as `sacct --parsable2` lists them, from sacct or from a file.

pub(crate) mod one;
mod used;

use crate::ask::here;
use anyhow::{Context as _, bail};
use softmig_node::sacct::{Columns, HISTORY, Row};
use softmig_policy::config::clock;
use softmig_policy::slurm::gres_list::Configured;
use softmig_usage::js1::Js1;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use used::{Steps, Used, of_js1};

/// A line that is longer is not read to its end.
const LONGEST_LINE: u64 = 2 << 20;

/// No job has more.
const MOST_GPUS: u32 = 100_000;

/// A job that had GPUs or shards, and ended.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) user: Arc<str>,
    pub(crate) account: Arc<str>,
    pub(crate) partition: Arc<str>,
    pub(crate) qos: Arc<str>,
    /// From when it could have run: seconds since 1970.
    pub(crate) eligible: i64,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) gpus: Gpus,
    pub(crate) used: Used,
}

impl Job {
    /// For how long it ran, in hours.
    pub(crate) fn hours(&self) -> f64 {
        (self.end - self.start) as f64 / 3600.0
    }
}

/// The GPUs of a job, on all of its nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Gpus {
    /// Whole GPUs.
    pub(crate) whole: u32,
    pub(crate) shards: u32,
    /// Their type, where Slurm counts it and there is one.
    pub(crate) kind: Option<Arc<str>>,
}

impl Gpus {
    /// Those of a list of TRES; `None` if it has none.
    fn parse(tres: &str) -> Option<Self> {
        let list = Configured::parse(tres);
        let count = |name: &str| {
            let of_name = || list.iter().filter(move |gres| gres.name == name);
            let all = of_name().find(|gres| gres.kind.is_none());
            let count = match all {
                Some(gres) => gres.count,
                None => of_name().map(|gres| gres.count).sum(),
            };
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let mut kinds = list
            .iter()
            .filter(|gres| gres.is_gpu())
            .filter_map(|gres| gres.kind.as_deref());
        let kind = kinds
            .next()
            .filter(|kind| kinds.all(|other| other == *kind));
        let gpus = Self {
            whole: count("gpu"),
            shards: count("shard"),
            kind: kind.map(Arc::from),
        };
        let has_any = gpus.whole > 0 || gpus.shards > 0;
        (has_any && gpus.whole <= MOST_GPUS).then_some(gpus)
    }
}

/// All that was read.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) jobs: Vec<Job>,
    /// Jobs with GPUs that run yet.
    pub(crate) running: u64,
    /// Lines that could not be read.
    pub(crate) unreadable: u64,
}

/// Reads a file with what sacct printed.
pub(crate) fn of_file(path: &Path) -> anyhow::Result<History> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    read(BufReader::new(file)).with_context(|| path.display().to_string())
}

/// Asks sacct about the jobs since a time, in its own words: those of a user, or all that Slurm shows the caller.
pub(crate) fn of_slurm(since: &str, user: Option<&str>) -> anyhow::Result<History> {
    let commands = here::commands()
        .context("Slurm's sacct is not in /usr/bin or /usr/local/bin; use --file FILE")?;
    let mut command = commands.prepared("sacct");
    command
        .env("SLURM_TIME_FORMAT", "%s")
        .args(["--parsable2", &whose(user), "--starttime", since])
        .args(["--endtime", "now", "--format", HISTORY])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("sacct")?;
    let stdout = child.stdout.take().context("sacct")?;
    let history = read(BufReader::with_capacity(1 << 20, stdout));
    let status = child.wait().context("sacct")?;
    if !status.success() {
        bail!("sacct failed: {status}");
    }
    history.context("sacct")
}

fn whose(user: Option<&str>) -> String {
    user.map_or_else(|| "--allusers".into(), |user| format!("--user={user}"))
}

/// Reads lines with a header.
pub(crate) fn read(mut lines: impl BufRead) -> anyhow::Result<History> {
    let mut line = String::new();
    next(&mut lines, &mut line)?;
    let columns = columns_of(&line)?;
    let mut reader = Reader::default();
    let mut open: Option<Open> = None;
    while next(&mut lines, &mut line)? {
        let Some(row) = columns.row(&line) else {
            reader.history.unreadable += 1;
            continue;
        };
        let (job, step) = match row.id.split_once('.') {
            Some((job, step)) => (job, Some(step)),
            None => (row.id, None),
        };
        match (&mut open, step) {
            (Some(open), Some(_)) if open.id == job => {
                if let (Some(start), Some(end)) = (time(row.start), time(row.end)) {
                    open.steps.add(start, end, row.used);
                }
            }
            (_, Some(_)) => {}
            (_, None) => {
                reader.close(open.take());
                open = reader.open(&row);
            }
        }
    }
    reader.close(open);
    Ok(reader.history)
}

/// Reads a line; false at the end.
fn next(lines: &mut impl BufRead, line: &mut String) -> anyhow::Result<bool> {
    let mut bytes = std::mem::take(line).into_bytes();
    bytes.clear();
    let read = lines
        .by_ref()
        .take(LONGEST_LINE)
        .read_until(b'\n', &mut bytes)?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    } else if read as u64 == LONGEST_LINE {
        lines.skip_until(b'\n')?;
    }
    *line = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    Ok(read > 0)
}

fn columns_of(header: &str) -> anyhow::Result<Columns> {
    let columns = Columns::parse(header);
    let needed = ["JobIDRaw", "Start", "End", "AllocTRES"];
    if let Some(missing) = needed.into_iter().find(|name| !columns.has(name)) {
        bail!(
            "column {missing} is missing; make the file with: SLURM_TIME_FORMAT=%s sacct --allusers --parsable2 \
             --starttime=now-90days --endtime=now --format={HISTORY}"
        );
    }
    Ok(columns)
}

/// A job whose steps may follow.
struct Open {
    id: String,
    job: Job,
    steps: Steps,
}

#[derive(Default)]
struct Reader {
    history: History,
    names: HashSet<Arc<str>>,
    tres: HashMap<String, Option<Gpus>>,
}

impl Reader {
    fn name(&mut self, text: &str) -> Arc<str> {
        if let Some(name) = self.names.get(text) {
            return name.clone();
        }
        let name: Arc<str> = text.into();
        self.names.insert(name.clone());
        name
    }

    /// A job with GPUs that ran.
    fn open(&mut self, row: &Row<'_>) -> Option<Open> {
        let gpus = self.gpus(row.tres)?;
        let start = time(row.start)?;
        let Some(end) = time(row.end) else {
            self.history.running += 1;
            return None;
        };
        if end <= start {
            return None;
        }
        // A job that was held until it was cancelled has none.
        let eligible = time(row.eligible).or_else(|| time(row.submit));
        let job = Job {
            user: self.name(row.user),
            account: self.name(row.account),
            partition: self.name(row.partition),
            qos: self.name(row.qos),
            eligible: eligible.map_or(start, |eligible| eligible.min(start)),
            start,
            end,
            gpus,
            used: Js1::decode(row.comment).map_or_else(|_| Used::default(), |js1| of_js1(&js1)),
        };
        Some(Open {
            id: row.id.to_string(),
            job,
            steps: Steps::default(),
        })
    }

    fn close(&mut self, open: Option<Open>) {
        let Some(mut open) = open else {
            return;
        };
        if !open.job.used.by_summary {
            open.job.used = open.steps.used();
        }
        self.history.jobs.push(open.job);
    }

    /// The GPUs of a list of TRES; `None` if it has none.
    fn gpus(&mut self, tres: &str) -> Option<Gpus> {
        if let Some(gpus) = self.tres.get(tres) {
            return gpus.clone();
        }
        let gpus = Gpus::parse(tres);
        self.tres.insert(tres.to_string(), gpus.clone());
        gpus
    }
}

/// A time as sacct prints it: seconds since 1970, or this machine's clock. `None` if it has not come yet.
fn time(text: &str) -> Option<i64> {
    let seconds = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        clock::at(text).ok()
    };
    seconds.filter(|seconds| (0..=LATEST).contains(seconds))
}

/// The end of the year 9999.
const LATEST: i64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "JobIDRaw|User|Account|Partition|QOS|Submit|Eligible|Start|End|AllocTRES|TRESUsageInMax|TRESUsageInTot|AdminComment";

    fn history(rows: &[&str]) -> History {
        let text = format!("{HEADER}\n{}\n", rows.join("\n"));
        read(text.as_bytes()).unwrap()
    }

    #[test]
    fn sacct_is_asked_for_the_jobs_of_a_user_or_of_all() {
        assert_eq!(whose(Some("alice")), "--user=alice");
        assert_eq!(whose(None), "--allusers");
    }

    #[test]
    fn a_job_is_read_with_its_steps() {
        let read = history(&[
            "7|alice|bio|main|normal|50|60|100|3700|billing=1,cpu=1,gres/gpu:l40s=1,gres/gpu=1,mem=1G,node=1|||",
            "7.batch||bio||||100|100|3700|cpu=1,gres/gpu=1|cpu=00:00:01,gres/gpumem=0,gres/gpuutil=0|cpu=00:00:01,gres/gpumem=0,gres/gpuutil=0|",
            "7.0||bio||||100|100|1000|cpu=1,gres/gpu=1|gres/gpumem=1.50G,gres/gpuutil=40|gres/gpumem=3G,gres/gpuutil=80|",
            "7.1||bio||||500|500|2000|cpu=1,gres/gpu=1|gres/gpumem=512M,gres/gpuutil=30|gres/gpumem=512M,gres/gpuutil=30|",
            "7.2||bio||||2000|2000|3000|cpu=1,gres/gpu=1|gres/gpumem=3072M|gres/gpumem=3072M|",
        ]);
        let [job] = read.jobs.as_slice() else {
            panic!("{read:?}")
        };
        assert_eq!(
            (&*job.user, &*job.account, &*job.qos),
            ("alice", "bio", "normal")
        );
        assert_eq!((job.eligible, job.start, job.hours()), (60, 100, 1.0));
        let gpus = Gpus {
            whole: 1,
            shards: 0,
            kind: Some("l40s".into()),
        };
        assert_eq!(job.gpus, gpus);
        // The first two ran at once.
        assert_eq!(job.used.peak_bytes, Some(3584 << 20));
        assert_eq!(job.used.utilization, Some(100.0));
    }

    #[test]
    fn what_did_not_run_or_runs_yet_or_has_no_gpu_is_no_job() {
        let read = history(&[
            "1|a|b|p|q|50|60|100|200|cpu=1,mem=1G,node=1|||",
            "2|a|b|p|q|50|60|100|Unknown|cpu=1,gres/gpu=1|||",
            "3|a|b|p|q|50|60|Unknown|Unknown||||",
            "4|a|b|p|q|50|60|100|100|cpu=1,gres/gpu=1|||",
            "5|a|b|p|q|50|Unknown|2026-01-01T00:00:00|2026-01-01T01:00:00|gres/gpu:a=1,gres/gpu:b=1,gres/gpu=2|||of|a|person",
            "half of a comment",
        ]);
        assert_eq!((read.jobs.len(), read.running, read.unreadable), (1, 1, 1));
        let job = &read.jobs[0];
        assert_eq!((job.gpus.whole, &job.gpus.kind), (2, &None));
        assert_eq!((job.eligible, job.hours()), (50, 1.0));
        assert_eq!(job.used, Used::default());
    }

    #[test]
    fn a_summary_counts_before_slurms_own_figures() {
        let json = r#"{"nodes":{"n1":{"gpu_total_memory":{"0":1000,"1":1000},"gpu_used_memory":{"0":10,"1":900},"gpu_utilization":{"0":7.5,"1":2}}},"total_time":1,"gpus":2}"#;
        let comment = serde_json::from_str::<Js1>(json).unwrap().encode().unwrap();
        let read = history(&[
            &format!("7|a|b|p|q|50|60|100|200|gres/gpu=2|||{comment}"),
            "7.0|||||100|100|100|200|gres/gpu=2|gres/gpumem=1G|gres/gpumem=1G|",
        ]);
        let used = &read.jobs[0].used;
        assert_eq!((used.peak_bytes, used.total_bytes), (Some(900), Some(1000)));
        assert_eq!((used.utilization, used.by_summary), (Some(7.5), true));
    }

    #[test]
    fn a_file_without_the_columns_says_how_to_make_one() {
        let error = read("JobID|User\n".as_bytes()).unwrap_err().to_string();
        assert!(
            error.starts_with("column JobIDRaw is missing; make the file with: "),
            "{error}"
        );
    }

    #[test]
    fn a_line_without_end_is_passed_over() {
        let text = format!(
            "{HEADER}\n{}\n5|a|b|p|q|50|60|100|200|gres/gpu=1|||\n",
            "x".repeat(5 << 20)
        );
        let read = read(text.as_bytes()).unwrap();
        assert_eq!((read.jobs.len(), read.unreadable), (1, 1));
    }

    proptest::proptest! {
        #[test]
        fn no_line_stops_it(lines in proptest::collection::vec("[0-9a-z|=,.:/-]{0,80}", 0..8)) {
            let text = format!("{HEADER}\n{}\n7|a|b|p|q|50|60|100|200|gres/gpu=1|||\n", lines.join("\n"));
            let read = read(text.as_bytes()).unwrap();
            proptest::prop_assert!(!read.jobs.is_empty());
        }
    }
}

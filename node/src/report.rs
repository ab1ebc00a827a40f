//! Where the programs on a node say what they did: the system's log, the file that the policy names, and, for errors only,
//! standard error, which slurmd takes into its own log.
//!
//! A line is one sentence of `key=value` words, the same everywhere; journald gets the job's number as a field too
//! (`journalctl -t softmig-prolog F_JOB=7`). Nothing that a user typed gets into a line except as an escaped `{:?}`.
//! Logging never fails a job, nor keeps it waiting for more than a second.

use crate::allowance::Allowance;
use crate::gpu::Assigned;
use crate::job::Job;
use crate::queue;
use rustix::fs::{Mode, OFlags};
use softmig_policy::node::job_conf::Uuid;
use std::ffi::CStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::fmt::{self, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

type Sink = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts logging as `name`.
pub fn start(name: &'static CStr, log_file: Option<&str>) {
    let log_file = log_file.map(PathBuf::from);
    queue::start(move || {
        // slurmd reads its end at once, a file is next best; what comes last may be waited for in vain.
        let mut sinks = vec![stderr()];
        sinks.extend(log_file.as_deref().and_then(file));
        sinks.extend(system(name));
        Registry::default().with(sinks).into()
    });
}

/// Ends logging: the last lines may take a moment, but not long.
pub fn finish() {
    queue::finish();
}

fn stderr() -> Sink {
    fmt::layer()
        .fmt_fields(sentence())
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_filter(LevelFilter::ERROR)
        .boxed()
}

/// journald, or else syslog.
fn system(name: &'static CStr) -> Option<Sink> {
    if let Ok(journald) = tracing_journald::layer() {
        let name = name.to_string_lossy().into_owned();
        let journald = journald.with_syslog_identifier(name);
        return Some(journald.with_filter(LevelFilter::INFO).boxed());
    }
    if !Path::new("/dev/log").exists() {
        return None;
    }
    let options = syslog_tracing::Options::LOG_PID;
    let syslog = syslog_tracing::Syslog::new(name, options, syslog_tracing::Facility::Daemon)?;
    let layer = fmt::layer()
        .fmt_fields(sentence())
        .with_writer(syslog)
        .without_time()
        .with_level(false)
        .with_target(false)
        .with_ansi(false);
    Some(layer.with_filter(LevelFilter::INFO).boxed())
}

/// The policy's file. Its folder is the administrator's; what is there already must be a plain file.
fn file(path: &Path) -> Option<Sink> {
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o640)).ok()?;
    let file = File::from(fd);
    if !path.is_absolute() || !file.metadata().ok()?.is_file() {
        return None;
    }
    let layer = fmt::layer()
        .fmt_fields(sentence())
        .with_writer(Mutex::new(file))
        .with_target(false)
        .with_ansi(false);
    Some(layer.with_filter(LevelFilter::INFO).boxed())
}

/// Only the message: it has all that the other fields have.
fn sentence() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(|writer, field, value| match field.name() {
        "message" => write!(writer, "{value:?}"),
        _ => Ok(()),
    })
}

/// The prolog's line about a job.
pub fn line(job: &Job, allowance: &Allowance, assigned: &Assigned) -> String {
    let mut line = format!(
        "job={} uid={} run={}",
        job.id,
        job.uid,
        job.run.unwrap_or(0)
    );
    match allowance {
        Allowance::Whole(source) => line += &format!(" verdict=whole source={source}"),
        Allowance::Mixed(source) => line += &format!(" verdict=mixed source={source}"),
        Allowance::Slice(limits, source) => {
            line += &format!(
                " verdict=slice type={} shards={} memory_mib={} mode={} source={source}",
                limits.gpu_type(),
                limits.share(),
                limits.memory_mib(),
                limits.mode()
            );
        }
        Allowance::Unknown => line += " verdict=unknown",
        Allowance::Unseen => line += " verdict=refused reason=unseen",
        Allowance::Drain => line += " verdict=drain",
    }
    let uuids: Vec<&str> = assigned.gpus.iter().map(Uuid::as_str).collect();
    line + " gpus=" + &uuids.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowance::Source;
    use softmig_policy::node::tag::Tag;

    #[test]
    fn a_line_says_all_that_was_decided() {
        let job = Job::read(|name| match name {
            "SLURM_JOB_ID" => Some("7".into()),
            "SLURM_JOB_UID" => Some("2001".into()),
            "SLURM_JOB_COMMENT" => Some("\x1b[31mred softmig=1:l40s:1/4:11366:hard".into()),
            _ => None,
        })
        .unwrap();
        let Some(Ok(Tag::Slice(limits))) = job.tags.comment else {
            panic!()
        };
        let mut assigned = Assigned::default();
        assigned
            .gpus
            .push(Uuid::parse("GPU-00000000-1111-2222-3333-444444444444").unwrap())
            .unwrap();
        assert_eq!(
            line(&job, &Allowance::Slice(limits, Source::Tag), &assigned),
            "job=7 uid=2001 run=0 verdict=slice type=l40s shards=1/4 memory_mib=11366 mode=hard source=tag \
             gpus=GPU-00000000-1111-2222-3333-444444444444"
        );
        assert_eq!(
            line(
                &job,
                &Allowance::Whole(Source::Slurmctld),
                &Assigned::default()
            ),
            "job=7 uid=2001 run=0 verdict=whole source=slurmctld gpus="
        );
    }
}

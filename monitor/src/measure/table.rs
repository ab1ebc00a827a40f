//! A report for people.

use crate::measure::report::{Conf, Finding, GpuReport, Holding, Job, JobGpu, Report};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use softmig_policy::node::size::MIB;
use softmig_usage::{self as usage, GpuUsage, Node};
use std::fmt::Write;

/// Rounded up, so that a few bytes are not shown as 0.
pub(crate) fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(MIB)
}

/// More processes than these are only counted.
const MOST: usize = 6;

/// The processes of a row, in a line or a cell.
pub(crate) fn pids(pids: &[u32]) -> String {
    let shown: Vec<String> = pids.iter().take(MOST).map(u32::to_string).collect();
    let rest = pids.len().saturating_sub(MOST);
    match rest {
        0 => shown.join(","),
        _ => format!("{} and {rest} more", shown.join(",")),
    }
}

/// Text that ends in a line feed.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    if let Some(error) = &report.error {
        let _ = writeln!(text, "not measured: {error}");
    }
    if !report.gpus.is_empty() {
        text += &lines(&gpus(report));
    }
    if report.jobs.is_empty() && report.users.is_empty() {
        text += match report.error {
            None => "no jobs, and no process uses a GPU\n",
            Some(_) => "no jobs\n",
        };
    } else {
        text += "\n";
        text += &lines(&holders(report));
    }
    if let Some(error) = &report.usage_error {
        text += &format!("\nno jobs are shown that share a GPU: {error}\n");
    }
    if let Some(usage) = &report.usage {
        text += "\n";
        text += &sharing(usage);
    }
    text
}

/// The jobs that share GPUs, and how each GPU is shared just now.
fn sharing(usage: &Node) -> String {
    // A daemon from before an upgrade names no processes. It does not say what it ended either.
    if usage.ending.is_none() {
        return "no jobs are shown that share a GPU: an older softmig-monitor runs; restart it: 'systemctl restart \
                softmig-monitor'\n"
            .into();
    }
    let mut slices: Vec<_> = usage
        .slices()
        .filter(|(_, _, gpu)| !gpu.seats.is_empty())
        .collect();
    if slices.is_empty() {
        return "no job shares a GPU\n".into();
    }
    slices.sort_by_key(|(job, _, gpu)| (gpu.index.unwrap_or(u32::MAX), job.job));
    let heading = [
        "GPU",
        "JOB",
        "SHARE",
        "STATE",
        "CHARGED",
        "IN",
        "CREDIT",
        "PROCESSES",
        "NOTE",
    ];
    let mut table = table(&heading, &[4, 5, 6]);
    for &(job, slice, gpu) in &slices {
        let seats: Vec<u32> = gpu.seats.iter().map(|seat| seat.pid).collect();
        table.add_row([
            number(gpu.index),
            job.job.to_string(),
            format!(
                "{} % {}",
                (slice.share() * 1000.0).floor() / 10.0,
                slice.mode
            ),
            state(gpu).into(),
            format!("{:.1} s", gpu.charged_seconds),
            format!("{:.1} s", gpu.known_seconds),
            format!("{:.0} ms", gpu.credit_seconds * 1000.0),
            pids(&seats),
            note_on_sharing(gpu),
        ]);
    }
    let is_shared = |gpu: &&GpuUsage| slices.iter().any(|(_, _, own)| own.uuid == gpu.uuid);
    let way = |gpu: &GpuUsage| {
        let way = match (gpu.shared_by.as_deref()?, &gpu.why) {
            ("scheduler", _) => "shared by its own scheduler".to_owned(),
            (_, None) => "each job keeps its own cap".into(),
            (_, Some(why)) => format!("each job keeps its own cap: {why}"),
        };
        Some(format!("GPU {}: {way}\n", gpu.index))
    };
    let ways = usage.gpus.iter().filter(is_shared).filter_map(way);
    let settings = usage.gpus.iter().filter_map(|gpu| {
        let setting = gpu.setting.as_ref()?;
        Some(format!("GPU {}: {setting}\n", gpu.index))
    });
    let missing = usage.gpus.iter().filter(|gpu| gpu.missing_bytes > 0);
    let missing = missing.map(|gpu| {
        let mib = mib(gpu.missing_bytes);
        format!(
            "GPU {}: {mib} MiB that its jobs may have are held by others\n",
            gpu.index
        )
    });
    ways.chain(settings)
        .chain(missing)
        .fold(lines(&table), |text, way| text + &way)
}

/// What a job does on a GPU just now.
fn state(gpu: &usage::JobGpu) -> &'static str {
    if gpu.is_held {
        "held"
    } else if gpu.wants_gpu {
        "runs"
    } else {
        "-"
    }
}

fn note_on_sharing(gpu: &usage::JobGpu) -> String {
    let mut notes = Vec::new();
    for seat in &gpu.seats {
        if let Some(why) = &seat.not_steered {
            notes.push(format!("{} cannot be held: {why}", seat.pid));
        }
    }
    if gpu.index.is_none() {
        notes.push(format!("{} is not to be seen", gpu.uuid));
    }
    notes.join("; ")
}

fn gpus(report: &Report) -> Table {
    let mut table = table(&["GPU", "NAME", "UUID", "USED", "OF", "NOTE"], &[3, 4]);
    for gpu in &report.gpus {
        table.add_row([
            gpu.index.to_string(),
            word(gpu.name.as_deref()),
            word(gpu.uuid.as_deref()),
            amount(gpu.used_bytes),
            amount(gpu.total_bytes),
            note_on_gpu(gpu),
        ]);
    }
    table
}

fn note_on_gpu(gpu: &GpuReport) -> String {
    let mut notes = Vec::new();
    if let Some(error) = &gpu.error {
        notes.push(format!("not measured: {error}"));
    }
    if gpu.mig {
        notes.push("divided by MIG: no slices".into());
    }
    notes.join("; ")
}

fn holders(report: &Report) -> Table {
    let heading = [
        "GPU",
        "JOB",
        "USER",
        "SLICE",
        "MEMORY",
        "LIMIT",
        "PROCESSES",
        "NOTE",
    ];
    let mut table = table(&heading, &[4, 5]);
    for job in &report.jobs {
        let name = job
            .job
            .map(|id| id.to_string())
            .or_else(|| job.sluid.clone());
        let who = [word(name.as_deref()), number(job.uid), slice(job)];
        if job.gpus.is_empty() {
            let note = note_on_conf(job).unwrap_or("on no GPU");
            let [job, user, slice] = who.clone();
            table.add_row(["-", &job, &user, &slice, "-", "-", "-", note]);
        }
        for gpu in &job.gpus {
            let limit = amount(gpu.limit_bytes);
            table.add_row(row(&who, &gpu.holding, limit, note(job, gpu)));
        }
    }
    for user in &report.users {
        let who = ["-".into(), number(user.uid), "-".into()];
        for holding in &user.gpus {
            let note = match user.uid {
                Some(_) => "in no job",
                None => "ended, or not to be seen",
            };
            table.add_row(row(&who, holding, "-".into(), note_on(holding, note)));
        }
    }
    table
}

fn row(who: &[String; 3], holding: &Holding, limit: String, note: String) -> [String; 8] {
    let [job, user, slice] = who.clone();
    let index = number(holding.index);
    let memory = amount(holding.memory_bytes);
    let processes = match holding.pids.as_slice() {
        [] => "-".into(),
        some => pids(some),
    };
    [index, job, user, slice, memory, limit, processes, note]
}

fn note(job: &Job, gpu: &JobGpu) -> String {
    let found = match gpu.finding {
        Some(Finding::OverLimit) => {
            format!("{} MiB over its limit", mib(gpu.excess_bytes.unwrap_or(0)))
        }
        Some(Finding::NotItsGpu) => "not a GPU of this job".into(),
        Some(Finding::NoConf) => note_on_conf(job).unwrap_or_default().into(),
        None => String::new(),
    };
    note_on(&gpu.holding, &found)
}

fn note_on_conf(job: &Job) -> Option<&'static str> {
    match job.conf {
        Conf::Missing => Some("its limits are missing"),
        Conf::Unreadable => Some("its limits cannot be read"),
        Conf::Slice | Conf::Whole => None,
    }
}

fn note_on(holding: &Holding, note: &str) -> String {
    let mut notes = vec![note.to_owned()];
    if holding.unmeasured > 0 {
        notes.push(format!("{} without a figure", holding.unmeasured));
    }
    if holding.index.is_none() {
        notes.push(format!(
            "{} is not to be seen",
            word(holding.uuid.as_deref())
        ));
    }
    notes.retain(|note| !note.is_empty());
    notes.join("; ")
}

fn slice(job: &Job) -> String {
    match &job.slice {
        Some(slice) => format!("{} {}/{}", slice.r#type, slice.shards, slice.shards_per_gpu),
        None if job.conf == Conf::Whole => "whole".into(),
        None => "-".into(),
    }
}

fn word(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

fn number(number: Option<u32>) -> String {
    number.map_or_else(|| "-".into(), |number| number.to_string())
}

fn amount(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".into(), |bytes| format!("{} MiB", mib(bytes)))
}

/// A table whose columns `right` hold figures.
fn table(heading: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(heading.to_vec());
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The table without the blanks at the ends of its lines.
fn lines(table: &Table) -> String {
    let text = table.to_string();
    text.lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

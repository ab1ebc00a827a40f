//! The lines of a report that are the same while a job runs and after its end.

use crate::output::say::wrapped;
use softmig_policy::config::gpu_types::GpuType;
use softmig_usage::Slice;
use softmig_usage::summary::{Size, Summary, name, percent};
use std::fmt;

const WIDTH: usize = 80;

/// "1 quarter of type l40s, 11.1 GiB and 25 % of its time".
pub(super) fn slice(slice: &Slice) -> String {
    let part = name(slice.shards, slice.shards_per_gpu);
    let memory = match slice.memory_bytes {
        0 => String::new(),
        bytes => format!("{} and ", Size(bytes)),
    };
    let percent = percent(slice.share());
    format!(
        "1 {part} of type {}, {memory}{percent} % of its time",
        slice.r#type
    )
}

/// The time that it was charged, and that it waited.
pub(super) fn time(f: &mut fmt::Formatter<'_>, summary: &Summary) -> fmt::Result {
    let (Some(used), Some(waited)) = (summary.of_share(), summary.waited()) else {
        return write!(f, "\n  time     not known yet");
    };
    let (charged, allowed) = (summary.charged_seconds, summary.allowed_seconds());
    let used = percent(used);
    write!(
        f,
        "\n  time     {charged:.1} s charged of {allowed:.1} s allowed: {used} %"
    )?;
    let (held, known) = (summary.waited_seconds, summary.known_seconds);
    let waited = percent(waited);
    write!(f, "\n  waited   {held:.1} s of {known:.1} s: {waited} %")
}

/// The allocations that did not fit.
pub(super) fn refused(f: &mut fmt::Formatter<'_>, summary: &Summary) -> fmt::Result {
    f.write_str("\n  refused  ")?;
    match (summary.refused, summary.refused_largest_bytes.map(Size)) {
        (0, _) => return f.write_str("no allocation"),
        (1, None) => f.write_str("1 allocation"),
        (1, Some(largest)) => write!(f, "1 allocation, of {largest}"),
        (count, None) => write!(f, "{count} allocations"),
        (count, Some(largest)) => write!(f, "{count} allocations, the largest of {largest}"),
    }?;
    let and = if summary.needed_more() {
        ""
    } else {
        "; it went on"
    };
    f.write_str(and)
}

/// Whether a smaller slice would have done. `gpu` is the slice's type in the policy.
pub(super) fn smaller(
    f: &mut fmt::Formatter<'_>,
    summary: &Summary,
    gpu: Option<&GpuType>,
) -> fmt::Result {
    let words = match gpu.map(|gpu| summary.smaller(gpu)) {
        Some(Some(smaller)) => smaller.to_string(),
        None => "not known: the policy cannot be read here, or lacks the type".to_string(),
        Some(None) if summary.needed_more() => "no: it wanted more memory than it has".to_string(),
        Some(None) if summary.is_unused() => "not known: it has not used its GPU".to_string(),
        Some(None) if summary.peak_bytes.is_none() => "not known".to_string(),
        Some(None) => "there is no smaller slice".to_string(),
    };
    let words = wrapped(&words, WIDTH - 11, 11).join("\n");
    write!(f, "\n  smaller  {words}")
}

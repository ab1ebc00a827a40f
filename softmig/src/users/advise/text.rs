//! The answer for people, and as lines with commas.

use super::advice::{Advice, Count, OfType, Replayed};
use crate::output::table::{self, whole};

/// The advice as text.
pub(crate) fn plain(advice: &Advice) -> String {
    let (Some(from), Some(to)) = (advice.from, advice.to) else {
        return "There are no jobs with GPUs that ended.\n".to_string();
    };
    let mut text = format!(
        "From {} to {}: {}.\nOne whole GPU, which a slice could replace, had {}.\n\n",
        date(from),
        date(to),
        count("job with GPUs", "jobs with GPUs", &advice.all),
        count("job", "jobs", &advice.one_gpu),
    );
    text += &table::text(&rows(advice), 2);
    text += &format!(
        "\nSlices would have saved {} of {} GPU hours ({:.0} %).\n",
        whole(advice.saved_gpu_hours),
        whole(advice.all.gpu_hours),
        100.0 * advice.saved_gpu_hours / advice.all.gpu_hours.max(f64::MIN_POSITIVE),
    );
    for (kind, replay) in replays(advice) {
        text += &replayed(kind, replay);
    }
    let told = notes(advice);
    if !told.is_empty() {
        text += "\nNot in these figures:\n";
        for note in told {
            text += &format!("- {note}\n");
        }
    }
    text
}

fn replays(advice: &Advice) -> impl Iterator<Item = (&str, &Replayed)> {
    let types = advice.types.iter();
    types.filter_map(|of| Some((of.r#type.as_str(), of.replay.as_ref()?)))
}

fn rows(advice: &Advice) -> Vec<Vec<String>> {
    let titles = ["SLICE", "MEMORY", "JOBS", "GPU HOURS", "SAVED"];
    let mut rows = vec![titles.map(str::to_string).to_vec()];
    let row = |what: String, memory: String, held: &Count, saved: f64| {
        vec![
            what,
            memory,
            whole(held.jobs as f64),
            whole(held.gpu_hours),
            whole(saved),
        ]
    };
    for of in &advice.types {
        for slice in &of.slices {
            let memory = format!("{} MiB", slice.memory_mib);
            rows.push(row(
                slice.slice.clone(),
                memory,
                &slice.held,
                slice.saved_gpu_hours,
            ));
        }
        for (why, held) in [
            ("needs the whole GPU", &of.whole),
            ("the policy refuses it", &of.refused),
        ] {
            if held.jobs > 0 {
                rows.push(row(of.r#type.clone(), why.to_string(), held, 0.0));
            }
        }
    }
    rows
}

fn replayed(kind: &str, replay: &Replayed) -> String {
    let source = match replay.gpus_from {
        "history" => "as many as were in use at once",
        "policy" => "as the policy has them",
        _ => "as you said",
    };
    let won = replay.whole_gpus_hours - replay.slices_hours;
    let more = if won < 0.0 { "more" } else { "less" };
    format!(
        "\nThe queue of {} jobs, replayed on {} GPUs of type {kind} ({source}):\n{}",
        whole(replay.jobs as f64),
        replay.gpus,
        table::text(
            &[
                vec![
                    "  with whole GPUs".to_string(),
                    format!("{} hours of waiting", whole(replay.whole_gpus_hours))
                ],
                vec![
                    "  with slices".to_string(),
                    format!(
                        "{} hours of waiting, {} {more}",
                        whole(replay.slices_hours),
                        whole(won.abs())
                    )
                ],
                vec![
                    "  Slurm recorded".to_string(),
                    format!(
                        "{} hours, with priorities, limits and other reasons to wait",
                        whole(replay.recorded_hours)
                    )
                ],
            ],
            2
        )
    )
}

/// Facts that are not known or not looked at.
fn notes(advice: &Advice) -> Vec<String> {
    let unknown = &advice.unknown;
    let mut notes = Vec::new();
    for (held, why) in [
        (
            &unknown.no_memory,
            "AdminComment has no JS1 summary, and TRESUsageInMax has no gres/gpumem",
        ),
        (
            &unknown.no_utilization,
            "there is a figure of memory, which a slice has, but none of utilization",
        ),
        (
            &unknown.no_type,
            "AllocTRES has no type of GPU; add gres/gpu:TYPE to AccountingStorageTRES, or use --type",
        ),
        (
            &unknown.other_type,
            "the policy does not cut their type of GPU",
        ),
        (
            &advice.several_gpus,
            "several GPUs, which no slice replaces",
        ),
        (&advice.shards, "shards"),
    ] {
        if held.jobs > 0 {
            notes.push(format!("{}: {why}", count("job", "jobs", held)));
        }
    }
    let left_out = |of: &OfType| of.replay.as_ref().map_or(0, |replay| replay.left_out);
    let left_out: u64 = advice.types.iter().map(left_out).sum();
    for (jobs, why) in [
        (advice.running, "jobs that have not ended"),
        (
            left_out,
            "jobs in no replay, because they had more GPUs than there are",
        ),
        (advice.unreadable_lines, "lines that could not be read"),
    ] {
        if jobs > 0 {
            notes.push(format!("{} {why}", whole(jobs as f64)));
        }
    }
    notes
}

/// "1,234 jobs, 5,678 GPU hours".
fn count(one: &str, several: &str, count: &Count) -> String {
    let jobs = match count.jobs {
        1 => one,
        _ => several,
    };
    format!(
        "{} {jobs}, {} GPU hours",
        whole(count.jobs as f64),
        whole(count.gpu_hours)
    )
}

/// The day of a time, in UTC.
fn date(seconds: i64) -> String {
    let since = u64::try_from(seconds).unwrap_or(0);
    // humantime writes no time after the year 9999.
    let since = std::time::Duration::from_secs(since.min(253_402_300_799));
    let time = humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + since).to_string();
    time.chars().take(10).collect()
}

/// A line for each slice, and one for each other answer.
pub(crate) fn csv(advice: &Advice) -> anyhow::Result<String> {
    let mut lines = csv::Writer::from_writer(Vec::new());
    lines.write_record([
        "type",
        "answer",
        "memory_mib",
        "jobs",
        "gpu_hours",
        "saved_gpu_hours",
    ])?;
    let mut line = |kind: &str, answer: &str, memory: String, held: &Count, saved: f64| {
        let figures = [held.gpu_hours, saved].map(|hours| format!("{hours:.2}"));
        let [hours, saved] = figures.each_ref().map(String::as_str);
        lines.write_record([kind, answer, &memory, &held.jobs.to_string(), hours, saved])
    };
    for of in &advice.types {
        let kind = of.r#type.as_str();
        for slice in &of.slices {
            let memory = slice.memory_mib.to_string();
            line(
                kind,
                &slice.slice,
                memory,
                &slice.held,
                slice.saved_gpu_hours,
            )?;
        }
        line(kind, "whole", String::new(), &of.whole, 0.0)?;
        line(kind, "refused", String::new(), &of.refused, 0.0)?;
    }
    let unknown = &advice.unknown;
    for (answer, held) in [
        ("several_gpus", &advice.several_gpus),
        ("shards", &advice.shards),
        ("no_type", &unknown.no_type),
        ("other_type", &unknown.other_type),
        ("no_memory", &unknown.no_memory),
        ("no_utilization", &unknown.no_utilization),
    ] {
        line("", answer, String::new(), held, 0.0)?;
    }
    Ok(String::from_utf8(lines.into_inner()?)?)
}

//! A job that has ended, by Slurm's accounting and by the summary that the epilog keeps there.

use super::json::{Json, JsonEnded};
use super::lines;
use crate::ask::sacct::one::{self, One};
use crate::output::say::{counted, say};
use anyhow::{Context as _, bail};
use softmig_node::job::JobId;
use softmig_node::slurmctld::Commands;
use softmig_policy::Policy;
use softmig_policy::config::gpu_types::GpuType;
use softmig_policy::slurm::hostlist;
use softmig_usage::summary::{Size, Summary};
use std::fmt;

/// Says what is known of a job that slurmctld does not show.
pub(super) fn tell(
    commands: &Commands,
    id: JobId,
    policy: Option<&Policy>,
    json: bool,
) -> anyhow::Result<()> {
    let one = one::ask(commands, id).with_context(|| {
        format!("Slurm shows you no job {id} with GPUs, and its accounting does not answer")
    })?;
    let Some(one) = one else {
        bail!("Slurm shows you no job {id}, neither one with GPUs now nor one that has ended");
    };
    let ended = Ended::new(&one, id, policy)?;
    if json {
        say!("{}", ended.to_json());
    } else {
        say!("{ended}");
    }
    if !one.used.by_summary {
        bail!(
            "what job {id} used is not known: Slurm's accounting has no figures of it; the job's node writes them there within a \
             minute of the end if policy.toml has admin_comment = true under [report]"
        );
    }
    Ok(())
}

/// A job that had GPUs.
struct Ended<'a> {
    id: JobId,
    one: &'a One,
    start: &'a str,
    end: &'a str,
    summary: Option<Summary>,
    /// Its type, if the policy has it.
    gpu: Option<&'a GpuType>,
}

impl<'a> Ended<'a> {
    fn new(one: &'a One, id: JobId, policy: Option<&'a Policy>) -> anyhow::Result<Self> {
        let state = &one.state;
        let (start, end) = match (&one.start, &one.end) {
            (Some(start), Some(end)) => (start, end),
            (None, Some(_)) => bail!("job {id} ended before it had started: {state}"),
            (_, None) if one.gpus.is_some() => bail!(
                "Slurm shows you no job {id} with GPUs now, and its accounting says {state}: the job has just ended, or is another \
                 user's; if it is yours, look again in some seconds"
            ),
            (_, None) => bail!("job {id} has no GPU: Slurm's accounting says {state}"),
        };
        let summary = one.used.summary();
        if one.gpus.is_none() && summary.is_none() {
            bail!("job {id} had no GPU that Slurm's accounting knows of: {state} at {end}");
        }
        let of_summary = summary.as_ref().map(|it| it.slice.r#type.as_str());
        let of_slurm = one.gpus.as_ref().and_then(|gpus| gpus.kind.as_deref());
        let gpu = of_summary.or(of_slurm).and_then(|kind| policy?.gpu(kind));
        Ok(Self {
            id,
            one,
            start,
            end,
            summary,
            gpu,
        })
    }

    fn to_json(&self) -> String {
        let (one, summary) = (self.one, self.summary.as_ref());
        let slice = summary.map(|it| &it.slice);
        let count = |count: u32| Some(count).filter(|&count| count > 0);
        let gpus = one.gpus.as_ref();
        let nodes = hostlist::expand(&one.nodes);
        let ended = JsonEnded {
            job: self.id.get(),
            user: &one.user,
            state: &one.state,
            nodes: &one.nodes,
            start: self.start,
            end: self.end,
            r#type: (slice.map(|slice| slice.r#type.as_str()))
                .or_else(|| gpus.and_then(|gpus| gpus.kind.as_deref())),
            shards: gpus.and_then(|gpus| count(gpus.shards)),
            shards_per_gpu: slice.map(|slice| slice.shards_per_gpu),
            whole_gpus: gpus.and_then(|gpus| count(gpus.whole)),
            memory_bytes: one.used.total_bytes,
            memory_peak_bytes: one.used.peak_bytes,
            known_seconds: summary.map(|it| it.known_seconds),
            charged_seconds: summary.map(|it| it.charged_seconds),
            waited_seconds: summary.map(|it| it.waited_seconds),
            refused: summary.map(|it| it.refused),
            recovered: summary.map(|it| it.recovered),
            utilization_percent: self.utilization(),
        };
        let json = Json {
            node: (nodes.len() == 1).then_some(&one.nodes),
            ended: Some(ended),
            ..Json::new(summary, self.gpu)
        };
        serde_json::to_string(&json).unwrap_or_default()
    }

    /// Of a slice the charged time says it.
    fn utilization(&self) -> Option<f64> {
        let is_whole = self.summary.is_none() && self.one.used.by_summary;
        self.one.used.utilization.filter(|_| is_whole)
    }

    /// "1 quarter of type l40s, 11.1 GiB and 25 % of its time"; "2 whole GPUs of type l40s".
    fn had(&self) -> String {
        if let Some(summary) = &self.summary {
            return lines::slice(&summary.slice);
        }
        let Some(gpus) = &self.one.gpus else {
            return String::new();
        };
        let kind = gpus.kind.as_deref();
        let of = kind.map_or(String::new(), |kind| format!(" of type {kind}"));
        match gpus.shards {
            0 => format!("{}{of}", counted(gpus.whole, "whole GPU")),
            shards => {
                let is_one = hostlist::expand(&self.one.nodes).len() == 1;
                let size = self
                    .gpu
                    .filter(|_| is_one)
                    .and_then(|gpu| gpu.slice_of_shards(shards.into()));
                let name = kind
                    .zip(size)
                    .map_or(String::new(), |(kind, size)| format!(" ({kind}.{size})"));
                format!("{}{of}{name}", counted(shards, "shard"))
            }
        }
    }
}

impl fmt::Display for Ended<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            one,
            start,
            end,
            ..
        } = self;
        let name = &one.name;
        let is_task = !name.is_empty() && *name != id.to_string();
        let as_task = is_task.then(|| format!(", which is {name},"));
        let as_task = as_task.unwrap_or_default();
        write!(f, "job {id}{as_task} on {}: {}", one.nodes, self.had())?;
        write!(f, "\n  ended    {end}, {}; it started {start}", one.state)?;
        let used = &one.used;
        if let (true, Some((peak, total))) =
            (used.by_summary, used.peak_bytes.zip(used.total_bytes))
        {
            write!(f, "\n  memory   {} at most, of {}", Size(peak), Size(total))?;
        }
        if let Some(percent) = self.utilization() {
            write!(f, "\n  use      {percent} % of the time")?;
        }
        let Some(summary) = &self.summary else {
            return Ok(());
        };
        if summary.of_share().is_some() {
            lines::time(f, summary)?;
        }
        lines::refused(f, summary)?;
        match summary.peak_bytes {
            Some(_) => lines::smaller(f, summary, self.gpu),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_usage::js1::Js1;

    const POLICY: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 16\n";

    const SLICE: &str = r#"{"nodes":{"gpu01":{
        "gpu_total_memory":{"0":11918114816},"gpu_used_memory":{"0":8493465600},"gpu_utilization":{"0":61.0},
        "softmig":{"type":"l40s","shards":4,"shards_per_gpu":16,"known_seconds":1000.0,"charged_seconds":152.5,
            "waited_seconds":40.0,"refused":REFUSED}}},"total_time":3600,"gpus":1}"#;

    fn line(tres: &str, summary: &str) -> String {
        let comment = match summary {
            "" => String::new(),
            json => serde_json::from_str::<Js1>(json).unwrap().encode().unwrap(),
        };
        format!(
            "7|alice|COMPLETED|gpu01|2026-11-23T21:16:05|2026-11-23T22:16:05|{tres}|{comment}\n"
        )
    }

    fn told(line: &str) -> String {
        let (id, policy) = (JobId::parse("7").unwrap(), Policy::parse(POLICY).unwrap());
        let header = "JobIDRaw|User|State|NodeList|Start|End|AllocTRES|AdminComment";
        let one = one::read(&format!("{header}\n{line}"), id).unwrap();
        match Ended::new(&one, id, Some(&policy)) {
            Ok(ended) => format!("{ended}\n{}", ended.to_json()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_job_that_ended_is_told_with_what_its_summary_knows() {
        let shards = "cpu=1,gres/shard:l40s=4,gres/shard=4";
        let of = |refused: &str| told(&line(shards, &SLICE.replace("REFUSED", refused)));
        let time_alone = SLICE.replace("REFUSED", "0").replace(
            r#""gpu_total_memory":{"0":11918114816},"gpu_used_memory":{"0":8493465600},"#,
            "",
        );
        let whole = r#"{"nodes":{"gpu01":{"gpu_total_memory":{"0":47672459264},"gpu_used_memory":{"0":8493465600},
            "gpu_utilization":{"0":15.3}}}}"#;
        let all = [
            of("0"),
            of("3"),
            told(&line(shards, &time_alone)),
            told(&line("gres/gpu:l40s=1,gres/gpu=1", whole)),
            // Slurm does not count GPUs there, but the summary has them.
            told(&line("cpu=1", &SLICE.replace("REFUSED", "0"))),
            told(&line(shards, "")),
            told(&line("gres/gpu=2", "")),
            told(&line("cpu=1", "")),
            told("7|a|RUNNING|n1|2026-11-23T21:16:05|Unknown|cpu=1|"),
            told("7|a|RUNNING|n1|2026-11-23T21:16:05|Unknown|gres/gpu=1|"),
            told("7|a|CANCELLED by 1000|None assigned|None|2026-11-23T22:16:05||"),
        ];
        insta::assert_snapshot!(all.join("\n\n"));
    }

    #[test]
    fn the_number_of_a_task_is_told_with_its_own_name() {
        let (id, line) = (
            JobId::parse("7").unwrap(),
            line("gres/gpu=1,gres/gpu:l40s=1", ""),
        );
        let header = "JobID|JobIDRaw|User|State|NodeList|Start|End|AllocTRES|AdminComment";
        for (name, told) in [
            ("5_2", "job 7, which is 5_2, on gpu01: "),
            ("7", "job 7 on gpu01: "),
        ] {
            let one = one::read(&format!("{header}\n{name}|{line}"), id).unwrap();
            let ended = Ended::new(&one, id, None).unwrap().to_string();
            assert!(ended.starts_with(told), "{ended}");
        }
    }

    #[test]
    fn a_comment_that_holds_anything_says_nothing() {
        let odd = SLICE
            .replace("\"l40s\"", "\"\\u001b[31m\"")
            .replace("REFUSED", "0");
        let told = told(&line("gres/shard:l40s=4", &odd));
        assert!(told.is_ascii() && !told.contains("31m"), "{told}");
    }
}

//! One job in Slurm's accounting: what it had, how it ended, and what its summary says.

use super::Gpus;
use super::used::{Used, of_js1};
use anyhow::anyhow;
use softmig_node::job::JobId;
use softmig_node::sacct::{self, Times};
use softmig_node::slurmctld::{AskError, Commands};
use softmig_usage::js1::Js1;

/// A job, in Slurm's own words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct One {
    /// Its number as people know it: `6_2`.
    pub(crate) name: String,
    pub(crate) user: String,
    pub(crate) state: String,
    /// A list of names.
    pub(crate) nodes: String,
    /// When it started: local time. `None` if it did not.
    pub(crate) start: Option<String>,
    /// When it ended.
    pub(crate) end: Option<String>,
    pub(crate) gpus: Option<Gpus>,
    pub(crate) used: Used,
}

/// Asks sacct, which shows what this user may see; `None` if Slurm does not know the job.
pub(crate) fn ask(commands: &Commands, id: JobId) -> anyhow::Result<Option<One>> {
    let answer = sacct::ask(commands, id, Times::Local).map_err(|error| match error {
        AskError::Late => anyhow!("sacct did not answer in time"),
        error => anyhow!("sacct: {error}"),
    })?;
    Ok(read(&answer, id))
}

/// Reads an answer with a header.
pub(crate) fn read(answer: &str, id: JobId) -> Option<One> {
    let row = sacct::row_of(answer, id)?;
    let time = |text: &str| text.contains('T').then(|| text.to_string());
    Some(One {
        name: row.name.to_string(),
        user: row.user.to_string(),
        state: row.state.to_string(),
        nodes: row.nodes.to_string(),
        start: time(row.start),
        end: time(row.end),
        gpus: Gpus::parse(row.tres),
        used: Js1::decode(row.comment).map_or_else(|_| Used::default(), |js1| of_js1(&js1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "JobIDRaw|User|State|NodeList|Start|End|AllocTRES|AdminComment";

    #[test]
    fn the_line_of_the_job_itself_is_read() {
        let answer = "6|bob|RUNNING|gpu02|2026-11-23T21:16:00|Unknown|gres/gpu=1|a|b\n\
            7|alice|CANCELLED by 0|gpu01|2026-11-23T21:16:05|2026-11-23T22:16:05|gres/shard:l40s=1,gres/shard=1|ticket|4711\n\
            8|alice|CANCELLED by 0|None assigned|Unknown|2026-11-23T22:16:05||\n";
        let answer = format!("{HEADER}\n{answer}");
        let read = |id: &str| read(&answer, JobId::parse(id).unwrap());
        let job = read("7").unwrap();
        assert_eq!(
            (&*job.user, &*job.state, &*job.nodes),
            ("alice", "CANCELLED by 0", "gpu01")
        );
        assert_eq!(job.end.as_deref(), Some("2026-11-23T22:16:05"));
        assert_eq!(job.gpus.unwrap().shards, 1);
        assert_eq!(job.used, Used::default());
        assert_eq!(read("6").unwrap().end, None);
        let job = read("8").unwrap();
        assert_eq!((job.start, job.gpus), (None, None));
        assert_eq!(read("9"), None);
    }

    #[test]
    fn a_summary_of_several_nodes_is_added_up() {
        let json = r#"{"nodes":{
            "n1":{"gpu_total_memory":{"0":1000},"gpu_used_memory":{"0":10},
                "softmig":{"type":"l40s","shards":1,"shards_per_gpu":4,"known_seconds":10.0,"charged_seconds":1.0,"refused":1}},
            "n2":{"gpu_total_memory":{"3":1000},"gpu_used_memory":{"3":900},
                "softmig":{"type":"l40s","shards":1,"shards_per_gpu":4,"known_seconds":10.0,"charged_seconds":2.5,"refused":2}}}}"#;
        let comment = serde_json::from_str::<Js1>(json).unwrap().encode().unwrap();
        let line = format!(
            "{HEADER}\n7|a|COMPLETED|n[1-2]|2026-01-01T00:00:00|2026-01-01T01:00:00||{comment}"
        );
        let used = read(&line, JobId::parse("7").unwrap()).unwrap().used;
        let summary = used.summary().unwrap();
        assert_eq!((summary.peak_bytes, summary.refused), (Some(900), 3));
        assert_eq!(summary.of_share(), Some(0.7));
        assert_eq!(summary.refused_largest_bytes, None);
    }
}

//! A cluster with softmig installed on it, as an administrator would have it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::programs::{LIBRARY, PRELOAD};
use crate::{Builder, Cluster, Output, Slurm};

/// The tree that is tested and shown, arranged like `/`: a quick build, or a link to [`shipped`].
pub fn stage() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tested")
}

/// The tree of the release build, of which packages are made.
pub fn shipped() -> PathBuf {
    stage().with_file_name("stage")
}

/// A cluster with all of softmig.
pub fn installed(slurm: Slurm) -> Builder {
    Cluster::builder(slurm).stage(stage())
}

/// The same, whose nodes have the library in every process and hold jobs to their slices.
pub fn enforced(slurm: Slurm) -> Builder {
    installed(slurm)
        .file("/etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n")
        .file(PRELOAD, format!("{LIBRARY}\n"))
}

/// The public JSON of `softmig explain`.
#[derive(Debug, Deserialize)]
pub struct Explained {
    /// `unchanged`, `granted` or `refused`.
    pub verdict: String,
    /// The refusal's code.
    pub code: Option<String>,
    /// The request, and the rule.
    pub message: String,
    /// The words to type instead.
    pub hint: String,
    /// The request that Slurm gets.
    pub tres_per_node: Option<String>,
    /// The limits.
    pub limits: Option<ExplainedLimits>,
}

/// The limits in it.
#[derive(Debug, Deserialize, PartialEq)]
pub struct ExplainedLimits {
    /// The GPU's type.
    pub r#type: String,
    /// The job's shards.
    pub shards: u32,
    /// The shards of a GPU.
    pub shards_per_gpu: u32,
    /// The memory.
    pub memory_mib: u32,
    /// The share of time.
    pub compute_percent: f64,
}

/// `softmig explain --json` on the cluster.
pub fn explain(cluster: &Cluster, options: &[&str]) -> Result<Explained> {
    let release = cluster.slurm().to_string();
    let output = cluster.run(
        "alice",
        &[
            &["softmig", "explain", "--json", "--slurm-version", &release],
            options,
        ]
        .concat(),
    )?;
    serde_json::from_str(&output.stdout).with_context(|| format!("{options:?}: {output:?}"))
}

impl Explained {
    /// The tag that carries these limits to the node.
    pub fn tag(&self) -> Option<String> {
        let limits = self.limits.as_ref()?;
        Some(format!(
            "softmig=1:{}:{}/{}:{}:hard",
            limits.r#type, limits.shards, limits.shards_per_gpu, limits.memory_mib
        ))
    }

    /// Fails unless a client showed exactly this refusal.
    pub fn assert_shown(&self, output: &Output) {
        let code = self.code.as_deref().unwrap_or_default();
        assert!(!output.success(), "{self:?}: {output:?}");
        for line in [
            format!("softmig: {} [{code}]", self.message),
            format!("softmig: {}", self.hint),
        ] {
            let shown = output.stderr.lines().any(|shown| shown.ends_with(&line));
            assert!(shown, "{line}\nis not in\n{}", output.stderr);
        }
    }
}

/// The tag in a job's record, in whichever field this Slurm carries it.
pub fn tag(cluster: &Cluster, job: u32) -> Result<Option<String>> {
    for field in ["Extra", "Comment"] {
        let text = record(cluster, job)?;
        let found = text
            .split_whitespace()
            .map(|word| word.strip_prefix(&format!("{field}=")).unwrap_or(word))
            .find(|word| word.starts_with("softmig="));
        if let Some(tag) = found {
            return Ok(Some(tag.to_string()));
        }
    }
    Ok(None)
}

/// All that scontrol says of a job, without the line that its user typed, which the newest Slurm shows too.
pub fn record(cluster: &Cluster, job: u32) -> Result<String> {
    let said = cluster
        .run("root", &["scontrol", "-o", "show", "job", &job.to_string()])?
        .ok()?;
    let typed = said.split_once(" SubmitLine=");
    let rest = typed.and_then(|(before, typed)| Some((before, typed.split_once(" WorkDir=")?.1)));
    Ok(match rest {
        Some((before, after)) => format!("{before} WorkDir={after}"),
        None => said,
    })
}

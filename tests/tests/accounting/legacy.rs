//! Requests in `mps`, as SURF's users type them, on nodes that have none.

use anyhow::Result;
use softmig_tests::{Builder, Slurm, on_each_slurm};

use super::{cluster, run};

on_each_slurm!(
    seams:
    mps_reaches_job_submit_where_slurm_knows_the_name,
    mps_is_refused_by_the_client_where_slurm_does_not,
    cli_filter_comes_before_the_client_refuses,
);

const JOB_SUBMIT: &str = r#"
function slurm_job_submit(job, partitions, uid)
    local gres = job.tres_per_node
    if gres and gres:find("mps") then
        job.comment = gres
        job.tres_per_node = gres:match("^gres[:/]") .. "shard:l40s:1"
    end
    return slurm.SUCCESS
end
function slurm_job_modify() return slurm.SUCCESS end
return slurm.SUCCESS
"#;

const CLI_FILTER: &str = r#"
function slurm_cli_setup_defaults() return slurm.SUCCESS end
function slurm_cli_pre_submit(options)
    if (options["gres"] or ""):find("mps") then options["gres"] = "shard:l40s:1" end
    return slurm.SUCCESS
end
function slurm_cli_post_submit() return slurm.SUCCESS end
return slurm.SUCCESS
"#;

fn with_job_submit(slurm: Slurm) -> Builder {
    cluster(slurm).file("/etc/slurm/job_submit.lua", JOB_SUBMIT)
}

fn mps_reaches_job_submit_where_slurm_knows_the_name(slurm: Slurm) -> Result<()> {
    let cluster = with_job_submit(slurm).gres_types("gpu,mps,shard").start()?;
    let prefix = match slurm {
        Slurm::V22_05 => "gres:",
        Slurm::V24_11 | Slurm::V26_05 => "gres/",
    };
    for gres in ["mps:80", "mps", "mps:titanrtx:80"] {
        let job = run(&cluster, "alice", &["--gres", gres])?;
        let seen = cluster.job_field(job, "Comment")?;
        assert_eq!(seen, Some(format!("{prefix}{gres}")));
        assert_eq!(cluster.job_gpus(job)?, [0]);
    }
    let mixed = cluster
        .user("alice")
        .try_sbatch(&["--gres=gpu:1,mps:80"], "true")?;
    let said = mixed.refused()?;
    assert!(said.contains("Invalid generic resource"), "{said}");
    // 22.05's srun asks for a step with what the user typed.
    let step = cluster.user("alice").srun(&["--gres=mps:80", "true"])?;
    match slurm {
        Slurm::V22_05 => {
            let said = step.refused()?;
            assert!(said.contains("not found in the job"), "{said}");
        }
        Slurm::V24_11 | Slurm::V26_05 => drop(step.ok()?),
    }
    Ok(())
}

fn mps_is_refused_by_the_client_where_slurm_does_not(slurm: Slurm) -> Result<()> {
    let cluster = with_job_submit(slurm).start()?;
    let said = cluster
        .user("alice")
        .try_sbatch(&["--gres=mps:80"], "true")?
        .refused()?;
    assert!(said.contains("Invalid generic resource"), "{said}");
    Ok(())
}

fn cli_filter_comes_before_the_client_refuses(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm)
        .file("/etc/slurm/cli_filter.lua", CLI_FILTER)
        .start()?;
    let job = run(&cluster, "alice", &["--gres=mps:80"])?;
    assert_eq!(cluster.job_gpus(job)?, [0]);
    let step = ["--gres=mps:80", "sh", "-c", "echo $SLURM_SHARDS_ON_NODE"];
    assert_eq!(cluster.user("alice").srun(&step)?.ok()?, "1\n");
    Ok(())
}

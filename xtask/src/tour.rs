//! The steps of the demo: each types commands in the cluster, and checks that their output says what the step says.

use anyhow::{Context, Result, bail, ensure};
use softmig_tests::softmig::{Explained, explain, tag};
use softmig_tests::{Cluster, Node, Slurm};

use crate::narrator::{Narrator, must_show};
use crate::work;

/// The slice that the demo follows.
const REQUEST: &str = "--gres=gpu:l40s.4:1";

/// The command of the demo's jobs: it needs no GPU, and runs until they are cancelled.
const JOB: &str = "--wrap='sleep 600'";

/// All steps, in order.
pub(crate) fn tour(cluster: &Cluster, narrator: &mut Narrator) -> Result<()> {
    slurm_is_up(cluster, narrator)?;
    let explained = explanation(cluster, narrator)?;
    let job = submission(cluster, narrator, &explained)?;
    let node = placement(cluster, narrator, &job)?;
    limits(narrator, node, &job, &explained)?;
    let neighbour = a_neighbour(cluster, narrator, node, &job)?;
    node.start_driver()?;
    let monitor = work::enforcement(cluster, narrator, node)?;
    work::refusal(narrator, &job, &explained)?;
    work::views(narrator, &job, &explained)?;
    work::share(narrator, &job, &neighbour, &explained)?;
    no_way_out(cluster, narrator, node, &job)?;
    bad_requests(cluster, narrator, &explained, &job)?;
    the_end(cluster, narrator, node, &job, &neighbour)?;
    drop(monitor);
    Ok(())
}

fn slurm_is_up(cluster: &Cluster, narrator: &mut Narrator) -> Result<()> {
    narrator.step("A real slurmctld and two real slurmd run on loopback.");
    let version = narrator.types("alice", "sinfo --version")?.ok()?;
    must_show(&version, &cluster.slurm().to_string())?;
    let nodes = narrator
        .types("alice", "sinfo --Node --format='%N %T %G'")?
        .ok()?;
    for node in cluster.nodes() {
        must_show(&nodes, &format!("{} idle gpu:l40s:2", node.name()))?;
    }
    narrator
        .types("alice", "scontrol show config | grep -E '^(JobSubmitPlugins|CliFilterPlugins|Prolog|Epilog|TaskPlugin|GresTypes) *='")?
        .ok()?;
    Ok(())
}

fn explanation(cluster: &Cluster, narrator: &mut Narrator) -> Result<Explained> {
    narrator.step("What will a request become? The same code answers here and in slurmctld.");
    let text = narrator
        .types("alice", &format!("softmig explain {REQUEST}"))?
        .ok()?;
    let explained = explain(cluster, &[REQUEST])?;
    let limits = explained
        .limits
        .as_ref()
        .context("explain gave no limits")?;
    must_show(&text, &format!("{} MiB", limits.memory_mib))?;
    Ok(explained)
}

fn submission(cluster: &Cluster, narrator: &mut Narrator, explained: &Explained) -> Result<String> {
    narrator
        .step("alice submits it; job_submit turns it into shards and adds a tag with the limits.");
    let said = narrator
        .types("alice", &format!("sbatch {REQUEST} {JOB}"))?
        .ok()?;
    let job = job_of(&said)?;
    wait_for_limits(cluster, &job)?;
    let record = narrator
        .types(
            "alice",
            &format!("scontrol show job {job} | grep -oE '(TresPerNode|Comment|Extra)=.*'"),
        )?
        .ok()?;
    let shards = explained.tres_per_node.as_deref();
    must_show(&record, shards.context("explain gave no shards")?)?;
    let promised = explained.tag();
    must_show(
        &record,
        promised.as_deref().context("explain gave no limits")?,
    )?;
    ensure!(
        tag(cluster, job.parse()?)? == promised,
        "the job's tag is not what explain showed"
    );
    Ok(job)
}

fn placement<'a>(cluster: &'a Cluster, narrator: &mut Narrator, job: &str) -> Result<&'a Node> {
    narrator.step("Slurm placed it, like any other job: on this node, on the GPU with this index.");
    let placed = narrator.types("alice", &place_of(job))?.ok()?;
    must_show(&placed, "GRES=shard:l40s:1")?;
    cluster
        .nodes()
        .iter()
        .find(|node| placed.contains(&format!("Nodes={} ", node.name())))
        .context("the job is on none of the nodes")
}

fn limits(narrator: &mut Narrator, node: &Node, job: &str, explained: &Explained) -> Result<()> {
    narrator.step("The prolog wrote the job's limits on that node, in a file of root's.");
    let conf = format!("/var/run/softmig/{job}.conf");
    let listed = narrator
        .types_on(node, "alice", &format!("ls -l {conf}"))?
        .ok()?;
    // From 26.05 on it has the name of the run's SLUID too: a second link.
    must_show(&listed, "-rw-r--r-- ")?;
    must_show(&listed, " root root ")?;
    let text = narrator
        .types_on(node, "alice", &format!("cat {conf}"))?
        .ok()?;
    let promised = explained
        .limits
        .as_ref()
        .context("explain gave no limits")?;
    let memory = format!("CUDA_DEVICE_MEMORY_LIMIT={}M\n", promised.memory_mib);
    let compute = format!("CUDA_DEVICE_SM_LIMIT={}\n", promised.compute_percent);
    must_show(&text, &memory)?;
    must_show(&text, &compute)?;
    narrator.say("These are the figures of step 2, to the MiB.");
    Ok(())
}

fn a_neighbour(
    cluster: &Cluster,
    narrator: &mut Narrator,
    node: &Node,
    first: &str,
) -> Result<String> {
    narrator.step("bob gets half a GPU, on the same one, beside alice's quarter.");
    let half = "--gres=gpu:l40s.2:1";
    let said = narrator
        .types("bob", &format!("sbatch {half} {JOB}"))?
        .ok()?;
    let job = job_of(&said)?;
    wait_for_limits(cluster, &job)?;
    let placed = narrator.types("bob", &place_of(&job))?.ok()?;
    must_show(&placed, &format!("Nodes={} ", node.name()))?;
    must_show(&placed, "GRES=shard:l40s:2")?;
    let files = format!("grep -E 'UID|LIMIT=|GPUS' /var/run/softmig/{{{first},{job}}}.conf");
    let confs = narrator.types_on(node, "bob", &files)?.ok()?;
    let gpus: Vec<&str> = confs
        .lines()
        .filter_map(|line| Some(line.split_once("SOFTMIG_GPUS=")?.1))
        .collect();
    ensure!(
        gpus.len() == 2 && gpus[0] == gpus[1],
        "the two jobs should share one GPU, and have {gpus:?}"
    );
    Ok(job)
}

fn no_way_out(cluster: &Cluster, narrator: &mut Narrator, node: &Node, job: &str) -> Result<()> {
    narrator.step("Inside her job, alice can change no limit and open no other GPU.");
    let step = format!("srun --jobid={job} --overlap bash -c");
    let edit = format!("{step} 'echo CUDA_DEVICE_MEMORY_LIMIT=0 >/var/run/softmig/{job}.conf'");
    let said = narrator.types("alice", &edit)?.refused()?;
    must_show(&said, "Permission denied")?;
    let conf = node.read(format!("/var/run/softmig/{job}.conf"))?;
    let kept = conf.is_some_and(|text| !text.contains("LIMIT=0\n"));
    ensure!(kept, "the limits were overwritten");
    if !cluster.constrains_devices() {
        narrator
            .say("This machine has no control groups of version 1: Slurm fences no devices here.");
        return Ok(());
    }
    let open = format!("{step} 'for gpu in /dev/nvidia[0-9]; do head -c0 $gpu; done'");
    let said = narrator.types("alice", &open)?.refused()?;
    must_show(
        &said,
        "/dev/nvidia0' for reading: No such device or address",
    )?;
    must_show(&said, "/dev/nvidia1' for reading: Operation not permitted")?;
    narrator.say("The first file has no driver behind it; the second is fenced off by Slurm.");
    Ok(())
}

fn bad_requests(
    cluster: &Cluster,
    narrator: &mut Narrator,
    explained: &Explained,
    job: &str,
) -> Result<()> {
    narrator.step(
        "Requests that cannot be kept are refused, and the answer says what to type instead.",
    );
    for (options, code) in [
        ("--gres=gpu:l40s.3:1", "[SLICE_SIZE]"),
        ("--gres=shard:l40s:9", "[RAW_SHARD]"),
        ("--gres=gpu:l40s.4:1 --exclusive", "[SLICE_OPTION]"),
    ] {
        let said = narrator
            .types("alice", &format!("sbatch {options} {JOB}"))?
            .refused()?;
        must_show(&said, code)?;
    }
    narrator.say("These answers came from cli_filter, in her own sbatch. She can leave it out; slurmctld says the same:");
    let bypass =
        "sed /CliFilterPlugins/d /etc/slurm/slurm.conf >mine.conf; SLURM_CONF=~/mine.conf sbatch";
    let said = narrator
        .types("alice", &format!("{bypass} --gres=gpu:l40s.3:1 {JOB}"))?
        .refused()?;
    must_show(&said, "[SLICE_SIZE]")?;
    narrator.say("The tag in the job's record is not hers to edit either:");
    for field in ["comment", "extra"] {
        // Slurm 22.05 has no field of that name for scontrol.
        if field == "extra" && cluster.slurm() < Slurm::V24_11 {
            continue;
        }
        let edit = format!("scontrol update jobid={job} {field}=softmig=1:whole");
        narrator.types("alice", &edit)?.refused()?;
    }
    must_show(&cluster.slurmctld_log()?, "[TAG_EDIT]")?;
    ensure!(
        tag(cluster, job.parse()?)? == explained.tag(),
        "the tag was edited"
    );
    Ok(())
}

fn the_end(
    cluster: &Cluster,
    narrator: &mut Narrator,
    node: &Node,
    job: &str,
    neighbour: &str,
) -> Result<()> {
    narrator.step(
        "alice's job ends; the epilog removes what the prolog made for it, and nothing of bob's.",
    );
    narrator.types("alice", &format!("scancel {job}"))?.ok()?;
    cluster.wait_until("the epilog removed the file", || {
        Ok(!node.exists(format!("/var/run/softmig/{job}.conf"))?)
    })?;
    let left = narrator
        .types_on(node, "alice", "ls /var/run/softmig/")?
        .ok()?;
    must_show(&left, &format!("{neighbour}.conf"))?;
    if left.lines().any(|name| name == format!("{job}.conf")) {
        bail!("{job}.conf is still there");
    }
    narrator
        .types("bob", "squeue --format='%i %u %T %N'")?
        .ok()?;
    Ok(())
}

/// Waits for a job and its prolog: Slurm calls a job running as soon as it has its nodes.
fn wait_for_limits(cluster: &Cluster, job: &str) -> Result<()> {
    cluster.wait_job(job, "RUNNING")?;
    let conf = format!("/var/run/softmig/{job}.conf");
    cluster.wait_until(&format!("there is a {conf}"), || {
        let there: Vec<bool> = cluster
            .nodes()
            .iter()
            .map(|node| node.exists(&conf))
            .collect::<Result<_>>()?;
        Ok(there.contains(&true))
    })
}

/// Shows where a job runs and with what.
fn place_of(job: &str) -> String {
    format!("scontrol -d show job {job} | grep -oE 'Nodes=.* GRES=.*'")
}

fn job_of(said: &str) -> Result<String> {
    let id = said.trim().strip_prefix("Submitted batch job ");
    Ok(id
        .with_context(|| format!("sbatch gave no job: {said}"))?
        .into())
}

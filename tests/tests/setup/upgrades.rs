//! Upgrades and downgrades under jobs with slices, while processes start and jobs are submitted: nothing crashes, no job is
//! lost.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use softmig_tests::programs::LIBRARY;
use softmig_tests::softmig::installed;
use softmig_tests::{Client, Cluster, Gpus, Node, Slurm};

use crate::setup::trees::{NEW, OLD, Trees};

/// How often the release changes, and under how many jobs with slices.
struct Load {
    times: usize,
    /// Nodes that the running jobs fill.
    nodes: usize,
    /// Jobs on each of them, with an eighth of a GPU each.
    slices: usize,
}

/// The GPUs of a node.
const GPUS: u32 = 2;

/// The load of CI.
const SHORT: Load = Load {
    times: 50,
    nodes: 1,
    slices: 2,
};
/// All slices of four nodes.
const LONG: Load = Load {
    times: 50,
    nodes: 4,
    slices: 16,
};

const POLICY: &str =
    "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 8\nslices = [2, 4, 8]\n";

/// A job: a program that holds memory of its slice, while others start.
const JOB: &str = "/opt/programs/takes cuMemAlloc_v2 1048576 hold 64 < <(exec sleep infinity) >held.$SLURM_JOB_ID &
while /bin/true; do sleep 1; done
exit 9";

/// Starts processes until a file is there, and notes each that does not end as it should.
const STARTS: &str = "n=0; while [ ! -e /tmp/enough ]; do /bin/true || echo \"true: $?\"; \
     [ \"$(/bin/echo a)\" = a ] || echo \"echo: $?\"; n=$((n + 1)); done; echo \"started $n\"";

/// Submits jobs in the same way. Their own first act is a process, too.
const SUBMITS: &str = "n=0; while [ ! -e /tmp/enough ]; do sbatch --parsable -o /dev/null --gres=gpu:l40s.8:1 \
     --wrap 'exec /bin/true' || echo \"sbatch: $?\"; n=$((n + 1)); sleep 0.2; done; echo \"submitted $n\" >&2";

#[test]
fn fifty_upgrades_and_downgrades_crash_nothing_and_lose_no_job() -> Result<()> {
    change_under(&SHORT)
}

#[test]
#[ignore = "64 jobs: some minutes; bench/results/upgrades.md has a run"]
fn fifty_upgrades_and_downgrades_under_64_slices() -> Result<()> {
    change_under(&LONG)
}

fn change_under(load: &Load) -> Result<()> {
    let trees = Trees::make()?;
    // One node more, for the jobs that are submitted meanwhile.
    let cluster = installed(Slurm::V24_11)
        .programs()
        .layer(trees.layer())
        .file("/etc/softmig/policy.toml", POLICY)
        .nodes(load.nodes + 1)
        .gpus([Gpus::l40s(GPUS).shards(8)])
        .start()?;
    let _drivers = cluster
        .nodes()
        .iter()
        .map(|node| node.start_driver())
        .collect::<Result<Vec<_>>>()?;
    let node = cluster.node(0);
    let root = |line: &str| {
        let call = node.command("root", &["sh", "-c", line]);
        call.output()
    };
    root(&format!(
        "{OLD}/usr/bin/softmig install controller gpu-node --mode enforce"
    ))?
    .ok()?;

    let alice = cluster.user("alice");
    let mut running = Vec::new();
    for _ in 0..load.nodes * load.slices {
        let options = [
            "--gres=gpu:l40s.8:1",
            "--chdir=/home/alice",
            "--output=/dev/null",
        ];
        running.push(alice.sbatch(&options, JOB)?);
    }
    let in_queue = |wanted: &str| -> Result<usize> {
        let list = cluster.run(
            "root",
            &["squeue", "--noheader", "--format=%i", "--states", wanted],
        )?;
        let list = list.ok()?;
        let ids: Vec<u32> = list
            .lines()
            .filter_map(|id| id.trim().parse().ok())
            .collect();
        Ok(running.iter().filter(|job| ids.contains(job)).count())
    };
    cluster.wait_for("all jobs run", || {
        let holding = "grep -l '^took: blocks=64 then=0$' /home/alice/held.* | wc -l";
        let holding = root(holding)?.stdout.trim().parse() == Ok(running.len());
        Ok((holding && in_queue("RUNNING")? == running.len()).then_some(()))
    })?;
    let programs = || cluster.run("root", &["pgrep", "-x", "takes"])?.ok();
    let held = programs()?;
    ensure!(held.lines().count() == running.len(), "{held}");
    let mut monitors = start_monitors(&cluster)?;
    let begun = Instant::now();
    let starts = cluster.command("root", &["sh", "-c", STARTS]).spawn()?;
    let submits = cluster.command("alice", &["sh", "-c", SUBMITS]).spawn()?;
    for time in 0..load.times {
        let tree = if time % 2 == 0 { NEW } else { OLD };
        let said = root(&format!("{tree}/usr/bin/softmig upgrade"))?.ok()?;
        ensure!(
            said.contains("replace /usr/libexec/softmig-prolog: done"),
            "{said}"
        );
        let same = root(&format!(
            "cmp {LIBRARY} {tree}/usr/lib/softmig/staged/libsoftmig.so"
        ))?;
        ensure!(same.success(), "upgrade {time}: {same}");
        // As systemd does after an upgrade.
        drop(monitors);
        monitors = start_monitors(&cluster)?;
    }
    cluster.run("root", &["touch", "/tmp/enough"])?.ok()?;
    let started = starts.wait(Duration::from_secs(120))?;
    let submitted = submits.wait(Duration::from_secs(120))?;
    let count = started.stdout.trim().strip_prefix("started ");
    let count: usize = count.with_context(|| started.to_string())?.parse()?;
    ensure!(count > load.times && started.stderr.is_empty(), "{started}");
    let count = submitted.stderr.trim().strip_prefix("submitted ");
    let count: usize = count.with_context(|| submitted.to_string())?.parse()?;
    let jobs: Vec<u32> = submitted
        .stdout
        .lines()
        .map(|line| line.parse().with_context(|| submitted.to_string()))
        .collect::<Result<_>>()?;
    ensure!(jobs.len() == count && count > 0, "{submitted}");
    let took = begun.elapsed();
    for job in jobs {
        cluster.wait_job(job, "COMPLETED")?;
    }
    ensure!(in_queue("RUNNING")? == running.len(), "{running:?}");
    ensure!(programs()? == held, "other programs than before: {held}");
    let states = cluster.sinfo_states()?;
    ensure!(
        !states.iter().any(|state| state.contains("drain")),
        "{states:?}"
    );
    eprintln!(
        "{} changes of the release under {} slices in {:.0} s; {}, and {count} jobs",
        load.times,
        running.len(),
        took.as_secs_f64(),
        started.stdout.trim()
    );
    Ok(())
}

fn start_monitors(cluster: &Cluster) -> Result<Vec<Client>> {
    let monitor = |node: &Node| {
        node.command("root", &["/usr/libexec/softmig-monitor"])
            .spawn()
    };
    cluster.nodes().iter().map(monitor).collect()
}

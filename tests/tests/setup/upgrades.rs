//! Upgrades and downgrades as the package softmig-node does them, under jobs with slices, while processes start and jobs are
//! submitted: nothing crashes, no job is lost.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use softmig_tests::programs::LIBRARY;
use softmig_tests::softmig::{installed, stage};
use softmig_tests::{Client, Cluster, Gpus, Node, Slurm};

/// The package's script after its files are there.
const POSTINST: &str = include_str!("../../../packages/softmig-node/postinst");

/// The files in which the two releases differ: by a byte at the end, which nothing reads.
const PROGRAMS: [&str; 9] = [
    "usr/bin/softmig",
    "usr/libexec/softmig-prolog",
    "usr/libexec/softmig-epilog",
    "usr/libexec/softmig-monitor",
    "usr/lib/softmig/staged/libsoftmig.so",
    "usr/lib/softmig/lua/5.1/softmig_job_submit.so",
    "usr/lib/softmig/lua/5.1/softmig_cli_filter.so",
    "usr/lib/softmig/lua/5.3/softmig_job_submit.so",
    "usr/lib/softmig/lua/5.4/softmig_cli_filter.so",
];

/// The files of both releases, in /opt/old and /opt/new.
fn releases() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for (release, more) in [("old", ""), ("new", "\n")] {
        for program in PROGRAMS {
            let to = folder.path().join("opt").join(release).join(program);
            std::fs::create_dir_all(to.parent().context("a file at the root")?)?;
            let mut bytes = std::fs::read(stage().join(program))?;
            bytes.extend(more.bytes());
            std::fs::write(&to, bytes)?;
            std::fs::set_permissions(&to, Permissions::from_mode(0o755))?;
        }
    }
    // Every user goes through it.
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// Each file comes beside its place and is renamed, as dpkg and rpm do it.
fn upgrade(release: &str) -> String {
    format!(
        "set -e; cd /opt/{release}; for file in {}; do cp -p $file /$file.dpkg-new; mv /$file.dpkg-new /$file; done; \
         sh /root/postinst configure; cmp {LIBRARY} usr/lib/softmig/staged/libsoftmig.so; cmp /usr/libexec/softmig-prolog \
         usr/libexec/softmig-prolog",
        PROGRAMS.join(" ")
    )
}

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
    let releases = releases()?;
    // One node more, for the jobs that are submitted meanwhile.
    let cluster = installed(Slurm::V24_11)
        .programs()
        .layer(releases.path())
        .file("/root/postinst", POSTINST)
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
    root("softmig install --hook --mode enforce")?.ok()?;

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
        let release = if time % 2 == 0 { "new" } else { "old" };
        let done = root(&upgrade(release))?;
        ensure!(done.success(), "upgrade {time}: {done}");
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

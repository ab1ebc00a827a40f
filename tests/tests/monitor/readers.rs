//! Four slices in other programs: Prometheus, which scrapes the exporter and node_exporter, with the names of other exporters
//! too; a dashboard in Chromium; reportseff; and the files for dcgm-exporter. All of them agree with the driver at the same
//! time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use softmig_fake_node::{Description, Gpu, KERNEL_DRIVER, MIB, Node as Driver};
use softmig_tests::programs::FOLDER;
use softmig_tests::prometheus::{self, Prometheus};
use softmig_tests::softmig::enforced;
use softmig_tests::{Accounting, Cluster, Gpus, Node, Slurm, on_each_slurm, reportseff};

use super::daemon::Daemon;
use super::ending::POLICY;
use super::usage::busy;
use super::{entry, holds, job, memory};

on_each_slurm!(others_read_of_four_slices_what_the_driver_counts);

const SLICE: &str = "gpu:h200.4:1";
/// Its memory, in bytes. The library reserves for a context of an H200 what it takes, so the most that a job had is exact.
const LIMIT: u64 = 35788 * MIB;
const FOLDER_OF_METRICS: &str = "/var/lib/softmig/metrics";
const MAPPING: &str = "/run/dcgm";
const EXPORTER: &str = "127.0.0.1:9836";
const COLLECTOR: &str = "127.0.0.1:9100";
/// The bytes by which figures of memory may differ.
const TOLERANCE: f64 = (2 * MIB) as f64;

/// conf/policy.toml with a textfile, summaries in the accounting, and no quotas.
fn policy() -> String {
    let conf = include_str!("../../../conf/policy.toml");
    let textfile = "#textfile = \"/var/lib/softmig/metrics/softmig.prom\"";
    let changed = conf.replacen(textfile, &textfile[1..], 1).replacen(
        "admin_comment = false",
        "admin_comment = true",
        1,
    );
    changed + "\n[defaults]\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\n"
}

/// A job, its processes, and what they should have.
struct Slice {
    job: u32,
    processes: Vec<u64>,
    /// In bytes.
    memory: u64,
}

impl Slice {
    fn start(cluster: &Cluster, user: &str, script: &str, mib: u64) -> Result<Self> {
        let (job, processes) = job(cluster, user, SLICE, script)?;
        let contexts = processes.len() as u64 * Gpu::h200(0).context;
        Ok(Self {
            job,
            processes,
            memory: contexts + mib * MIB,
        })
    }

    /// The GPU time of its processes, in seconds, by the driver.
    fn worked(&self, driver: &Driver) -> Result<f64> {
        let times = self.processes.iter().map(|process| busy(driver, *process));
        times.sum()
    }
}

/// The exporters of a node, until they are dropped.
fn exporters(cluster: &Cluster, node: &Node) -> Result<[softmig_tests::Client; 2]> {
    let exporter = [
        "/usr/libexec/softmig-exporter",
        &format!("--listen={EXPORTER}"),
        "--view=jobstats",
        "--view=slurm-job-exporter",
        "--view=ceems",
        &format!("--dcgm-mapping={MAPPING}"),
    ];
    let collector = [
        "prometheus-node-exporter",
        &format!("--web.listen-address={COLLECTOR}"),
        &format!("--collector.textfile.directory={FOLDER_OF_METRICS}"),
        "--collector.disable-defaults",
        "--collector.textfile",
        "--log.level=error",
    ];
    cluster.wait_until("the textfile", || {
        node.exists(format!("{FOLDER_OF_METRICS}/softmig.prom"))
    })?;
    Ok([
        node.command("root", &exporter).spawn()?,
        node.command("root", &collector).spawn()?,
    ])
}

/// Memory in every name, within 2 MiB.
fn memory_agrees(prometheus: &Prometheus<'_>, slice: &Slice) -> Result<()> {
    let (job, used, limit) = (slice.job, slice.memory as f64, LIMIT as f64);
    for (query, wanted) in [
        (
            format!("softmig_slice_memory_used_bytes{{job='softmig',jobid='{job}'}}"),
            used,
        ),
        (
            format!("softmig_slice_memory_used_bytes{{job='node',jobid='{job}'}}"),
            used,
        ),
        (
            format!("softmig_slice_memory_limit_bytes{{job='softmig',jobid='{job}'}}"),
            limit,
        ),
        (
            format!("nvidia_gpu_memory_used_bytes{{jobid='{job}'}}"),
            used,
        ),
        (
            format!("nvidia_gpu_memory_total_bytes{{jobid='{job}'}}"),
            limit,
        ),
        (
            format!("slurm_job_memory_usage_gpu{{slurmjobid='{job}'}}"),
            used,
        ),
        (
            format!("slurm_job_memory_total_gpu{{slurmjobid='{job}'}}"),
            limit,
        ),
        // In the form in which jobstats asks.
        (
            format!(
                "max_over_time((nvidia_gpu_memory_used_bytes and nvidia_gpu_jobId == {job})[10s:1s])"
            ),
            used,
        ),
    ] {
        let told = prometheus.value(&query)?;
        ensure!(
            (told - wanted).abs() <= TOLERANCE,
            "{query}: {told}, not {wanted}"
        );
    }
    Ok(())
}

/// The time in which rates are measured, in seconds.
const SPAN: u64 = 20;

/// The parts of the GPU's time that a slice had, in percent, by all who say so. The first is the driver's.
fn times(
    prometheus: &Prometheus<'_>,
    slice: &Slice,
    worked: f64,
    all: f64,
) -> Result<Vec<(String, f64)>> {
    let (job, span) = (slice.job, format!("[{SPAN}s]"));
    let mut times = vec![("the driver".to_owned(), worked)];
    for (query, factor) in [
        (
            format!("rate(softmig_slice_gpu_seconds_total{{job='softmig',jobid='{job}'}}{span})"),
            100.0,
        ),
        (
            format!("rate(softmig_slice_gpu_seconds_total{{job='node',jobid='{job}'}}{span})"),
            100.0,
        ),
        // Of a quarter.
        (
            format!("avg_over_time(nvidia_gpu_duty_cycle{{jobid='{job}'}}[10s])"),
            0.25,
        ),
        (
            format!("avg_over_time(slurm_job_utilization_gpu{{slurmjobid='{job}'}}[10s])"),
            0.25,
        ),
        // Of what all slices had.
        (
            format!("avg_over_time(ceems_compute_unit_gpu_index_flag{{uuid='{job}'}}[10s])"),
            all,
        ),
    ] {
        let told = factor * prometheus.value(&query)?;
        times.push((query, told));
    }
    Ok(times)
}

/// Within a point. The machine may be busy, and not all look at the same moment, so a try may fail.
fn times_agree(prometheus: &Prometheus<'_>, driver: &Driver, slices: &[Slice]) -> Result<()> {
    let look = || -> Result<Vec<f64>> {
        let now = Duration::from_nanos(driver.now()).as_secs_f64();
        let worked = slices.iter().map(|slice| slice.worked(driver));
        std::iter::once(Ok(now)).chain(worked).collect()
    };
    let mut last = Vec::new();
    for _ in 0..6 {
        let before = look()?;
        std::thread::sleep(Duration::from_secs(SPAN));
        let after = look()?;
        let passed: Vec<f64> = after
            .iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect();
        let shares: Vec<f64> = passed[1..]
            .iter()
            .map(|worked| 100.0 * worked / passed[0])
            .collect();
        let all = shares.iter().sum();
        last = Vec::new();
        for (slice, worked) in slices.iter().zip(&shares) {
            last.push(times(prometheus, slice, *worked, all)?);
        }
        let agrees =
            |told: &Vec<(String, f64)>| told.iter().all(|(_, part)| (part - told[0].1).abs() < 1.0);
        if last.iter().all(agrees) {
            ensure!(shares[0] > 15.0 && shares[1] > 5.0, "{shares:?}");
            return Ok(());
        }
    }
    anyhow::bail!("parts of the GPU's time, in percent: {last:#?}")
}

/// The table of the node's dashboard: memory as exact as its three digits, and time within a point of the counter, which agrees
/// with the driver. The table is of another time span, so a try may fail while the machine is busy.
fn the_dashboard_agrees(prometheus: &Prometheus<'_>, slices: &[Slice]) -> Result<()> {
    let table = prometheus.table("softmig-node", &format!("instance={EXPORTER}"))?;
    ensure!(table.len() == slices.len(), "{table:?}");
    for slice in slices {
        let job = slice.job.to_string();
        let rate = format!(
            "rate(softmig_slice_gpu_seconds_total{{job='softmig',jobid='{job}'}}[{SPAN}s])"
        );
        let share = 100.0 * prometheus.value(&rate)?;
        let row = table.iter().find(|row| row["jobid"] == job);
        let row = row.with_context(|| format!("job {job}: {table:?}"))?;
        let (memory, unit) = row["memory"].split_once(' ').context("no unit")?;
        let unit = if unit == "GiB" { 1024.0 } else { 1.0 };
        let memory: f64 = memory.parse()?;
        let mib = slice.memory as f64 / MIB as f64;
        ensure!(
            (memory * unit - mib).abs() <= 2.0 + mib * 0.005,
            "{row:?}, not {mib} MiB"
        );
        // Of a quarter.
        let time: f64 = row["of its share"].trim_end_matches('%').parse()?;
        ensure!((time * 0.25 - share).abs() < 1.0, "{row:?}, not {share}");
    }
    Ok(())
}

/// The slices add up to the card.
fn sums_agree(prometheus: &Prometheus<'_>) -> Result<()> {
    // In one query, so that both are of one scrape.
    let rest = prometheus.value(
        "sum(softmig_gpu_seconds_total{job='softmig',who='slices'}) - sum(softmig_slice_gpu_seconds_total{job='softmig'})",
    )?;
    ensure!(rest.abs() < 0.01, "{rest}");
    let flags = prometheus.value("sum(ceems_compute_unit_gpu_index_flag{gpuuuid=~'.+'})")?;
    ensure!((flags - 1.0).abs() < 0.001, "{flags}");
    let shards = prometheus.value("softmig_gpu_shards{job='softmig',state='allocated'}")?;
    ensure!(shards == 8.0, "{shards}");
    Ok(())
}

/// Ends a job, and compares reportseff's percentages with the driver's.
fn its_summary_agrees(cluster: &Cluster, driver: &Driver, slice: &Slice) -> Result<()> {
    let node = cluster.node(0);
    let job = slice.job.to_string();
    cluster.run("root", &["scancel", &job])?.ok()?;
    let argv = ["softmig", "events", "--json", "--job", &job];
    let span = cluster.wait_for("its end", || {
        let said = node.run_as_root(&argv)?.ok()?;
        let events = said.lines().map(serde_json::from_str::<serde_json::Value>);
        let events = events.collect::<Result<Vec<_>, _>>()?;
        let time_of = |kind: &str| {
            let event = events.iter().find(|event| event["event"] == kind)?;
            event["time"].as_f64()
        };
        Ok(time_of("end")
            .zip(time_of("grant"))
            .map(|(end, begin)| end - begin))
    })?;
    let sacct = [
        "sacct",
        "-X",
        "-n",
        "-P",
        "--format=AdminComment",
        "--jobs",
        &job,
    ];
    cluster.wait_until("its summary", || {
        Ok(cluster.run("root", &sacct)?.ok()?.starts_with("JS1:"))
    })?;
    let [time, memory] = reportseff::of(cluster, slice.job)?;
    // A point of the GPU is four of a quarter.
    let worked = 100.0 * slice.worked(driver)? / (0.25 * span);
    ensure!(
        (time - worked).abs() < 4.0,
        "job {job}: {time} of its time, not {worked}"
    );
    let wanted = 100.0 * slice.memory as f64 / LIMIT as f64;
    let tolerance = 100.0 * TOLERANCE / LIMIT as f64 + 0.05;
    ensure!(
        (memory - wanted).abs() <= tolerance,
        "job {job}: {memory} of its memory, not {wanted}"
    );
    Ok(())
}

fn others_read_of_four_slices_what_the_driver_counts(slurm: Slurm) -> Result<()> {
    let cluster = enforced(slurm)
        .programs()
        .layer(prometheus::layer()?)
        .accounting(Accounting::new())
        .gpus([Gpus::new("h200", "NVIDIA H200", 1).shards(8)])
        .file(POLICY, policy())
        .start()?;
    let node = cluster.node(0);
    let folders = ["mkdir", "-p", FOLDER_OF_METRICS, MAPPING];
    node.run_as_root(&folders)?.ok()?;
    let driver = node.start_driver_as(Description::scheduler)?;
    let daemon = Daemon::start_by(node, &format!("env LD_PRELOAD={KERNEL_DRIVER}"))?;

    let paced = |way: &str| format!("{FOLDER}/paced {way} & echo \"holds: $!\"\n");
    // The kernels of the one that pauses are long, because it is charged for the time until it hears of their end.
    let (busy, pauses) = ("1000000 1000000 async", "5000000 1000000 idle");
    let slices = [
        Slice::start(&cluster, "alice", &(paced(busy) + &holds(200)), 200)?,
        Slice::start(&cluster, "bob", &(paced(pauses) + &holds(100)), 100)?,
        Slice::start(&cluster, "alice", &(holds(300) + &holds(200)), 500)?,
        Slice::start(&cluster, "bob", &holds(20000), 20000)?,
    ];
    let _exporters = exporters(&cluster, node)?;
    let prometheus = Prometheus::start(
        &cluster,
        node,
        &[("softmig", EXPORTER), ("node", COLLECTOR)],
    )?;

    times_agree(&prometheus, &driver, &slices)?;
    let look = || the_dashboard_agrees(&prometheus, &slices);
    (0..4).find_map(|_| look().ok()).map_or_else(look, Ok)?;
    for slice in &slices {
        memory_agrees(&prometheus, slice)?;
    }
    sums_agree(&prometheus)?;
    let mapped = node.read(format!("{MAPPING}/0"))?;
    let mapped = mapped.unwrap_or_default();
    let jobs: Vec<String> = slices.iter().map(|slice| slice.job.to_string()).collect();
    assert_eq!(mapped.lines().collect::<Vec<_>>(), jobs);
    let said = node.run_as_root(&["softmig", "status", "--json"])?.ok()?;
    let status: Value = serde_json::from_str(&said)?;
    for slice in &slices {
        let live = &entry(&status["jobs"], "job", slice.job)?["live"];
        assert_eq!(memory(&live["gpus"][0]), slice.memory, "{live}");
    }
    // Slurm 22.05 keeps no summary: it makes an AdminComment lower case.
    if slurm != Slurm::V22_05 {
        for slice in &slices {
            its_summary_agrees(&cluster, &driver, slice)?;
        }
    }
    daemon.end()?.ok().map(drop)
}

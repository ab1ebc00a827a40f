//! The usage of four slices, as the driver counts it: at the monitor's socket, in `softmig status`, `job` and `events`, and in
//! the exporter's page.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use softmig_fake_node::{Description, Gpu, KERNEL_DRIVER, MIB, Node as Driver};
use softmig_tests::programs::FOLDER;
use softmig_tests::softmig::enforced;
use softmig_tests::{Cluster, Gpus, Node, Slurm, on_each_slurm};

use super::daemon::Daemon;
use super::ending::POLICY;
use super::{QUARTER, entry, holds, job, memory};

on_each_slurm!(four_slices_agree_with_the_driver);

const SLICE: &str = "gpu:l40s.4:1";
/// The block of the job that takes what it gets.
const BLOCK: u64 = 256 * MIB;
/// More than 90 % of a quarter.
const MUCH: u32 = 10400;
/// After how long a job is idle: alice is known by her group.
const IDLE: &str = "\n[defaults]\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\nidle_minutes = 60\n\
    [classes.physics]\nmembers = { groups = [2001] }\nidle_minutes = 30\n";
const EXPORTER: &str = "/run/exporter.sock";
/// Where it answers other machines, and policy.toml's word for that.
const LISTEN: &str = "--listen=127.0.0.1:9836";
const EXPORTERS: [&str; 2] = ["[metrics]\n", "[metrics]\nexporters = \"http://%h:9836\"\n"];

/// The figures that the monitor gives out, as it writes them down every five seconds.
fn usage(node: &Node) -> Result<Value> {
    let text = node.read("/run/softmig/usage.json")?;
    Ok(serde_json::from_str(&text.context("no usage.json")?)?)
}

/// A job on its GPU.
fn of_job(usage: &Value, id: u32) -> Result<Value> {
    Ok(entry(&usage["jobs"], "job", id)?["gpus"][0].clone())
}

/// The GPU time of a process, by the driver.
pub fn busy(driver: &Driver, pid: u64) -> Result<f64> {
    let all = driver.history(0)?;
    let its = all.iter().filter(|one| u64::from(one.own_pid) == pid);
    Ok(Duration::from_nanos(its.map(|one| one.busy).sum()).as_secs_f64())
}

/// What a job had of the GPU so far, in seconds.
#[derive(Debug)]
struct Had {
    /// By the monitor, and of how much time.
    charged: f64,
    known: f64,
    /// By the driver, and its clock.
    busy: f64,
    now: f64,
}

impl Had {
    /// The parts of the time since then, in percent: by the monitor, and by the driver.
    fn since(&self, before: &Self) -> (f64, f64) {
        let percent = |had: f64, time: f64| 100.0 * had / time;
        (
            percent(self.charged - before.charged, self.known - before.known),
            percent(self.busy - before.busy, self.now - before.now),
        )
    }
}

/// The driver is asked when the monitor has just written: a job's pace is not the same in every second.
fn had(cluster: &Cluster, node: &Node, driver: &Driver, (id, pid): (u32, u64)) -> Result<Had> {
    let before = usage(node)?;
    let told = cluster.wait_for("the next figures", || {
        let told = usage(node)?;
        Ok((told != before).then_some(told))
    })?;
    let now = Duration::from_nanos(driver.now()).as_secs_f64();
    let busy = busy(driver, pid)?;
    let told = of_job(&told, id)?;
    let told = |key: &str| told[key].as_f64().with_context(|| format!("no {key}"));
    Ok(Had {
        charged: told("charged_seconds")?,
        known: told("known_seconds")?,
        busy,
        now,
    })
}

/// The figure of a job in a page of the exporter.
fn metric(page: &str, name: &str, id: u32) -> Result<f64> {
    let label = format!("jobid=\"{id}\"");
    let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(&label);
    let line = page.lines().find(is_it);
    let line = line.with_context(|| format!("no {name} of job {id} in {page}"))?;
    let figure = line.rsplit(' ').next().unwrap_or_default();
    figure.parse().with_context(|| line.to_owned())
}

fn page(cluster: &Cluster, node: &Node) -> Result<String> {
    let exporter = node
        .command(
            "root",
            &[
                "/usr/libexec/softmig-exporter",
                &format!("--listen={EXPORTER}"),
            ],
        )
        .spawn()?;
    cluster.wait_until("the exporter", || node.exists(EXPORTER))?;
    let mut stream = UnixStream::connect(node.path(EXPORTER)?)?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    drop(exporter);
    Ok(page)
}

/// `softmig status` on a machine without a monitor shows what the nodes' exporters answer, and the reason if one does not.
fn status_elsewhere(cluster: &Cluster, node: &Node, (id, bytes): (u32, u64)) -> Result<()> {
    let status = || -> Result<Value> {
        let said = cluster.run("bob", &["softmig", "status", "--json"])?.ok()?;
        Ok(serde_json::from_str(&said)?)
    };
    let notes = status()?["notes"].to_string();
    let name = node.name();
    ensure!(
        notes.contains(&format!("what jobs on {name} used: ")),
        "{notes}"
    );
    let exporter = node
        .command("root", &["/usr/libexec/softmig-exporter", LISTEN])
        .spawn()?;
    let told = cluster.wait_for("the exporter's answer", || {
        let told = status()?;
        let is_there = entry(&told["jobs"], "job", id)?["live"].is_object();
        Ok(is_there.then_some(told))
    })?;
    drop(exporter);
    let live = &entry(&told["jobs"], "job", id)?["live"];
    assert_eq!(memory(&live["gpus"][0]), bytes, "{live}");
    assert_eq!(told["notes"], json!([]), "{told}");
    Ok(())
}

fn four_slices_agree_with_the_driver(slurm: Slurm) -> Result<()> {
    let cluster = enforced(slurm)
        .programs()
        .gpus([Gpus::l40s(1)])
        .file(
            POLICY,
            include_str!("../../../conf/policy.toml").replacen(EXPORTERS[0], EXPORTERS[1], 1)
                + IDLE,
        )
        .start()?;
    let node = cluster.node(0);
    // By the GPU's log the monitor knows what each job had, also on a machine that is busy.
    let driver = node.start_driver_as(|description| Description {
        scheduler: true,
        ..description
    })?;
    let daemon = Daemon::start_by(node, &format!("env LD_PRELOAD={KERNEL_DRIVER}"))?;

    // Kernels of a second: the GPU rarely waits for a host that is busy, which neither sees exactly.
    let computes = format!("{FOLDER}/paced 1000000000 1000000 async & echo \"holds: $!\"\n");
    let (computing, its) = job(&cluster, "alice", SLICE, &computes)?;
    let (two, _) = job(&cluster, "alice", SLICE, &(holds(300) + &holds(200)))?;
    let (one, _) = job(&cluster, "bob", SLICE, &holds(MUCH))?;
    let fills = format!("{FOLDER}/takes cuMemAlloc_v2 {BLOCK} fill >/dev/null\n");
    let (refused, _) = job(&cluster, "bob", SLICE, &(fills + &holds(100)))?;

    // Memory, to the byte.
    let context = Gpu::l40s(0).context;
    let wanted = [
        (two, 2 * context + 500 * MIB),
        (one, context + u64::from(MUCH) * MIB),
        (refused, context + 100 * MIB),
    ];
    let told = cluster.wait_for("the memory of all", || {
        let told = usage(node)?;
        let is_so =
            |(id, bytes): &(u32, u64)| of_job(&told, *id).is_ok_and(|own| memory(&own) == *bytes);
        Ok(wanted.iter().all(is_so).then_some(told))
    })?;
    let own = of_job(&told, refused)?;
    let peak = own["memory_peak_bytes"].as_u64().unwrap_or_default();
    ensure!(peak > QUARTER - 2 * BLOCK && peak <= QUARTER, "{own}");
    assert_eq!(own["refused_largest_bytes"], BLOCK, "{own}");
    ensure!(own["refused"].as_u64() > Some(0), "{own}");
    let of_alice = entry(&told["jobs"], "job", two)?;
    assert_eq!(
        (&of_alice["uid"], &of_alice["user"]),
        (&json!(2001), &json!("alice"))
    );
    assert_eq!(of_alice["slice"]["memory_bytes"], QUARTER);
    assert_eq!(of_alice["idle_after_seconds"], 1800.0);
    assert_eq!(
        entry(&told["jobs"], "job", one)?["idle_after_seconds"],
        3600.0
    );

    // Time, within a point. The two do not look at the same moment, and the machine may be busy, which counts the less the longer the
    // time is.
    let begin = had(&cluster, node, &driver, (computing, its[0]))?;
    let mut seen = Vec::new();
    let agree = |&(charged, worked): &(f64, f64)| (charged - worked).abs() < 1.0 && charged > 10.0;
    while seen.len() < 10 && !seen.last().is_some_and(agree) {
        let now = had(&cluster, node, &driver, (computing, its[0]))?;
        if now.known - begin.known >= 2.0 {
            seen.push(now.since(&begin));
        }
    }
    ensure!(
        seen.last().is_some_and(agree),
        "charged and worked, in percent: {seen:?}"
    );
    println!("charged and worked, in percent: {seen:?}");
    for idle in [one, two] {
        assert_eq!(of_job(&usage(node)?, idle)?["charged_seconds"], 0.0);
    }

    // The exporter gives the same.
    let page = page(&cluster, node)?;
    assert_eq!(
        metric(&page, "softmig_slice_memory_used_bytes", one)?,
        (context + u64::from(MUCH) * MIB) as f64
    );
    assert_eq!(
        metric(&page, "softmig_slice_memory_limit_bytes", one)?,
        QUARTER as f64
    );
    assert_eq!(
        metric(&page, "softmig_slice_memory_peak_bytes", refused)?,
        peak as f64
    );
    ensure!(
        metric(&page, "softmig_slice_gpu_seconds_total", computing)? > 1.0,
        "{page}"
    );

    // So does `softmig status` on another machine, for any user.
    status_elsewhere(&cluster, node, (one, context + u64::from(MUCH) * MIB))?;

    // Each user sees what is theirs.
    let of = |user: &str, id: u32| {
        node.command(user, &["softmig", "job", &id.to_string()])
            .output()
    };
    let said = cluster.wait_for("the user's own file", || {
        let said = of("bob", refused)?;
        Ok((said.success() && said.stdout.contains("largest")).then_some(said.stdout))
    })?;
    ensure!(said.contains("1 quarter of type l40s"), "{said}");
    for (user, id) in [("alice", computing), ("bob", refused)] {
        println!("{}", of(user, id)?.ok()?);
    }
    let full = of("bob", one)?.ok()?;
    ensure!(full.contains(", of 11.1 GiB: almost full\n"), "{full}");
    ensure!(!of("alice", refused)?.success());
    let status = node.run_as_root(&["softmig", "status", "--all"])?.ok()?;
    ensure!(status.contains("none of 4 shards free"), "{status}");
    println!("{status}");
    ensure!(status.contains("used "), "{status}");
    let words: Vec<&str> = status.split_whitespace().collect();
    ensure!(
        words.join(" ").contains("now; memory almost full"),
        "{status}"
    );

    // And the node remembers.
    cluster
        .run("root", &["scancel", &refused.to_string()])?
        .ok()?;
    let events = |id: u32| -> Result<Vec<Value>> {
        let said = node
            .run_as_root(&["softmig", "events", "--json", "--job", &id.to_string()])?
            .ok()?;
        said.lines()
            .map(|line| serde_json::from_str(line).context(line.to_owned()))
            .collect()
    };
    let told = cluster.wait_for("its end", || {
        let told = events(refused)?;
        Ok(told
            .iter()
            .any(|event| event["event"] == "end")
            .then_some(told))
    })?;
    let kinds: Vec<&str> = told
        .iter()
        .filter_map(|event| event["event"].as_str())
        .collect();
    ensure!(
        kinds.first() == Some(&"grant") && kinds.contains(&"refusal"),
        "{kinds:?}"
    );
    for words in [
        &["--job", &refused.to_string()][..],
        &["--job", &one.to_string(), "--json"],
    ] {
        println!(
            "{}",
            node.run_as_root(&[&["softmig", "events"], words].concat())?
                .ok()?
        );
    }
    ensure!(events(one)?.iter().any(|event| event["event"] == "memory"));
    let end = &told.last().context("no events")?["details"];
    assert_eq!(end["memory_peak_bytes"], peak, "{end}");
    cluster.wait_until("its usage to go", || {
        Ok(entry(&usage(node)?["jobs"], "job", refused).is_err())
    })?;
    daemon.end()?.ok().map(drop)
}

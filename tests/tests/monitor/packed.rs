//! Programs in packs: clients of an MPS server of the fake driver's (`tests/fake-driver/node/src/mps.rs`), with the library, the daemon
//! and its supervisor as they are shipped.

use anyhow::Result;
use softmig_tests::programs::FOLDER;
use softmig_tests::{Cluster, Slurm, on_each_slurm};

use super::ending::QUARTER;
use super::packs::{CONTROL, daemon, packing_by};
use crate::compute::stand::has_share;

on_each_slurm!(
    programs_of_a_pack_run_together_and_end_alone,
    many_programs_of_a_pack_end_at_the_same_moment,
    busy_programs_of_several_users_have_turns,
);

/// NVIDIA's program, with a server that the fake driver knows.
const SERVER: &str = r#"#!/bin/sh
cd "$CUDA_MPS_PIPE_DIRECTORY" && umask 0 && : >new &&
    exec flock --no-fork new sh -c 'mv new control && exec sleep infinity'
"#;

/// The GPU of a test, its jobs and its driver.
struct Stand<'a> {
    cluster: &'a Cluster,
    driver: softmig_fake_node::Node,
}

impl<'a> Stand<'a> {
    fn new(cluster: &'a Cluster) -> Result<Self> {
        let node = cluster.node(0);
        let driver = node.start_driver_as(|description| description.scheduler())?;
        // Any device that opens.
        node.run_as_root(&["mknod", "-m", "666", "/dev/nvidia-uvm", "c", "1", "3"])?
            .ok()?;
        Ok(Self { cluster, driver })
    }

    /// Starts a job with a program that always has work, in kernels of so many milliseconds. Its number.
    fn start(&self, user: &str, kernels: u32) -> Result<u32> {
        Ok(self.start_several(user, kernels, 1)?[0])
    }

    /// The same with so many of them.
    fn start_several(&self, user: &str, kernels: u32, count: usize) -> Result<Vec<u32>> {
        let script = format!(
            "cd {FOLDER}; exec 2>&1\nfor it in $(seq {count}); do\n\
             ./paced {kernels}000000 1000000 async & echo \"begun: $!\"\ndone\nwait"
        );
        let of_user = self.cluster.user(user);
        let job = of_user.sbatch(&["--account=physics", "--gres", QUARTER], &script)?;
        self.cluster.wait_for("its programs", || {
            let said = of_user.job_output(job)?;
            let all = said.lines().filter_map(|it| it.strip_prefix("begun: "));
            let all: Vec<u32> = all.map(str::parse).collect::<Result<_, _>>()?;
            Ok((all.len() == count).then_some(all))
        })
    }

    /// A program has such a part of the time, in percent.
    fn has(&self, pid: u32, least: f64, most: f64) -> Result<()> {
        has_share(&self.driver, pid, least, most)
    }

    /// Ends it by these signals while it has work, and waits until nothing of it is left.
    fn end(&self, pid: u32, signals: &[&str]) -> Result<()> {
        self.end_all(&[pid], signals)
    }

    /// The same with several at the same moment.
    fn end_all(&self, pids: &[u32], signals: &[&str]) -> Result<()> {
        for &pid in pids {
            self.cluster.wait_until("its work", || {
                let groups = self.driver.groups(0).into_iter();
                let mut its = groups.filter(|it| it.own_pid == pid);
                Ok(its.any(|group| self.driver.has_work(group)))
            })?;
        }
        let pids_as_text: Vec<String> = pids.iter().map(u32::to_string).collect();
        for signal in signals {
            let mut kill = vec!["kill", "-s", signal];
            kill.extend(pids_as_text.iter().map(String::as_str));
            self.cluster.node(0).run_as_root(&kill)?.ok()?;
        }
        self.cluster.wait_until("the end of its memory", || {
            let known = self.driver.usage()?;
            let mut all = known.iter().flat_map(|it| &it.processes);
            Ok(all.all(|it| !pids.contains(&it.own_pid)))
        })
    }
}

/// Root's programs are not limited, and have a server of their own: the end of one is that of the other.
fn one_without_a_supervisor_ends_all(stand: &Stand<'_>) -> Result<()> {
    let node = stand.cluster.node(0);
    let own = "mkdir /tmp/own; CUDA_MPS_PIPE_DIRECTORY=/tmp/own";
    let wait = "until [ -e /tmp/own/control ]; do sleep 0.05; done";
    node.run_as_root(&["sh", "-c", &format!("{own} {CONTROL} & {wait}")])?
        .ok()?;
    let start = |kernels: u32| {
        let line = format!("cd {FOLDER}; echo $$; exec ./paced {kernels}000000 1000000 async 2>&1");
        let call = node.command("root", &["sh", "-c", &line]);
        let program = call.env("CUDA_MPS_PIPE_DIRECTORY", "/tmp/own").spawn()?;
        let pid: u32 = stand.cluster.wait_for("its number", || {
            let said = program.stdout()?;
            Ok(said.lines().next().map(str::parse).transpose()?)
        })?;
        Ok::<_, anyhow::Error>((program, pid))
    };
    let ((_one, long), (other, short)) = (start(60_000)?, start(1)?);
    stand.has(short, 90.0, 101.0)?;
    stand.end(long, &["KILL"])?;
    // CUDA_ERROR_ILLEGAL_ADDRESS.
    stand.cluster.wait_until("the end of the other", || {
        Ok(other.stdout()?.contains(": 700"))
    })
}

fn programs_of_a_pack_run_together_and_end_alone(slurm: Slurm) -> Result<()> {
    let cluster = packing_by(slurm, "user")?.file(CONTROL, SERVER).start()?;
    let (node, stand) = (cluster.node(0), Stand::new(&cluster)?);
    one_without_a_supervisor_ends_all(&stand)?;

    let first = daemon(node)?;
    let pack = [60_000, 60_000, 1, 1].map(|kernels| stand.start("alice", kernels));
    let [stopped, killed, one, other] = pack;
    let (stopped, killed, one, other) = (stopped?, killed?, one?, other?);
    for it in [stopped, killed, one, other] {
        stand.has(it, 90.0, 101.0)?;
    }
    stand.end(stopped, &["STOP", "KILL"])?;
    // Beside another user each of the pack has all of the pack's three quarters.
    let beside = stand.start("bob", 1)?;
    for it in [killed, one, other] {
        stand.has(it, 60.0, 80.0)?;
    }
    stand.has(beside, 20.0, 30.0)?;
    // One ends while there is no daemon, and the next daemon goes on with the others.
    first.kill()?;
    stand.end(killed, &["KILL"])?;
    let _next = daemon(node)?;
    for it in [one, other] {
        stand.has(it, 40.0, 80.0)?;
    }
    Ok(())
}

fn many_programs_of_a_pack_end_at_the_same_moment(slurm: Slurm) -> Result<()> {
    let builder = packing_by(slurm, "user")?;
    let cluster = builder.file(CONTROL, SERVER).start()?;
    let stand = Stand::new(&cluster)?;
    let _daemon = daemon(cluster.node(0))?;
    // Beside another user, so that the pack is held now and then while they end.
    let (stays, beside) = (stand.start("alice", 1)?, stand.start("bob", 1)?);
    for _ in 0..3 {
        let many = stand.start_several("alice", 60_000, 12)?;
        stand.end_all(&many, &["KILL"])?;
        // Their job is over, and its quarter with it.
        stand.has(stays, 20.0, 30.0)?;
        stand.has(beside, 20.0, 30.0)?;
    }
    Ok(())
}

fn busy_programs_of_several_users_have_turns(slurm: Slurm) -> Result<()> {
    // Two hard quarters are half of the time. Each has half of that in turns, and in one user's pack all of it.
    for (whose, users, least, most) in [
        ("account", ["alice", "bob"], 18.0, 32.0),
        ("user", ["alice", "alice"], 43.0, 55.0),
    ] {
        let builder = packing_by(slurm, whose)?;
        let cluster = builder.file(CONTROL, SERVER).start()?;
        let stand = Stand::new(&cluster)?;
        let _daemon = daemon(cluster.node(0))?;
        let both = users.map(|user| stand.start(user, 1));
        for it in both {
            stand.has(it?, least, most)?;
        }
    }
    Ok(())
}

//! The time that the start and the end of a job cost on its node: prolog and epilog as slurmd runs them.

use crate::figure::{Figure, Question, Target, median};
use crate::repeat;
use anyhow::{Result, ensure};
use softmig_tests::Cluster;

/// How many rounds, and how many jobs start and end in each.
const ROUNDS: usize = 15;
const JOBS: usize = 40;

/// Measures both on a node of the cluster.
pub(crate) fn measure(cluster: &Cluster) -> Result<Vec<Figure>> {
    let commands: [&[&str]; 4] = [
        &["/bin/true"],
        &["/usr/libexec/softmig-prolog"],
        &["/usr/libexec/softmig-epilog"],
        &["/bench/prolog.sh"],
    ];
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        for (times, rounds) in turn(cluster, &commands)?.iter().zip(&mut rounds) {
            rounds.push(median(times));
        }
    }
    check(cluster, &commands)?;
    let [nothing, prolog, epilog, bash] = &rounds;
    let question = |what: &str| Question {
        what: format!("{what}, fork and exec included"),
        unit: "ms",
        result_unit: "ms",
        target: Some(Target::Under(2.0)),
    };
    Ok(vec![
        question("prolog").answer(
            &[
                ("/bin/true", nothing),
                ("bash prolog", bash),
                ("softmig", prolog),
            ],
            |values| values[2],
        ),
        question("epilog").answer(&[("/bin/true", nothing), ("softmig", epilog)], |values| {
            values[1]
        }),
    ])
}

/// Runs the commands in turns on the first node, with what slurmd would say of a job.
fn turn(cluster: &Cluster, commands: &[&[&str]]) -> Result<Vec<Vec<f64>>> {
    let node = cluster.node(0);
    let options = ["--journal", "--number", "SLURM_JOB_ID"];
    let mut call = node.command("root", &repeat::argv(&options, JOBS, commands));
    for (name, value) in [
        ("SLURM_JOB_UID", "2001"),
        ("SLURM_JOB_GID", "2001"),
        ("SLURM_JOB_USER", "alice"),
        ("SLURM_JOB_GPUS", "0"),
        ("SLURM_JOB_EXTRA", "softmig=1:l40s:1/4:11366:hard"),
        ("SLURM_JOB_RESTART_COUNT", "0"),
        ("SLURMD_NODENAME", node.name()),
        ("SLURM_CONF", "/etc/slurm/slurm.conf"),
    ] {
        call = call.env(name, value);
    }
    let journal = node.path("/run/systemd/journal/socket")?;
    // Left by the listener of the round before.
    let _ = std::fs::remove_file(journal);
    repeat::measure(call)
}

/// Checks that the measured programs did their work: both prologs wrote, and the epilog took away.
fn check(cluster: &Cluster, commands: &[&[&str]]) -> Result<()> {
    let confs = |folder: &str| -> Result<usize> {
        let names = cluster.node(0).list(folder)?;
        Ok(names.iter().filter(|name| name.ends_with(".conf")).count())
    };
    ensure!(confs("/run/softmig")? == 0, "the epilog left limits");
    ensure!(
        confs("/run/softmig-bash")? > JOBS,
        "the prolog in bash wrote nothing"
    );
    turn(cluster, &[commands[1]])?;
    ensure!(confs("/run/softmig")? > JOBS, "the prolog wrote no limits");
    turn(cluster, &[commands[2]])?;
    Ok(())
}

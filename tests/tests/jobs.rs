//! The test clients inside real jobs, with the library in every process of the node and limits by the real prolog.

use anyhow::{Context, Result, ensure};
use softmig_tests::programs::{ALL, FOLDER, IN_JOBS, LIBRARY, PRELOAD, Program, Said};
use softmig_tests::softmig::installed;
use softmig_tests::{Cluster, Slurm, on_each_slurm};

on_each_slurm!(
    every_client_runs_in_a_slice,
    every_client_behaves_alike_in_a_job_with_a_whole_gpu,
    a_second_copy_of_the_driver_gives_no_memory_in_a_slice,
);

/// Loads the driver once more, in a place where the library would not count what it takes.
const SECOND_COPY: &str = "./namespace";

/// With libraries that could hide the driver from softmig's: they get no GPU in a slice (`identity`'s tests).
const INTERPOSED: [&str; 2] = [
    "LD_PRELOAD=/opt/programs/libinterposer.so ./interposed",
    "LD_PRELOAD=/opt/programs/libgetter.so ./gotten",
];

fn cluster(slurm: Slurm) -> Result<Cluster> {
    let cluster = installed(slurm)
        .programs()
        .file("/etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n")
        .start()?;
    cluster.node(0).start_driver()?;
    Ok(cluster)
}

/// The clients that a user of this cluster can run.
fn clients(slurm: Slurm) -> Vec<&'static Program> {
    let there = |package: &str| slurm.packages().contains(&package);
    ALL.iter()
        .chain(IN_JOBS)
        .filter(|program| program.user == "alice" && program.package.is_none_or(there))
        .collect()
}

/// Runs the clients one after the other in one job of alice's.
fn run_all(cluster: &Cluster, gres: &str, programs: &[&Program]) -> Result<Vec<Said>> {
    let alice = cluster.user("alice");
    let mut script = format!("cd {FOLDER}\nmkdir $HOME/said\n");
    for (number, Program { command, .. }) in programs.iter().enumerate() {
        script += &format!(
            "bash -c '{command}' </dev/null >$HOME/said/{number}.out 2>$HOME/said/{number}.err\n\
             echo $? >$HOME/said/{number}.status\n"
        );
    }
    let job = alice.sbatch(&["--gres", gres, "--output=/dev/null"], &script)?;
    cluster.wait_for("the job's end", || {
        let state = cluster.job_state(job)?;
        Ok((state.as_deref() == Some("COMPLETED")).then_some(()))
    })?;
    let read = |number: usize, kind: &str| -> Result<String> {
        let path = format!("/home/alice/said/{number}.{kind}");
        cluster.read(&path)?.with_context(|| format!("no {path}"))
    };
    let said = (0..programs.len()).map(|number| {
        let status = read(number, "status")?
            .trim()
            .parse()
            .context("no status")?;
        Ok(Said::new(
            status,
            &read(number, "out")?,
            &read(number, "err")?,
        ))
    });
    let said = said.collect::<Result<Vec<Said>>>()?;
    alice.run(&["rm", "-r", "/home/alice/said"])?.ok()?;
    Ok(said)
}

/// Runs all clients in a job without the library and in one with it, and fails with all differences at once.
fn alike(
    slurm: Slurm,
    gres: &str,
    programs: &[&Program],
    compared: impl Fn(Said) -> Said,
) -> Result<()> {
    let cluster = cluster(slurm)?;
    let before = run_all(&cluster, gres, programs)?;
    cluster.write(PRELOAD, &format!("{LIBRARY}\n"))?;
    let after = run_all(&cluster, gres, programs)?;
    let mut complaints = Vec::new();
    for (program, (before, after)) in programs.iter().zip(before.into_iter().zip(after)) {
        complaints.extend(compared(after).complaint(program, &compared(before)));
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n\n"));
    Ok(())
}

fn every_client_runs_in_a_slice(slurm: Slurm) -> Result<()> {
    let mut clients = clients(slurm);
    clients
        .retain(|program| program.command != SECOND_COPY && !INTERPOSED.contains(&program.command));
    alike(slurm, "gpu:l40s.4:1", &clients, Said::without_figures)
}

fn every_client_behaves_alike_in_a_job_with_a_whole_gpu(slurm: Slurm) -> Result<()> {
    alike(slurm, "gpu:l40s:1", &clients(slurm), |said| said)
}

fn a_second_copy_of_the_driver_gives_no_memory_in_a_slice(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm)?;
    cluster.write(PRELOAD, &format!("{LIBRARY}\n"))?;
    let srun = ["--gres=gpu:l40s.4:1", "--chdir", FOLDER, SECOND_COPY];
    let ran = cluster.user("alice").srun(&srun)?;
    let said = Said::of(&ran)?;
    assert_eq!(
        (said.status, said.mapped.as_slice()),
        (0, [true].as_slice()),
        "{ran}"
    );
    assert!(said.stdout.contains("\ncuMemAlloc: 801\n"), "{ran}");
    Ok(())
}

/// The files that a client opens in a job with a whole GPU, as strace sees it.
fn opened(cluster: &Cluster) -> Result<Vec<String>> {
    let strace = "strace --quiet=all --trace=openat,openat2 ./linked >$HOME/said";
    let srun = ["--gres=gpu:l40s:1", "--chdir", FOLDER, "bash", "-c", strace];
    let ran = cluster.user("alice").srun(&srun)?;
    ensure!(ran.success(), "{ran}");
    // Not srun's own words.
    let opens = ran.stderr.lines().filter(|line| line.starts_with("open"));
    Ok(opens.map(str::to_owned).collect())
}

#[test]
fn a_process_with_a_whole_gpu_opens_three_files_at_most() -> Result<()> {
    let cluster = cluster(Slurm::V22_05)?;
    let without = opened(&cluster)?;
    cluster.write(PRELOAD, &format!("{LIBRARY}\n"))?;
    let mut more = opened(&cluster)?;
    assert!(more.iter().any(|call| call.contains(LIBRARY)), "{more:#?}");
    more.retain(|call| {
        !without.contains(call) && !call.contains(LIBRARY) && !call.contains(PRELOAD)
    });
    // Its own settings, its place, its job's conf: it is in a job, so there is something to read.
    assert!((1..=3).contains(&more.len()), "{more:#?}");
    Ok(())
}

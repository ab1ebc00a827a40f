//! `softmig smi` in real jobs: a script in nvidia-smi's place shows the processes of all jobs, and each job sees its own.

use anyhow::{Context, Result};
use softmig_tests::softmig::installed;
use softmig_tests::{Cluster, Output, Slurm, on_each_slurm};

on_each_slurm!(
    a_job_with_a_slice_sees_its_own_processes_only,
    a_job_without_a_slice_sees_the_output_of_nvidia_smi,
    in_nvidia_smis_place_softmig_finds_the_real_one,
);

/// Where the script finds the processes, one a line.
const PROCESSES: &str = "/opt/processes";

/// Prints the processes in each form, as a driver of version 550 does.
const NVIDIA_SMI: &str = r#"#!/bin/sh
each() { while read pid; do printf "$1" "$pid"; done </opt/processes; }
case $1 in
pmon)
    echo '# gpu         pid   type     sm    command '
    echo '# Idx           #    C/G      %    name '
    each '    0 %10u     C      -    job            \n'
    ;;
-q)
    echo '    Processes'
    each '        Process ID                        : %u\n            Name                          : job\n'
    echo
    ;;
--query-compute-apps=pid,*)
    echo 'pid, process_name'
    each '%u, job\n'
    ;;
--query-compute-apps=*)
    echo 'process_name'
    each 'job\n'
    ;;
*)
    echo '| Processes:                                                                  |'
    echo '|  GPU   GI   CI        PID   Type   Process name                  GPU Memory |'
    echo '|=============================================================================|'
    each '|    0   N/A  N/A%10u      C   job                               518MiB |\n'
    echo '+-----------------------------------------------------------------------------+'
    ;;
esac
exit 6
"#;

/// A node on which alice and bob have a slice each, with a process in it.
struct Site {
    cluster: Cluster,
    /// The jobs of alice and bob.
    jobs: [u32; 2],
    /// The process in each.
    processes: [String; 2],
}

fn site(slurm: Slurm) -> Result<Site> {
    let cluster = installed(slurm)
        .file("/etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n")
        .file("/usr/bin/nvidia-smi", NVIDIA_SMI)
        .start()?;
    let mut jobs = [0; 2];
    let mut processes = [String::new(), String::new()];
    for (at, name) in ["alice", "bob"].into_iter().enumerate() {
        let user = cluster.user(name);
        let script = "sleep 1000 &\necho $! >$HOME/process\nwait";
        jobs[at] = user.sbatch(&["--gres=gpu:l40s.4:1", "--output=/dev/null"], script)?;
        cluster.wait_until("its process", || {
            let id = cluster.read(format!("/home/{name}/process"))?;
            processes[at] = id.unwrap_or_default().trim().to_owned();
            Ok(!processes[at].is_empty())
        })?;
    }
    cluster.write(PROCESSES, &format!("{}\n", processes.join("\n")))?;
    Ok(Site {
        cluster,
        jobs,
        processes,
    })
}

impl Site {
    /// Runs a command in another step of alice's job.
    fn in_alices_job(&self, words: &[&str]) -> Result<Output> {
        let job = format!("--jobid={}", self.jobs[0]);
        let step = [&[&job, "--overlap"], words].concat();
        self.cluster.user("alice").srun(&step)
    }

    /// Whether the ids of alice's process and of bob's are in a command's output.
    fn shown(&self, output: &Output) -> [bool; 2] {
        let words: Vec<&str> = output.stdout.split([' ', '\n', ',']).collect();
        self.processes
            .each_ref()
            .map(|process| words.contains(&process.as_str()))
    }
}

const ALL: [bool; 2] = [true, true];
const ALICES: [bool; 2] = [true, false];

/// The forms in which nvidia-smi shows processes with their ids.
const FORMS: [&[&str]; 3] = [&[], &["-q"], &["pmon"]];

fn a_job_with_a_slice_sees_its_own_processes_only(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    for form in FORMS {
        let real = site.in_alices_job(&[&["nvidia-smi"], form].concat())?;
        assert_eq!(site.shown(&real), ALL, "{form:?}: {real}");
        let output = site.in_alices_job(&[&["softmig", "smi"], form].concat())?;
        assert_eq!(site.shown(&output), ALICES, "{form:?}: {output}");
        assert_eq!(output.status.code(), Some(6), "{form:?}: {output}");
        // All else is the real one's, heading and end too.
        let mut rest: Vec<&str> = real.stdout.lines().collect();
        let his = site.processes[1].as_str();
        let gone = rest.iter().position(|line| line.contains(his));
        let gone = gone.with_context(|| format!("{form:?}: {real}"))?;
        let length = if form == ["-q"] { 2 } else { 1 };
        rest.drain(gone..gone + length);
        assert_eq!(output.stdout.lines().collect::<Vec<_>>(), rest, "{form:?}");
    }
    let query = ["softmig", "smi", "--query-compute-apps=process_name"];
    let output = site.in_alices_job(&query)?;
    assert_eq!(output.stdout, "process_name\njob\n");

    // With nothing of its own on the GPU.
    site.cluster
        .write(PROCESSES, &format!("{}\n", site.processes[1]))?;
    let output = site.in_alices_job(&["softmig", "smi"])?;
    let none = "|  No running processes found                                                 |";
    assert!(output.stdout.lines().any(|line| line == none), "{output}");
    Ok(())
}

fn a_job_without_a_slice_sees_the_output_of_nvidia_smi(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let node = site.cluster.node(0);
    for user in ["root", "alice"] {
        let output = node.command(user, &["softmig", "smi"]).output()?;
        assert_eq!(site.shown(&output), ALL, "{user}: {output}");
    }
    let whole = ["--gres=gpu:l40s:1", "softmig", "smi"];
    let output = site.cluster.user("bob").srun(&whole)?;
    assert_eq!(site.shown(&output), ALL, "{output}");
    for mode in ["observe", "off"] {
        let conf = format!("SOFTMIG_NODE={mode}\n");
        site.cluster.write("/etc/softmig/node.conf", &conf)?;
        let output = site.in_alices_job(&["softmig", "smi"])?;
        assert_eq!(site.shown(&output), ALL, "{mode}: {output}");
    }
    Ok(())
}

fn in_nvidia_smis_place_softmig_finds_the_real_one(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let root = |script: &str| site.cluster.run("root", &["sh", "-ec", script])?.ok();
    root("cd /usr/bin; mv nvidia-smi nvidia-smi.real; ln -s softmig nvidia-smi")?;
    for form in FORMS {
        let output = site.in_alices_job(&[&["nvidia-smi"], form].concat())?;
        assert_eq!(site.shown(&output), ALICES, "{form:?}: {output}");
        assert_eq!(output.status.code(), Some(6), "{form:?}: {output}");
    }
    // Without the real one, softmig does not take itself for it.
    root("rm /usr/bin/nvidia-smi.real")?;
    for command in [&["nvidia-smi"][..], &["softmig", "smi"]] {
        let output = site.cluster.node(0).command("alice", command).output()?;
        assert_eq!(output.status.code(), Some(127), "{command:?}: {output}");
        assert!(
            output.stderr.contains("nvidia-smi is not in "),
            "{command:?}: {output}"
        );
    }
    Ok(())
}

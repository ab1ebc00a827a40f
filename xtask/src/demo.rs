//! `cargo xtask demo`: one slice of a GPU, followed from sbatch to the end of its job on a real Slurm.
//!
//! Nothing that it shows is written down here: commands run in a cluster that is started for it, their output is
//! printed as it comes, and each step is checked before the next one is told.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use softmig_tests::programs::{FOLDER, tree};
use softmig_tests::softmig::{installed, stage as staged};
use softmig_tests::{Cluster, Gpus, Slurm};

use crate::place::run;
use crate::stage::HOOK;
use crate::steps::all;
use crate::tour::{STEP, Tour, must_show, number};
use crate::{playground, programs, roots, stage};

/// Makes what is missing, then shows it, as root.
pub(crate) fn demo(slurm: Slurm, shell: bool, layer: Option<PathBuf>) -> Result<()> {
    println!(
        "softmig demo: slices of GPUs on a real Slurm {slurm}. It needs no GPU. The first time takes some five minutes on two \
         cores, later ones some ten seconds."
    );
    println!(
        "Once: a Debian root below target/, a build, and small programs that use GPUs. debootstrap, make and musl-tools are \
         installed with apt where they are missing."
    );
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("debootstrap and the cluster, with its mounts and namespaces, need root: sudo.");
        run(Command::new("sudo").arg("-v"))?;
    }
    all(|steps| {
        steps.step("missing packages of this machine", || {
            roots::needs().and_then(|()| programs::needs())
        })?;
        std::thread::scope(|scope| {
            // One waits for the network, the other for the processors.
            let debian = scope.spawn(|| roots::build_for(&[slurm]));
            steps.step("softmig, and the drivers of tests", || {
                stage::quick(&stage::PARTS, &[stage::DEFAULT_LUA])
            })?;
            steps.step("programs that use GPUs", programs::build)?;
            steps.step("the rest of the Debian root", || {
                debian
                    .join()
                    .map_err(|_| anyhow!("building the Debian root panicked"))?
            })
        })
    })?;
    if root {
        return show(slurm, shell, layer);
    }
    run(Command::new("sudo")
        .arg("-E")
        .arg(std::env::current_exe().context("finding this program")?)
        .args(["show-demo", "--slurm", &slurm.to_string()])
        .args(shell.then_some("--shell"))
        .args(layer.map(|tree| format!("--layer={}", tree.display()))))
}

/// The part that needs root: a cluster, and a tour of it or a prompt.
pub(crate) fn show(slurm: Slurm, shell: bool, layer: Option<PathBuf>) -> Result<()> {
    let start = Instant::now();
    let machines = installed(slurm).programs().nodes(2).gpus([Gpus::l40s(2)]);
    let machines = layer
        .into_iter()
        .fold(machines, |machines, tree| machines.layer(tree));
    let cluster = machines.start().context("starting the cluster")?;
    if shell {
        return playground::open(&cluster);
    }
    let mut tour = Tour::of(&cluster);
    let toured = tour.run();
    toured.with_context(|| format!("the demo failed at step {}", tour.number))?;
    println!("\n{}", summary(&cluster));
    drop(cluster);
    if has_gpu() {
        on_the_gpu()?;
    }
    println!(
        "All steps were checked. The cluster is gone again; the tour took {:.1} s.",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs both, as a person does.
pub(crate) fn test() -> Result<()> {
    let own = std::env::current_exe().context("finding this program")?;
    run(Command::new(&own).arg("demo"))?;
    let mut shell = Command::new(&own)
        .args(["demo", "--shell"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the demo")?;
    let typed = b"alice\nsalloc --gres=gpu:l40s.12g:1 softmig status\nexit\nexit\n";
    shell.stdin.take().context("no stdin")?.write_all(typed)?;
    let output = shell.wait_with_output().context("the demo's end")?;
    ensure!(output.status.success(), "{}", output.status);
    must_show(
        &String::from_utf8_lossy(&output.stdout),
        "2 of 4 shards free",
    )
}

fn summary(cluster: &Cluster) -> String {
    let fence = if cluster.constrains_devices() {
        "the device fence of Slurm (cgroup v1)"
    } else {
        "no device fence (this machine has no cgroup v1)"
    };
    format!(
        "Real:      Slurm {} from Debian's packages (slurmctld, slurmd, sbatch, srun, scontrol), softmig in job_submit\n           \
                    and cli_filter, softmig's prolog and epilog, its library and its monitor, {fence}.\n\
         Simulated: the GPUs and NVIDIA's driver. /dev/nvidia* are device files without a driver, /proc/driver/nvidia\n           \
                    is made of files, and libcuda and libnvidia-ml are those of softmig's tests.\n\
         Not shown: real GPU work, except on a machine that has a GPU.",
        cluster.slurm()
    )
}

/// Whether this machine has a GPU and its driver.
fn has_gpu() -> bool {
    let driver = Path::new("/proc/driver/nvidia/version");
    Path::new("/dev/nvidiactl").exists() && driver.exists()
}

/// The same on this machine's own GPU, without Slurm: programs of a user who limits them.
fn on_the_gpu() -> Result<()> {
    println!("\nThis machine has a GPU: the same on it, by 'softmig run'.");
    let takes = tree().join(FOLDER.trim_start_matches('/')).join("takes");
    let takes = takes.to_string_lossy().into_owned();
    let step = STEP.to_string();
    let said = limited(&[&takes, "cuMemAlloc_v2", &step, "hold", "0"])?;
    must_show(&said, "then=2")?;
    let limit = LIMIT_MIB << 20;
    ensure!(
        number(&said, "blocks=")? * STEP < limit,
        "more than {limit} bytes"
    );
    let query = [
        "nvidia-smi",
        "--query-gpu=memory.total",
        "--format=csv,noheader",
    ];
    must_show(&limited(&query)?, &format!("{LIMIT_MIB} MiB"))
}

/// The memory that programs may hold of this machine's GPU.
const LIMIT_MIB: u64 = 4096;

/// The output of a command under limits, on this machine.
fn limited(command: &[&str]) -> Result<String> {
    let options = [&format!("--memory={LIMIT_MIB}M"), "--compute=25", "--"];
    println!(
        "    $ softmig run {} {}",
        options.join(" "),
        command.join(" ")
    );
    let output = Command::new(staged().join("usr/bin/softmig"))
        .arg("run")
        .arg("--library")
        .arg(staged().join(HOOK))
        .args(options)
        .args(command)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting softmig run")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines().for_each(|line| println!("        {line}"));
    ensure!(output.status.success(), "{}", output.status);
    Ok(said)
}

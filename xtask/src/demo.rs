//! `cargo xtask demo`: one slice of a GPU, followed from sbatch to the end of its job on a real Slurm.
//!
//! Nothing that it shows is written down here: commands run in a cluster that is started for it, their output is
//! printed as it comes, and each step is checked before the next one is told.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use softmig_tests::softmig::installed;
use softmig_tests::{Cluster, Gpus, Slurm};

use crate::narrator::Narrator;
use crate::place::run;
use crate::steps::all;
use crate::{programs, roots, stage, tour, work};

/// Makes what is missing, then shows it, as root.
pub(crate) fn demo(slurm: Slurm) -> Result<()> {
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
        return show(slurm);
    }
    run(Command::new("sudo")
        .arg("-E")
        .arg(std::env::current_exe().context("finding this program")?)
        .args(["show-demo", "--slurm", &slurm.to_string()]))
}

/// The part that needs root: a cluster, and a tour of it.
pub(crate) fn show(slurm: Slurm) -> Result<()> {
    let start = Instant::now();
    let cluster = installed(slurm)
        .programs()
        .nodes(2)
        .gpus([Gpus::l40s(2)])
        .start()
        .context("starting the cluster")?;
    let mut narrator = Narrator::new(&cluster);
    let toured = tour::tour(&cluster, &mut narrator);
    toured.with_context(|| format!("the demo failed at step {}", narrator.number()))?;
    println!("\n{}", summary(&cluster));
    drop(cluster);
    if work::has_gpu() {
        work::on_the_gpu()?;
    }
    println!(
        "All steps were checked. The cluster is gone again; the tour took {:.1} s.",
        start.elapsed().as_secs_f64()
    );
    Ok(())
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

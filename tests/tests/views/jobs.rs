//! Two jobs of two users on one GPU.

use anyhow::{Context, Result};
use softmig_fake_node::MIB;
use softmig_tests::programs::{FOLDER, LIBRARY, PRELOAD};
use softmig_tests::requests::memory_mib;
use softmig_tests::softmig::enforced;
use softmig_tests::{Cluster, Gpus, Output, Slurm, on_each_slurm};

use crate::views::look::{COMPUTE, Look};

on_each_slurm!(
    each_job_sees_its_own_slice_and_its_own_processes,
    cuda_and_nvml_agree_with_each_other_and_the_slice,
    a_job_without_limits_sees_the_drivers_answers,
);

const NODE_CONF: &str = "/etc/softmig/node.conf";

/// The jobs' parts of the GPU, in bytes.
const QUARTER: u64 = memory_mib(1) as u64 * MIB;
const HALF: u64 = memory_mib(2) as u64 * MIB;

/// A node with one GPU, on which alice has a quarter and bob a half.
struct Site {
    cluster: Cluster,
    /// The GPU from outside.
    _driver: softmig_fake_node::Node,
    alice: Job,
    bob: Job,
}

/// A job and those of its processes that use the GPU.
struct Job {
    user: &'static str,
    id: u32,
    pids: Vec<u32>,
}

fn site(slurm: Slurm) -> Result<Site> {
    let cluster = enforced(slurm).programs().gpus([Gpus::l40s(1)]).start()?;
    let driver = cluster
        .node(0)
        .start_driver_as(|description| description.accounting())?;
    let alice = job(&cluster, "alice", "gpu:l40s.4:1", &["hold 200", "hold 100"])?;
    let bob = job(&cluster, "bob", "gpu:l40s.2:1", &["hold 500 busy"])?;
    Ok(Site {
        cluster,
        _driver: driver,
        alice,
        bob,
    })
}

/// Starts a job whose processes hold memory of the GPU until it ends.
fn job(cluster: &Cluster, user: &'static str, gres: &str, holders: &[&str]) -> Result<Job> {
    let start = |words: &&str| format!("{FOLDER}/views {words} &\n");
    let script: String = holders.iter().map(start).collect();
    let of_user = cluster.user(user);
    let id = of_user.sbatch(&["--gres", gres], &(script + "wait\nsleep 1000"))?;
    let pids = cluster.wait_for("its processes", || {
        let said = of_user.job_output(id)?;
        let pids = said.lines().filter_map(|line| line.strip_prefix("holds: "));
        let pids: Vec<u32> = pids.map(str::parse).collect::<Result<_, _>>()?;
        Ok((pids.len() == holders.len()).then_some(pids))
    })?;
    Ok(Job { user, id, pids })
}

impl Site {
    /// The processes of both jobs.
    fn all(&self) -> Vec<u32> {
        [&self.alice.pids[..], &self.bob.pids].concat()
    }

    /// The client's words, asking for the accounts of all.
    fn words(&self, what: &str) -> String {
        let pids = self.all().iter().map(u32::to_string).collect::<Vec<_>>();
        format!("{FOLDER}/views {what} {}", pids.join(" "))
    }

    /// Runs the client in a step of a job.
    fn step(&self, job: &Job, what: &str) -> Result<Output> {
        let id = format!("--jobid={}", job.id);
        let words = self.words(what);
        self.cluster
            .user(job.user)
            .srun(&[&id, "--overlap", "--ntasks=1", "bash", "-c", &words])
    }

    /// Looks in a step of a job.
    fn look(&self, job: &Job, what: &str) -> Result<Look> {
        Look::with_library(&self.step(job, what)?)
    }

    /// Looks outside every job, below other programs if any.
    fn outside(&self, user: &str, below: &str) -> Result<Output> {
        let line = format!("{below} {}", self.words("look"));
        let node = self.cluster.node(0);
        node.command(user, &["bash", "-c", &line]).output()
    }

    /// Waits until bob's work fills the time that the driver looks back on.
    fn wait_for_work(&self) -> Result<()> {
        self.cluster.wait_until("the GPU is busy", || {
            let rates = self.look(&self.bob, "look")?;
            Ok(rates.figures("nvmlDeviceGetUtilizationRates")? == [100, 0])
        })
    }
}

fn each_job_sees_its_own_slice_and_its_own_processes(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let (alice, bob) = (&site.alice, &site.bob);
    site.wait_for_work()?;

    let look = site.look(alice, "look")?;
    look.assert_users(&alice.pids)?;
    look.assert_accounts(&alice.pids, &bob.pids)?;
    look.assert_work(&[])?;
    look.assert_unknown_versions()?;
    let (total, used, _) = look.memory("")?;
    assert_eq!(total, QUARTER);
    assert!((300 * MIB..1500 * MIB).contains(&used), "{used}");

    let look = site.look(bob, "look")?;
    look.assert_users(&bob.pids)?;
    look.assert_accounts(&bob.pids, &alice.pids)?;
    look.assert_work(&[(bob.pids[0], 100)])?;
    let (total, used, _) = look.memory("")?;
    assert_eq!(total, HALF);
    assert!((500 * MIB..1200 * MIB).contains(&used), "{used}");

    // A process outside every job has the limits of its user's smallest job, and sees the processes of that job.
    let look = Look::with_library(&site.outside("alice", "")?)?;
    look.assert_users(&alice.pids)?;
    assert_eq!(look.memory("")?.0, QUARTER);
    // A process whose user cannot be told has the limits of the smallest job on the GPU, and sees no process.
    let look = Look::with_library(&site.outside("bob", "unshare --map-root-user")?)?;
    look.assert_users(&[])?;
    look.assert_accounts(&[], &site.all())?;
    look.assert_work(&[])?;
    assert_eq!(look.memory("")?, (QUARTER, 0, QUARTER));

    // The control: all of it is there to be seen.
    let look = Look::with_library(&site.outside("root", "")?)?;
    look.assert_users(&site.all())?;
    look.assert_accounts(&site.all(), &[])?;
    look.assert_work(&[(bob.pids[0], 100)])?;
    let figures = look.figures("nvmlDeviceGetMemoryInfo_v2")?;
    assert_eq!(figures[0], 46068 * MIB);
    Ok(())
}

fn cuda_and_nvml_agree_with_each_other_and_the_slice(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let alice = &site.alice;
    let before = site.look(alice, "look")?.memory("")?;
    let look = site.look(alice, "both")?;
    // All of memory is counted by CUDA, by NVML, and again with more of it taken.
    let mut free_before = None;
    for when in ["", "later "] {
        let (total, used, free) = look.memory(when)?;
        assert_eq!(total, QUARTER);
        assert!(used > before.1, "{used}, {before:?}");
        let figures = |call: &str| look.figures(&format!("{when}{call}"));
        assert_eq!(figures("cuMemGetInfo_v2")?, [free, total]);
        assert_eq!(figures("cuDeviceTotalMem_v2")?, [total]);
        assert_eq!(figures("cuDeviceTotalMem")?, [u64::from(u32::MAX)]);
        if let Some(before) = free_before.replace(free) {
            assert_eq!(before - free, 64 * MIB);
        }
    }
    let old = look.figures("later cuMemGetInfo")?;
    assert_eq!(old, [u64::from(u32::MAX); 2]);
    let listed = look.listed(COMPUTE[0])?;
    assert_eq!(listed.len(), 3, "{listed:?} and itself");
    // It is gone, and so is what it held.
    assert_eq!(site.look(alice, "look")?.memory("")?, before);

    // Bob's use does not touch alice's.
    let more = site.step(&site.bob, "both")?;
    assert!(more.success(), "{more}");
    assert_eq!(site.look(alice, "look")?.memory("")?, before);

    // A killed process holds nothing.
    let victim = alice.pids[1].to_string();
    site.cluster
        .node(0)
        .run_as_root(&["kill", "-9", &victim])?
        .ok()?;
    let after = site.cluster.wait_for("its end", || {
        let look = site.look(alice, "look")?;
        let is_gone = look.listed(COMPUTE[0])?.len() == 1;
        is_gone.then(|| look.memory("")).transpose()
    })?;
    let left = before.1 - after.1;
    assert!(
        left > 100 * MIB && after.1 > 100 * MIB,
        "{before:?}, {after:?}"
    );
    Ok(())
}

fn a_job_without_limits_sees_the_drivers_answers(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let (cluster, alice) = (&site.cluster, &site.alice);
    site.wait_for_work()?;
    let limited = site.look(alice, "both")?.without_itself(&site.all());

    cluster.write(PRELOAD, "")?;
    let drivers = Look::without_library(&site.step(alice, "both")?)?.without_itself(&site.all());
    let root = Look::without_library(&site.outside("root", "")?)?;
    cluster.write(PRELOAD, &format!("{LIBRARY}\n"))?;
    let passive = Look::with_library(&site.outside("root", "")?)?;
    let all = site.all();
    assert_eq!(passive.without_itself(&all), root.without_itself(&all));
    let different = |lines: &[String]| lines.iter().zip(&drivers).filter(|(a, b)| a != b).count();
    assert!(different(&limited) > 20, "{limited:?}\n{drivers:?}");

    cluster.write(NODE_CONF, "SOFTMIG_NODE=observe\n")?;
    let observed = site.look(alice, "both")?.without_itself(&site.all());
    assert_eq!(observed, drivers);
    cluster.write(NODE_CONF, "SOFTMIG_NODE=off\n")?;
    let off = site.look(alice, "both")?.without_itself(&site.all());
    assert_eq!(off, drivers);
    let whole = drivers
        .iter()
        .find(|line| line.starts_with("0 cuDeviceTotalMem_v2: 0 "));
    whole.context("no total")?;
    Ok(())
}

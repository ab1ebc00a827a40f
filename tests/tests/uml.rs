//! Slurm on control groups of version 2, in a guest kernel: where jobs live, what fences them, what runs around them.
//!
//! A boot takes seconds, so a test asks all it can of one.

use std::time::Duration;

use anyhow::Result;
use softmig_tests::programs::{LIBRARY, PRELOAD};
use softmig_tests::softmig::stage;
use softmig_tests::uml::Uml;
use softmig_tests::{Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    a_job_lives_below_its_nodes_scope_and_opens_only_its_own_gpu,
    jobs_can_leave_their_cgroup_namespace,
    a_slices_limits_come_and_go_on_cgroup_v2_too,
    a_kernel_that_does_not_describe_its_types_has_no_device_gate,
);

fn a_job_lives_below_its_nodes_scope_and_opens_only_its_own_gpu(slurm: Slurm) -> Result<()> {
    let script = r#"
        srun --gres=shard:l40s:1 cat /proc/self/cgroup >$OUT/step
        as alice sbatch --wait --output=cgroup --gres=shard:l40s:4 --wrap 'cat /proc/self/cgroup'
        cp /home/alice/cgroup $OUT/batch
        group 1 >$OUT/first && group 2 >$OUT/second
        opens='for gpu in 0 1; do head -c0 /dev/nvidia$gpu 2>&1; done | sed "s/.*: //"'
        srun --gres=shard:l40s:1 bash -c "$opens" >$OUT/with_shard
        srun bash -c "$opens" >$OUT/without_gres
        bash -c "$opens" >$OUT/outside
    "#;
    let run = Uml::builder(slurm).run(script)?.ok()?;
    let scope = "0::/system.slice/n1_slurmstepd.scope";
    let groups = [run.output("first")?.trim(), run.output("second")?.trim()];
    match slurm {
        Slurm::V22_05 | Slurm::V24_11 => assert_eq!(groups, ["job_1", "job_2"]),
        // By their SLUIDs.
        Slurm::V26_05 => assert!(
            groups.iter().all(|name| name.starts_with('s')),
            "{groups:?}"
        ),
    }
    assert_eq!(
        run.output("step")?,
        format!("{scope}/{}/step_0/user/task_0\n", groups[0])
    );
    assert_eq!(
        run.output("batch")?,
        format!("{scope}/{}/step_batch/user/task_0\n", groups[1])
    );
    // The devices have no driver: an open that the fence lets through fails with the first of these.
    let (open, fenced) = ("No such device or address\n", "Operation not permitted\n");
    assert_eq!(run.output("with_shard")?, format!("{open}{fenced}"));
    assert_eq!(run.output("without_gres")?, fenced.repeat(2));
    assert_eq!(run.output("outside")?, open.repeat(2));
    Ok(())
}

fn a_slices_limits_come_and_go_on_cgroup_v2_too(slurm: Slurm) -> Result<()> {
    let script = r#"
        as alice srun --gres=gpu:l40s.4:1 sh -c 'cat /var/run/softmig/$SLURM_JOB_ID.conf' >$OUT/conf
        as alice srun --gres=gpu:l40s.3:1 true 2>$OUT/refusal
        settled
        ls /var/run/softmig >$OUT/after
    "#;
    let run = Uml::builder(slurm).stage(stage()).run(script)?.ok()?;
    let conf = run.output("conf")?;
    assert!(
        conf.starts_with("CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\n"),
        "{conf}"
    );
    assert!(conf.contains("\nSOFTMIG_UID=2001\n"), "{conf}");
    assert!(run.output("refusal")?.contains("[SLICE_SIZE]"));
    assert!(!run.output("after")?.contains(".conf"));
    Ok(())
}

fn a_kernel_that_does_not_describe_its_types_has_no_device_gate(slurm: Slurm) -> Result<()> {
    let script = r#"
        mount -t bpf bpf /sys/fs/bpf
        softmig check --node >$OUT/check
        timeout 5 /usr/libexec/softmig-monitor || true
        cat /run/node.log >$OUT/log
        as alice srun --gres=gpu:l40s.4:1 sh -c 'cat /run/softmig/$SLURM_JOB_ID.conf' >$OUT/conf
    "#;
    let policy = include_str!("../../conf/policy.toml");
    let with_gate = "\ndevice_gate = true\nlog_file = \"/run/node.log\"\n";
    let run = Uml::builder(slurm)
        .stage(stage())
        .file(
            "/etc/softmig/policy.toml",
            policy.replace("\ndevice_gate = false\n", with_gate),
        )
        .file("/etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n")
        .file(PRELOAD, format!("{LIBRARY}\n"))
        .run(script)?
        .ok()?;
    let why = "this kernel has no /sys/kernel/btf/vmlinux";
    let check = run.output("check")?;
    let found = check.lines().find(|line| line.contains("DEVICE_GATE"));
    assert!(found.is_some_and(|line| line.contains(why)), "{check}");
    let log = run.output("log")?;
    assert!(log.contains(why), "{log}");
    let conf = run.output("conf")?;
    assert!(
        conf.contains("SOFTMIG_MODE=hard") && !conf.contains("GATE"),
        "{conf}"
    );
    Ok(())
}

/// The hook must see through it (design 3.5): such a process reads `/`, whatever job it belongs to.
fn jobs_can_leave_their_cgroup_namespace(slurm: Slurm) -> Result<()> {
    let script = r#"
        as alice srun --gres=shard:l40s:1 unshare --map-root-user --cgroup cat /proc/self/cgroup
    "#;
    let run = Uml::builder(slurm).run(script)?.ok()?;
    assert_eq!(run.stdout, "0::/\n");
    Ok(())
}

/// A guest that does not come up says enough to see why.
#[test]
fn a_guest_that_fails_says_why() {
    let broken = Uml::builder(Slurm::V22_05).slurm_conf("NoSuchKey=1");
    let said = format!("{:#}", broken.run("true").unwrap_err());
    assert!(said.contains("slurmctld did not start"), "{said}");
    assert!(said.contains("unrecognized key: NoSuchKey"), "{said}");

    let hasty = Uml::builder(Slurm::V22_05).timeout(Duration::from_secs(1));
    let said = format!("{:#}", hasty.run("true").unwrap_err());
    assert!(said.contains("it still ran after 1 s"), "{said}");
}

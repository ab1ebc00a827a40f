//! Disguises: what a job's process can change about itself, and stays that job's.

use anyhow::Result;
use softmig_tests::{Slurm, on_each_slurm};

use crate::identity::answer::Answer;
use crate::identity::site::{Site, outside, site, step};

on_each_slurm!(
    an_empty_environment_hides_no_job,
    another_jobs_number_in_the_environment_changes_nothing,
    variables_of_the_c_library_are_not_heard_inside_a_job,
    a_job_that_asks_for_silence_keeps_its_limits,
    a_daemon_stays_in_its_job,
    a_process_without_its_first_thread_stays_in_its_job,
    nothing_of_a_step_outlives_it,
    a_user_namespace_hides_no_job,
    who_hides_its_control_group_gets_its_gpus_smallest_slice,
    who_hides_its_control_group_without_slices_is_left_alone,
    who_covers_proc_gets_its_gpus_smallest_slice,
    a_root_folder_without_proc_hides_no_gpu,
    a_copy_of_the_driver_under_another_name_is_known,
    a_library_before_softmigs_gets_no_gpu,
    a_program_that_is_started_without_a_gpu_gets_none,
    a_job_without_limits_keeps_its_rights,
    other_libraries_may_come_first,
);

fn an_empty_environment_hides_no_job(slurm: Slurm) -> Result<()> {
    site(slurm)?.assert_known("env -i SOFTMIG_LOG_LEVEL=3 /opt/programs/whose")
}

fn another_jobs_number_in_the_environment_changes_nothing(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    // Another job of the user, one without limits, another user's job, and a job that never was.
    for other in [site.quarter, site.whole, site.bobs, 4_000_000] {
        site.assert_known(&format!(
            "export SLURM_JOB_ID={other} SLURM_JOBID={other} SLURM_JOB_UID=0 SLURM_STEP_ID=1\nwhose"
        ))?;
    }
    Ok(())
}

fn variables_of_the_c_library_are_not_heard_inside_a_job(slurm: Slurm) -> Result<()> {
    site(slurm)?.assert_known(
        "export CUDA_DEVICE_MEMORY_LIMIT=90G CUDA_DEVICE_MEMORY_LIMIT_0=0 CUDA_DEVICE_SM_LIMIT=100\n\
         export CUDA_DEVICE_SM_LIMIT_0=0 CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/cache CUDA_TASK_PRIORITY=0\n\
         export GPU_CORE_UTILIZATION_POLICY=DISABLE CUDA_OVERSUBSCRIBE=true LD_LIBRARY_PATH=/tmp\n\
         export SOFTMIG_NODE=off SOFTMIG_IDENTITY=env SOFTMIG_CONF=/tmp/conf SOFTMIG_LOG_FILE=/tmp/log\n\
         whose\n\
         CUDA_DEVICE_MEMORY_LIMIT=garbage whose",
    )
}

fn a_job_that_asks_for_silence_keeps_its_limits(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    // A job's first refusal of its kind is told.
    site.step(site.quarter, "whose")?;
    for level in ["0", "1", "", "9", "-1", "3x"] {
        let said = site.step(
            site.quarter,
            &format!("SOFTMIG_LOG_LEVEL={level} LIBCUDA_LOG_LEVEL=4 whose"),
        )?;
        assert_eq!(said, [Answer::limited_silently()], "{level:?}");
    }
    Ok(())
}

fn a_daemon_stays_in_its_job(slurm: Slurm) -> Result<()> {
    // In a session of its own, its parent gone, and without a word to the step that waits for what it says.
    let daemon = "said=$(mktemp)\n\
        setsid --fork sh -c \"sleep 0.2; whose >$said.daemon 2>&1; mv $said.daemon $said\" </dev/null >/dev/null 2>&1\n\
        until [ -s $said ]; do sleep 0.05; done; cat $said";
    site(slurm)?.assert_known(daemon)
}

fn a_process_without_its_first_thread_stays_in_its_job(slurm: Slurm) -> Result<()> {
    site(slurm)?.assert_known("whose without-main")
}

/// `proctrack/cgroup` ends all processes of a step with the step, so the library never has to find the job of one that
/// outlives it.
fn nothing_of_a_step_outlives_it(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let named = format!("/tmp/leftover-{}", slurm.suite());
    let leave = format!(
        "cp /bin/sleep {named}; setsid --fork {named} 1000 >/dev/null 2>&1; until pgrep -x -f '{named} 1000'; do sleep 0.05; done >/dev/null"
    );
    assert_eq!(site.step(site.quarter, &leave)?, []);
    site.cluster.wait_until("the leftover is gone", || {
        let found = site
            .crowded()
            .run_as_root(&["pgrep", "-x", "-f", &format!("{named} 1000")])?;
        Ok(!found.success())
    })
}

fn a_user_namespace_hides_no_job(slurm: Slurm) -> Result<()> {
    site(slurm)?.assert_known(
        "unshare --user whose\n\
         unshare --map-root-user whose\n\
         unshare --map-root-user unshare --map-root-user whose\n\
         unshare --map-root-user unshare --user whose\n\
         unshare --map-root-user --mount --pid --fork --net --uts --ipc whose",
    )
}

/// Ways out of the control group namespace that every user has.
const HIDDEN: [&str; 3] = [
    "unshare --map-root-user --cgroup whose",
    "unshare --map-root-user --cgroup unshare --user whose",
    "unshare --map-root-user --cgroup --mount --pid --fork whose",
];

fn who_hides_its_control_group_gets_its_gpus_smallest_slice(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    for script in HIDDEN {
        let smallest = [Answer::limited_as_on_its_gpus(site.quarter)];
        assert_eq!(site.step(site.quarter, script)?, smallest, "{script}");
        // Bob's half is on the same GPU, so Bob loses by it.
        let bob = step(&site.cluster, "bob", site.bobs, script)?;
        assert_eq!(bob, smallest, "{script}");
        let half = [Answer::limited_as_on_its_gpus(site.half)];
        assert_eq!(site.step(site.half, script)?, half, "{script}");
        // Outside every job all GPUs can be seen.
        assert_eq!(outside(site.crowded(), "bob", script)?, smallest);
    }
    // So it is without any other namespace too: a user namespace hides the user.
    let hidden = outside(site.crowded(), "bob", "unshare --user whose")?;
    assert_eq!(hidden, [Answer::limited_as_on_its_gpus(site.quarter)]);
    Ok(())
}

fn who_hides_its_control_group_without_slices_is_left_alone(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    for script in HIDDEN {
        let said = site.step(site.whole, script)?;
        assert_eq!(said, [Answer::alone_on_its_gpus()], "{script}");
    }
    Ok(())
}

/// The client where its `/proc` shows nothing but the driver.
const WITHOUT_PROC: &str = "unshare --map-root-user --mount sh -c 'mount --bind /proc/driver /mnt && mount -t tmpfs none /proc && \
     mkdir /proc/driver && mount --bind /mnt /proc/driver && exec whose'";

fn who_covers_proc_gets_its_gpus_smallest_slice(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let smallest = [Answer::limited_as_on_its_gpus(site.quarter)];
    assert_eq!(site.step(site.quarter, WITHOUT_PROC)?, smallest);
    let bob = step(&site.cluster, "bob", site.bobs, WITHOUT_PROC)?;
    assert_eq!(bob, smallest);
    Ok(())
}

fn a_copy_of_the_driver_under_another_name_is_known(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let script =
        "copy=$(mktemp); cp /usr/lib/x86_64-linux-gnu/libcuda.so.1 $copy\nwhose from $copy";
    site.assert_known(script)?;
    assert_eq!(site.step(site.whole, script)?, [Answer::passive()]);
    Ok(())
}

/// Each library before softmig's, the words that start a program so, and whether lookups are the driver's own then.
const FIRST: [(&str, &str, bool); 9] = [
    ("libc.so.6", "LD_PRELOAD=libc.so.6", true),
    ("libcuda.so.1", "LD_PRELOAD=libcuda.so.1", false),
    (
        "libinterposer.so",
        "LD_PRELOAD=/opt/programs/libinterposer.so",
        false,
    ),
    (
        "libinterposer.so",
        "LD_PRELOAD=/opt/programs/liballocator.so:/opt/programs/libinterposer.so",
        false,
    ),
    ("libfixed.so", "LD_PRELOAD=/opt/programs/libfixed.so", false),
    ("libcalls.so", "LD_PRELOAD=/opt/programs/libcalls.so", false),
    ("LD_AUDIT", "LD_AUDIT=/opt/programs/libaudit.so", false),
    (
        "libc.so.6",
        "/lib64/ld-linux-x86-64.so.2 --preload libc.so.6",
        true,
    ),
    (
        "libc.so.6",
        "env -u SLURM_JOB_ID LD_PRELOAD=libc.so.6",
        true,
    ),
];

fn a_library_before_softmigs_gets_no_gpu(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    for (file, words, hides_lookups) in FIRST {
        let script = format!("{words} /opt/programs/whose");
        let expected = site
            .quarter_answer()
            .kept_from_driver(site.quarter, file, hides_lookups);
        assert_eq!(site.step(site.quarter, &script)?, [expected], "{words}");
        // Where no limits hold, nothing is taken.
        let whole = site.step(site.whole, &script)?;
        assert_eq!(whole, [Answer::passive()], "{words}");
    }
    Ok(())
}

/// A job without GPUs, in which some libraries would take rights from programs that are started (`sudo`).
fn a_job_without_limits_keeps_its_rights(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let job = site.none.to_string();
    let script = "LD_PRELOAD=libc.so.6 grep NoNewPrivs /proc/self/status";
    let argv = ["srun", "--jobid", &job, "--overlap", "bash", "-c", script];
    let said = site.cluster.command("alice", &argv).output()?;
    assert_eq!(said.stdout, "NoNewPrivs:\t0\n", "{said}");
    Ok(())
}

fn a_program_that_is_started_without_a_gpu_gets_none(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let expected = site.quarter_answer().without_driver();
    let script = "SOFTMIG_LOG_LEVEL=1 LD_PRELOAD=libc.so.6 sh -c 'unset LD_PRELOAD; SOFTMIG_LOG_LEVEL=3 exec whose'";
    assert_eq!(site.step(site.quarter, script)?, [expected]);
    Ok(())
}

fn other_libraries_may_come_first(slurm: Slurm) -> Result<()> {
    site(slurm)?.assert_known(
        "LD_PRELOAD=/opt/programs/liballocator.so whose\n\
         LD_PRELOAD=/opt/programs/libolder.so whose\n\
         LD_PRELOAD=libm.so.6 whose\n\
         LD_PRELOAD=libpthread.so.0:libdl.so.2 LD_AUDIT= whose\n\
         /lib64/ld-linux-x86-64.so.2 /opt/programs/whose",
    )
}

/// As a container may have it that an administrator made, with softmig's files in it.
fn a_root_folder_without_proc_hides_no_gpu(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let jail = Jail::new(site)?;
    let said = site.step(
        site.quarter,
        "unshare --map-root-user chroot /tmp/jail /opt/programs/whose",
    )?;
    assert_eq!(said, [Answer::limited_as_on_its_gpus(site.quarter)]);
    drop(jail);
    Ok(())
}

/// A root folder with everything but `/proc`, of which it has what the driver shows.
struct Jail<'a>(&'a Site);

impl<'a> Jail<'a> {
    fn new(site: &'a Site) -> Result<Jail<'a>> {
        let make = "mkdir -p /tmp/jail/proc/driver\n\
            for dir in usr lib lib64 bin etc dev opt var run proc/driver; do\n\
            mkdir -p /tmp/jail/$dir && mount --rbind /$dir /tmp/jail/$dir || exit\ndone";
        let jail = Jail(site);
        site.crowded().run_as_root(&["sh", "-c", make])?.ok()?;
        Ok(jail)
    }
}

impl Drop for Jail<'_> {
    fn drop(&mut self) {
        let unmake = "awk '$2 ~ \"^/tmp/jail/\" { print $2 }' /proc/mounts | sort -r | xargs -r -n1 umount -l";
        let _ = self.0.crowded().run_as_root(&["sh", "-c", unmake]);
    }
}

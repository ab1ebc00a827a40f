//! The run folder as the prolog leaves it: a file system of its own, and what happens when it is full.

use crate::place::before_a_job as run;

/// The mounts on the run folder itself.
const MOUNTS: &str = "grep -c ' /run/softmig ' /proc/self/mounts";

#[test]
fn the_run_folder_is_a_bounded_file_system_that_is_mounted_once() {
    let script = format!(
        "for id in 1 2 3 4 5 6 7 8 9; do SLURM_JOB_ID=$id $PROLOG & done; wait; $PROLOG
        {MOUNTS}; grep ' /run/softmig ' /proc/self/mounts; stat -c '%a %u' /run/softmig
        ls /run/softmig/*.conf | wc -l; stat -c '%a %u' /run/softmig.lock"
    );
    let (_, written, errors) = run(&script);
    let lines: Vec<&str> = written.lines().collect();
    let [count, mount, mode, confs, lock] = lines[..] else {
        panic!("{written}{errors}");
    };
    assert_eq!((count, mode, confs, lock), ("1", "755 0", "9", "600 0"));
    for option in [
        "tmpfs",
        "size=16384k",
        "nr_inodes=65536",
        "mode=755",
        "nosuid",
        "nodev",
        "noexec",
    ] {
        assert!(mount.contains(option), "{option}: {mount}");
    }
}

#[test]
fn who_fills_run_takes_no_room_from_the_limits_of_jobs() {
    let full = "mount -o remount,size=1m,nr_inodes=100 /run; mkdir /run/screen
        cat /dev/zero > /run/screen/full 2>/dev/null";
    let more = "i=0; while touch /run/screen/$i 2>/dev/null; do i=$((i + 1)); done";
    // Also if it was full before the first job.
    for script in [
        format!("{full}; $PROLOG"),
        format!("$PROLOG; {full}; {more}; SLURM_JOB_ID=8 $PROLOG"),
    ] {
        let script = format!(
            "{script}; echo $?; cat /run/softmig/*.conf | grep -c LIMIT=11366M; echo x > /run/x"
        );
        let (_, written, errors) = run(&script);
        let jobs = script.matches("$PROLOG").count();
        assert_eq!(written, format!("0\n{jobs}\n"), "{errors}");
        // The control: there was no room on /run itself.
        let refused = ["echo: I/O error", "create /run/x: No space left"];
        assert!(
            refused.iter().any(|error| errors.contains(error)),
            "{errors}"
        );
    }
}

#[test]
fn a_folder_that_has_files_stays_as_it_is() {
    let script = format!(
        "mkdir /run/softmig; echo limits > /run/softmig/6.conf; $PROLOG; echo $?
        cat /run/softmig/6.conf; ls /run/softmig/7.conf; {MOUNTS}"
    );
    let (_, written, _) = run(&script);
    assert_eq!(written, "0\nlimits\n/run/softmig/7.conf\n0\n");
}

/// As if slurmd had one. The monitor and sessions would not see the limits.
#[test]
fn in_a_mount_namespace_of_its_own_the_prolog_hides_no_limits() {
    let script = format!("unshare --mount $PROLOG; echo $?; ls /run/softmig/7.conf; {MOUNTS}");
    let (_, written, _) = run(&script);
    assert_eq!(written, "0\n/run/softmig/7.conf\n0\n");
}

/// A run folder in which `full` leaves no room.
fn without_room(full: &str, job: &str) -> (i32, String, String) {
    run(&format!(
        "mkdir /run/softmig; mount -t tmpfs -o mode=755,size=16k,nr_inodes=20 t /run/softmig; {full}
        {job} $PROLOG; rc=$?; cd /run/softmig; rm -f full/*; stat -c '%n %s' *.conf .7* 2>/dev/null
        find uid gpu -type f 2>/dev/null; cat jobs/7/log 2>/dev/null; exit $rc"
    ))
}

const NO_PAGE: &str = "mkdir /run/softmig/full; cat /dev/zero > /run/softmig/full/x 2>/dev/null";
const NO_INODE: &str = "mkdir /run/softmig/full; cd /run/softmig/full; touch $(seq 17) 2>/dev/null";
const FEW_INODES: &str =
    "mkdir /run/softmig/full; cd /run/softmig/full; touch $(seq 10) 2>/dev/null";

#[test]
fn without_room_for_its_limits_a_job_may_start_and_gets_no_gpu() {
    let (status, written, errors) = without_room(NO_PAGE, "");
    assert_eq!(status, 0, "{errors}");
    let expected = "7.conf 0\nuid/0/7\ngpu/GPU-00000000-1111-2222-3333-444444444444/7\n\
        softmig-prolog: job 7: no GPU: the node had no room for this job's limits. Submit it again, and tell the \
        administrator\n";
    assert_eq!(written, expected, "{errors}");
    assert!(
        errors.contains("job=7 gets no GPU: its files cannot be written: writing ")
            && errors.contains("No space left on device"),
        "{errors}"
    );
    for (full, job) in [
        (NO_INODE, ""),
        (NO_INODE, "SLURM_JOB_EXTRA=$whole "),
        (FEW_INODES, ""),
    ] {
        let (status, written, errors) = without_room(full, job);
        assert_eq!(status, 0, "{errors}");
        assert!(
            !written.contains("7.conf") || written.contains("7.conf 0"),
            "{written}"
        );
        assert!(errors.contains("job=7 gets no GPU"), "{errors}");
    }
}

#[test]
fn without_room_an_older_jobs_limits_do_not_stay() {
    let stale = "cp /etc/softmig/policy.toml /run/softmig/7.conf";
    let (status, written, errors) = without_room(&format!("{stale}; {NO_PAGE}"), "");
    assert_eq!(status, 0, "{errors}");
    // The older conf's page was room enough for this one's, or not.
    assert!(written.contains("7.conf "), "{written}{errors}");
    assert!(!written.contains(".7.conf.new"), "{written}");
}

#[test]
fn a_job_without_gpus_needs_no_room() {
    let (status, _, errors) = without_room(NO_INODE, "SLURM_JOB_GPUS= SLURM_JOB_EXTRA= ");
    assert_eq!((status, errors.as_str()), (0, ""));
}

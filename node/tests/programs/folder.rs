//! A job's own folder as the prolog leaves it: a file system of its own, with the ledger and the log.

use crate::place::before_a_job as run;

/// Fails where a prolog does.
const JOBS_7_AND_8: &str = "set -e; for id in 7 8; do SLURM_JOB_ID=$id $PROLOG; done; set +e\n";

#[test]
fn only_jobs_with_limits_have_a_bounded_file_system() {
    let script = format!(
        "{JOBS_7_AND_8} SLURM_JOB_ID=9 SLURM_JOB_GPUS=0,1 $PROLOG
        SLURM_JOB_ID=10 SLURM_JOB_EXTRA=$whole $PROLOG; SLURM_JOB_ID=11 SLURM_JOB_GPUS= SLURM_JOB_EXTRA= $PROLOG
        grep softmig/jobs /proc/self/mounts; stat -c '%n %a %u %s' /run/softmig/jobs /run/softmig/jobs/*/*"
    );
    let (_, written, _) = run(&script);
    let (mounts, files): (Vec<&str>, Vec<&str>) =
        written.lines().partition(|line| line.contains(" tmpfs "));
    assert_eq!(mounts.len(), 3, "{written}");
    for (mount, (job, room)) in mounts.iter().zip([(7, 2116), (8, 2116), (9, 2180)]) {
        for option in [
            &format!("/run/softmig/jobs/{job} "),
            &format!("size={room}k"),
            "nosuid",
            "nodev",
            "noexec",
            "nr_inodes=16",
            "mode=755",
        ] {
            assert!(mount.contains(option), "{option}: {mount}");
        }
    }
    // The size of the folder itself does not matter.
    assert!(
        files[0].starts_with("/run/softmig/jobs 755 0 "),
        "{files:?}"
    );
    let expected = [
        "/run/softmig/jobs/7/ledger 600 0 69632",
        "/run/softmig/jobs/7/log 620 0 0",
        "/run/softmig/jobs/8/ledger 600 0 69632",
        "/run/softmig/jobs/8/log 620 0 0",
        "/run/softmig/jobs/9/ledger 600 0 135168",
        "/run/softmig/jobs/9/log 620 0 0",
    ];
    assert_eq!(files[1..], expected);
}

#[test]
fn a_full_folder_takes_no_room_from_the_ledger_or_other_jobs() {
    let script = r#"$PROLOG; cd /run/softmig/jobs; before=$(df --output=avail /run | tail -n 1)
        dd if=/dev/zero of=7/log bs=64k 2>/dev/null && echo "no end"
        [ "$(df --output=avail /run | tail -n 1)" = "$before" ] || echo "taken from /run"
        [ $(stat -c %s 7/log) -gt 2000000 ] || echo "no room for a log"
        dd if=/dev/urandom of=7/ledger bs=69632 count=1 conv=notrunc 2>/dev/null || echo "no room for the ledger"
        SLURM_JOB_ID=8 $PROLOG && stat -c '%s %b' 8/ledger && $PROLOG && ls /run/softmig/*.conf"#;
    let (status, written, errors) = run(script);
    assert_eq!(
        written, "69632 136\n/run/softmig/7.conf\n/run/softmig/8.conf\n",
        "{errors}"
    );
    assert_eq!(status, 0, "{errors}");
}

#[test]
fn a_second_prolog_of_the_same_run_keeps_the_folder() {
    let script = r#"$PROLOG; cd /run/softmig/jobs/7; echo held > ledger; echo said > log
        $PROLOG; cat /run/softmig/jobs/7/*; grep -c softmig/jobs /proc/self/mounts"#;
    let (_, written, _) = run(script);
    assert_eq!(written, "held\nsaid\n1\n");
}

#[test]
fn the_next_run_gets_its_own_folder_though_the_old_is_in_use() {
    let script = r#"$PROLOG; cd /run/softmig/jobs/7; echo held > ledger; exec 3< ledger
        SLURM_JOB_RESTART_COUNT=1 $PROLOG || exit; cat <&3
        tr -d '\0' < /run/softmig/jobs/7/ledger; stat -c %s /run/softmig/jobs/7/*; grep -c softmig/jobs /proc/self/mounts"#;
    let (_, written, _) = run(script);
    assert_eq!(written, "held\n69632\n0\n1\n");
}

/// A prolog killed after its mount, an epilog killed before its own, two prologs that had no lock.
#[test]
fn what_is_left_of_an_older_job_goes_when_its_number_comes_back() {
    let leave = r"mkdir -p /run/softmig/jobs/7; cd /run/softmig/jobs; echo old > 7/ledger
        for i in 1 2 3; do mount -t tmpfs softmig 7; echo old > 7/ledger; done; ";
    for (job, expected) in [
        ("", "1\n7\n"),
        ("SLURM_JOB_EXTRA=$whole ", "0\n"),
        ("SLURM_JOB_GPUS= SLURM_JOB_EXTRA= ", "0\n"),
    ] {
        let script = format!(
            "{leave} {job} $PROLOG; cat /run/softmig/jobs/7/ledger 2>/dev/null | tr -d '\\0'
            grep -c softmig/jobs /proc/self/mounts; ls /run/softmig/jobs"
        );
        let (_, written, errors) = run(&script);
        assert_eq!((written.as_str(), errors.as_str()), (expected, ""), "{job}");
    }
}

#[test]
fn one_file_system_for_all_jobs_as_older_versions_had_it_stays() {
    let script = r"mkdir -p /run/softmig/jobs; mount -t tmpfs -o size=64m,mode=755 older /run/softmig/jobs
        mkdir /run/softmig/jobs/6; echo said > /run/softmig/jobs/6/log
        $PROLOG; cat /run/softmig/jobs/6/log; grep softmig/jobs /proc/self/mounts | cut -d' ' -f 1,2; ls /run/softmig/jobs/7";
    let (_, written, _) = run(script);
    let mounts = "older /run/softmig/jobs\nsoftmig /run/softmig/jobs/7\n";
    assert_eq!(written, format!("said\n{mounts}ledger\nlog\n"));
}

#[test]
fn where_nothing_can_be_mounted_the_folder_is_a_plain_one() {
    let script = r"prolog() { setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin $PROLOG; }
        prolog || exit 77; echo held > /run/softmig/jobs/7/ledger; prolog
        cat /run/softmig/jobs/7/ledger /var/log/node.log; grep -c softmig/jobs /proc/self/mounts
        # A mount now would hide what is in it.
        $PROLOG; cat /run/softmig/jobs/7/ledger";
    let (status, written, _) = run(script);
    if status == 77 {
        return eprintln!("not tested: no setpriv here");
    }
    assert!(written.starts_with("held\n"), "{written}");
    assert!(written.ends_with("\n0\nheld\n"), "{written}");
    assert!(
        written.contains("/run/softmig/jobs/7 stays a plain folder: mounting a tmpfs there: "),
        "{written}"
    );
}

#[test]
fn without_a_ledger_only_a_job_with_whole_gpus_may_start() {
    // Nothing longer than a conf can be written.
    let narrow = "trap '' XFSZ; ulimit -f 8;";
    for (job, expected) in [("", 1), ("SLURM_JOB_EXTRA=$whole ", 0)] {
        let script = format!("{narrow} {job} $PROLOG; rc=$?; ls /run/softmig; exit $rc");
        let (status, written, errors) = run(&script);
        assert_eq!(status, expected, "{errors}");
        assert_eq!(written.contains("7.conf"), expected == 0, "{written}");
        let said = errors.contains("taking room for /var/run/softmig/jobs/7/.ledger.new: ");
        assert_eq!(said, expected == 1, "{errors}");
    }
}

#[test]
fn what_is_there_is_complete_however_often_the_prolog_is_killed() {
    let script = r#"
        export SLURM_JOB_SLUID=sEKNKTV3WPVA00
        i=0; while [ $i -lt 200 ]; do
            i=$((i + 1)); export SLURM_JOB_RESTART_COUNT=$((i / 2))
            $PROLOG & pid=$!
            j=0; while [ $j -lt $((i * 16 % 2400)) ]; do j=$((j + 1)); done
            kill -9 $pid 2>/dev/null; wait $pid 2>/dev/null
            for conf in /run/softmig/7.conf /run/softmig/sEKNKTV3WPVA00.conf; do
                [ ! -e $conf ] || [ "$(tail -n 1 $conf | cut -d= -f1)" = SOFTMIG_LARGER ] || echo "half: $i"
                [ ! -e $conf ] || [ "$(stat -c '%s %b' /run/softmig/jobs/7/ledger)" = "69632 136" ] || echo "short: $i"
            done
        done
        $PROLOG; find /run/softmig -type f | sort; grep -c softmig/jobs /proc/self/mounts"#;
    let (_, written, _) = run(script);
    let files = [
        "/.lock",
        "/7.conf",
        "/gpu/GPU-00000000-1111-2222-3333-444444444444/7",
        "/jobs/7/ledger",
        "/jobs/7/log",
        "/sEKNKTV3WPVA00.conf",
        "/uid/0/7",
    ];
    let expected: String = files
        .iter()
        .map(|name| format!("/run/softmig{name}\n"))
        .collect();
    assert_eq!(written, expected + "1\n");
}

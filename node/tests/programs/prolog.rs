//! The prolog as Slurm runs it: the built program on the real paths.

use crate::place::before_a_job as run;

#[test]
fn a_slice_jobs_limits_stand_at_the_documented_place() {
    let script = "$PROLOG && cat /var/run/softmig/7.conf /var/log/node.log";
    let (status, written, errors) = run(script);
    assert_eq!((status, errors.as_str()), (0, ""));
    assert!(
        written.starts_with("CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\n"),
        "{written}"
    );
    let line = "job=7 uid=0 run=0 verdict=slice type=l40s shards=1/4 memory_mib=11366 mode=hard source=tag \
                gpus=GPU-00000000-1111-2222-3333-444444444444\n";
    assert!(written.ends_with(line), "{written}");
}

#[test]
fn a_second_prolog_leaves_the_conf_of_a_run_as_it_is() {
    let script = "export SLURM_JOB_START_TIME=1000
        show() { stat -c '%i %y' /run/softmig/7.conf; grep -c LARGER=l40s.2 /run/softmig/7.conf; }
        $PROLOG; show > /run/first
        sed -i 's/shards = 4/shards = 8/; s/\\[node\\]/[node]\\ndevice_gate = true/' /etc/softmig/policy.toml
        $PROLOG; show | diff /run/first - && echo the same
        SLURM_JOB_START_TIME=2000 $PROLOG; grep -c LARGER /run/softmig/7.conf";
    let (_, written, errors) = run(script);
    assert_eq!((written.as_str(), errors.as_str()), ("the same\n0\n", ""));
}

#[test]
fn many_prologs_at_once_leave_each_its_conf_and_its_folder() {
    let script = "for id in 1 2 3 4 5 6 7 8 9; do SLURM_JOB_ID=$id $PROLOG & done; wait
        grep -c softmig/jobs /proc/self/mounts; ls /run/softmig/*.conf | wc -l; ls /run/softmig/jobs/*/ledger | wc -l";
    let (_, written, _) = run(script);
    assert_eq!(
        written.split_whitespace().collect::<Vec<_>>(),
        ["9", "9", "9"]
    );
}

#[test]
fn a_slice_job_must_not_start_unless_root_owns_the_run_folder() {
    for break_it in [
        "chmod 777 /run",
        "mkdir -m 777 /run/softmig",
        "touch /run/softmig",
        "mkdir /run/x; ln -s x /run/softmig",
    ] {
        let (status, _, errors) = run(&format!("{break_it}; $PROLOG"));
        assert_eq!(status, 1, "{break_it}");
        assert!(errors.contains("is not used: it "), "{errors}");
    }
}

#[test]
fn whatever_a_user_types_the_job_may_start() {
    for text in [
        "softmig=",
        "softmig=2:whole",
        "softmig=1:../../x:1/4:1:hard",
        "softmig=1:l40s:9/4:1:hard",
        "softmig=1:l40s:1/4:99999999999999999999:hard",
        "\u{1b}[31m \u{7f}",
        "$(touch /run/x); `id`",
    ] {
        let script = format!(
            "cd /; SLURM_JOB_EXTRA='{text}' $PROLOG; rc=$?; cat /var/log/node.log /run/softmig/7.conf; exit $rc"
        );
        let (status, written, _) = run(&script);
        assert_eq!(status, 0, "{text}");
        assert!(
            written.contains("source=smallest") && written.contains("LIMIT=11366M"),
            "{written}"
        );
        assert!(!written.contains(['\u{1b}', '\u{7f}']), "{written:?}");
    }
}

#[test]
fn a_job_without_a_tag_gets_what_slurmctld_says() {
    let script = r#"[ ! -e /usr/bin/scontrol ] || exit 77
        mount -t tmpfs -o mode=755 t /usr/local/bin; cd /usr/local/bin
        printf '#!/bin/sh\n[ "$*" = "-d -o show job 7" ] && [ "$SLURM_CONF" = /nonexistent ] &&\n' > scontrol
        echo 'echo "JobId=7 JobName=x Nodes=n1 CPU_IDs=0 Mem=500 GRES=shard:l40s:2(IDX:0)"' >> scontrol
        chmod 755 scontrol; SLURM_JOB_EXTRA='my own words' $PROLOG; cat /var/log/node.log"#;
    let (status, written, _) = run(script);
    // 77: this machine has a Slurm of its own.
    let expected = "shards=2/4 memory_mib=22732 mode=hard source=slurmctld";
    assert!(status == 77 || written.contains(expected), "{written}");
}

/// As a job that has whole GPUs by --core-spec, or in a partition with OverSubscribe=EXCLUSIVE.
#[test]
fn an_untagged_job_with_all_gpus_gets_none_where_people_matter() {
    let policy = "cd /etc/softmig; echo 'on_untagged = \"deny\"' >> policy.toml
        mount -t tmpfs -o mode=755 t /usr/local/bin; cp /usr/bin/false /usr/local/bin/scontrol";
    let people = "printf '[[gate]]\nwhat = \"whole\"\nreservation = [\"course\"]\n' >> policy.toml";
    let mode = |mode: &str| format!("echo SOFTMIG_NODE={mode} > node.conf");
    let denied = |prepare: &[&str], job: &str| {
        let prepare = prepare.join("; ");
        let (status, written, errors) = run(&format!(
            "{policy}; {prepare}; {job} $PROLOG; rc=$?; cd /run/softmig; cat 7.conf jobs/7/log; exit $rc"
        ));
        assert_eq!(status, 0, "{errors}");
        let is_denied = written.contains("SOFTMIG_MODE=none\n");
        assert_eq!(is_denied, !written.contains("LIMIT"), "{written}");
        assert_eq!(
            is_denied,
            written.contains("no GPU: job_submit has not decided"),
            "{written}"
        );
        assert_eq!(
            is_denied,
            errors.contains("job=7 gets no GPU: job_submit"),
            "{errors}"
        );
        is_denied
    };
    let enforce = mode("enforce");
    let untagged = "SLURM_JOB_EXTRA='my words'";
    assert!(denied(&[people, &enforce], untagged));
    assert!(denied(&[people, "echo rubbish > node.conf"], untagged));
    for (prepare, job) in [
        // It has been decided on.
        (&[people, &enforce][..], ""),
        (&[people, &enforce], "SLURM_JOB_EXTRA=softmig=1:ask"),
        // No rule is about people.
        (&[&enforce], untagged),
        // The job may be from before softmig.
        (&[people, &mode("observe")], untagged),
        (&[people], untagged),
    ] {
        assert!(!denied(prepare, job), "{prepare:?} {job}");
    }
}

#[test]
fn without_answer_or_policy_a_job_starts_without_a_conf() {
    let script = "$PROLOG; rm /etc/softmig/policy.toml; SLURM_JOB_EXTRA= $PROLOG; echo $? $(ls /run/softmig)";
    let (_, written, errors) = run(script);
    assert_eq!(written, "0 gpu jobs uid\n");
    assert!(errors.contains("job=7 gets no GPU"), "{errors}");
}

#[test]
fn the_node_is_drained_only_where_the_policy_says_so() {
    let script = "echo 'on_unknown = \"drain\"' >> /etc/softmig/policy.toml; $PROLOG; echo $?; SLURM_JOB_EXTRA= $PROLOG";
    let (status, written, errors) = run(script);
    assert_eq!((status, written.as_str()), (1, "0\n"));
    assert!(errors.contains("on_unknown is drain"), "{errors}");
}

#[test]
fn a_prolog_that_slurm_did_not_start_says_so() {
    let (status, _, errors) = run("unset SLURM_JOB_ID; $PROLOG");
    assert_eq!(status, 2);
    assert!(errors.contains("SLURM_JOB_ID"), "{errors}");
}

#[test]
fn a_job_without_gpus_leaves_no_trace() {
    let (status, written, errors) =
        run("unset SLURM_JOB_GPUS SLURM_JOB_EXTRA; $PROLOG; ls /run /var/log");
    assert_eq!((status, errors.as_str()), (0, ""));
    assert!(
        !written.contains("softmig") && !written.contains("node.log"),
        "{written}"
    );
}

#[test]
fn a_log_without_a_reader_keeps_no_job_waiting() {
    let script = r#"mkdir -p /run/systemd/journal
        python3 -c 'import socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("/run/systemd/journal/socket"); time.sleep(60)' & reader=$!
        while [ ! -S /run/systemd/journal/socket ]; do kill -0 $reader || exit 77; sleep 0.01; done
        i=0; while [ $i -lt 8 ]; do i=$((i + 1)); SLURM_JOB_ID=$i timeout 5 $PROLOG || echo "late: $i"; done
        kill $reader; ls /run/softmig/*.conf | wc -l"#;
    let (status, written, _) = run(script);
    // 77: no python3 to hold the socket.
    assert!(status == 77 || written == "8\n", "{written}");
}

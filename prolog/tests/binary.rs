//! The prolog as Slurm runs it: the built program on the real paths, in a mount namespace where these are empty.
//!
//! Where namespaces cannot be made, these tests say so and pass; the rest of the crate's tests need none.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside their functions"
)]

use std::process::{Command, Output};

/// A node with one L40S, as the first lines of each test's script.
const NODE: &str = r#"
mount -t tmpfs -o mode=755 t /run
mount -t tmpfs -o mode=775 t /var/log
mount -t tmpfs -o mode=755 t /etc
mount -t tmpfs t /proc/driver
mkdir -p /etc/softmig /proc/driver/nvidia/gpus/0000:01:00.0
printf '[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n[node]\nlog_file = "/var/log/node.log"\n' \
    > /etc/softmig/policy.toml
printf 'Model: \t\t NVIDIA L40S\nGPU UUID: \t GPU-00000000-1111-2222-3333-444444444444\nDevice Minor: \t 0\n' \
    > /proc/driver/nvidia/gpus/0000:01:00.0/information
export SLURM_CONF=/nonexistent SLURMD_NODENAME=n1 SLURM_JOB_ID=7 SLURM_JOB_UID=0 SLURM_JOB_GPUS=0
export SLURM_JOB_EXTRA='words softmig=1:l40s:1/4:11366:hard'
whole='softmig=1:whole'
"#;

/// Runs a shell script on such a node; `None` where that is not possible.
fn on_a_node(script: &str) -> Option<Output> {
    // `/var/run` must be what it is on every node, a link to `/run`.
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        if !rustix::process::getuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--mount", "sh", "-c", script]);
        command
            .env("PROLOG", env!("CARGO_BIN_EXE_softmig-prolog"))
            .output()
    };
    let possible = "mount -t tmpfs t /run && [ /var/run -ef /run ] && [ -d /proc/driver ]";
    match unshare(possible) {
        Ok(probe) if probe.status.success() => Some(unshare(&format!("{NODE}{script}")).unwrap()),
        _ => {
            eprintln!("not tested: no mount namespace here");
            None
        }
    }
}

/// The exit status and what was written.
fn run(script: &str) -> Option<(i32, String, String)> {
    let output = on_a_node(script)?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Some((
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    ))
}

#[test]
fn a_slice_jobs_limits_stand_at_the_documented_place() {
    let script = "$PROLOG && cat /var/run/softmig/7.conf /var/log/node.log";
    let Some((status, written, errors)) = run(script) else {
        return;
    };
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
fn the_folder_that_jobs_write_into_is_a_bounded_file_system_mounted_once() {
    let script = "for id in 7 8 9; do SLURM_JOB_ID=$id $PROLOG; done; grep softmig/jobs /proc/self/mounts; ls /run/softmig/jobs";
    let Some((_, written, _)) = run(script) else {
        return;
    };
    let (mount, jobs) = written.split_once('\n').unwrap();
    for option in [
        "nosuid",
        "nodev",
        "noexec",
        "size=65536k",
        "nr_inodes=16384",
        "mode=755",
    ] {
        assert!(mount.contains(option), "{mount}");
    }
    assert_eq!(jobs, "7\n8\n9\n");
}

#[test]
fn many_prologs_at_once_mount_it_once_and_each_leaves_its_conf() {
    let script = "for id in 1 2 3 4 5 6 7 8 9; do SLURM_JOB_ID=$id $PROLOG & done; wait
        grep -c softmig/jobs /proc/self/mounts; ls /run/softmig/*.conf | wc -l; ls /run/softmig/jobs | wc -l";
    let Some((_, written, _)) = run(script) else {
        return;
    };
    assert_eq!(
        written.split_whitespace().collect::<Vec<_>>(),
        ["1", "9", "9"]
    );
}

#[test]
fn without_room_for_the_limits_a_slice_job_must_not_start_and_a_whole_one_may() {
    let full = "mkdir /run/softmig && mount -t tmpfs -o mode=755,size=4k,nr_inodes=4 t /run/softmig && cd /run/softmig
        touch .lock a; ";
    for (job, expected) in [
        ("", 1),
        ("SLURM_JOB_EXTRA=$whole ", 0),
        ("SLURM_JOB_GPUS= ", 0),
    ] {
        let Some((status, _, errors)) = run(&format!("{full} touch b; {job} $PROLOG")) else {
            return;
        };
        assert_eq!(status, expected, "{job}{errors}");
        assert_eq!(
            errors.contains("No space left on device"),
            !job.contains("GPUS"),
            "{errors}"
        );
    }
}

#[test]
fn without_a_run_folder_that_only_root_can_change_a_slice_job_must_not_start() {
    for break_it in [
        "chmod 777 /run",
        "mkdir -m 777 /run/softmig",
        "touch /run/softmig",
        "mkdir /run/x; ln -s x /run/softmig",
    ] {
        let Some((status, _, errors)) = run(&format!("{break_it}; $PROLOG")) else {
            return;
        };
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
        let Some((status, written, _)) = run(&script) else {
            return;
        };
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
    let Some((status, written, _)) = run(script) else {
        return;
    };
    // 77: this machine has a Slurm of its own.
    let expected = "shards=2/4 memory_mib=22732 mode=hard source=slurmctld";
    assert!(status == 77 || written.contains(expected), "{written}");
}

#[test]
fn without_any_answer_or_policy_no_conf_is_left_and_the_job_may_start() {
    let script = "$PROLOG; rm /etc/softmig/policy.toml; SLURM_JOB_EXTRA= $PROLOG; echo $? $(ls /run/softmig)";
    let Some((_, written, errors)) = run(script) else {
        return;
    };
    assert_eq!(written, "0 gpu jobs uid\n");
    assert!(errors.contains("job=7 gets no GPU"), "{errors}");
}

#[test]
fn the_node_is_drained_only_where_the_policy_says_so() {
    let script = "echo 'on_unknown = \"drain\"' >> /etc/softmig/policy.toml; $PROLOG; echo $?; SLURM_JOB_EXTRA= $PROLOG";
    let Some((status, written, errors)) = run(script) else {
        return;
    };
    assert_eq!((status, written.as_str()), (1, "0\n"));
    assert!(errors.contains("on_unknown is drain"), "{errors}");
}

#[test]
fn a_prolog_that_slurm_did_not_start_says_so() {
    let Some((status, _, errors)) = run("unset SLURM_JOB_ID; $PROLOG") else {
        return;
    };
    assert_eq!(status, 2);
    assert!(errors.contains("SLURM_JOB_ID"), "{errors}");
}

#[test]
fn a_job_without_gpus_leaves_no_trace() {
    let Some((status, written, errors)) = run("unset SLURM_JOB_GPUS; $PROLOG; ls /run /var/log")
    else {
        return;
    };
    assert_eq!((status, errors.as_str()), (0, ""));
    assert!(
        !written.contains("softmig") && !written.contains("node.log"),
        "{written}"
    );
}

#[test]
fn a_log_that_nobody_reads_keeps_no_job_waiting() {
    let script = r#"mkdir -p /run/systemd/journal
        python3 -c 'import socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("/run/systemd/journal/socket"); time.sleep(60)' & reader=$!
        while [ ! -S /run/systemd/journal/socket ]; do kill -0 $reader || exit 77; sleep 0.01; done
        i=0; while [ $i -lt 8 ]; do i=$((i + 1)); SLURM_JOB_ID=$i timeout 5 $PROLOG || echo "late: $i"; done
        kill $reader; ls /run/softmig/*.conf | wc -l"#;
    let Some((status, written, _)) = run(script) else {
        return;
    };
    // 77: no python3 to hold the socket.
    assert!(status == 77 || written == "8\n", "{written}");
}

#[test]
fn a_conf_that_is_there_is_complete_however_often_the_prolog_is_killed() {
    let script = r#"
        export SLURM_JOB_SLUID=sEKNKTV3WPVA00
        i=0; while [ $i -lt 150 ]; do
            i=$((i + 1)); export SLURM_JOB_RESTART_COUNT=$i
            $PROLOG & pid=$!
            j=0; while [ $j -lt $((i * 16 % 2400)) ]; do j=$((j + 1)); done
            kill -9 $pid 2>/dev/null; wait $pid 2>/dev/null
            for conf in /run/softmig/7.conf /run/softmig/sEKNKTV3WPVA00.conf; do
                [ ! -e $conf ] || [ "$(tail -n 1 $conf | cut -d= -f1)" = SOFTMIG_RUN ] || echo "half: $i"
            done
        done
        $PROLOG; find /run/softmig -type f | sort"#;
    let Some((_, written, _)) = run(script) else {
        return;
    };
    let files = [
        "/.lock",
        "/7.conf",
        "/gpu/GPU-00000000-1111-2222-3333-444444444444/7",
        "/jobs/7/log",
        "/sEKNKTV3WPVA00.conf",
        "/uid/0/7",
    ];
    let expected: String = files
        .iter()
        .map(|name| format!("/run/softmig{name}\n"))
        .collect();
    assert_eq!(written, expected);
}

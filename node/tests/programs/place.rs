//! A node for the built programs: a mount namespace where the real paths are empty.
//! Making it takes root or user namespaces.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside their functions"
)]

use std::process::Command;

/// A node with nothing on it, and the first job's environment.
const NODE: &str = "
mount -t tmpfs -o mode=755 t /run
mount -t tmpfs -o mode=775 t /var/log
mount -t tmpfs -o mode=755 t /etc
export SLURM_CONF=/nonexistent SLURMD_NODENAME=n1 SLURM_JOB_ID=7 SLURM_JOB_UID=0 SLURM_JOB_GPUS=0
";

/// With one L40S, and a job with a slice.
const PROLOG: &str = r#"
mount -t tmpfs t /proc/driver
mkdir -p /etc/softmig /proc/driver/nvidia/gpus/0000:01:00.0
printf '[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n[node]\nlog_file = "/var/log/node.log"\n' \
    > /etc/softmig/policy.toml
printf 'Model: \t\t NVIDIA L40S\nGPU UUID: \t GPU-00000000-1111-2222-3333-444444444444\nDevice Minor: \t 0\n' \
    > /proc/driver/nvidia/gpus/0000:01:00.0/information
export SLURM_JOB_EXTRA='words softmig=1:l40s:1/4:11366:hard'
whole='softmig=1:whole'
"#;

/// With the files of two jobs of root's.
const EPILOG: &str = r"
cd /run; mkdir -p softmig/jobs/7 softmig/jobs/77 softmig/uid/0 softmig/gpu/GPU-1
for id in 7 77; do
    printf 'SOFTMIG_UID=0\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\nSOFTMIG_RUN=1\n' > softmig/$id.conf
    touch softmig/jobs/$id/log softmig/uid/0/$id softmig/gpu/GPU-1/$id
done
ln softmig/7.conf softmig/sEKNKTV3WPVA00.conf
";

/// The exit status of a shell script on a node before a job, and what was written.
pub(crate) fn before_a_job(script: &str) -> (i32, String, String) {
    run(&format!("{NODE}{PROLOG}{script}"))
}

/// The same after two jobs.
pub(crate) fn after_jobs(script: &str) -> (i32, String, String) {
    run(&format!("{NODE}{EPILOG}{script}"))
}

fn run(script: &str) -> (i32, String, String) {
    // `/var/run` must be what it is on every node, a link to `/run`.
    let possible = "mount -t tmpfs t /run && [ /var/run -ef /run ] && [ -d /proc/driver ]";
    let probe = unshare(possible).output().unwrap();
    assert!(probe.status.success(), "no namespace: {probe:?}");
    let output = unshare(script).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let status = output.status.code().unwrap();
    (status, text(output.stdout), text(output.stderr))
}

fn unshare(script: &str) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::getuid().is_root() {
        command.arg("--map-root-user");
    }
    // The script is process 1: what it mounts is seen by the whole machine.
    command.args(["--mount", "--pid", "--fork", "--mount-proc"]);
    command
        .args(["sh", "-c", script])
        .env("PROLOG", env!("CARGO_BIN_EXE_softmig-prolog"))
        .env("EPILOG", env!("CARGO_BIN_EXE_softmig-epilog"));
    command
}

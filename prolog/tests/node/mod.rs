//! A node for the built prolog: a mount namespace where the real paths are empty.
//!
//! Where namespaces cannot be made, tests say so and pass.

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
        // The script is process 1: what it mounts is seen by the whole machine.
        command.args([
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "sh",
            "-c",
            script,
        ]);
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
pub fn run(script: &str) -> Option<(i32, String, String)> {
    let output = on_a_node(script)?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Some((
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    ))
}

//! A line in a job's log about a process that was refused.
//!
//! The log is the job's user's own file in a folder of root's: it can be full, locked or cut off, and nothing is waited for.

use softmig_node::dir::Dir;
use softmig_node::node::Node;
use std::io::Write;
use std::time::SystemTime;

/// Writes the line, if that is possible.
pub(super) fn tell(node: &Node, job: u32, pid: u32, minor: u32) {
    let line = line(SystemTime::now(), job, pid, minor);
    let _ = append(node, job, &line);
}

fn line(now: SystemTime, job: u32, pid: u32, minor: u32) -> String {
    let now = humantime::format_rfc3339_seconds(now);
    format!(
        "{now} softmig[{pid}] job {job}: refused /dev/nvidia{minor}: this process does not have softmig's library, or uses the \
         GPU without CUDA and NVML. A container needs /usr/lib/softmig, /etc/ld.so.preload, /etc/softmig and \
         /var/run/softmig, bound read-only, and /var/run/softmig/jobs/{job}, bound writable\n"
    )
}

fn append(node: &Node, job: u32, line: &str) -> Option<()> {
    let run = Dir::open(&node.run, node.owner).ok()??;
    let folder = run.child("jobs").ok()??.child(&job.to_string()).ok()??;
    let mut log = folder.open_at_end("log").ok()??;
    log.write_all(line.as_bytes()).ok()
}

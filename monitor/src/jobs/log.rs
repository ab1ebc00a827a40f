//! Lines in a job's log about its processes.
//!
//! The log is the job's user's own file in a folder of root's: it can be full, locked or cut off, and nothing is waited for.

use softmig_node::dir::Dir;
use softmig_node::node::Node;
use std::io::Write;
use std::time::SystemTime;

/// Writes a line about a process, if that is possible.
pub fn tell(node: &Node, job: u32, pid: u32, sentence: &str) {
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    let line = format!("{now} softmig[{pid}] job {job}: {sentence}\n");
    let _ = append(node, job, &line);
}

fn append(node: &Node, job: u32, line: &str) -> Option<()> {
    let run = Dir::open(&node.run, node.owner).ok()??;
    let folder = run.child("jobs").ok()??.child(&job.to_string()).ok()??;
    let mut log = folder.open_at_end("log").ok()??;
    log.write_all(line.as_bytes()).ok()
}

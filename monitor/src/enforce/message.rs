//! Tells a job's user what was ended: a line in the job's own folder, which root alone can write to.

use crate::enforce::observation::Holder;
use softmig_node::dir::Dir;
use softmig_node::node::Node;
use std::io::{Seek, SeekFrom, Write};
use std::time::SystemTime;

/// The file, beside the job's ledger and log.
pub const NAME: &str = "ended";

/// No more is written than this.
const LONGEST: u64 = 64 << 10;

/// Adds a line. A job without a folder has no limits, and nothing is owed to one that filled its folder.
pub fn leave(node: &Node, holder: &Holder, text: &str) {
    let Holder::Job(job) = holder else {
        return;
    };
    let _ = write(node, *job, text);
}

fn write(node: &Node, job: u32, text: &str) -> Option<()> {
    let run = Dir::open(&node.run, node.owner).ok()??;
    let folder = run.child("jobs").ok()??.child(&job.to_string()).ok()??;
    let mut file = folder.open_or_create(NAME, 0o644).ok()?;
    if file.seek(SeekFrom::End(0)).ok()? < LONGEST {
        let time = humantime::format_rfc3339_seconds(SystemTime::now());
        file.write_all(format!("{time} softmig-monitor: {text}\n").as_bytes())
            .ok()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_finds_a_line_for_each_end_in_the_jobs_folder() {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        leave(&node, &Holder::Job(12), "no folder");
        let job = node.run.join("jobs/12");
        std::fs::create_dir_all(&job).unwrap();
        for text in ["one", "two"] {
            leave(&node, &Holder::Job(12), text);
            leave(&node, &Holder::User(2001), text);
        }
        let said = std::fs::read_to_string(job.join(NAME)).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(lines[0].ends_with("Z softmig-monitor: one"), "{said}");
        assert!(lines[1].ends_with("Z softmig-monitor: two"), "{said}");
        // Anything else than a file is never written to.
        std::fs::remove_file(job.join(NAME)).unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), job.join(NAME)).unwrap();
        leave(&node, &Holder::Job(12), "three");
        assert!(!folder.path().join("other").exists());
    }
}

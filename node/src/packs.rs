//! The folders of packs' servers, `/var/run/softmig/packs/GPU-.../PACK-1`, as far as monitor and epilog both use them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::job::JobId;
use crate::node::Node;

/// The folder of all packs in the run folder.
const FOLDER: &str = "packs";

/// That folder.
pub fn folder(node: &Node) -> PathBuf {
    node.run.join(FOLDER)
}

/// The empty file in a server's folder that says: this process of the job has ended, and its memory on the GPU is not free yet.
pub fn leftover(folder: &Path, job: u32, process: u32) -> PathBuf {
    folder.join(format!("{}{process}", start(job)))
}

fn start(job: u32) -> String {
    format!("left-{job}-")
}

/// Whether any process of the job has left memory on a GPU that is not free yet.
pub fn has_leftovers(node: &Node, job: JobId) -> bool {
    let start = start(job.get());
    let inside = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let gpus = inside(folder(node));
    let servers = gpus.flat_map(|gpu| inside(gpu.path()));
    let mut files = servers.flat_map(|server| inside(server.path()));
    files.any(|file| file.file_name().to_string_lossy().starts_with(&start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_jobs_processes_left_is_seen_until_it_is_free() {
        let site = tempfile::tempdir().unwrap();
        let node = Node::in_folder(site.path(), 0);
        let job = JobId::parse("12").unwrap();
        assert!(!has_leftovers(&node, job));
        let server = folder(&node).join("GPU-1/uid-2001-1");
        fs::create_dir_all(&server).unwrap();
        fs::write(leftover(&server, 123, 7), "").unwrap();
        fs::write(server.join("control"), "").unwrap();
        assert!(!has_leftovers(&node, job));
        fs::write(leftover(&server, 12, 7), "").unwrap();
        assert!(has_leftovers(&node, job));
        fs::remove_file(leftover(&server, 12, 7)).unwrap();
        assert!(!has_leftovers(&node, job));
    }
}

//! The folders of packs' servers, `/var/run/softmig/packs/GPU-.../PACK-1`, as far as monitor and epilog both use them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::job::JobId;
use crate::node::Node;

/// The folder of all packs in the run folder.
const FOLDER: &str = "packs";
/// The file beside the folders of a GPU's servers that counts faults. No server's name is without a number.
const FAULTS: &str = "faults";

/// That folder.
pub fn folder(node: &Node) -> PathBuf {
    node.run.join(FOLDER)
}

/// How many faults of a GPU ended all programs of a pack there, since the node started; `None` where there never was a pack.
pub fn faults(node: &Node, gpu: &str) -> Option<u64> {
    let folder = folder(node).join(gpu);
    folder.is_dir().then(|| {
        let file = fs::metadata(folder.join(FAULTS));
        file.map_or(0, |it| it.len())
    })
}

/// Counts one more, for the server that has this folder.
///
/// # Errors
/// The system's.
pub fn note_fault(folder: &Path) -> io::Result<()> {
    let file = folder.with_file_name(FAULTS);
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    // The file is as long as there were faults.
    file.write_all(b"\n")
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
    fn faults_are_counted_for_each_gpu() {
        let site = tempfile::tempdir().unwrap();
        let node = Node::in_folder(site.path(), 0);
        assert_eq!(faults(&node, "GPU-1"), None);
        let server = folder(&node).join("GPU-1/uid-2001-1");
        fs::create_dir_all(&server).unwrap();
        assert_eq!(faults(&node, "GPU-1"), Some(0));
        note_fault(&server).unwrap();
        note_fault(&server).unwrap();
        assert_eq!(faults(&node, "GPU-1"), Some(2));
        assert_eq!(faults(&node, "GPU-2"), None);
    }

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

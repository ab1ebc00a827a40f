//! What monitor and epilog both know of packs: the folders of their servers, `/var/run/softmig/packs/GPU-.../PACK-1`, and the locks on
//! jobs' ledgers that say whose memory is in use after a process's end.

use nix::fcntl::FcntlArg::{F_OFD_GETLK, F_OFD_SETLK};
use nix::fcntl::fcntl;
use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, c_int, flock, off_t};
use softmig_region::{KEPT, kept_offset};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::folder::ledger;
use crate::node::Node;

/// The folder of all packs in the run folder.
const FOLDER: &str = "packs";
/// The file beside the folders of a GPU's servers that counts faults. No server's name is without a number.
const FAULTS: &str = "faults";

/// That folder.
pub fn folder(node: &Node) -> PathBuf {
    node.run.join(FOLDER)
}

/// How many faults of a GPU ended all programs of a pack there, since the node started; `None` where there never was a server.
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

/// Notes that the GPU's memory that this process of the job has is in use, also after its end: until the file that is returned is closed.
///
/// # Errors
/// The system's, and if the job has no ledger.
pub fn keep_charged(node: &Node, job: u32, process: u32) -> io::Result<File> {
    let ledger = ledger(node, job).map_err(io::Error::other)?;
    let ledger = ledger.ok_or(io::ErrorKind::NotFound)?;
    let start = kept_offset(process);
    fcntl(&ledger, F_OFD_SETLK(&region(start..start + 1, F_RDLCK)))?;
    Ok(ledger)
}

/// Whether that is noted of any process of the job whose ledger this is. The ledger's name may be gone by then.
pub fn is_any_charged(ledger: &File) -> bool {
    let mut region = region(KEPT, F_WRLCK);
    let is_known = fcntl(ledger, F_OFD_GETLK(&mut region)).is_ok();
    is_known && i32::from(region.l_type) != F_UNLCK
}

fn region(bytes: Range<u64>, kind: c_int) -> flock {
    let offset = |bytes: u64| bytes.try_into().unwrap_or(off_t::MAX);
    flock {
        l_type: kind.try_into().unwrap_or_default(),
        l_whence: SEEK_SET.try_into().unwrap_or_default(),
        l_start: offset(bytes.start),
        l_len: offset(bytes.end - bytes.start),
        l_pid: 0,
    }
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
    fn what_a_jobs_processes_had_is_in_use_until_the_file_is_closed() {
        let site = tempfile::tempdir().unwrap();
        let owner = rustix::process::getuid().as_raw();
        let node = Node::in_folder(site.path(), owner);
        assert!(keep_charged(&node, 12, 7).is_err());
        for job in ["12", "123"] {
            let folder = node.run.join("jobs").join(job);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("ledger"), "").unwrap();
        }
        let others = keep_charged(&node, 123, 7).unwrap();
        let own = ledger(&node, 12).unwrap().unwrap();
        assert!(!is_any_charged(&own));
        // The first and the last number, and twice the same.
        for process in [0, 7, u32::MAX] {
            let kept = [(); 2].map(|()| keep_charged(&node, 12, process).unwrap());
            let [first, second] = kept;
            drop(first);
            assert!(is_any_charged(&own));
            drop(second);
            assert!(!is_any_charged(&own));
        }
        drop(others);
        // The epilog removes the job's files, and then waits.
        let kept = keep_charged(&node, 12, 7).unwrap();
        fs::remove_dir_all(node.run.join("jobs")).unwrap();
        assert!(is_any_charged(&own));
        drop(kept);
        assert!(!is_any_charged(&own));
    }
}

//! The library's figures of each job's memory, in the job's ledger. The job's user can write there: it is read, and never mapped.

use softmig_node::folder::ledger;
use softmig_node::node::Node;
use softmig_policy::node::job_conf::Uuid;
use softmig_region::{RECORDS, Record, records};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

/// The records of these jobs; nothing of those without a ledger.
pub fn read(node: &Node, jobs: impl Iterator<Item = u32>) -> BTreeMap<u32, Vec<Record>> {
    let of = |job: u32| {
        let ledger = ledger(node, job).ok()??;
        let mut head = [0; RECORDS];
        ledger.read_exact_at(&mut head, 0).ok()?;
        Some((job, records(&head).collect()))
    };
    jobs.filter_map(of).collect()
}

/// The ledger's key of a GPU; `None` if the text is not a GPU's UUID.
pub fn key(uuid: &str) -> Option<u64> {
    let uuid = Uuid::parse(uuid).filter(Uuid::is_gpu)?;
    Some(softmig_region::key(uuid.bytes()).get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_whole_ledger_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        let jobs = node.run.join("jobs");
        for (job, bytes) in [("7", 4095), ("8", 4096)] {
            std::fs::create_dir_all(jobs.join(job)).unwrap();
            std::fs::write(jobs.join(job).join("ledger"), vec![0; bytes]).unwrap();
        }
        std::fs::create_dir_all(jobs.join("9/ledger")).unwrap();
        std::fs::create_dir_all(jobs.join("10")).unwrap();
        std::os::unix::fs::symlink(jobs.join("8/ledger"), jobs.join("10/ledger")).unwrap();
        let found = read(&node, 6..=11);
        assert_eq!(found, [(8, Vec::new())].into());
    }

    #[test]
    fn a_gpu_has_the_key_that_the_library_gives_it() {
        let bytes = core::array::from_fn(|at| at as u8 * 16 + 15);
        let uuid = crate::arbiter::uuid(bytes);
        assert_eq!(key(&uuid), Some(softmig_region::key(bytes).get()));
        assert_eq!(key("GPU-0f"), None);
        assert_eq!(key("MIG-0f1f2f3f-4f5f-6f7f-8f9f-afbfcfdfefff"), None);
    }
}

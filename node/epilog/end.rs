//! The end of a job on this node.

use crate::archive::archive;
use softmig_node::clear::clear;
use softmig_node::dir::DirError;
use softmig_node::gate;
use softmig_node::job::Job;
use softmig_node::node::Node;

/// The work that there was.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing: a job without GPUs, or a second call.
    Nothing,
    /// Nothing either: Slurm has started the job again, and what is here is the new run's.
    Late,
    /// All files are gone.
    Cleared {
        /// Whether the hook's log was kept.
        log: bool,
    },
}

/// Keeps the log, removes the rest. Trouble with the log does not keep the limits of a job that is over.
pub fn end(node: &Node, job: &Job) -> Result<Ended, DirError> {
    let Some(run) = node.open()? else {
        return Ok(Ended::Nothing);
    };
    if run.is_of_later_run(job) {
        return Ok(Ended::Late);
    }
    let kept = archive(node, &run, job);
    let any = clear(&run, job)?;
    // A name that stays there harms no other job.
    let _ = gate::forget(node, job);
    let log = kept?;
    Ok(if any {
        Ended::Cleared { log }
    } else {
        Ended::Nothing
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{job, node, slice as prolog};
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::{Path, PathBuf};

    /// The variable that tells the runs of a job apart.
    fn run(number: &str) -> [(&str, &str); 1] {
        [("SLURM_JOB_RESTART_COUNT", number)]
    }

    /// The files of all jobs, and the folders of users.
    fn left(node: &Node) -> Vec<PathBuf> {
        let mut left = Vec::new();
        let mut folders = vec![node.run.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let kept = ["uid", "gpu", "jobs", ".lock"].map(|name| node.run.join(name));
                if !kept.contains(&path) {
                    left.push(path.clone());
                }
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        left
    }

    #[test]
    fn all_that_the_prolog_made_is_removed_by_one_call() {
        let (_folder, node) = node();
        let job = job("7", &[]);
        assert_eq!(end(&node, &job).unwrap(), Ended::Nothing);
        prolog(&node, &job);
        assert_eq!(end(&node, &job).unwrap(), Ended::Cleared { log: false });
        assert_eq!(left(&node), [] as [&Path; 0]);
        assert_eq!(end(&node, &job).unwrap(), Ended::Nothing);
    }

    #[test]
    fn confs_of_the_older_prolog_are_removed_too() {
        let (_folder, node) = node();
        drop(node.make().unwrap());
        for name in [
            "6.conf",
            "6_7.conf",
            "6_12.conf",
            "61_7.conf",
            "6_x.conf",
            "16_7.conf",
        ] {
            fs::write(node.run.join(name), "CUDA_DEVICE_MEMORY_LIMIT=12288M\n").unwrap();
        }
        end(&node, &job("6", &[])).unwrap();
        let mut names: Vec<PathBuf> = left(&node);
        names.sort();
        let others = ["16_7.conf", "61_7.conf", "6_x.conf"].map(|name| node.run.join(name));
        assert_eq!(names, others);
    }

    #[test]
    fn a_late_epilog_of_an_earlier_run_removes_nothing() {
        let (_folder, node) = node();
        prolog(&node, &job("7", &run("2")));
        fs::write(node.run.join("jobs/7/log"), "the new run's").unwrap();
        let before = left(&node);
        for earlier in ["0", "1"] {
            assert_eq!(end(&node, &job("7", &run(earlier))).unwrap(), Ended::Late);
            assert_eq!(left(&node), before);
        }
        assert!(!node.log.exists());
    }

    #[test]
    fn the_epilog_of_this_run_or_of_an_unknown_one_removes_all() {
        for ended in [&run("2")[..], &run("3"), &[]] {
            let (_folder, node) = node();
            prolog(&node, &job("7", &run("2")));
            let ended = end(&node, &job("7", ended)).unwrap();
            assert_eq!(ended, Ended::Cleared { log: false });
            assert_eq!(left(&node), [] as [&Path; 0]);
        }
    }

    #[test]
    fn files_that_cannot_be_read_or_are_unknown_are_removed_too() {
        let (_folder, node) = node();
        let job = job("7", &run("0"));
        prolog(&node, &job);
        fs::write(node.run.join("7.conf"), b"\xff of another version").unwrap();
        fs::write(node.run.join(".7.conf.new"), "half").unwrap();
        fs::create_dir_all(node.run.join("jobs/7/newer/deeper")).unwrap();
        fs::write(node.run.join("jobs/7/newer/deeper/counters"), "x").unwrap();
        assert_eq!(end(&node, &job).unwrap(), Ended::Cleared { log: false });
        assert_eq!(left(&node), [] as [&Path; 0]);
    }

    #[test]
    fn what_the_job_logged_is_kept_up_to_64_kib() {
        let (_folder, node) = node();
        let job = job("7", &[]);
        for (written, kept) in [(5, 5), (3 << 20, 64 << 10)] {
            prolog(&node, &job);
            fs::write(node.run.join("jobs/7/log"), vec![b'x'; written]).unwrap();
            assert_eq!(end(&node, &job).unwrap(), Ended::Cleared { log: true });
            let log = fs::metadata(node.log.join("7.log")).unwrap();
            assert_eq!((log.len(), log.mode() & 0o7777), (kept, 0o640));
        }
        assert_eq!(fs::metadata(&node.log).unwrap().mode() & 0o7777, 0o755);
        // The log and the folder of its second name.
        assert_eq!(fs::read_dir(&node.log).unwrap().count(), 2);
    }

    #[test]
    fn a_log_that_is_no_plain_file_is_removed_and_never_read() {
        for make in [link, pipe] {
            let (folder, node) = node();
            let job = job("7", &[]);
            prolog(&node, &job);
            let log = node.run.join("jobs/7/log");
            fs::remove_file(&log).unwrap();
            make(folder.path(), &log);
            assert!(end(&node, &job).is_err());
            assert_eq!(left(&node), [] as [&Path; 0]);
            assert!(!node.log.exists());
        }
    }

    fn link(folder: &Path, log: &Path) {
        let secret = folder.join("secret");
        fs::write(&secret, "root's").unwrap();
        symlink(secret, log).unwrap();
    }

    fn pipe(_: &Path, log: &Path) {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, log, FileType::Fifo, Mode::RUSR, 0).unwrap();
    }

    #[test]
    fn a_log_that_cannot_be_kept_does_not_keep_the_limits() {
        let (_folder, node) = node();
        let job = job("7", &[]);
        prolog(&node, &job);
        fs::write(node.run.join("jobs/7/log"), "x").unwrap();
        fs::write(&node.log, "no folder").unwrap();
        assert!(end(&node, &job).is_err());
        assert_eq!(left(&node), [] as [&Path; 0]);
    }
}

//! The figures of a job that the monitor leaves in the job's folder, `jobs/JOBID/usage`. Root writes them, and the job's user can
//! read them. They are read as if anything could be there.

use crate::dir::{Dir, DirError};
use crate::job::JobId;
use crate::node::Node;
use softmig_usage as usage;
use std::path::PathBuf;

/// The file's name.
pub const NAME: &str = "usage";

/// A job of very many GPUs has less to say.
const LONGEST: u64 = 1 << 20;

/// Why a job's figures cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The folder or the file cannot be read, or others could have written it.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// The file has no figures, or those of another release.
    #[error("{} {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The fault.
        error: usage::ReadError,
    },
}

/// The monitor's last figures of a job, as an object of its node with this job alone; `None` without figures.
///
/// # Errors
/// Says why figures that exist cannot be used.
pub fn read(node: &Node, id: JobId) -> Result<Option<usage::Node>, UsageError> {
    let path = node.run.join("jobs").join(id.to_string());
    let Some(folder) = Dir::open(&path, node.owner)? else {
        return Ok(None);
    };
    let Some(text) = folder.read_own(NAME, LONGEST)? else {
        return Ok(None);
    };
    let path = path.join(NAME);
    match usage::Node::read(&text) {
        Ok(told) => Ok(Some(told)),
        Err(error) => Err(UsageError::Read { path, error }),
    }
}

/// The job's own part of them; `None` also if they cannot be used.
pub fn of_job(node: &Node, id: JobId) -> Option<usage::Job> {
    let told = read(node, id).ok()??;
    told.jobs.into_iter().find(|job| job.job == id.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn node() -> (tempfile::TempDir, Node) {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        (folder, node)
    }

    fn id() -> JobId {
        JobId::parse("7").unwrap()
    }

    #[test]
    fn only_this_jobs_figures_are_read() {
        let (_folder, node) = node();
        assert_eq!(of_job(&node, id()), None);
        let own = node.run.join("jobs/7");
        fs::create_dir_all(&own).unwrap();
        assert_eq!(of_job(&node, id()), None);
        let text = r#"{"schema_version":1,"jobs":[{"job":7,"uid":2001}]}"#;
        fs::write(own.join(NAME), text).unwrap();
        fs::set_permissions(own.join(NAME), Permissions::from_mode(0o644)).unwrap();
        assert_eq!(of_job(&node, id()).map(|job| job.uid), Some(2001));
        fs::write(own.join(NAME), text.replace(":7,", ":8,")).unwrap();
        assert_eq!(of_job(&node, id()), None);
    }

    #[test]
    fn what_a_user_could_have_put_there_is_not_believed() {
        let (folder, node) = node();
        fs::create_dir_all(node.run.join("jobs/7")).unwrap();
        let path = node.run.join("jobs/7").join(NAME);
        let told = |node: &Node| read(node, id()).unwrap_err().to_string();
        let elsewhere = folder.path().join("mine");
        fs::write(&elsewhere, r#"{"schema_version":1}"#).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(told(&node).contains("opening "), "{}", told(&node));
        fs::remove_file(&path).unwrap();
        fs::write(&path, r#"{"schema_version":1}"#).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(told(&node).ends_with("can be written to by others"));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        for (text, words) in [
            ("", "is not what the monitor writes"),
            ("[[[[[[", "is not what the monitor writes"),
            (
                r#"{"schema_version":9}"#,
                "has form 9, and this softmig reads form 2",
            ),
        ] {
            fs::write(&path, text).unwrap();
            assert!(told(&node).contains(words), "{}", told(&node));
        }
        // Of a very long one only the beginning is read.
        fs::write(&path, vec![b' '; 2 << 20]).unwrap();
        assert!(told(&node).contains("is not what the monitor writes"));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(
            told(&node).ends_with("is not a plain file"),
            "{}",
            told(&node)
        );
    }
}

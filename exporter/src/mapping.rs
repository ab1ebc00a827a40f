//! DCGM's job mapping: a folder with a file for each GPU that jobs are on, named by NVML's index, a job's number a line.
//! dcgm-exporter copies each of the GPU's metrics for each line.

use anyhow::Context;
use softmig_usage::Node;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::NamedTempFile;

/// How often the files are brought up to date.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// The folder.
#[derive(Debug)]
pub struct Mapping {
    folder: PathBuf,
    /// The files that it has, by what is in them.
    written: BTreeMap<String, String>,
}

impl Mapping {
    /// Begins with no file of a GPU: those of an earlier run may be wrong by now.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        let reading = || format!("reading {}", folder.display());
        for entry in fs::read_dir(folder).with_context(reading)? {
            let name = entry.with_context(reading)?.file_name();
            if name.to_str().is_some_and(is_index) {
                remove(&folder.join(name))?;
            }
        }
        Ok(Self {
            folder: folder.into(),
            written: BTreeMap::new(),
        })
    }

    /// Writes what has changed; without a node all files go, since a wrong job is worse than none.
    pub fn update(&mut self, node: Option<&Node>) -> anyhow::Result<()> {
        let wanted = node.map(files).unwrap_or_default();
        for name in self
            .written
            .keys()
            .filter(|name| !wanted.contains_key(*name))
        {
            remove(&self.folder.join(name))?;
        }
        for (name, text) in &wanted {
            if self.written.get(name) != Some(text) {
                self.write(name, text)
                    .with_context(|| format!("writing {}", self.folder.join(name).display()))?;
            }
        }
        self.written = wanted;
        Ok(())
    }

    /// By rename, so that no reader sees half of it.
    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let mut file = NamedTempFile::new_in(&self.folder)?;
        file.write_all(text.as_bytes())?;
        // dcgm-exporter runs as another user.
        file.as_file()
            .set_permissions(Permissions::from_mode(0o644))?;
        file.persist(self.folder.join(name))?;
        Ok(())
    }
}

fn is_index(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The files by their names.
fn files(node: &Node) -> BTreeMap<String, String> {
    let mut files = BTreeMap::<String, String>::new();
    for job in &node.jobs {
        for index in job.gpus.iter().filter_map(|gpu| gpu.index) {
            let file = files.entry(index.to_string()).or_default();
            *file += &format!("{}\n", job.job);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_usage::{Job, JobGpu};

    fn node(jobs: &[(u32, &[u32])]) -> Node {
        let job = |&(job, gpus): &(u32, &[u32])| Job {
            job,
            gpus: gpus
                .iter()
                .map(|&index| JobGpu {
                    index: Some(index),
                    ..JobGpu::default()
                })
                .collect(),
            ..Job::default()
        };
        Node {
            jobs: jobs.iter().map(job).collect(),
            ..Node::default()
        }
    }

    fn has(folder: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = fs::read_dir(folder)
            .expect("the folder")
            .map(|entry| {
                let entry = entry.expect("a file");
                let text = fs::read_to_string(entry.path()).expect("text");
                (entry.file_name().to_string_lossy().into_owned(), text)
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn a_gpu_with_jobs_has_a_file_with_a_line_for_each() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("3"), "99\n").expect("left by an earlier run");
        fs::write(folder.path().join("README"), "").expect("of the site");
        let mut mapping = Mapping::new(folder.path()).expect("a mapping");
        let site = || ("README".to_owned(), String::new());
        assert_eq!(has(folder.path()), [site()]);
        mapping
            .update(Some(&node(&[(7, &[0, 1]), (8, &[0])])))
            .expect("written");
        let files = [("0", "7\n8\n"), ("1", "7\n")].map(|(name, text)| (name.into(), text.into()));
        assert_eq!(has(folder.path()), [&files[..], &[site()]].concat());
        mapping.update(Some(&node(&[(8, &[0])]))).expect("written");
        assert_eq!(has(folder.path()), [("0".into(), "8\n".into()), site()]);
        mapping.update(None).expect("removed");
        assert_eq!(has(folder.path()), [site()]);
    }
}

//! Slurm on this node, as far as its processes show: the node's name, and the jobs that have a step here. Nothing here
//! needs slurmctld, and nothing depends on how control groups are laid out.

use softmig_node::job::JobId;
use softmig_node::slurmctld::Commands;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The node as Slurm knows it.
#[derive(Debug)]
pub(crate) struct Slurmd {
    /// Its name in slurm.conf.
    pub(crate) name: String,
    /// The commands of its Slurm.
    pub(crate) commands: Option<Commands>,
}

impl Slurmd {
    /// Asks the slurmd that runs here; where none does, the host's name must do.
    pub(crate) fn here() -> Self {
        let own = mounts_of(Path::new("/proc/self"));
        // One that lives among the same files is surely this node's.
        let slurmd = processes("slurmd").min_by_key(|slurmd| mounts_of(&slurmd.folder) != own);
        let name = slurmd.as_ref().and_then(|slurmd| slurmd.option(b"-N"));
        let conf = slurmd.as_ref().and_then(|slurmd| {
            let option = slurmd.option(b"-f");
            option.or_else(|| slurmd.variable(b"SLURM_CONF="))
        });
        let program = slurmd.as_ref().map(|slurmd| slurmd.program.as_path());
        Self {
            name: name.map_or_else(host_name, |name| {
                String::from_utf8_lossy(&name).into_owned()
            }),
            commands: Commands::beside(program, conf.map(OsString::from_vec)),
        }
    }
}

/// The jobs that have a step here: each step has a slurmstepd, whose title names it.
pub(crate) fn jobs_with_steps() -> BTreeSet<JobId> {
    processes("slurmstepd")
        .filter_map(|step| job_of_title(&step.line()))
        .collect()
}

/// The control groups of each process that a step here has started, as the kernel says them, beside its job.
pub(crate) fn places_of_steps() -> Vec<(JobId, Vec<u8>)> {
    let steps: Vec<(String, JobId)> = processes("slurmstepd")
        .filter_map(|step| {
            let number = step.folder.file_name()?.to_str()?.to_string();
            Some((number, job_of_title(&step.line())?))
        })
        .collect();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path());
    let places = folders.filter_map(|folder| {
        // PID (NAME) STATE PARENT: a name may hold anything, so from its end.
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let parent = stat
            .rsplit_once(')')?
            .1
            .split_ascii_whitespace()
            .nth(1)?
            .to_string();
        let (_, job) = steps.iter().find(|(number, _)| *number == parent)?;
        // Until a step's child runs another program, it is on its way to its place. In this order: it may get there now.
        let program = fs::read_link(folder.join("exe")).ok()?;
        if is_named(program.file_name()?.as_bytes(), "slurmstepd") {
            return None;
        }
        Some((*job, fs::read(folder.join("cgroup")).ok()?))
    });
    places.collect()
}

/// Reads `slurmstepd: [7.extern]`.
fn job_of_title(title: &[u8]) -> Option<JobId> {
    let title = std::str::from_utf8(title).ok()?;
    let (_, step) = title.split_once("slurmstepd: [")?;
    let end = step.find(|letter: char| !letter.is_ascii_digit())?;
    JobId::parse(step.get(..end)?)
}

/// A process of root's that runs one of Slurm's programs.
struct Process {
    folder: PathBuf,
    program: PathBuf,
}

fn processes(name: &'static str) -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let folder = entry.path();
        // Any user may give a process any title, but not root's user number.
        let is_roots = fs::metadata(&folder).ok()?.uid() == 0;
        let program = fs::read_link(folder.join("exe")).ok()?;
        // After an upgrade the old program has no file any more.
        let bytes = program.as_os_str().as_bytes();
        let program = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
        let program = PathBuf::from(OsString::from_vec(program.to_vec()));
        let is_it = is_roots && is_named(program.file_name()?.as_bytes(), name);
        is_it.then_some(Process { folder, program })
    })
}

/// Debian has `slurmd-wlm` behind `slurmd`.
fn is_named(file: &[u8], name: &str) -> bool {
    let rest = file.strip_prefix(name.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-"))
}

impl Process {
    fn line(&self) -> Vec<u8> {
        fs::read(self.folder.join("cmdline")).unwrap_or_default()
    }

    /// The value of an option: `-N n1` or `-Nn1`.
    fn option(&self, option: &[u8]) -> Option<Vec<u8>> {
        option_in(&self.line(), option)
    }

    fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
        let environment = fs::read(self.folder.join("environ")).ok()?;
        let mut values = environment.split(|byte| *byte == 0);
        values.find_map(|pair| pair.strip_prefix(name).map(<[u8]>::to_vec))
    }
}

fn option_in(line: &[u8], option: &[u8]) -> Option<Vec<u8>> {
    let mut words = line.split(|byte| *byte == 0).skip(1);
    let value = words.find_map(|word| word.strip_prefix(option).map(<[u8]>::to_vec))?;
    if value.is_empty() {
        words.next().map(<[u8]>::to_vec)
    } else {
        Some(value)
    }
}

/// The mark by which two processes see the same files.
fn mounts_of(process: &Path) -> Option<PathBuf> {
    fs::read_link(process.join("ns/mnt")).ok()
}

/// The host's name without its domain, as slurmd looks for itself in slurm.conf.
pub(crate) fn host_name() -> String {
    let names = rustix::system::uname();
    let full = names.nodename().to_string_lossy();
    full.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_names_its_job() {
        let job = |title: &[u8]| job_of_title(title).map(JobId::get);
        assert_eq!(job(b"slurmstepd: [7.extern]\0\0\0"), Some(7));
        assert_eq!(
            job(b"slurmstepd: [4000000000.batch]\0"),
            Some(4_000_000_000)
        );
        assert_eq!(job(b"slurmstepd: [12.0]"), Some(12));
        for other in [
            &b"/usr/sbin/slurmstepd\0infinity\0"[..],
            b"slurmstepd: []",
            b"slurmstepd: [7",
            b"slurmstepd: [-7.0]",
            b"\xff",
        ] {
            assert_eq!(job(other), None);
        }
    }

    #[test]
    fn a_program_is_known_by_its_name_and_debians() {
        assert!(is_named(b"slurmd", "slurmd"));
        assert!(is_named(b"slurmd-wlm", "slurmd"));
        assert!(!is_named(b"slurmdbd", "slurmd"));
        assert!(!is_named(b"bash", "slurmd"));
    }

    #[test]
    fn an_option_is_found_in_both_spellings() {
        let value = |line: &[u8]| option_in(line, b"-N");
        assert_eq!(value(b"slurmd\0-D\0-N\0n1\0"), Some(b"n1".to_vec()));
        assert_eq!(value(b"slurmd\0-Nn1\0"), Some(b"n1".to_vec()));
        assert_eq!(value(b"slurmd\0-D\0"), None);
        assert_eq!(value(b"slurmd\0-N\0"), Some(Vec::new()));
        assert_eq!(value(b""), None);
    }

    #[test]
    fn a_machine_without_slurm_has_none() {
        assert!(processes("slurmd-that-is-not-there").next().is_none());
    }
}

//! The question to slurmctld what a job got: only for jobs without a readable tag, and never for longer than
//! [`PATIENCE`], because the job waits for it. `softmig node` asks the same way.

use crate::command;
use crate::job::{Job, JobId};
use softmig_policy::slurm::allocation::Allocation;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long an answer may take, from the start of the command to its end.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer that is read.
const LONGEST: u64 = 1 << 20;

/// The longest answer about a whole cluster: some kilobytes for each of its nodes or people.
const LONGEST_OF_ALL: u64 = 256 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Slurm's commands are not where they usually are.
    #[error("no scontrol in /usr/bin, in /usr/local/bin or beside slurmd")]
    NotFound,
    /// The command did not run.
    #[error("running Slurm's command: {0}")]
    Run(#[from] io::Error),
    /// It took too long and was killed.
    #[error("it took more than {} s", PATIENCE.as_secs())]
    Late,
    /// It ran and failed.
    #[error("Slurm's command failed: {0}")]
    Failed(std::process::ExitStatus),
}

/// Asks what a job got here.
pub fn ask(job: &Job) -> Result<Allocation, AskError> {
    let parent = rustix::process::getppid();
    let slurmd =
        parent.and_then(|pid| std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_pid())).ok());
    Commands::beside(slurmd.as_deref(), job.slurm_conf.clone())
        .ok_or(AskError::NotFound)?
        .allocation(job.id, &job.node)
}

/// Slurm's own commands.
#[derive(Clone, Debug)]
pub struct Commands {
    folder: PathBuf,
    slurm_conf: Option<OsString>,
}

impl Commands {
    /// Those that belong to this slurmd come first: several versions may be installed.
    pub fn beside(slurmd: Option<&Path>, slurm_conf: Option<OsString>) -> Option<Self> {
        let is_slurm = |path: &&Path| {
            path.file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"slurm"))
        };
        let beside = slurmd
            .filter(is_slurm)
            .and_then(|slurmd| Some(slurmd.parent()?.parent()?.join("bin")));
        let folders = ["/usr/bin", "/usr/local/bin"].map(PathBuf::from);
        let folder = beside
            .into_iter()
            .chain(folders)
            .find(|folder| folder.join("scontrol").is_file())?;
        Some(Self { folder, slurm_conf })
    }

    /// What a job got on `node`.
    pub fn allocation(&self, id: JobId, node: &str) -> Result<Allocation, AskError> {
        let answer = self.answer("scontrol", &["-d", "-o", "show", "job", &id.to_string()])?;
        Ok(Allocation::parse(&answer, node))
    }

    /// What one of the commands says.
    pub fn answer(&self, program: &str, arguments: &[&str]) -> Result<String, AskError> {
        let mut command = self.command(&self.folder.join(program));
        command.args(arguments);
        output(command, PATIENCE, LONGEST)
    }

    /// The same where the answer is about all nodes or all people of a cluster.
    pub fn long_answer(&self, program: &str, arguments: &[&str]) -> Result<String, AskError> {
        let mut command = self.command(&self.folder.join(program));
        command.args(arguments);
        output(command, PATIENCE, LONGEST_OF_ALL)
    }

    /// The folder that they are in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A command that gets nothing of our environment.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C")
            .current_dir("/");
        if let Some(conf) = &self.slurm_conf {
            command.env("SLURM_CONF", conf);
        }
        command
    }
}

/// What the command writes, if it ends in time and well.
fn output(mut command: Command, patience: Duration, longest: u64) -> Result<String, AskError> {
    // slurmd keeps what its prolog says on standard error.
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command::output(command, patience, longest, |child| {
        // It may have ended by itself just now; then there is nothing to kill.
        let _ = child.kill();
    })?;
    let (status, answer) = output.ok_or(AskError::Late)?;
    if !status.success() {
        return Err(AskError::Failed(status));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_answer_is_read() {
        let answer = output(shell("echo Nodes=n1"), PATIENCE, LONGEST).unwrap();
        assert_eq!(answer, "Nodes=n1\n");
    }

    #[test]
    fn a_failing_scontrol_gives_no_answer() {
        let failed = output(shell("echo Nodes=n1; exit 1"), PATIENCE, LONGEST);
        assert!(matches!(failed, Err(AskError::Failed(_))));
        let missing = output(Command::new("/nonexistent/scontrol"), PATIENCE, LONGEST);
        assert!(matches!(missing, Err(AskError::Run(_))));
    }

    #[test]
    fn a_hanging_scontrol_is_killed_in_time() {
        for script in ["exec sleep 60", "exec >&-; exec sleep 60"] {
            let start = Instant::now();
            let late = output(shell(script), Duration::from_millis(100), LONGEST);
            assert!(matches!(late, Err(AskError::Late)), "{script}");
            assert!(start.elapsed() < Duration::from_secs(10), "{script}");
        }
    }

    #[test]
    fn scontrol_sees_nothing_of_our_environment() {
        let commands = Commands {
            folder: "/usr/bin".into(),
            slurm_conf: Some("/etc/slurm/slurm.conf".into()),
        };
        let env = commands.command(Path::new("/usr/bin/env"));
        let seen = output(env, Duration::from_secs(10), LONGEST).unwrap();
        let mut seen: Vec<&str> = seen.lines().collect();
        seen.sort_unstable();
        assert_eq!(
            seen,
            [
                "LC_ALL=C",
                "PATH=/usr/bin:/bin",
                "SLURM_CONF=/etc/slurm/slurm.conf"
            ]
        );
    }
}

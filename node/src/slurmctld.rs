//! The question to slurmctld what a job got: only for jobs without a readable tag, and never for longer than
//! [`PATIENCE`], because the job waits for it. `softmig node` asks the same way.

use crate::command;
use crate::job::{Job, JobId};
use softmig_policy::slurm::allocation::Allocation;
use softmig_policy::slurm::gpu_list::GpuList;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long an answer may take, from the start of the command to its end.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer about one job that is read. From 25.11 on it has the job's SubmitLine, which may be 1 MiB.
const LONGEST: u64 = 4 << 20;

/// The longest answer about a whole cluster: some kilobytes for each of its nodes or people.
const LONGEST_OF_ALL: u64 = 256 << 20;

/// Of what a command says beside its answer, no more is read.
const LONGEST_LINES: u64 = 16 << 10;

/// Slurm's text for a number that no job has, in all releases.
const NO_SUCH_JOB: &str = "Invalid job id specified";

/// The reason why slurmctld gave no answer.
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
    commands(job)?.allocation(job.id, &job.node)
}

/// Those of the slurmd that runs this prolog.
fn commands(job: &Job) -> Result<Commands, AskError> {
    Commands::of_parent(job.slurm_conf.clone()).ok_or(AskError::NotFound)
}

/// The GPUs of a job that carries a tag although its prolog was told of none; `None` if it has none here.
///
/// For some seconds after slurmctld starts, slurmd runs prologs of jobs with GPUs without SLURM_JOB_GPUS (seen on 24.11).
/// Only the tag says then that there is something to limit. Where slurmctld's answer does not say which GPUs, or says
/// more than one thing, the list is empty: the limits hold on all GPUs that the job reaches.
pub fn untold_gpus(job: &Job) -> Option<GpuList> {
    if job.tags.extra.is_none() && job.tags.comment.is_none() {
        return None;
    }
    let answer = commands(job).and_then(|commands| commands.job(job.id));
    match answer {
        Ok(answer) => GpuList::on_node(&answer, &job.node),
        Err(_) => Some(GpuList::default()),
    }
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

    /// Those in this folder.
    pub fn in_folder(folder: &Path, slurm_conf: Option<OsString>) -> Self {
        Self {
            folder: folder.to_path_buf(),
            slurm_conf,
        }
    }

    /// Those of the slurmd that runs this program as Prolog or Epilog.
    pub fn of_parent(slurm_conf: Option<OsString>) -> Option<Self> {
        let parent = rustix::process::getppid();
        let slurmd = parent
            .and_then(|pid| std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_pid())).ok());
        Self::beside(slurmd.as_deref(), slurm_conf)
    }

    /// Whether slurmctld knows a job, which it does for some time after the job's end.
    pub fn knows(&self, id: JobId) -> Result<bool, AskError> {
        let mut command = self.command(&self.folder.join("scontrol"));
        command.args(["-o", "show", "job", &id.to_string()]);
        knows(command)
    }

    /// The allocation of a job on `node`.
    pub fn allocation(&self, id: JobId, node: &str) -> Result<Allocation, AskError> {
        Ok(Allocation::parse(&self.job(id)?, node))
    }

    /// All that slurmctld says of a job, in one line.
    fn job(&self, id: JobId) -> Result<String, AskError> {
        self.answer("scontrol", &["-d", "-o", "show", "job", &id.to_string()])
    }

    /// The output of one of the commands.
    pub fn answer(&self, program: &str, arguments: &[&str]) -> Result<String, AskError> {
        let mut command = self.command(&self.folder.join(program));
        command.args(arguments);
        output(command, PATIENCE, LONGEST)
    }

    /// The same with times in seconds since 1970.
    pub fn answer_in_seconds(&self, program: &str, arguments: &[&str]) -> Result<String, AskError> {
        let mut command = self.command(&self.folder.join(program));
        command.args(arguments).env("SLURM_TIME_FORMAT", "%s");
        output(command, PATIENCE, LONGEST)
    }

    /// The same where the answer is about all nodes or all people of a cluster.
    pub fn long_answer(&self, program: &str, arguments: &[&str]) -> Result<String, AskError> {
        let mut command = self.command(&self.folder.join(program));
        command.args(arguments);
        output(command, PATIENCE, LONGEST_OF_ALL)
    }

    /// The text of one of the commands on standard error, whether it succeeds or not.
    pub fn said(&self, program: &str, arguments: &[&str]) -> Result<String, AskError> {
        let mut command = self.command(&self.folder.join(program));
        command.args(arguments);
        let (said, stderr) = io::pipe()?;
        command.stderr(stderr);
        match output(command, PATIENCE, LONGEST) {
            Ok(_) | Err(AskError::Failed(_)) => {}
            Err(error) => return Err(error),
        }
        let mut text = Vec::new();
        said.take(LONGEST_LINES).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// One of the commands, for a caller that waits for it by itself.
    pub fn prepared(&self, program: &str) -> Command {
        self.command(&self.folder.join(program))
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

/// Whether a question about one job found it. Only Slurm's own words say that it did not.
fn knows(mut command: Command) -> Result<bool, AskError> {
    let (said, stderr) = io::pipe()?;
    command.stderr(stderr);
    match output(command, PATIENCE, LONGEST) {
        Ok(_) => Ok(true),
        Err(AskError::Failed(status)) => {
            let mut text = Vec::new();
            said.take(NO_SUCH_JOB.len() as u64 * 16)
                .read_to_end(&mut text)?;
            if String::from_utf8_lossy(&text).contains(NO_SUCH_JOB) {
                Ok(false)
            } else {
                Err(AskError::Failed(status))
            }
        }
        Err(error) => Err(error),
    }
}

/// The output of the command, if it ends in time and without an error.
fn output(mut command: Command, patience: Duration, longest: u64) -> Result<String, AskError> {
    // slurmd keeps what its prolog says on standard error, which commands inherit.
    command.stdin(Stdio::null());
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

    /// The request of a job of Slurm 25.11 comes before its allocation.
    #[test]
    fn a_users_long_line_hides_nothing_behind_it() {
        let long = "head -c 2100000 /dev/zero | tr '\\0' x; echo ' Nodes=n1'";
        let answer = output(shell(long), Duration::from_secs(60), LONGEST).unwrap();
        assert!(answer.ends_with("x Nodes=n1\n"));
    }

    #[test]
    fn a_failing_scontrol_gives_no_answer() {
        let failed = output(shell("echo Nodes=n1; exit 1"), PATIENCE, LONGEST);
        assert!(matches!(failed, Err(AskError::Failed(_))));
        let missing = output(Command::new("/nonexistent/scontrol"), PATIENCE, LONGEST);
        assert!(matches!(missing, Err(AskError::Run(_))));
    }

    #[test]
    fn only_slurms_own_words_say_that_there_is_no_such_job() {
        let answer = |script: &str| knows(shell(script));
        assert!(answer("echo JobId=7").unwrap());
        let invalid = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1";
        assert!(!answer(invalid).unwrap());
        for silent in [
            "exit 1",
            "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
            "echo 'Invalid job id specified'; exit 1",
        ] {
            let failed = answer(silent);
            assert!(matches!(failed, Err(AskError::Failed(_))), "{silent}");
        }
        // Words beside an answer change nothing.
        assert!(answer("echo 'Invalid job id specified' >&2").unwrap());
    }

    #[test]
    fn a_hanging_scontrol_is_killed_in_time() {
        for script in ["exec sleep 60", "exec >&-; exec sleep 60"] {
            let start = Instant::now();
            let late = output(shell(script), Duration::from_millis(100), LONGEST);
            assert!(matches!(late, Err(AskError::Late)), "{script}");
            assert!(start.elapsed() < Duration::from_secs(50), "{script}");
        }
    }

    #[test]
    fn times_in_seconds_are_asked_for_in_slurms_own_way() {
        let commands = Commands::in_folder(Path::new("/usr/bin"), None);
        let seen = commands.answer_in_seconds("env", &[]).unwrap();
        assert!(seen.contains("SLURM_TIME_FORMAT=%s\n"), "{seen}");
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

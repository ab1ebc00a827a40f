//! The question to slurmctld what a job got: only for jobs without a readable tag, and never for longer than
//! [`PATIENCE`], because the job waits for it.

use crate::job::Job;
use softmig_policy::allocation::Allocation;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long an answer may take, from the start of `scontrol` to its end.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer that is read.
const LONGEST: u64 = 1 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no `scontrol` where Slurm is installed.
    #[error("no scontrol in /usr/bin, in /usr/local/bin or beside slurmd")]
    NotFound,
    /// It did not run.
    #[error("running scontrol: {0}")]
    Run(#[from] io::Error),
    /// It took too long and was killed.
    #[error("scontrol took more than {} s", PATIENCE.as_secs())]
    Late,
    /// It ran and failed.
    #[error("scontrol failed: {0}")]
    Failed(std::process::ExitStatus),
}

/// Asks.
pub fn ask(job: &Job) -> Result<Allocation, AskError> {
    let scontrol = scontrol().ok_or(AskError::NotFound)?;
    let answer = output(command(scontrol.as_os_str(), job), PATIENCE)?;
    Ok(Allocation::parse(&answer, &job.node))
}

/// The one that belongs to the slurmd that started us comes first: several versions may be installed.
fn scontrol() -> Option<PathBuf> {
    let parent = rustix::process::getppid()?.as_raw_nonzero();
    let slurmd = std::fs::read_link(format!("/proc/{parent}/exe")).ok();
    let is_slurm = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"slurm"))
    };
    let beside = slurmd
        .filter(is_slurm)
        .and_then(|slurmd| Some(slurmd.parent()?.parent()?.join("bin")));
    let folders = ["/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    beside
        .into_iter()
        .chain(folders)
        .map(|folder| folder.join("scontrol"))
        .find(|path| path.is_file())
}

fn command(program: &OsStr, job: &Job) -> Command {
    let mut command = clean(program, job);
    command.args(["-d", "-o", "show", "job", &job.id.to_string()]);
    command
}

/// A command that gets nothing of our environment.
fn clean(program: &OsStr, job: &Job) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C")
        .current_dir("/");
    if let Some(conf) = &job.slurm_conf {
        command.env("SLURM_CONF", conf);
    }
    command
}

/// What the command writes, if it ends in time and well.
fn output(mut command: Command, patience: Duration) -> Result<String, AskError> {
    let deadline = Instant::now() + patience;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // slurmd keeps what its prolog says there.
        .stderr(Stdio::inherit())
        .spawn()?;
    let answer = read_until(&mut child, deadline);
    let ended = answer.is_some().then(|| wait_until(&mut child, deadline));
    let Some(Ok(Some(status))) = ended else {
        // It may have ended by itself just now; then there is nothing to kill and it is waited for all the same.
        let _ = child.kill();
        child.wait()?;
        return Err(AskError::Late);
    };
    if !status.success() {
        return Err(AskError::Failed(status));
    }
    Ok(answer.unwrap_or_default())
}

/// A thread reads, so that this one can stop waiting.
fn read_until(child: &mut Child, deadline: Instant) -> Option<String> {
    let stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.take(LONGEST).read_to_end(&mut bytes);
        // Nobody listens any more when it was too late.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    thread.ok()?;
    let left = deadline.saturating_duration_since(Instant::now());
    receiver.recv_timeout(left).ok()
}

fn wait_until(
    child: &mut Child,
    deadline: Instant,
) -> io::Result<Option<std::process::ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_answer_is_read() {
        let answer = output(shell("echo Nodes=n1"), PATIENCE).unwrap();
        assert_eq!(answer, "Nodes=n1\n");
    }

    #[test]
    fn a_failing_scontrol_gives_no_answer() {
        let failed = output(shell("echo Nodes=n1; exit 1"), PATIENCE);
        assert!(matches!(failed, Err(AskError::Failed(_))));
        let missing = output(Command::new("/nonexistent/scontrol"), PATIENCE);
        assert!(matches!(missing, Err(AskError::Run(_))));
    }

    #[test]
    fn a_hanging_scontrol_is_killed_in_time() {
        for script in ["exec sleep 60", "exec >&-; exec sleep 60"] {
            let start = Instant::now();
            let late = output(shell(script), Duration::from_millis(100));
            assert!(matches!(late, Err(AskError::Late)), "{script}");
            assert!(start.elapsed() < Duration::from_secs(10), "{script}");
        }
    }

    #[test]
    fn scontrol_sees_nothing_of_our_environment() {
        let job = Job::read(|name| match name {
            "SLURM_JOB_ID" => Some("7".into()),
            "SLURM_JOB_UID" => Some("1".into()),
            "SLURM_CONF" => Some("/etc/slurm/slurm.conf".into()),
            _ => None,
        })
        .unwrap();
        let env = clean(OsStr::new("/usr/bin/env"), &job);
        let seen = output(env, Duration::from_secs(10)).unwrap();
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

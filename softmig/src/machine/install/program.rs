//! One run of a small program: what it says and how it ends, bounded in time and in length.

use anyhow::Context;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long it may take. Programs that do next to nothing take a few milliseconds; a busy node may take far longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most that is kept of what it says.
const LONGEST: u64 = 256 << 10;

/// An ordinary user and group, for whom set-uid programs become root.
const ORDINARY: u32 = 65534;

/// A program that is run to see whether it still runs as it should.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Its words, the first one a path.
    pub(crate) words: Vec<String>,
    /// Whether an ordinary user runs it.
    pub(crate) as_nobody: bool,
    /// Variables of its environment beside PATH.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// The result of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Its standard output.
    pub(crate) stdout: Vec<u8>,
    /// Its standard error.
    pub(crate) stderr: Vec<u8>,
}

impl Program {
    /// A program of the system's that root runs.
    pub(crate) fn new(words: &[&str]) -> Option<Self> {
        let (name, arguments) = words.split_first()?;
        let path = find(name)?;
        let words = std::iter::once(path.to_str()?).chain(arguments.iter().copied());
        Some(Self {
            words: words.map(str::to_string).collect(),
            as_nobody: false,
            variables: Vec::new(),
        })
    }

    /// The same, run by an ordinary user.
    pub(crate) fn by_ordinary_user(mut self) -> Self {
        self.as_nobody = true;
        self
    }

    /// The same with one more variable.
    pub(crate) fn with_variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_string()));
        self
    }

    /// Its name in a complaint.
    pub(crate) fn name(&self) -> String {
        let who = if self.as_nobody {
            " as user nobody"
        } else {
            ""
        };
        let variables: Vec<&str> = self.variables.iter().map(|(name, _)| *name).collect();
        let with = if variables.is_empty() { "" } else { " with " };
        format!(
            "'{}'{who}{with}{}",
            self.words.join(" "),
            variables.join(" and ")
        )
    }

    /// Runs it; `None` when it does not end in time, and then it is killed.
    pub(crate) fn run(&self) -> anyhow::Result<Option<Ran>> {
        let deadline = Instant::now() + PATIENCE;
        let (path, arguments) = self
            .words
            .split_first()
            .context("a program without a name")?;
        let mut command = Command::new(path);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("LC_ALL", "C")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Whatever it starts ends with it.
            .process_group(0);
        if self.as_nobody {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("starting {}", self.name()))?;
        let stdout = child.stdout.take().map(read);
        let stderr = child.stderr.take().map(read);
        let ended = wait(&child, deadline);
        // Also what it may have left behind, which would go on with the library. While its end has not been taken
        // note of, no other process can have its number.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let status = child.wait().context("waiting for a program")?;
        let said = |reader: Option<Receiver<Vec<u8>>>| {
            let left = deadline.saturating_duration_since(Instant::now());
            reader.and_then(|reader| reader.recv_timeout(left).ok())
        };
        match (ended?, said(stdout), said(stderr)) {
            (true, Some(stdout), Some(stderr)) => Ok(Some(Ran {
                status,
                stdout,
                stderr,
            })),
            _ => Ok(None),
        }
    }
}

/// Reads in a thread, so that a program which never ends its output does not block this one.
fn read(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.by_ref().take(LONGEST).read_to_end(&mut bytes);
        // The other end is gone if it was too late.
        let _ = sender.send(bytes);
    });
    receiver
}

/// Whether it ended in time. Its number stays its own.
fn wait(child: &Child, deadline: Instant) -> anyhow::Result<bool> {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        let ended = waitid(WaitId::Pid(Pid::from_child(child)), look);
        if ended.context("waiting for a program")?.is_some() {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Finds one of the system's programs.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    folders
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Program {
        Program::new(&["sh", "-c", script]).unwrap()
    }

    #[test]
    fn what_a_program_says_and_how_it_ends_is_seen() {
        let ran = sh("echo out; echo err >&2; exit 7").run().unwrap().unwrap();
        assert_eq!(
            (ran.stdout.as_slice(), ran.stderr.as_slice()),
            (&b"out\n"[..], &b"err\n"[..])
        );
        assert_eq!(ran.status.code(), Some(7));
    }

    #[test]
    fn a_program_that_hangs_is_given_up() {
        assert_eq!(sh("exec sleep 60").run().unwrap(), None);
    }

    #[test]
    fn a_program_that_leaves_its_output_to_another_is_given_up() {
        let script = "setsid sleep 8 & sleep 0.3; exit 0";
        assert_eq!(sh(script).run().unwrap(), None);
    }

    #[test]
    fn a_program_that_never_stops_talking_is_given_up() {
        let ran = sh("exec yes").run().unwrap().unwrap();
        assert_eq!(ran.stdout.len() as u64, LONGEST);
    }

    #[test]
    fn nothing_of_our_environment_gets_in() {
        let ran = Program::new(&["env"])
            .unwrap()
            .with_variable("A", "b")
            .run()
            .unwrap()
            .unwrap();
        assert_eq!(
            String::from_utf8(ran.stdout).unwrap(),
            "A=b\nLC_ALL=C\nPATH=/usr/bin:/bin:/usr/sbin:/sbin\n"
        );
    }
}

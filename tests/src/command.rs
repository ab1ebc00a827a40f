//! Commands run inside a machine as one of its users, each bounded in time.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid,
};

use crate::crashes;
use crate::init::USERS;

/// The PATH of every command in the machine.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long anything may take by default. Only a test that fails anyway waits for all of this time, so a busy machine
/// makes no test fail.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The output of a command, and how it ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Output {
    /// Whether it ended with 0.
    pub fn success(&self) -> bool {
        self.status.success()
    }

    /// The standard output of a command that had to succeed.
    pub fn ok(self) -> Result<String> {
        if !self.success() {
            bail!("{self}");
        }
        Ok(self.stdout)
    }

    /// The standard error of a command that had to be refused.
    pub fn refused(self) -> Result<String> {
        if self.success() {
            bail!("expected a refusal, but: {self}");
        }
        Ok(self.stderr)
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.trim().is_empty() {
                write!(f, "\n{name}: {}", text.trim_end())?;
            }
        }
        if self.status.signal() == Some(Signal::SEGV.as_raw()) {
            for line in crashes::last() {
                write!(f, "\nkernel: {line}")?;
            }
        }
        Ok(())
    }
}

/// A command about to be run in the namespaces of a machine or a node.
#[derive(Clone, Debug)]
pub struct Call {
    target: i32,
    user: String,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
    cwd: Option<PathBuf>,
    timeout: Duration,
}

impl Call {
    /// `argv` as `user` in the namespaces of process `target`.
    pub fn new(target: i32, user: &str, argv: &[impl AsRef<OsStr>]) -> Call {
        Call {
            target,
            user: user.into(),
            argv: argv.iter().map(|word| word.as_ref().to_owned()).collect(),
            env: Vec::new(),
            stdin: Vec::new(),
            cwd: None,
            timeout: PATIENCE,
        }
    }

    /// Adds a variable to the few that a login would set.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Call {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// The bytes that the command reads; without them, nothing.
    pub fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Call {
        self.stdin = bytes.as_ref().to_vec();
        self
    }

    /// The working directory, an absolute path in the machine; without it, the user's home.
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Call {
        self.cwd = Some(dir.into());
        self
    }

    /// How long the command may take before it is killed and the call fails.
    pub fn timeout(mut self, timeout: Duration) -> Call {
        self.timeout = timeout;
        self
    }

    /// Runs the command to its end.
    pub fn output(self) -> Result<Output> {
        let timeout = self.timeout;
        self.spawn()?.wait(timeout)
    }

    /// The command with this process's own streams, for a person who types. Nothing bounds its time.
    pub fn attached(&self) -> Result<Command> {
        let home = match self.user.as_str() {
            "root" => "/root".to_owned(),
            user => format!("/home/{user}"),
        };
        let cwd = self.cwd.clone().unwrap_or_else(|| home.clone().into());
        let mut there = OsString::from("--wd=");
        there.push(crate::place::inside(
            format!("/proc/{}/root", self.target).as_ref(),
            &cwd,
        )?);

        let mut command = with_default_signals("nsenter");
        command
            .arg(format!("--target={}", self.target))
            .args(["--mount", "--pid", "--net", "--uts", "--ipc"])
            .arg(there)
            .arg("--");
        if self.user != "root" {
            let known = USERS.iter().find(|user| user.name == self.user);
            let group = known.map_or(self.user.as_str(), |user| user.group);
            // Found in the machine's own root, as its users are.
            command.arg("setpriv").args([
                format!("--reuid={}", self.user),
                format!("--regid={group}"),
                "--init-groups".into(),
                "--".into(),
            ]);
        }
        command.args(&self.argv);
        command
            .env_clear()
            .envs([
                ("PATH", PATH),
                ("HOME", &home),
                ("USER", &self.user),
                ("LOGNAME", &self.user),
                ("SHELL", "/bin/bash"),
                ("LC_ALL", "C.UTF-8"),
            ])
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Starts the command and leaves it running until it is waited for or dropped.
    pub fn spawn(self) -> Result<Client> {
        // Files, not pipes: nothing has to be drained, and a process that a command leaves in the background delays no
        // test.
        let mut stdin = tempfile::tempfile().context("making a file for stdin")?;
        stdin.write_all(&self.stdin).context("filling stdin")?;
        stdin.seek(SeekFrom::Start(0)).context("filling stdin")?;
        let stdout = tempfile::tempfile().context("making a file for stdout")?;
        let stderr = tempfile::tempfile().context("making a file for stderr")?;
        let child = self
            .attached()?
            .stdin(stdin)
            .stdout(Stdio::from(stdout.try_clone()?))
            .stderr(Stdio::from(stderr.try_clone()?))
            .spawn()
            .context("starting nsenter; is util-linux installed?")?;
        let name = self
            .argv
            .join(OsStr::new(" "))
            .to_string_lossy()
            .into_owned();
        Ok(Client {
            name,
            child,
            stdout,
            stderr,
        })
    }
}

/// A command that ends by SIGINT and SIGQUIT as usual, even where the tests ignore them, as what a script starts with `&` does.
pub(crate) fn with_default_signals(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,QUIT").arg(program);
    command
}

/// A command that runs beside the test. Dropping it kills it.
#[derive(Debug)]
pub struct Client {
    name: String,
    child: Child,
    stdout: File,
    stderr: File,
}

impl Client {
    /// Waits for the end; after `timeout` kills the command and fails.
    pub fn wait(mut self, timeout: Duration) -> Result<Output> {
        if !self.ended_within(timeout)? {
            self.kill()?;
            bail!(
                "`{}` still ran after {timeout:?}\nstdout: {}\nstderr: {}",
                self.name,
                self.stdout()?,
                self.stderr()?
            );
        }
        let status = self.child.wait().context("waiting for a command")?;
        Ok(Output {
            status,
            stdout: self.stdout()?,
            stderr: self.stderr()?,
        })
    }

    /// Whether the command is still there.
    pub fn runs(&mut self) -> Result<bool> {
        Ok(self
            .child
            .try_wait()
            .context("looking at a command")?
            .is_none())
    }

    /// The text that it has written to standard output so far.
    pub fn stdout(&self) -> Result<String> {
        read_all(&self.stdout)
    }

    /// The text that it has written to standard error so far.
    pub fn stderr(&self) -> Result<String> {
        read_all(&self.stderr)
    }

    /// Kills it at once.
    pub fn kill(&mut self) -> Result<()> {
        let nsenter = Pid::from_child(&self.child);
        // nsenter waits for a child of its own, and passes no signal on. While it is stopped, it cannot fork.
        if kill_process(nsenter, Signal::STOP).is_ok() {
            let end_or_stop =
                WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(nsenter), end_or_stop).context("stopping a command")?;
            if kill_below(nsenter) {
                // A stopped nsenter would not notice its child's end. Then process 1 of this machine would have to,
                // which may take a second, and the namespace could not end before.
                kill_process(nsenter, Signal::CONT).context("letting a command end")?;
                self.ended_within(Duration::from_secs(1))?;
            }
        }
        self.child.kill().context("killing a command")?;
        self.child.wait().context("waiting for a command")?;
        Ok(())
    }

    fn ended_within(&mut self, timeout: Duration) -> Result<bool> {
        let pid = Pid::from_child(&self.child);
        let end = pidfd_open(pid, PidfdFlags::empty()).context("watching a command")?;
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).context("a timeout that is too long")?;
            match poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("watching a command"),
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.kill();
        }
    }
}

/// Kills the children of a process, and theirs; says whether it has any.
fn kill_below(parent: Pid) -> bool {
    let list = format!("/proc/{parent}/task/{parent}/children");
    let list = std::fs::read_to_string(list).unwrap_or_default();
    let children: Vec<Pid> = list
        .split_whitespace()
        .filter_map(|child| Pid::from_raw(child.parse().ok()?))
        .collect();
    for &child in &children {
        kill_below(child);
        let _ = kill_process(child, Signal::KILL);
    }
    !children.is_empty()
}

/// The whole file. The command writes at the offset it shares with us, which must therefore stay where it is.
fn read_all(file: &File) -> Result<String> {
    let length = file.metadata().context("reading a command's output")?.len();
    let mut bytes = vec![0; usize::try_from(length)?];
    file.read_exact_at(&mut bytes, 0)
        .context("reading a command's output")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

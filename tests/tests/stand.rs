//! GPUs of the fake driver for one test, without Slurm and without root, and clients that use them.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use softmig_fake_node::{Description, Node, PLACE_VARIABLE};
use softmig_tests::command::{PATH, PATIENCE};
use softmig_tests::programs::{FOLDER, STAGED, tree};
use softmig_tests::softmig::stage;
use tempfile::TempDir;

/// GPUs.
pub struct Stand {
    dir: TempDir,
    /// The GPUs from outside.
    pub gpus: Node,
}

impl Stand {
    /// With the GPUs of this description, and empty ledgers of these names.
    pub fn new(description: Description, ledgers: &[&str]) -> Result<Stand> {
        let dir = tempfile::tempdir()?;
        for gpu in &description.gpus {
            std::fs::write(dir.path().join(format!("nvidia{}", gpu.minor)), "")?;
        }
        for name in ledgers {
            make_ledger(&dir.path().join(name), description.gpus.len())?;
        }
        let description = description.devices(dir.path());
        let gpus = Node::describe(dir.path().join("node"), description)?;
        Ok(Stand { dir, gpus })
    }

    /// Where its files are.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A client that is not limited: without the library.
    pub fn unlimited(&self, words: &[&str]) -> Command {
        let programs = tree().join(FOLDER.trim_start_matches('/'));
        let (program, arguments) = words.split_first().unwrap_or((&"", &[]));
        let mut command = Command::new(programs.join(program));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", PATH)
            .env("LD_LIBRARY_PATH", tree().join("usr/lib/x86_64-linux-gnu"))
            .env(PLACE_VARIABLE, self.path("node"));
        command
    }

    /// The same with the library.
    pub fn preloaded(&self, words: &[&str]) -> Command {
        let mut command = self.unlimited(words);
        command.env("LD_PRELOAD", stage().join(STAGED.trim_start_matches('/')));
        command
    }
}

/// Makes an empty ledger with room for this number of GPUs.
pub fn make_ledger(path: &Path, gpus: usize) -> Result<()> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let bytes = softmig_region::size(gpus) as u64;
    file.set_len(bytes).context("making the ledger")
}

/// A client that runs. Dropping it kills it.
pub struct Running {
    child: Child,
    /// Not the child's own: waiting for that would close it, and there may be children of it that read on.
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    heard: Vec<String>,
}

impl Running {
    /// Starts a client whose input stays open.
    pub fn start(mut command: Command) -> Result<Running> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let (sender, lines) = channel();
        let output = child.stdout.take().context("no output")?;
        let stdin = child.stdin.take();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Running {
            child,
            stdin,
            lines,
            heard: Vec::new(),
        })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it says something that begins so.
    pub fn hears(&mut self, start: &str) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.heard.push(line.clone());
                    if line.starts_with(start) {
                        return Ok(line);
                    }
                }
                Err(error) => {
                    let stderr = self.stderr();
                    bail!(
                        "{error} before \"{start}\", after {:#?}{stderr}",
                        self.heard
                    )
                }
            }
        }
    }

    /// Lets it go on where it waits for a line.
    pub fn tell(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut().context("its input is closed")?;
        stdin.write_all(b"\n").context("telling a client")
    }

    /// Kills it as nothing else does, and waits until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing a client")?;
        self.child.wait().context("waiting for a client")?;
        Ok(())
    }

    /// Lets it go on, and waits for its end.
    pub fn end(mut self) -> Result<Said> {
        drop(self.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.heard.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("still running after {PATIENCE:?}: {:#?}", self.heard)
                }
            }
        }
        let status = self.child.wait().context("waiting for a client")?;
        let stderr = self.stderr();
        Ok(Said {
            status,
            lines: std::mem::take(&mut self.heard),
            stderr,
        })
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        if matches!(self.child.try_wait(), Ok(Some(_)))
            && let Some(mut stderr) = self.child.stderr.take()
        {
            // An error leaves the text so far.
            let _ = stderr.read_to_string(&mut text);
        }
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client's output, in lines such as `took: blocks=12 then=2`.
#[derive(Debug)]
pub struct Said {
    /// How it ended.
    pub status: ExitStatus,
    /// Its output.
    pub lines: Vec<String>,
    /// Its standard error.
    pub stderr: String,
}

impl Said {
    /// A line's text after `what: `.
    pub fn text(&self, what: &str) -> Result<&str> {
        let mut lines = self.lines.iter();
        lines
            .find_map(|line| line.strip_prefix(what)?.strip_prefix(": "))
            .with_context(|| format!("nothing said of \"{what}\": {self:#?}"))
    }

    /// A number in a line: the one behind `key=`.
    pub fn number(&self, what: &str, key: &str) -> Result<u64> {
        number(self.text(what)?, key)
    }

    /// All numbers behind `key=` in the lines that begin with `what: `.
    pub fn numbers(&self, what: &str, key: &str) -> Result<Vec<u64>> {
        let lines = self.lines.iter();
        lines
            .filter_map(|line| line.strip_prefix(what)?.strip_prefix(": "))
            .map(|line| number(line, key))
            .collect()
    }

    /// Fails unless it ended well with the library in it.
    pub fn check(&self) -> Result<()> {
        ensure!(self.status.success(), "{self:#?}");
        ensure!(self.text("libsoftmig")? == "mapped", "{self:#?}");
        Ok(())
    }
}

/// The number behind `key=` in a line.
pub fn number(line: &str, key: &str) -> Result<u64> {
    let mut words = line.split(' ');
    let value = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value
        .and_then(|value| value.parse().ok())
        .with_context(|| format!("no number {key} in {line:?}"))
}

//! GPUs and a ledger for one test: the fake driver, the library and the clients, without Slurm and without root.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use softmig_fake_node::{Description, Gpu, MIB, Node};
use softmig_tests::command::PATIENCE;
use softmig_tests::programs::{FOLDER, STAGED, tree};
use softmig_tests::softmig::stage;
use tempfile::TempDir;

use crate::memory::ledger;

/// A context's memory of an H200.
pub fn context() -> u64 {
    Gpu::h200(0).context
}

/// GPUs, a ledger, and a limit.
pub struct Stand {
    dir: TempDir,
    /// The GPUs from outside.
    pub gpus: Node,
    /// The limit of all processes on each GPU, in bytes.
    pub limit: u64,
}

impl Stand {
    /// One H200, the GPU that everything was measured on. The clients may hold `limit_mib` MiB of it.
    pub fn new(limit_mib: u64) -> Result<Stand> {
        Stand::with(limit_mib, Description::new(&[Gpu::h200(0)]))
    }

    /// With the GPUs of this description.
    pub fn with(limit_mib: u64, description: Description) -> Result<Stand> {
        let dir = tempfile::tempdir()?;
        for gpu in &description.gpus {
            std::fs::write(dir.path().join(format!("nvidia{}", gpu.minor)), "")?;
        }
        ledger::make(&dir.path().join("ledger"), description.gpus.len())?;
        let description = description.devices(dir.path());
        let gpus = Node::describe(dir.path().join("node"), description)?;
        let limit = limit_mib * MIB;
        Ok(Stand { dir, gpus, limit })
    }

    /// Where its files are.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Each process's memory of each GPU by the ledger: see [`ledger::held`].
    pub fn held(&self) -> Result<Vec<Vec<u64>>> {
        ledger::held(&self.path("ledger"))
    }

    /// A client that is not limited: without the library.
    pub fn unlimited(&self, words: &[&str]) -> Command {
        let programs = tree().join(FOLDER.trim_start_matches('/'));
        let (program, arguments) = words.split_first().unwrap_or((&"", &[]));
        let mut command = Command::new(programs.join(program));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", softmig_tests::command::PATH)
            .env("LD_LIBRARY_PATH", tree().join("usr/lib/x86_64-linux-gnu"))
            .env(softmig_fake_node::PLACE_VARIABLE, self.path("node"));
        command
    }

    /// A client with the library and the limit.
    pub fn client(&self, words: &[&str]) -> Command {
        let mut command = self.unlimited(words);
        command
            .env("LD_PRELOAD", stage().join(STAGED.trim_start_matches('/')))
            .env("CUDA_DEVICE_MEMORY_LIMIT", format!("{}M", self.limit / MIB))
            .env("SOFTMIG_RUN", self.path("ledger"));
        command
    }

    /// Starts a client.
    pub fn start(&self, words: &[&str]) -> Result<Running> {
        Running::start(self.client(words))
    }

    /// Runs a client to its end.
    pub fn run(&self, words: &[&str]) -> Result<Said> {
        self.start(words)?.end()
    }

    /// Fails if more was ever taken of a GPU than its limit.
    pub fn check_peaks(&self) -> Result<()> {
        for device in 0..self.gpus.description().all_devices().count() {
            let (peak, limit) = (self.gpus.peak(device), self.limit);
            ensure!(
                peak <= limit,
                "GPU {device}: {peak} bytes were taken, the limit is {limit}"
            );
        }
        Ok(())
    }
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

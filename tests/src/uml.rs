//! A guest kernel with control groups of version 2 and a real Slurm, for what the kernel of the host may not offer.
//!
//! User Mode Linux is a Linux kernel that is an ordinary program. It boots here on one of the Debian roots, brings up a
//! Slurm cluster of one node, runs one script as root, and powers off: six to ten seconds for each [`Uml::run`].
//!
//! ```no_run
//! use softmig_tests::Slurm;
//! use softmig_tests::uml::Uml;
//!
//! # fn main() -> anyhow::Result<()> {
//! let run = Uml::builder(Slurm::V22_05).run("srun --gres=shard:l40s:1 cat /proc/self/cgroup")?;
//! assert_eq!(run.ok()?.stdout, "0::/system.slice/n1_slurmstepd.scope/job_1/step_0/user/task_0\n");
//! # Ok(())
//! # }
//! ```
//!
//! The guest is what `uml/init.sh` makes of it. A script can use the words of `uml/prelude.sh`: `as`, `group`,
//! `settled`, `wait_until`. The configuration, the GPUs and the users are those of [`crate::Cluster`]. Its kernel has one CPU, no
//! cpuset controller, and a clock that ticks a hundred times a second; a process costs 20 to 50 ms, a job a second.
//!
//! It leaves nothing behind. The root is mounted read-only with a layer in the guest's memory over it. The kernel's
//! memory is a file in a `/dev/shm` of its own. No network reaches out of it. Its processes live in a process namespace
//! that ends with the call, or with the thread that made it.

mod guest;
mod kernel;
mod share;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::gpus::Gpus;
use crate::slurm::Slurm;
use crate::spec::File;

pub use kernel::ensure;
use share::Share;

/// How long a guest may live by default. Only one that hangs takes all of this time.
const PATIENCE: Duration = Duration::from_secs(480);

/// The part of that for booting, gathering the logs and powering off; the script gets the rest.
const AROUND_THE_SCRIPT: Duration = Duration::from_secs(30);

/// A guest about to be booted.
#[derive(Clone, Debug)]
pub struct Uml {
    slurm: Slurm,
    gpus: Vec<Gpus>,
    packages: Option<PathBuf>,
    stages: Vec<PathBuf>,
    files: Vec<File>,
    lines: Vec<String>,
    timeout: Duration,
}

impl Uml {
    /// A guest with this version of Slurm and two L40S of four shards each.
    pub fn builder(slurm: Slurm) -> Uml {
        Uml {
            slurm,
            gpus: vec![Gpus::l40s(2)],
            packages: None,
            stages: Vec::new(),
            files: Vec::new(),
            lines: Vec::new(),
            timeout: PATIENCE,
        }
    }

    /// The GPUs of the node.
    pub fn gpus(mut self, kinds: impl IntoIterator<Item = Gpus>) -> Uml {
        self.gpus = kinds.into_iter().collect();
        self
    }

    /// Lays a tree of packages over the root, which is only read: it may be large.
    pub fn layer(mut self, tree: impl Into<PathBuf>) -> Uml {
        self.packages = Some(tree.into());
        self
    }

    /// Lays a tree arranged like `/` over the root: an installation of softmig. Slurm is told of softmig's prolog and
    /// epilog and of `job_submit.lua` and `cli_filter.lua` where they are there.
    pub fn stage(mut self, tree: impl Into<PathBuf>) -> Uml {
        self.stages.push(tree.into());
        self
    }

    /// Writes a file, over one of the stage if need be: mode 0755 if it begins with `#!`, else 0644. Not for what lies
    /// in `/mnt`, where the guest keeps the folder that it shares with the host.
    pub fn file(mut self, path: impl Into<PathBuf>, contents: impl Into<String>) -> Uml {
        self.files.push(File::new(path, contents));
        self
    }

    /// A line added to slurm.conf.
    pub fn slurm_conf(mut self, line: impl Into<String>) -> Uml {
        self.lines.push(line.into());
        self
    }

    /// How long the guest may live before it is killed and the run fails; eight minutes without it.
    pub fn timeout(mut self, timeout: Duration) -> Uml {
        self.timeout = timeout;
        self
    }

    /// Boots, waits for Slurm, runs a bash script as root, powers off.
    ///
    /// An error means that the script did not run to its end; how it ended is in the answer. Files that it leaves in
    /// the folder `$OUT` come back with it.
    pub fn run(self, script: &str) -> Result<UmlOutput> {
        if !rustix::process::geteuid().is_root() {
            bail!(
                "the guest needs root: its files are to be root's, and it gets namespaces of its own"
            );
        }
        let root = self.slurm.root();
        if !root.join("usr/bin/sinfo").exists() {
            bail!(
                "{}: no Debian root with Slurm there; run `cargo xtask test`",
                root.display()
            );
        }
        let kernel = kernel::beside_the_roots()?;
        let script_time = self.timeout.saturating_sub(AROUND_THE_SCRIPT);
        let script_time = script_time.max(Duration::from_secs(1));
        let share = Share::new(&self, &root, &kernel, script, script_time)
            .context("preparing the guest's files")?;
        let life = guest::boot(&kernel, share.path(), self.timeout)?;
        let why = match share.script_ended()? {
            // The exit status of `timeout` if it had to end the script.
            Some(124 | 137) => format!("the script still ran after {} s", script_time.as_secs()),
            Some(exit_code) => return share.output(exit_code, life.console),
            None if life.killed => format!("it still ran after {} s", self.timeout.as_secs()),
            None => share
                .failure()?
                .unwrap_or("it ended before the script did".into()),
        };
        let said = share.output(-1, life.console)?;
        bail!("the User Mode Linux guest: {why}\n{said}");
    }
}

/// The result of a script.
#[derive(Clone, Debug)]
pub struct UmlOutput {
    /// Its exit status.
    pub exit_code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// The files it left in `$OUT`, by name.
    pub outputs: BTreeMap<String, String>,
    /// The logs of the daemons by name: `slurmctld.log`, `slurmd.n1.log`, `munged.log`.
    pub logs: BTreeMap<String, String>,
    /// The guest's console: the kernel's messages, and how far its first process came.
    pub console: String,
}

impl UmlOutput {
    /// The answer of a script that had to end with 0.
    pub fn ok(self) -> Result<UmlOutput> {
        if self.exit_code != 0 {
            bail!("the script ended with {}\n{self}", self.exit_code);
        }
        Ok(self)
    }

    /// A file that the script had to leave in `$OUT`.
    pub fn output(&self, name: &str) -> Result<&str> {
        let text = self.outputs.get(name);
        let text = text.with_context(|| format!("the script left no $OUT/{name}\n{self}"))?;
        Ok(text)
    }
}

impl fmt::Display for UmlOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = [
            ("stdout", self.stdout.as_str()),
            ("stderr", self.stderr.as_str()),
        ];
        let files = self.outputs.iter().chain(&self.logs);
        let files = files.map(|(name, text)| (name.as_str(), text.as_str()));
        let console = [("console", after_the_kernel(&self.console))];
        for (name, text) in said.into_iter().chain(files).chain(console) {
            if !text.trim().is_empty() {
                writeln!(f, "--- {name}\n{}", last_lines(text, 30).trim_end())?;
            }
        }
        Ok(())
    }
}

/// The part of a console that is about Slurm: what follows the kernel's last word, where it came so far.
fn after_the_kernel(console: &str) -> &str {
    match console.split_once(" as init process\n") {
        Some((_, rest)) => rest,
        None => console,
    }
}

/// The last `count` lines of a text.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(count);
    lines.get(first..).unwrap_or_default().join("\n")
}

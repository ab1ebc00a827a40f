//! The test clients of tests/programs: their list, how each is run, and which of its output is compared.
//!
//! A client prints plain lines that are the same in every run. Lines that begin with `libsoftmig:` say whether the
//! library is in the process; they are taken out and looked at for themselves, so that no comparison passes because
//! the library was not there. Lines that begin with `figure` are what a slice shows differently on purpose.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::Output;
use crate::spec::{File, Install, Spec};

/// Where the clients lie in a machine, and from where they are run.
pub const FOLDER: &str = "/opt/programs";

/// Where softmig's library is installed.
pub const LIBRARY: &str = "/usr/lib/softmig/libsoftmig.so";

/// Where the library lies until it is installed.
pub const STAGED: &str = "/usr/lib/softmig/staged/libsoftmig.so";

/// The loader's list of libraries for every process.
pub const PRELOAD: &str = "/etc/ld.so.preload";

/// Whether the library can be in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// In it and in all that it starts.
    Inside,
    /// In none of it: another C library, or no loader.
    Outside,
}

/// A client and how it is run.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The command line, for bash, in the clients' folder.
    pub command: &'static str,
    /// The user who runs it.
    pub user: &'static str,
    /// The package it needs beside the minimal system.
    pub package: Option<&'static str>,
    /// Whether the library is in it.
    pub reach: Reach,
    /// How it ends, as a shell counts it.
    pub status: i32,
}

impl Program {
    const fn new(command: &'static str) -> Program {
        Program {
            command,
            user: "alice",
            package: None,
            reach: Reach::Inside,
            status: 0,
        }
    }

    const fn ends_with(mut self, status: i32) -> Program {
        self.status = status;
        self
    }

    const fn needs(mut self, package: &'static str) -> Program {
        self.package = Some(package);
        self
    }

    const fn by_root(mut self) -> Program {
        self.user = "root";
        self
    }

    const fn outside(mut self) -> Program {
        self.reach = Reach::Outside;
        self
    }
}

/// Every client that behaves alike with the library and without it.
pub const ALL: &[Program] = &[
    // The ways to the driver.
    Program::new("./linked"),
    Program::new("./loads"),
    Program::new("./versioned"),
    Program::new("LD_LIBRARY_PATH=/opt/programs/versions ./versioned"),
    Program::new("LD_LIBRARY_PATH=/opt/programs/versions ./linked"),
    Program::new("./runtime v2"),
    Program::new("./runtime v1"),
    Program::new("./runtime per-thread"),
    Program::new("./runtime legacy"),
    Program::new("./addresses"),
    Program::new("./default_scope"),
    Program::new("./namespace"),
    Program::new("./reload"),
    Program::new("./private_names"),
    Program::new("./nvml"),
    // Other libraries that interpose.
    Program::new("LD_PRELOAD=/opt/programs/libinterposer.so ./interposed"),
    Program::new("LD_PRELOAD=/opt/programs/liballocator.so ./allocated"),
    Program::new("LD_PRELOAD=/opt/programs/libgetter.so ./gotten"),
    // Calls that change the process itself.
    Program::new("./fork"),
    Program::new("./exec"),
    Program::new("./threads"),
    Program::new("./closefrom"),
    Program::new("./signals"),
    Program::new("./set-uid"),
    Program::new("./set-gid"),
    Program::new("CUDA_DEVICE_MEMORY_LIMIT=1g SOFTMIG_LOG_LEVEL=4 ./set-uid"),
    // Programs that take no preloaded library, and programs that they start.
    Program::new("./static").outside(),
    Program::new("./static-pie").outside(),
    Program::new("./musl").needs("musl").outside(),
    Program::new("./musl-static").outside(),
    Program::new("./own_names"),
    Program::new("./tsan"),
    Program::new("LD_PRELOAD=libasan.so.8 ./asan").needs("libasan8"),
    Program::new("ASAN_OPTIONS=verify_asan_link_order=0 ./asan").needs("libasan8"),
    // Programs of a system.
    Program::new("./shell.sh"),
    Program::new("./tour.pl"),
    Program::new("python3 ./tour.py").needs("python3"),
    // It ends itself by SIGTERM, to have its handler run.
    Program::new("java ./Tour.java")
        .needs("openjdk-17-jre-headless")
        .ends_with(143),
    Program::new("./sudo.sh").needs("sudo"),
    Program::new("./su.sh").by_root(),
    Program::new("./ssh.sh").needs("openssh-server").by_root(),
    Program::new("./ssh.sh").needs("openssh-server"),
    Program::new("./systemd.sh").needs("systemd").by_root(),
    Program::new("./tracers.sh").needs("gdb-minimal"),
];

/// Programs that need a job: a step of its own, and Slurm's commands in it.
pub const IN_JOBS: &[Program] = &[
    Program::new("srun --overlap ./linked"),
    Program::new("srun --overlap --export=NONE ./linked"),
    Program::new("scontrol --oneliner show job $SLURM_JOB_ID | wc -l; ./maps"),
];

/// The tree that `cargo xtask programs` builds: the clients and the driver they are tested with, arranged like `/`.
pub fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/programs")
}

/// Brings the clients and the driver into a machine that is about to be made.
pub fn add_to(spec: &mut Spec) {
    spec.stages.push(tree());
    let privileged = tree().join("opt/programs/privileged");
    for (name, mode) in [("set-uid", 0o4755), ("set-gid", 0o2755)] {
        spec.installs.push(Install {
            from: privileged.clone(),
            to: Path::new(FOLDER).join(name),
            mode,
        });
    }
    spec.files.push(File::new(
        "/etc/sudoers.d/programs",
        "alice ALL=(ALL:ALL) NOPASSWD: ALL\n",
    ));
}

/// How a client ended and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The exit status, as a shell counts it.
    pub status: i32,
    /// Standard output but for the lines on the library.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Whether each process said that the library is mapped.
    pub mapped: Vec<bool>,
}

impl Said {
    /// From what a shell was told.
    pub fn new(status: i32, stdout: &str, stderr: &str) -> Said {
        let (marks, lines): (Vec<&str>, Vec<&str>) = stdout
            .lines()
            .partition(|line| line.starts_with("libsoftmig: "));
        Said {
            status,
            stdout: lines.join("\n"),
            stderr: stderr.to_owned(),
            mapped: marks
                .iter()
                .map(|mark| *mark == "libsoftmig: mapped")
                .collect(),
        }
    }

    /// From a finished command.
    pub fn of(output: &Output) -> Result<Said> {
        let status = output.status.code().context("bash was killed")?;
        Ok(Said::new(status, &output.stdout, &output.stderr))
    }

    /// The same without what a slice shows differently.
    pub fn without_figures(mut self) -> Said {
        let plain = self
            .stdout
            .lines()
            .filter(|line| !line.starts_with("figure "));
        self.stdout = plain.collect::<Vec<_>>().join("\n");
        self
    }

    /// The fault of a client's run, if it has one. The run without the library said `before`.
    pub fn complaint(&self, program: &Program, before: &Said) -> Option<String> {
        let command = program.command;
        if before.mapped.is_empty() || before.mapped.contains(&true) {
            return Some(format!(
                "{command}: not a run without the library: {before:?}"
            ));
        }
        if before.status != program.status {
            return Some(format!("{command}: fails by itself: {before:?}"));
        }
        let wanted = program.reach == Reach::Inside;
        if self.mapped.iter().any(|&mapped| mapped != wanted)
            || self.mapped.len() != before.mapped.len()
        {
            return Some(format!(
                "{command}: the library should {}be in every process: {self:?}",
                if wanted { "" } else { "not " }
            ));
        }
        let unmarked = |said: &Said| Said {
            mapped: Vec::new(),
            ..said.clone()
        };
        if unmarked(self) == unmarked(before) {
            return None;
        }
        Some(format!(
            "{command} differs:\n--- without the library: {}\n{}{}\n--- with it: {}\n{}{}",
            before.status, before.stdout, before.stderr, self.status, self.stdout, self.stderr
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKED: &Program = &Program::new("./linked");

    #[test]
    fn a_run_without_the_library_proves_nothing() {
        let without = Said::new(0, "libsoftmig: not mapped\ncuInit: 0\n", "");
        let with = Said::new(0, "libsoftmig: mapped\ncuInit: 0\n", "");
        assert_eq!(with.complaint(LINKED, &without), None);
        assert!(without.complaint(LINKED, &without).is_some());
        assert!(with.complaint(LINKED, &with).is_some());
        let mute = Said::new(0, "cuInit: 0\n", "");
        assert!(mute.complaint(LINKED, &mute).is_some());
        assert!(mute.complaint(LINKED, &without).is_some());
        let outside = LINKED.outside();
        assert_eq!(without.complaint(&outside, &without), None);
        assert!(with.complaint(&outside, &without).is_some());
    }

    #[test]
    fn every_difference_counts() {
        let without = Said::new(0, "libsoftmig: not mapped\nfigure total: 1\n", "");
        for (status, stdout, stderr) in [
            (1, "figure total: 1", ""),
            (0, "figure total: 2", ""),
            (0, "figure total: 1", "ld.so complains"),
        ] {
            let with = Said::new(status, &format!("libsoftmig: mapped\n{stdout}\n"), stderr);
            assert!(with.complaint(LINKED, &without).is_some(), "{with:?}");
        }
        let slice = Said::new(0, "libsoftmig: mapped\nfigure total: 2\n", "").without_figures();
        assert_eq!(slice.complaint(LINKED, &without.without_figures()), None);
    }
}

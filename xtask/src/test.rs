//! `cargo xtask test`: every test there is, with all that the tests need.

use std::process::Command;

use anyhow::{Result, ensure};
use softmig_tests::Slurm;

use crate::place::{run, target};
use crate::steps::{Steps, all, cargo};
use crate::{gates, programs, prometheus, roots, runtimes, stage};

/// Which tests to run.
#[derive(clap::Args)]
pub(crate) struct Tests {
    /// The Slurm of the cluster tests
    #[arg(long, value_name = "22.05|24.11|26.05|all", default_value = "all", value_parser = versions)]
    slurm: Versions,
    /// Also the tests in a guest kernel with control groups of version 2 (User Mode Linux)
    #[arg(long)]
    uml: bool,
    /// Only the tests that need no cluster: no root, no Debian, a few seconds
    #[arg(long, conflicts_with = "uml")]
    fast: bool,
    /// Only tests whose name contains this
    filter: Option<String>,
}

/// Versions of Slurm; a type of its own, since clap would take a list for an option given several times.
#[derive(Clone)]
struct Versions(Vec<Slurm>);

fn versions(text: &str) -> Result<Versions> {
    match text {
        "all" => Ok(Versions(Slurm::ALL.into())),
        one => Ok(Versions(vec![one.parse()?])),
    }
}

impl Tests {
    /// The tests that `.ci/run` runs.
    pub(crate) fn everything() -> Tests {
        Tests {
            slurm: Versions(Slurm::ALL.into()),
            uml: true,
            fast: false,
            filter: None,
        }
    }

    /// Runs them with a table of times at the end.
    pub(crate) fn run(&self) -> Result<()> {
        println!("{}", self.needs());
        all(|steps| self.steps(steps))
    }

    /// The needs and the time that a reader should know before it starts.
    fn needs(&self) -> &'static str {
        match (self.fast, rustix::process::geteuid().is_root()) {
            (true, _) => "Unit, doc and integration tests; they need nothing but Rust.",
            (false, true) => {
                "Cluster tests need debootstrap (installed with apt where it is missing) and Debian roots below target/."
            }
            (false, false) => {
                "Cluster tests need root, which they get from sudo, debootstrap (installed with apt where it is missing) \
                 and Debian roots below target/. Everything is built as you."
            }
        }
    }

    /// Prepares and tests.
    pub(crate) fn steps(&self, steps: &mut Steps) -> Result<()> {
        let mut versions = self.slurm.0.clone();
        if !self.fast {
            let gone = steps.step("Debian roots with Slurm", || {
                roots::build_what_debian_has(&versions)
            })?;
            for gone in gone {
                ensure!(versions.len() > 1, "{gone}");
                versions.retain(|slurm| *slurm != gone.slurm);
                steps.note(format!("Slurm {} was not tested: {gone}", gone.slurm));
            }
            if versions.contains(&Slurm::V24_11) {
                steps.step("container runtimes", runtimes::build)?;
            }
            steps.step("release build into target/stage", || {
                stage::build().map(drop)
            })?;
            steps.step("what the hook asks of processes", || gates::check(None))?;
            steps.step("test clients and the fake driver", || {
                programs::build().map(drop)
            })?;
            steps.step("Prometheus and node_exporter", prometheus::bring)?;
        }
        if self.uml {
            steps.step("kernel of the guests", || {
                softmig_tests::uml::ensure(&target())
            })?;
        }
        steps.step("unit, doc and integration tests", || {
            run(self.filtered(&mut cargo(&[
                "test",
                "--locked",
                "--workspace",
                "--no-fail-fast",
            ])))
        })?;
        if self.fast {
            return Ok(());
        }
        if self.filter.is_none() {
            steps.step("metrics, with a real Prometheus", prometheus::test)?;
        }
        steps.step("cluster tests", || self.cluster_tests(&versions))
    }

    /// The tests that start clusters, and the guests' if wanted.
    fn cluster_tests(&self, versions: &[Slurm]) -> Result<()> {
        let features = if self.uml { "cluster,uml" } else { "cluster" };
        let mut command = cargo(&["test", "--locked", "--no-fail-fast", "-p", "softmig-tests"]);
        // Not `--test *`, which asks for the features of them all.
        command.args(["--features", features, "--tests"]);
        if !rustix::process::geteuid().is_root() {
            // Only the tests themselves: what cargo writes stays the user's.
            command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", "sudo -E");
        }
        let command = self.filtered(&mut command);
        command.arg("--test-threads=4");
        // Tests that name no version run on the root of 22.05, where that is built.
        if let ([only @ (Slurm::V24_11 | Slurm::V26_05)], None) = (versions, &self.filter) {
            command.arg(module_of(*only));
        }
        if versions == [Slurm::V26_05] {
            command.arg("--include-ignored");
        }
        // Beside a filter: a second one would add tests, not take any away.
        for other in Slurm::ALL {
            if !versions.contains(&other) {
                command.args(["--skip", &module_of(other)]);
            }
        }
        run(command)
    }

    /// Adds `-- FILTER`.
    fn filtered<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.arg("--").args(&self.filter)
    }
}

/// The beginning of the names of a version's tests.
fn module_of(slurm: Slurm) -> String {
    format!("slurm_{}::", slurm.to_string().replace('.', "_"))
}

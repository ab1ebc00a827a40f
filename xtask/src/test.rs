//! `cargo xtask test`: the tests of the code, and those on clusters, with all that they need.

use std::process::Command;

use anyhow::{Result, anyhow, ensure};
use softmig_tests::Slurm;

use crate::place::{run, target};
use crate::steps::{Steps, all, cargo};
use crate::{gates, programs, prometheus, roots, runtimes, stage};

/// Which tests to run.
#[derive(clap::Args)]
pub(crate) struct Tests {
    /// Only the tests on clusters of this Slurm; otherwise those of 24.11, and on each release those in which it differs
    #[arg(long, value_name = "22.05|24.11|26.05", conflicts_with = "full")]
    slurm: Option<Slurm>,
    /// All tests there are, with the release build: each release of Slurm, containers, upgrades, control groups of version 2
    /// in User Mode Linux, Prometheus, the driver that tests use
    #[arg(long)]
    full: bool,
    /// Only the tests that need no cluster: no root, no Debian, a few minutes
    #[arg(long, conflicts_with_all = ["full", "slurm"])]
    fast: bool,
    /// Only tests whose name contains this
    filter: Option<String>,
}

impl Tests {
    /// The tests that `.ci/run` runs, or all.
    pub(crate) fn for_ci(full: bool) -> Tests {
        Tests {
            slurm: None,
            full,
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
        match self {
            Tests { fast: true, .. } => {
                "Unit, doc and integration tests. They need nothing but Rust: 5 minutes on two cores."
            }
            Tests { full: true, .. } => {
                "All tests: half an hour on two cores. As root, or with sudo; see CONTRIBUTING.md."
            }
            _ => {
                "Tests of the code and on clusters: 10 minutes on two cores, and 5 more the first time. Cluster tests need root, \
                 which they get from sudo, debootstrap (installed with apt where it is missing) and Debian roots below target/."
            }
        }
    }

    /// Whether releases other than 24.11, containers and guests are compiled in.
    fn is_wide(&self) -> bool {
        self.full || self.slurm.is_some()
    }

    /// Prepares and tests.
    pub(crate) fn steps(&self, steps: &mut Steps) -> Result<()> {
        if self.fast {
            return steps.step("tests without clusters", || {
                run(self.filtered(&mut cargo(&[
                    "test",
                    "--locked",
                    "--workspace",
                    "--no-fail-fast",
                ])))
            });
        }
        let releases = self.prepare(steps)?;
        if self.slurm.is_none() {
            steps.step("unit, doc and integration tests", || {
                let mut tests = cargo(&["test", "--locked", "--no-fail-fast", "--workspace"]);
                if !self.full {
                    tests.args(FAKE_DRIVER.map(|name| format!("--exclude={name}")));
                    tests.env("PROPTEST_RNG_SEED", SEED);
                }
                run(self.filtered(&mut tests))
            })?;
        }
        if self.full && self.filter.is_none() {
            steps.step("metrics, with a real Prometheus", prometheus::test)?;
        }
        steps.step("cluster tests", || self.cluster_tests(&releases))
    }

    /// Makes all that clusters need. Returns the releases of Slurm that there are.
    fn prepare(&self, steps: &mut Steps) -> Result<Vec<Slurm>> {
        let mut releases = self.slurm.map_or(Slurm::ALL.into(), |one| vec![one]);
        // Not beside each other: both may install a package.
        roots::needs()?;
        programs::needs()?;
        let gone = steps.step("Debian roots with Slurm, and a build beside them", || {
            std::thread::scope(|scope| {
                // One waits for the network, the other for the processors.
                let debian = scope.spawn(|| roots::build_what_debian_has(&releases));
                stage::quick(&CODE, &stage::LUAS)?;
                debian
                    .join()
                    .map_err(|_| anyhow!("building the Debian roots panicked"))?
            })
        })?;
        for gone in gone {
            ensure!(releases.len() > 1, "{gone}");
            releases.retain(|slurm| *slurm != gone.slurm);
            steps.note(format!("Slurm {} was not tested: {gone}", gone.slurm));
        }
        steps.step("test clients", programs::build)?;
        let hook = softmig_tests::softmig::stage().join(stage::HOOK);
        steps.step("what the hook asks of processes", || {
            gates::check(Some(hook))
        })?;
        if self.is_wide() {
            if releases.contains(&Slurm::V24_11) {
                steps.step("container runtimes", runtimes::build)?;
            }
            steps.step("Prometheus and node_exporter", prometheus::bring)?;
            steps.step("kernel of the guests", || {
                softmig_tests::uml::ensure(&target())
            })?;
        }
        if self.full {
            steps.step("release build", stage::build)?;
            steps.step("what the programs ask of a C library", || {
                gates::check(None)
            })?;
        }
        Ok(releases)
    }

    fn cluster_tests(&self, releases: &[Slurm]) -> Result<()> {
        let features = if self.is_wide() {
            "--features=softmig-tests/full"
        } else {
            "--features=softmig-tests/cluster"
        };
        // The whole workspace, so that nothing that the other tests use is built again with other features.
        let mut tests = cargo(&[
            "test",
            "--locked",
            "--workspace",
            "--test=behaviour",
            features,
        ]);
        self.filtered(run_as_root(&mut tests))
            .arg("--test-threads=4");
        if let (Some(slurm), None) = (self.slurm, &self.filter) {
            tests.arg(module_of(slurm));
        }
        // Beside a filter: a second one would add tests, not take any away.
        for other in Slurm::ALL {
            if !releases.contains(&other) {
                tests.args(["--skip", &module_of(other)]);
            }
        }
        run(&mut tests)
    }

    /// Adds `-- FILTER`.
    fn filtered<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.arg("--").args(&self.filter)
    }
}

/// Has cargo run tests as root. Only the tests themselves: what cargo writes stays the user's.
pub(crate) fn run_as_root(tests: &mut Command) -> &mut Command {
    if !rustix::process::geteuid().is_root() {
        tests.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", "sudo -E");
    }
    tests
}

/// All crates but that of the tests on clusters.
const CODE: [&str; 2] = ["--workspace", "--exclude=softmig-tests"];

/// The seed of random cases. A change is judged by the same ones as the change before it; `--full` and `--fast` try new ones.
const SEED: &str = "1";

/// The crates of the driver that tests use. Their own tests are about drivers, not about softmig.
const FAKE_DRIVER: [&str; 4] = [
    "softmig-fake-cuda",
    "softmig-fake-node",
    "softmig-fake-nvml",
    "softmig-fake-rm",
];

/// The beginning of the names of a version's tests.
fn module_of(slurm: Slurm) -> String {
    format!("slurm_{}::", slurm.to_string().replace('.', "_"))
}

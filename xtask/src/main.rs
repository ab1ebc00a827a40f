//! `cargo xtask`: builds softmig, shows it and tests it, and fetches what that needs.

mod bench;
mod bindings;
mod ci;
mod count;
mod demo;
mod gates;
mod grafana;
mod layers;
mod old_libc;
mod packages;
mod packaging;
mod place;
mod playground;
mod programs;
mod prometheus;
mod release;
mod roots;
mod runtimes;
mod stage;
mod steps;
mod test;
mod tools;
mod tour;
mod wheel;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use softmig_tests::Slurm;

/// Builds softmig, shows it and tests it.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Show slices of GPUs on a real Slurm, with simulated GPUs, and on this machine's own GPU if it has one
    Demo {
        /// The Slurm to show them on: 22.05, 24.11 or 26.05
        #[arg(long, default_value = "22.05")]
        slurm: Slurm,
        /// Keep the cluster up, with a prompt on each of its machines, until you leave it
        #[arg(long)]
        shell: bool,
        /// Lay this tree over the root of its machines, to run more programs there
        #[arg(long, value_name = "FOLDER", requires = "shell")]
        layer: Option<PathBuf>,
    },
    /// The part of the demo that needs root
    #[command(hide = true)]
    ShowDemo {
        /// The Slurm to show them on
        #[arg(long)]
        slurm: Slurm,
        /// Show nothing, and give a prompt
        #[arg(long)]
        shell: bool,
        /// Lay this tree over the root of its machines
        #[arg(long)]
        layer: Option<PathBuf>,
    },
    /// Run the tests, with what they need: Debian roots, a build, sudo for the clusters
    Test(test::Tests),
    /// Check all that must hold before a change goes in
    Ci(ci::Ci),
    /// Make hook/sys, the declarations of the driver's functions, from NVIDIA's headers
    Bindings(bindings::Bindings),
    /// Check the licences of dependencies, and that each is there in one version
    Dependencies,
    /// Check that the files of a crate import only downwards
    Layers,
    /// Check the spelling of all files
    Spelling,
    /// Build the pages as a book, in target/book
    Book,
    /// Check what the built hook asks of the processes that it is loaded into
    Gates {
        /// The library; without it the one in target/stage
        library: Option<std::path::PathBuf>,
    },
    /// Count the lines of code of the product and of tests, by crate or of these folders
    Count { folders: Vec<PathBuf> },
    /// Measure what softmig costs, and write it to bench/results
    Bench,
    /// Build the Debian roots of test clusters that are missing, in target/roots, and their container runtimes
    Roots,
    /// Build the test clients and the driver they are tested with into target/programs
    Programs,
    /// Build everything into target/stage, laid out as it is installed
    Stage,
    /// Make all that is handed out of a version, in target/release-VERSION
    Release,
    /// Make debs and rpms, in target/packages
    Packages(packaging::Packages),
}

fn main() -> ExitCode {
    match Task::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        // Not returned: a backtrace, where those are on, would bury the sentence.
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Task {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Task::Demo {
                slurm,
                shell,
                layer,
            } => demo::demo(slurm, shell, layer),
            Task::ShowDemo {
                slurm,
                shell,
                layer,
            } => demo::show(slurm, shell, layer),
            Task::Test(tests) => tests.run(),
            Task::Ci(ci) => ci.run(),
            Task::Bindings(bindings) => bindings.run(),
            Task::Dependencies => tools::dependencies(),
            Task::Layers => layers::check(),
            Task::Spelling => tools::spelling(),
            Task::Book => tools::book(),
            Task::Gates { library } => gates::check(library),
            Task::Count { folders } => count::count(&folders),
            Task::Bench => bench::bench(),
            Task::Roots => roots::build().and_then(|()| runtimes::build()),
            Task::Programs => {
                stage::quick(&stage::PARTS, &stage::LUAS).and_then(|()| programs::build())
            }
            Task::Stage => stage::build(),
            Task::Release => release::release(),
            Task::Packages(packages) => packages.run(),
        }
    }
}

//! `cargo xtask`: builds softmig, shows it and tests it, and fetches what that needs.

mod bench;
mod place;
mod roots;
mod stage;

use clap::Parser;

/// Builds softmig, shows it and tests it.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Measure what softmig costs, and write it to bench/results
    Bench,
    /// Build the Debian roots of test clusters that are missing, in target/roots
    Roots,
    /// Build everything into target/stage, laid out as it is installed
    Stage,
}

fn main() -> anyhow::Result<()> {
    match Task::parse() {
        Task::Bench => bench::bench(),
        Task::Roots => roots::build(),
        Task::Stage => stage::build().map(drop),
    }
}

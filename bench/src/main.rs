//! The cost of softmig: each figure beside the one that it is compared with, measured in turns within one run.
//!
//! `cargo xtask bench` builds the measured programs and runs this. Inside the test machines the time is taken by
//! `softmig-bench-repeat` and by `inside/calls.lua`, so that no way into them is measured.

mod decision;
mod figure;
mod hook;
mod host;
mod lua;
mod node;
mod repeat;
mod report;
mod submission;

use anyhow::Result;
use softmig_tests::Slurm;

fn main() -> Result<()> {
    let only = std::env::args().nth(1);
    let mut figures = decision::measure()?;
    // In a moment, and without anything built or written.
    if only.as_deref() == Some("decision") {
        println!("{}", report::table(&figures));
        return Ok(());
    }
    figures.extend(lua::measure()?);
    if only.as_deref() == Some("lua") {
        println!("{}", report::table(&figures));
        return Ok(());
    }
    let mut releases = Vec::new();
    for slurm in Slurm::ALL {
        let clusters = submission::Clusters::start(slurm)?;
        releases.push(clusters.release()?);
        figures.extend(clusters.measure()?);
        // A node is the same whatever Slurm it belongs to.
        if Some(&slurm) == Slurm::ALL.last() {
            figures.extend(node::measure(clusters.softmig())?);
            figures.extend(hook::measure(clusters.softmig())?);
        }
    }
    report::report(&host::describe(&releases)?, &figures)
}

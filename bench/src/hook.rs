//! The cost of the library for a process without a GPU: a longer start.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use softmig_tests::Cluster;
use softmig_tests::programs::LIBRARY;

use crate::figure::{Figure, Question, Target, median};
use crate::repeat;

/// Where a library that holds nothing lies in a machine.
pub(crate) const EMPTY_LIBRARY: &str = "/bench/empty.so";

/// How many rounds, and how many starts in each.
const ROUNDS: usize = 15;
const STARTS: usize = 200;

/// Builds a library that holds nothing: what the loader takes for any library at all.
pub(crate) fn empty_library() -> Result<PathBuf> {
    let folder = std::env::current_exe()?;
    let folder = folder.parent().context("this program lies in a folder")?;
    let (source, library) = (folder.join("empty.c"), folder.join("empty.so"));
    std::fs::write(&source, "")?;
    let status = Command::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,-z,noseparate-code", "-o"])
        .args([&library, &source])
        .status()
        .context("starting cc")?;
    ensure!(status.success(), "cc: {status}");
    Ok(library)
}

/// Measures it on a node of the cluster.
pub(crate) fn measure(cluster: &Cluster) -> Result<Vec<Figure>> {
    let preload = |library: &str| format!("LD_PRELOAD={library}");
    let (empty, softmig) = (preload(EMPTY_LIBRARY), preload(LIBRARY));
    let commands: [&[&str]; 3] = [
        &["/bin/true"],
        &[&empty, "/bin/true"],
        &[&softmig, "/bin/true"],
    ];
    let mut rounds: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let call = cluster
            .node(0)
            .command("root", &repeat::argv(&[], STARTS, &commands));
        for (times, rounds) in repeat::measure(call)?.iter().zip(&mut rounds) {
            let microseconds: Vec<f64> = times.iter().map(|time| time * 1e3).collect();
            rounds.push(median(&microseconds));
        }
    }
    let [without, empty, softmig] = &rounds;
    let ways: [(&str, &[f64]); 3] = [
        ("without", without),
        ("empty library", empty),
        ("softmig", softmig),
    ];
    let question = |what: &str, target| Question {
        what: what.to_owned(),
        unit: "us",
        result_unit: "us",
        target,
    };
    Ok(vec![
        question(
            "exec of /bin/true with the library",
            Some(Target::Under(20.0)),
        )
        .answer(&ways, |values| values[2] - values[0]),
        question(
            "exec of /bin/true: of which softmig's, not any library's",
            None,
        )
        .answer(&ways, |values| values[2] - values[1]),
    ])
}

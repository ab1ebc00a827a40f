//! `softmig-bench-repeat`, as it is installed in a test machine and asked to measure.

use anyhow::{Context, Result, ensure};
use softmig_tests::command::Call;
use std::path::PathBuf;

/// Where it lies in a machine.
pub(crate) const PROGRAM: &str = "/bench/repeat";

/// Where it was built: beside this program.
pub(crate) fn built() -> Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program")?;
    Ok(this.with_file_name("softmig-bench-repeat"))
}

/// The command line that runs each of these once in turn, `times` times.
pub(crate) fn argv(options: &[&str], times: usize, commands: &[&[&str]]) -> Vec<String> {
    let times = times.to_string();
    let mut words = vec![PROGRAM];
    words.extend(options);
    words.push(&times);
    for command in commands {
        words.push("--");
        words.extend(*command);
    }
    words.into_iter().map(str::to_owned).collect()
}

/// The milliseconds that each command took, each time.
pub(crate) fn measure(call: Call) -> Result<Vec<Vec<f64>>> {
    let said = call.output()?.ok()?;
    let times: Vec<Vec<f64>> = said
        .lines()
        .map(|line| line.split(' ').map(nanoseconds).collect())
        .collect::<Result<_>>()?;
    ensure!(!times.is_empty(), "softmig-bench-repeat said nothing");
    Ok(times)
}

fn nanoseconds(text: &str) -> Result<f64> {
    let nanoseconds: f64 = text
        .parse()
        .with_context(|| format!("softmig-bench-repeat said {text:?}"))?;
    Ok(nanoseconds / 1e6)
}

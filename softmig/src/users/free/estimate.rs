//! When Slurm thinks that a job would start: `sbatch --test-only`, which submits nothing.

use crate::output::say::plain;
use serde::Serialize;
use softmig_node::slurmctld::Commands;

/// Its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Estimate {
    /// At this local time, on these nodes.
    Start {
        /// `2026-11-23T20:38:30`.
        at: String,
        /// Where, as Slurm lists it.
        nodes: String,
    },
    /// It would not start, or is not known: Slurm's words.
    No(String),
}

/// Asks for one size.
pub(crate) fn ask(commands: &Commands, gres: &str, options: &[String]) -> Estimate {
    let gres = format!("--gres={gres}");
    let mut words = vec!["--test-only", &gres, "--wrap=true"];
    words.extend(options.iter().map(String::as_str));
    match commands.said("sbatch", &words) {
        Ok(said) => read(&said),
        Err(error) => Estimate::No(error.to_string()),
    }
}

/// `sbatch: Job 19 to start at 2026-11-23T22:00:30 using 1 processors on nodes gpu01 in partition main`.
fn read(said: &str) -> Estimate {
    let line = said
        .lines()
        .find_map(|line| line.split_once(" to start at "));
    if let Some((_, rest)) = line {
        let mut words = rest.split_ascii_whitespace();
        let at = words.next().unwrap_or_default().to_string();
        let nodes = words.skip_while(|word| *word != "nodes").nth(1);
        return Estimate::Start {
            at,
            nodes: nodes.unwrap_or_default().to_string(),
        };
    }
    let told = said
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("no answer");
    let told: String = plain(told).chars().take(200).collect();
    let told = told.trim_start_matches("sbatch: ");
    Estimate::No(told.trim_start_matches("error: ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_estimates_are_read() {
        let start = |at: &str| Estimate::Start {
            at: at.into(),
            nodes: "gpu01".into(),
        };
        // As 22.05 and 24.11 say it, and 26.05.
        for said in [
            "sbatch: Job 19 to start at 2026-11-23T22:00:30 using 1 processors on nodes gpu01 in partition main\n",
            "sbatch: Job 19 to start at 2026-11-23T22:00:30 a using 1 processors on nodes gpu01 in partition main\n",
        ] {
            assert_eq!(read(said), start("2026-11-23T22:00:30"));
        }
        let no = "allocation failure: Requested node configuration is not available";
        assert_eq!(read(&format!("sbatch: {no}\n\n")), Estimate::No(no.into()));
        assert_eq!(read(""), Estimate::No("no answer".into()));
    }
}

//! The time that one sbatch costs: clusters that differ only in their plugins, all up at the same time.

use crate::figure::{Figure, Question, Target, median};
use crate::{hook, repeat};
use anyhow::Result;
use softmig_tests::softmig::installed;
use softmig_tests::{Cluster, Slurm};

/// How many rounds, and how many jobs are submitted to each cluster in a round.
const ROUNDS: usize = 40;
const JOBS: usize = 20;

const EMPTY_JOB_SUBMIT: &str = "\
function slurm_job_submit() return slurm.SUCCESS end
function slurm_job_modify() return slurm.SUCCESS end
return slurm.SUCCESS
";

/// The same rules without softmig: what any script that changes a job costs Slurm.
const PLAIN_JOB_SUBMIT: &str = "\
slurm_job_submit = dofile('/bench/plain.lua')
function slurm_job_modify() return slurm.SUCCESS end
return slurm.SUCCESS
";

const EMPTY_CLI_FILTER: &str = "\
function slurm_cli_setup_defaults() return slurm.SUCCESS end
function slurm_cli_pre_submit() return slurm.SUCCESS end
function slurm_cli_post_submit() return slurm.SUCCESS end
return slurm.SUCCESS
";

/// The quarter of a GPU, in the user's words and in Slurm's: all clusters end up with the same job.
const SLICE: &str = "--gres=gpu:l40s.4:1";
const SHARD: &str = "--gres=shard:l40s:1";

/// The clusters of one Slurm.
pub(crate) struct Clusters {
    slurm: Slurm,
    no_plugin: Cluster,
    empty_script: Cluster,
    plain_script: Cluster,
    softmig: Cluster,
    empty_filter: Cluster,
    softmig_filter: Cluster,
}

impl Clusters {
    /// Starts them.
    pub(crate) fn start(slurm: Slurm) -> Result<Clusters> {
        println!("Slurm {slurm}: starting six clusters.");
        let program = repeat::built()?;
        let empty_library = hook::empty_library()?;
        let start = |job_submit: Option<&str>, cli_filter: Option<&str>| {
            let mut builder = installed(slurm)
                .debug("info")
                .job_submit(job_submit.is_some())
                .cli_filter(cli_filter.is_some())
                .install(&program, repeat::PROGRAM, 0o755)
                .file("/bench/plain.lua", include_str!("../inside/plain.lua"))
                .file("/bench/prolog.sh", include_str!("../inside/prolog.sh"))
                .file("/bench/job.sh", "#!/bin/sh\n")
                .install(&empty_library, hook::EMPTY_LIBRARY, 0o755);
            for (path, script) in [
                ("/etc/slurm/job_submit.lua", job_submit),
                ("/etc/slurm/cli_filter.lua", cli_filter),
            ] {
                // Without a text of its own it is the one that softmig brings.
                if let Some(script) = script.filter(|script| !script.is_empty()) {
                    builder = builder.file(path, script);
                }
            }
            builder.start()
        };
        Ok(Clusters {
            slurm,
            no_plugin: start(None, None)?,
            empty_script: start(Some(EMPTY_JOB_SUBMIT), None)?,
            plain_script: start(Some(PLAIN_JOB_SUBMIT), None)?,
            softmig: start(Some(""), None)?,
            empty_filter: start(Some(""), Some(EMPTY_CLI_FILTER))?,
            softmig_filter: start(Some(""), Some(""))?,
        })
    }

    /// The one where softmig decides in slurmctld.
    pub(crate) fn softmig(&self) -> &Cluster {
        &self.softmig
    }

    /// Slurm's own words for its release.
    pub(crate) fn release(&self) -> Result<String> {
        let said = self.softmig.run("root", &["sinfo", "--version"])?.ok()?;
        Ok(said.trim().to_owned())
    }

    /// Submits to all of them in turns.
    pub(crate) fn measure(&self) -> Result<Vec<Figure>> {
        let ways = [
            (&self.no_plugin, SHARD),
            (&self.empty_script, SHARD),
            (&self.plain_script, SLICE),
            (&self.softmig, SLICE),
            (&self.empty_filter, SLICE),
            (&self.softmig_filter, SLICE),
        ];
        let mut rounds: [Vec<f64>; 6] = Default::default();
        for _ in 0..ROUNDS {
            for ((cluster, gres), rounds) in ways.iter().zip(&mut rounds) {
                rounds.push(round(cluster, gres)?);
            }
        }
        let [none, empty, plain, softmig, empty_filter, softmig_filter] = &rounds;
        let slurm = self.slurm;
        let rates: [Vec<f64>; 4] = [none, empty, plain, softmig]
            .map(|milliseconds| milliseconds.iter().map(|ms| 1e3 / ms).collect());
        let rates: [(&str, &[f64]); 4] = [
            ("no plugin", &rates[0]),
            ("empty script", &rates[1]),
            ("plain Lua", &rates[2]),
            ("softmig", &rates[3]),
        ];
        let per_second = |against: &str, target| Question {
            what: format!("sbatch a second, Slurm {slurm}, against {against}"),
            unit: "/s",
            result_unit: "%",
            target,
        };
        let filters: [(&str, &[f64]); 3] = [
            ("no filter", softmig),
            ("empty filter", empty_filter),
            ("softmig", softmig_filter),
        ];
        let filter = |what: &str, target| Question {
            what: format!("cli_filter, Slurm {slurm}: {what}"),
            unit: "ms",
            result_unit: "ms",
            target,
        };
        Ok(vec![
            per_second("an empty script", Some(Target::AtLeast(95.0)))
                .answer(&rates, |values| 100.0 * values[3] / values[1]),
            per_second("plain Lua", None).answer(&rates, |values| 100.0 * values[3] / values[2]),
            filter("what one command takes longer", Some(Target::Under(0.7)))
                .answer(&filters, |values| values[2] - values[0]),
            filter("of which softmig", None).answer(&filters, |values| values[2] - values[1]),
        ])
    }
}

/// The milliseconds of one sbatch in this round; the median, as one that met with another program's turn says little.
fn round(cluster: &Cluster, gres: &str) -> Result<f64> {
    let sbatch = ["sbatch", "--hold", "--quiet", gres, "/bench/job.sh"];
    let argv = repeat::argv(&[], JOBS, &[&sbatch]);
    let times = repeat::measure(cluster.command("alice", &argv))?;
    Ok(median(&times.concat()))
}

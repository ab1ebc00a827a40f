//! The module as slurmctld calls it: the shipped library in the real Lua interpreters.

use crate::figure::{Figure, Question, Target};
use anyhow::{Context, Result, ensure};
use softmig_tests::softmig::stage;
use softmig_tests::{Machine, Root, Slurm};

/// How many rounds, and how often the forms of `calls.lua` are submitted in each.
const ROUNDS: usize = 15;
const TIMES: usize = 1_500;

/// Measures under the oldest and the newest Lua that Slurm is built with.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let machine = Root::new(Slurm::V22_05)
        .stage(stage())
        .file("/etc/slurm/slurm.conf", "ClusterName=softmig\n")
        .file("/bench/calls.lua", include_str!("../inside/calls.lua"))
        .file("/bench/plain.lua", include_str!("../inside/plain.lua"))
        .start()?;
    let mut figures = Vec::new();
    for lua in ["5.1", "5.4"] {
        let [empty, plain, softmig] = calls(&machine, lua)?;
        let ways: [(&str, &[f64]); 3] = [
            ("empty function", &empty),
            ("plain Lua", &plain),
            ("softmig", &softmig),
        ];
        let question = Question {
            what: format!("slurm_job_submit in Lua {lua}, over an empty function"),
            unit: "us",
            result_unit: "us",
            target: Some(Target::Under(2.0)),
        };
        figures.push(question.answer(&ways, |values| values[2] - values[0]));
    }
    Ok(figures)
}

/// The rounds of each way in `calls.lua`, in microseconds a call.
fn calls(machine: &Machine, lua: &str) -> Result<[Vec<f64>; 3]> {
    let argv = [
        format!("lua{lua}"),
        "/bench/calls.lua".into(),
        ROUNDS.to_string(),
        TIMES.to_string(),
    ];
    let said = machine.command("root", &argv).output()?.ok()?;
    let mut rounds: [Vec<f64>; 3] = Default::default();
    for line in said.lines() {
        let mut values = line.split(' ');
        for rounds in &mut rounds {
            let value = values.next().context("calls.lua printed too little")?;
            rounds.push(
                value
                    .parse()
                    .with_context(|| format!("calls.lua: {line}"))?,
            );
        }
    }
    ensure!(rounds[0].len() == ROUNDS, "calls.lua printed {said:?}");
    Ok(rounds)
}

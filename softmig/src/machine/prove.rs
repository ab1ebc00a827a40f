//! `softmig prove`: the measuring alone, with its figures as JSON, for developers of softmig. It keeps nothing.
//! `softmig prove-load` is the program that it runs twice.

use crate::files::config_lock::be_root;
use crate::machine::scheduler::OWN_PROGRAM;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde::Serialize;
use softmig_nvml::{Devices, MigState, explained};
use softmig_proof::{Outcome, Trouble};
use std::path::Path;
use std::process::ExitCode;

/// Measures on a GPU whether steering it by its own scheduler has effect, and prints the figures as JSON.
///
/// The GPU has to be idle. Nothing is kept: 'softmig check --node' does that.
///
/// Exit status: 0 it has effect, 3 it has none, 1 not measured, 2 wrong usage.
#[derive(Args)]
pub(crate) struct Prove {
    /// The GPU; without this, the first one that is not divided
    #[arg(long, value_name = "UUID")]
    gpu: Option<String>,
}

const NO_EFFECT: u8 = 3;

/// The output.
#[derive(Serialize)]
struct Said<'a> {
    uuid: &'a str,
    name: Option<&'a str>,
    driver: Option<&'a str>,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

impl Prove {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        be_root("softmig prove")?;
        let devices = Devices::of_this_node().map_err(|error| anyhow!(explained(&error)))?;
        let mut gpus = devices.gpus.iter();
        let gpu = gpus
            .find(|gpu| match &self.gpu {
                Some(uuid) => gpu.uuid.as_ref() == Some(uuid),
                None => gpu.standing == MigState::Whole,
            })
            .context("NVML shows no such GPU")?;
        let uuid = gpu.uuid.as_deref().context("the GPU's UUID is not known")?;
        let outcome = match softmig_proof::prove(uuid, Path::new(OWN_PROGRAM)) {
            Ok(outcome) => outcome,
            Err(Trouble::NotMeasured(why) | Trouble::Refused(why)) => bail!("not measured: {why}"),
        };
        let said = Said {
            uuid,
            name: gpu.name.as_deref(),
            driver: devices.driver.as_deref(),
            outcome: &outcome,
        };
        crate::output::say::say!("{}", serde_json::to_string_pretty(&said)?);
        Ok(match outcome.failed {
            None => ExitCode::SUCCESS,
            Some(_) => ExitCode::from(NO_EFFECT),
        })
    }
}

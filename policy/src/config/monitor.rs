//! `[monitor]` in policy.toml: how often the monitor measures, and which processes it ends.

use crate::config::error::PolicyError;
use serde::Deserialize;
use std::time::Duration;

/// The monitor's settings, read and found consistent: what it measures and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Which findings end processes.
    pub end: End,
    /// For how long a job may have more memory than its slice.
    pub grace: Duration,
    /// How often the monitor measures.
    pub interval: Duration,
    /// The treatment of GPU use outside every job.
    pub outside_jobs: OutsideJobs,
}

/// Which findings end processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// None: the monitor says which ones would have.
    #[default]
    No,
    /// More memory than the slice.
    Memory,
    /// Each that the monitor may end processes for.
    All,
}

impl End {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Memory => "memory",
            Self::All => "all",
        }
    }
}

/// The treatment of GPU use outside every job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutsideJobs {
    /// Such use is left alone.
    #[default]
    Allow,
    /// A line in the log.
    Report,
    /// With `end = "all"` its processes are ended, otherwise there is a line in the log.
    End,
}

impl Default for Monitor {
    fn default() -> Self {
        Self {
            end: End::default(),
            grace: Duration::from_secs(30),
            interval: Duration::from_secs(1),
            outside_jobs: OutsideJobs::default(),
        }
    }
}

/// `[monitor]` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MonitorTable {
    #[serde(default)]
    end: End,
    grace_seconds: Option<u32>,
    interval_seconds: Option<u32>,
    #[serde(default)]
    outside_jobs: OutsideJobs,
}

/// The longest that either time may be.
const LONGEST: u32 = 3600;

impl MonitorTable {
    pub(crate) fn check(self) -> Result<Monitor, PolicyError> {
        let default = Monitor::default();
        Ok(Monitor {
            end: self.end,
            grace: seconds("grace_seconds", self.grace_seconds, 0, default.grace)?,
            interval: seconds(
                "interval_seconds",
                self.interval_seconds,
                1,
                default.interval,
            )?,
            outside_jobs: self.outside_jobs,
        })
    }
}

fn seconds(
    key: &str,
    value: Option<u32>,
    least: u32,
    default: Duration,
) -> Result<Duration, PolicyError> {
    match value {
        None => Ok(default),
        Some(value) if (least..=LONGEST).contains(&value) => Ok(Duration::from_secs(value.into())),
        Some(value) => {
            let message = format!("{key} = {value} is not from {least} to {LONGEST}");
            Err(PolicyError::new("[monitor]", None, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodePolicy;

    fn read(table: &str) -> Result<Monitor, PolicyError> {
        NodePolicy::parse(&format!("[monitor]\n{table}")).map(|policy| policy.monitor)
    }

    #[test]
    fn nothing_is_ended_unless_the_administrator_says_so() {
        let silent = Monitor {
            end: End::No,
            grace: Duration::from_secs(30),
            interval: Duration::from_secs(1),
            outside_jobs: OutsideJobs::Allow,
        };
        assert_eq!(NodePolicy::parse("").unwrap().monitor, silent);
        assert_eq!(read("").unwrap(), silent);
        let loud =
            "end = \"all\"\ngrace_seconds = 0\ninterval_seconds = 5\noutside_jobs = \"end\"\n";
        let wanted = Monitor {
            end: End::All,
            grace: Duration::ZERO,
            interval: Duration::from_secs(5),
            outside_jobs: OutsideJobs::End,
        };
        assert_eq!(read(loud).unwrap(), wanted);
    }

    #[test]
    fn what_cannot_be_meant_is_an_error() {
        for (wrong, said) in [
            ("end = \"yes\"", "end"),
            ("ends = \"all\"", "ends"),
            (
                "interval_seconds = 0",
                "interval_seconds = 0 is not from 1 to 3600",
            ),
            (
                "grace_seconds = 3601",
                "grace_seconds = 3601 is not from 0 to 3600",
            ),
            ("outside_jobs = \"kill\"", "outside_jobs"),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }
}

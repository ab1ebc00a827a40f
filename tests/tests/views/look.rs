//! Looks by the client `views`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use softmig_tests::Output;
use softmig_tests::programs::Said;

/// NVML's words.
pub const SUCCESS: i32 = 0;
/// See [`SUCCESS`].
pub const INVALID_ARGUMENT: i32 = 2;
/// See [`SUCCESS`].
pub const NOT_FOUND: i32 = 6;
/// See [`SUCCESS`].
pub const INSUFFICIENT_SIZE: i32 = 7;
/// See [`SUCCESS`].
pub const FUNCTION_NOT_FOUND: i32 = 13;
/// See [`SUCCESS`].
pub const VERSION_MISMATCH: i32 = 25;

/// Every list of processes that compute.
pub const COMPUTE: [&str; 4] = [
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetRunningProcessDetailList mode 0",
];

/// Every list of other processes.
pub const OTHER: [&str; 8] = [
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetRunningProcessDetailList mode 1",
    "nvmlDeviceGetRunningProcessDetailList mode 2",
];

/// Work lists.
pub const WORK: [&str; 2] = [
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetProcessesUtilizationInfo",
];

/// How much room the driver says to make for work, however much there was.
const ROOM: u64 = 72;

/// One look at the first GPU, or at another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    lines: Vec<String>,
    gpu: u32,
}

/// Total, used and free.
pub type Memory = (u64, u64, u64);

impl Look {
    /// The client's output with the library in it.
    pub fn with_library(output: &Output) -> Result<Look> {
        Look::of(output, true)
    }

    /// The client's output without it.
    pub fn without_library(output: &Output) -> Result<Look> {
        Look::of(output, false)
    }

    fn of(output: &Output, mapped: bool) -> Result<Look> {
        let said = Said::of(output)?;
        ensure!(said.status == 0 && said.mapped == [mapped], "{said:?}");
        Ok(Look {
            lines: said.stdout.lines().map(str::to_owned).collect(),
            gpu: 0,
        })
    }

    /// The same look, at this GPU of NVML's.
    pub fn at(&self, gpu: u32) -> Look {
        Look {
            gpu,
            ..self.clone()
        }
    }

    /// All that was said, with `self` for the client's own number, and without the list of accounts, to which every
    /// client adds one.
    pub fn without_itself(&self, others: &[u32]) -> Vec<String> {
        let name = |word: &str| match word.split_once('=') {
            Some((pid, figure)) if !others.iter().any(|other| other.to_string() == pid) => {
                format!("self={figure}")
            }
            _ => word.to_owned(),
        };
        // On a busy machine the process that keeps the GPU busy leaves it for a moment.
        let rounded = |word: &str| match word.split_once('=') {
            Some((pid, figure)) if figure.parse().is_ok_and(|busy: u32| busy >= 90) => {
                format!("{pid}=100")
            }
            _ => word.to_owned(),
        };
        let line = |line: &String| {
            let is_busy = line.contains("Utilization");
            let words = line.split(' ').map(name);
            let words = words.map(|word| if is_busy { rounded(&word) } else { word });
            words.collect::<Vec<_>>().join(" ")
        };
        let kept = self.lines.iter();
        kept.filter(|line| !line.contains("AccountingPids"))
            .map(line)
            .collect()
    }

    /// A call's result and its words.
    fn call(&self, call: &str) -> Result<(i32, Vec<&str>)> {
        let start = match call.strip_prefix("later ") {
            Some(call) => format!("later {} {call}: ", self.gpu),
            None => format!("{} {call}: ", self.gpu),
        };
        let mut lines = self
            .lines
            .iter()
            .filter_map(|line| line.strip_prefix(&start));
        let line = lines
            .next()
            .with_context(|| format!("no {start:?} in {self:?}"))?;
        let mut words = line.split_whitespace();
        let result = words.next().context("no result")?.parse()?;
        Ok((result, words.collect()))
    }

    /// A call's result.
    pub fn result(&self, call: &str) -> Result<i32> {
        Ok(self.call(call)?.0)
    }

    /// The figures of a call that succeeded.
    pub fn figures(&self, call: &str) -> Result<Vec<u64>> {
        let (result, words) = self.call(call)?;
        ensure!(result == SUCCESS, "{call}: {result}");
        let figures = words.iter().map(|word| word.parse());
        figures.collect::<Result<_, _>>().context("not figures")
    }

    /// NVML's figures, in both versions of its struct.
    pub fn memory(&self, when: &str) -> Result<Memory> {
        let first = self.figures(&format!("{when}nvmlDeviceGetMemoryInfo"))?;
        let second = self.figures(&format!("{when}nvmlDeviceGetMemoryInfo_v2"))?;
        ensure!(
            second == [&first[..], &[0]].concat(),
            "{first:?}, {second:?}"
        );
        let [total, used, free] = first[..] else {
            anyhow::bail!("{first:?}");
        };
        ensure!(used + free == total, "{first:?}");
        Ok((total, used, free))
    }

    /// The processes and their figures in a list, when there is room for all.
    pub fn listed(&self, list: &str) -> Result<Vec<(u32, u64)>> {
        let (result, words) = self.call(list)?;
        let (count, entries) = words.split_first().context("no count")?;
        ensure!(
            result == SUCCESS && *count == entries.len().to_string(),
            "{list}: {result} {words:?}"
        );
        let entries = entries.iter().map(|entry| {
            let (pid, figure) = entry.split_once('=').context("touched beyond its end")?;
            Ok((pid.parse()?, figure.parse()?))
        });
        entries.collect()
    }

    fn pids(&self, list: &str) -> Result<BTreeSet<u32>> {
        Ok(self.listed(list)?.iter().map(|(pid, _)| *pid).collect())
    }

    /// Asserts what a list says in each room that a program makes for it: `pids` when there is room for all, and their
    /// number whenever there is too little.
    fn assert_list(&self, list: &str, pids: &[u32]) -> Result<()> {
        let wanted: BTreeSet<u32> = pids.iter().copied().collect();
        assert_eq!(self.pids(list)?, wanted, "{list}");
        for (how, room) in [("none", 0), ("one", 1)] {
            let (result, words) = self.call(&format!("{list} {how}"))?;
            if wanted.len() > room {
                let count = wanted.len().to_string();
                assert_eq!(
                    (result, words),
                    (INSUFFICIENT_SIZE, vec![count.as_str()]),
                    "{list} {how}"
                );
            } else {
                assert_eq!(self.pids(&format!("{list} {how}"))?, wanted, "{list} {how}");
            }
        }
        Ok(())
    }

    /// Asserts that these processes use the GPU, by all lists there are.
    pub fn assert_users(&self, pids: &[u32]) -> Result<()> {
        for list in COMPUTE {
            self.assert_list(list, pids)?;
        }
        for list in OTHER {
            self.assert_list(list, &[])?;
        }
        // Each is said to hold the same by all.
        let first = self.listed(COMPUTE[0])?;
        for list in COMPUTE {
            assert_eq!(self.listed(list)?, first, "{list}");
        }
        assert_eq!(
            self.result("nvmlDeviceGetComputeRunningProcesses nowhere")?,
            INVALID_ARGUMENT
        );
        assert_eq!(
            self.result("nvmlDeviceGetRunningProcessDetailList mode 3")?,
            INVALID_ARGUMENT
        );
        Ok(())
    }

    /// Asserts that these processes, and no others, are said to have an account.
    pub fn assert_accounts(&self, own: &[u32], others: &[u32]) -> Result<()> {
        self.assert_list("nvmlDeviceGetAccountingPids", own)?;
        for (pids, result) in [(own, SUCCESS), (others, NOT_FOUND)] {
            for pid in pids {
                let call = format!("nvmlDeviceGetAccountingStats {pid}");
                assert_eq!(self.result(&call)?, result, "{call}");
            }
        }
        Ok(())
    }

    /// Asserts who worked, and how much; how much room to make is the same for all.
    pub fn assert_work(&self, worked: &[(u32, u64)]) -> Result<()> {
        for list in WORK {
            let (result, words) = self.call(&format!("{list} none"))?;
            assert_eq!(
                (result, words),
                (INSUFFICIENT_SIZE, vec!["72"]),
                "{list}, {ROOM}"
            );
            if worked.is_empty() {
                for how in ["", " one"] {
                    let (result, words) = self.call(&format!("{list}{how}"))?;
                    assert_eq!((result, words), (NOT_FOUND, vec!["0"]), "{list}{how}");
                }
            } else {
                assert_eq!(self.listed(list)?, worked, "{list}");
            }
        }
        let all: u64 = worked.iter().map(|(_, percent)| percent).sum();
        assert_eq!(self.figures("nvmlDeviceGetUtilizationRates")?, [all, 0]);
        Ok(())
    }

    /// Asserts that a struct of an unknown version is refused as by the driver.
    pub fn assert_unknown_versions(&self) -> Result<()> {
        for (call, result) in [
            ("nvmlDeviceGetMemoryInfo_v2 unknown", FUNCTION_NOT_FOUND),
            ("nvmlDeviceGetMemoryInfo nowhere", INVALID_ARGUMENT),
            (
                "nvmlDeviceGetRunningProcessDetailList unknown",
                VERSION_MISMATCH,
            ),
            (
                "nvmlDeviceGetProcessesUtilizationInfo unknown",
                VERSION_MISMATCH,
            ),
        ] {
            assert_eq!(self.result(call)?, result, "{call}");
        }
        Ok(())
    }
}

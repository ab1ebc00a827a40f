//! The limits of a run: as people type them, as the library reads them, and in words.

use softmig_policy::node::env_limits::{COMPUTE, MEMORY, Tenths};
use softmig_policy::node::size::{Bytes, MIB};
use std::process::Command;

/// A run's limits on each GPU; `None` means without limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The memory.
    pub(crate) memory: Option<Bytes>,
    /// The share of time.
    pub(crate) compute: Option<Tenths>,
}

/// Reads a percentage, with or without its sign.
pub(crate) fn compute(text: &str) -> Result<Tenths, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_ascii_end();
    match Tenths::parse(number) {
        Ok(Some(tenths)) => Ok(tenths),
        Ok(None) => Err("limits nothing; leave it out".to_owned()),
        Err(_) => Err("not a percentage; write for example 25 or 12.5".to_owned()),
    }
}

impl Limits {
    /// Sets the variables that the library reads, and no other limits than these.
    pub(crate) fn set(&self, command: &mut Command) {
        for (name, value) in [(MEMORY, self.memory_value()), (COMPUTE, self.percent())] {
            for (other, _) in std::env::vars_os() {
                if is_of_one_gpu(name, other.as_encoded_bytes()) {
                    command.env_remove(other);
                }
            }
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

    /// The limits in force, in sentences.
    pub(crate) fn lines(&self, observes: bool) -> Vec<String> {
        let mut lines = Vec::new();
        lines.push(match self.memory {
            Some(memory) => format!(
                "all processes of this run together may hold {} of each GPU",
                size(memory)
            ),
            None => "no limit on GPU memory was asked for".to_owned(),
        });
        if let Some(percent) = self.percent() {
            lines.push(format!(
                "all processes of this run together may have {percent} % of each GPU's time"
            ));
        }
        if observes {
            lines.push(
                "this node only observes: memory beyond the limit is reported and not refused, and time is not limited"
                    .to_owned(),
            );
        }
        lines
    }

    /// In MiB if it is a whole number of them, which other versions read too.
    fn memory_value(&self) -> Option<String> {
        self.memory.map(|memory| match memory.get() % MIB {
            0 => format!("{}M", memory.get() / MIB),
            _ => memory.get().to_string(),
        })
    }

    fn percent(&self) -> Option<String> {
        self.compute
            .map(|compute| match (compute.get() / 10, compute.get() % 10) {
                (whole, 0) => whole.to_string(),
                (whole, tenths) => format!("{whole}.{tenths}"),
            })
    }
}

/// A size in MiB, rounded down, with one decimal if it is not a whole number of them.
fn size(bytes: Bytes) -> String {
    let (whole, rest) = (bytes.get() / MIB, bytes.get() % MIB);
    match rest * 10 / MIB {
        0 => format!("{whole} MiB"),
        tenths => format!("{whole}.{tenths} MiB"),
    }
}

/// Whether a variable is the limit of one GPU: `NAME_0`, `NAME_1`, ...
fn is_of_one_gpu(name: &str, variable: &[u8]) -> bool {
    variable
        .strip_prefix(name.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"_"))
        .is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory_: &str, compute_: &str) -> Limits {
        Limits {
            memory: Bytes::parse_memory(memory_).ok(),
            compute: compute(compute_).ok(),
        }
    }

    #[test]
    fn what_limits_nothing_is_an_error() {
        for text in ["", "0", "0g", "4t", "1023k", "-1", "4 g"] {
            assert!(Bytes::parse_memory(text).is_err(), "{text:?}");
        }
        for text in [
            "",
            "%",
            "0",
            "100",
            "100%",
            "101",
            "-1",
            "12.55",
            "25 percent",
        ] {
            assert!(compute(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_library_reads_what_people_type() {
        for (typed, value) in [
            ("4g", "4096M"),
            ("12GiB", "12288M"),
            ("1.5G", "1536M"),
            ("11517.0M", "11517M"),
            ("1048577", "1048577"),
        ] {
            let written = limits(typed, "").memory_value().unwrap();
            assert_eq!(written, value);
            assert_eq!(Bytes::parse_memory(&written), Bytes::parse_memory(typed));
        }
        for (typed, value) in [
            ("25", "25"),
            ("25%", "25"),
            ("12.5 %", "12.5"),
            ("5.0", "5"),
        ] {
            let written = limits("", typed).percent().unwrap();
            assert_eq!(written, value);
            assert_eq!(
                Tenths::parse(&written),
                compute(typed).map(Some).map_err(|_| unreachable!())
            );
        }
    }

    #[test]
    fn what_is_in_force_is_said_and_what_is_not_as_well() {
        let lines = limits("1.5g", "12.5").lines(true).join("\n");
        insta::assert_snapshot!(lines, @r"
        all processes of this run together may hold 1536 MiB of each GPU
        all processes of this run together may have 12.5 % of each GPU's time
        this node only observes: memory beyond the limit is reported and not refused, and time is not limited
        ");
        let lines = limits("", "25").lines(false);
        assert_eq!(
            lines.first().unwrap(),
            "no limit on GPU memory was asked for"
        );
        assert_eq!(size(Bytes::parse_memory("1.25m").unwrap()), "1.2 MiB");
    }

    #[test]
    fn only_a_number_makes_a_variable_of_one_gpu() {
        for (variable, is) in [
            ("CUDA_DEVICE_SM_LIMIT_0", true),
            ("CUDA_DEVICE_SM_LIMIT_12", true),
            ("CUDA_DEVICE_SM_LIMIT", false),
            ("CUDA_DEVICE_SM_LIMIT_", false),
            ("CUDA_DEVICE_SM_LIMIT_SOFT", false),
        ] {
            assert_eq!(
                is_of_one_gpu(COMPUTE, variable.as_bytes()),
                is,
                "{variable}"
            );
        }
    }
}

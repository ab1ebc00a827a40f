//! Limits that a user sets for their own programs by the environment, outside every job.

use core::fmt;

use crate::node::job_conf::MAX_GPUS;
use crate::node::kv::split_once;
use crate::node::limits::decimal;
use crate::node::size::{Bytes, SizeError};

/// The variable with the memory of each GPU; `_0`, `_1`, ... for one GPU, by CUDA's own order.
pub const MEMORY: &str = "CUDA_DEVICE_MEMORY_LIMIT";
/// The variable with the share of each GPU's time, in percent; `_0`, `_1`, ... likewise.
pub const COMPUTE: &str = "CUDA_DEVICE_SM_LIMIT";

/// A share of GPU time in tenths of a percent, from 0.1 to 99.9 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tenths(u16);

impl Tenths {
    /// The tenths.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Reads `25` or `12.5`; `None` for 0 and for 100, which limit nothing.
    pub fn parse(text: &str) -> Result<Option<Self>, EnvironmentError> {
        let (whole, tenths) = split_once(text, b'.').unwrap_or((text, "0"));
        let one_digit = tenths.len() == 1;
        let (Some(whole), Some(tenths), true) = (decimal(whole), decimal(tenths), one_digit) else {
            return Err(EnvironmentError::Compute);
        };
        let tenths = whole
            .checked_mul(10)
            .and_then(|whole| whole.checked_add(tenths))
            .and_then(|tenths| u16::try_from(tenths).ok());
        match tenths {
            Some(0 | 1000) => Ok(None),
            Some(tenths) if tenths < 1000 => Ok(Some(Self(tenths))),
            _ => Err(EnvironmentError::Compute),
        }
    }
}

/// The reason why a variable is not a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvironmentError {
    /// Not plain text.
    Encoding,
    /// The memory is not a size.
    Memory(SizeError),
    /// The share is not a percentage.
    Compute,
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding => write!(f, "{MEMORY} or {COMPUTE} is not plain text"),
            Self::Memory(error) => write!(f, "{MEMORY}: {error}"),
            Self::Compute => write!(
                f,
                "{COMPUTE}: not a percentage; write for example 25 or 12.5"
            ),
        }
    }
}

/// The part of one GPU that may be taken; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnLimits {
    /// The memory.
    pub memory: Option<Bytes>,
    /// The share of time.
    pub compute: Option<Tenths>,
}

/// The limits of all GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    all: OwnLimits,
    /// The limits by the variables with a number; the outer `None` without such a variable.
    memory: [Option<Option<Bytes>>; MAX_GPUS],
    compute: [Option<Option<Tenths>>; MAX_GPUS],
}

impl Environment {
    /// Reads the variables; `get` is called with a variable's name and, for one GPU's, its number. `Ok(None)` when
    /// nothing is limited.
    pub fn read<'a>(
        get: impl Fn(&'static str, Option<usize>) -> Option<&'a [u8]>,
    ) -> Result<Option<Self>, EnvironmentError> {
        // Set to nothing, a variable says nothing.
        let set = |name, gpu| get(name, gpu).filter(|value| !value.is_empty());
        let text = |name, gpu| set(name, gpu).map(text_of).transpose();
        let memory = |gpu| text(MEMORY, gpu)?.map(memory_of).transpose();
        let compute = |gpu| text(COMPUTE, gpu)?.map(Tenths::parse).transpose();
        let mut read = Self::default();
        read.all.memory = memory(None)?.flatten();
        read.all.compute = compute(None)?.flatten();
        for (gpu, place) in read.memory.iter_mut().enumerate() {
            *place = memory(Some(gpu))?;
        }
        for (gpu, place) in read.compute.iter_mut().enumerate() {
            *place = compute(Some(gpu))?;
        }
        let limits = (0..MAX_GPUS).any(|gpu| read.for_gpu(gpu) != OwnLimits::default());
        let limits = limits || read.all != OwnLimits::default();
        Ok(limits.then_some(read))
    }

    /// The limits of the GPU with this number in CUDA's order.
    pub fn for_gpu(&self, gpu: usize) -> OwnLimits {
        let memory = self.memory.get(gpu).copied().flatten();
        let compute = self.compute.get(gpu).copied().flatten();
        OwnLimits {
            memory: memory.unwrap_or(self.all.memory),
            compute: compute.unwrap_or(self.all.compute),
        }
    }
}

fn text_of(bytes: &[u8]) -> Result<&str, EnvironmentError> {
    core::str::from_utf8(bytes).map_err(|_| EnvironmentError::Encoding)
}

/// 0 means unlimited, as for the C library.
fn memory_of(text: &str) -> Result<Option<Bytes>, EnvironmentError> {
    match Bytes::parse(text) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(SizeError::Zero) if text == "0" => Ok(None),
        Err(error) => Err(EnvironmentError::Memory(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        variables: &[(&'static str, &'static str)],
    ) -> Result<Option<Environment>, EnvironmentError> {
        Environment::read(|name, gpu| {
            let name = gpu.map_or(name.to_string(), |gpu| format!("{name}_{gpu}"));
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| value.as_bytes())
        })
    }

    fn limits(memory: &str, compute: &str) -> OwnLimits {
        OwnLimits {
            memory: memory_of(memory).unwrap(),
            compute: Tenths::parse(compute).unwrap(),
        }
    }

    #[test]
    fn nothing_set_or_nothing_limited_is_no_limit() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[(MEMORY, "0"), (COMPUTE, "100")]), Ok(None));
        assert_eq!(read(&[(COMPUTE, "0")]), Ok(None));
        assert_eq!(read(&[(MEMORY, ""), (COMPUTE, "")]), Ok(None));
    }

    #[test]
    fn a_gpus_own_variable_goes_before_that_of_all() {
        let read = read(&[
            (MEMORY, "4G"),
            ("CUDA_DEVICE_MEMORY_LIMIT_1", "0"),
            ("CUDA_DEVICE_SM_LIMIT_1", "12.5"),
        ]);
        let read = read.unwrap().unwrap();
        assert_eq!(read.for_gpu(0), limits("4G", "0"));
        assert_eq!(read.for_gpu(1), limits("0", "12.5"));
        assert_eq!(read.for_gpu(99), limits("4G", "0"));
    }

    #[test]
    fn one_gpus_variable_alone_is_a_limit() {
        let read = read(&[("CUDA_DEVICE_SM_LIMIT_31", "25")]).unwrap().unwrap();
        assert_eq!(read.for_gpu(31), limits("0", "25"));
        assert_eq!(read.for_gpu(0), OwnLimits::default());
    }

    #[test]
    fn anything_else_is_an_error() {
        for text in [
            "", "-1", "101", "100.1", "25%", "12.55", "12.", ".5", "1e1", "025", "0x19", " 25",
        ] {
            assert_eq!(
                Tenths::parse(text),
                Err(EnvironmentError::Compute),
                "{text:?}"
            );
        }
        assert_eq!(
            read(&[(MEMORY, "-1")]),
            Err(EnvironmentError::Memory(SizeError::Form))
        );
        assert_eq!(
            read(&[(MEMORY, "4G"), ("CUDA_DEVICE_MEMORY_LIMIT_7", "4T")]),
            Err(EnvironmentError::Memory(SizeError::Unit))
        );
        let not_text = Environment::read(|name, gpu| {
            (name == MEMORY && gpu.is_none()).then_some(&b"\xff"[..])
        });
        assert_eq!(not_text, Err(EnvironmentError::Encoding));
    }
}

//! The conf of the older SoftMig's prolog: two lines of the C library, and nothing about the job.
//!
//! The library reads no such conf, because it names neither the job's user nor its ledger. `softmig node` makes one of its
//! own of it for jobs that run while a node changes over.

use crate::node::env_limits::{COMPUTE, MEMORY, Tenths};
use crate::node::limits::{Limits, Mode, Share, TypeName};
use crate::node::size::Bytes;

/// The limits of a job with such a conf: no more than it says. `None` for any other text, also for a conf of softmig's
/// own that cannot be read.
pub fn limits(text: &[u8]) -> Option<Limits> {
    let text = core::str::from_utf8(text).ok()?;
    let (mut memory, mut tenths) = (None, None);
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (key, value) = line.split_once('=')?;
        match key {
            MEMORY if memory.is_none() => memory = Some(Bytes::parse(value).ok()?.mib()?),
            COMPUTE if tenths.is_none() => tenths = Some(Tenths::parse(value).ok()?),
            _ => return None,
        }
    }
    // Rounded down, and never to nothing. 0 and 100 are no limit there.
    let percent = tenths
        .flatten()
        .map_or(100, |tenths| u32::from(tenths.get() / 10).max(1));
    let share = Share::new(percent, 100).ok()?;
    Limits::new(TypeName::new("softmig").ok()?, share, memory?, Mode::HARD).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_read_and_nothing_is_rounded_up() {
        for (text, memory, percent) in [
            (
                "CUDA_DEVICE_MEMORY_LIMIT=12288M\nCUDA_DEVICE_SM_LIMIT=25\n",
                12288,
                25,
            ),
            (
                "CUDA_DEVICE_SM_LIMIT=12.5\nCUDA_DEVICE_MEMORY_LIMIT=4G",
                4096,
                12,
            ),
            (
                "CUDA_DEVICE_SM_LIMIT=0.5\nCUDA_DEVICE_MEMORY_LIMIT=4G",
                4096,
                1,
            ),
            ("CUDA_DEVICE_MEMORY_LIMIT=4G\n", 4096, 100),
        ] {
            let limits = limits(text.as_bytes()).unwrap();
            assert_eq!(limits.memory_mib(), memory, "{text}");
            assert_eq!(limits.share().shards(), percent, "{text}");
        }
    }

    #[test]
    fn nothing_else_is_such_a_conf() {
        for text in [
            "",
            "CUDA_DEVICE_SM_LIMIT=25\n",
            "CUDA_DEVICE_MEMORY_LIMIT=much\n",
            "CUDA_DEVICE_MEMORY_LIMIT=4G\nCUDA_DEVICE_MEMORY_LIMIT=8G\n",
            "CUDA_DEVICE_MEMORY_LIMIT=4G\nSOFTMIG_UID=1\n",
            "SOFTMIG_JOB=7\nSOFTMIG_UID=1\nSOFTMIG_MODE=none\nSOFTMIG_GPUS=\n",
        ] {
            assert_eq!(limits(text.as_bytes()), None, "{text}");
        }
    }
}

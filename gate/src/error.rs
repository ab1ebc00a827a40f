//! The reasons why the gate cannot be set up or does not do its work.

#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

use crate::btf::BtfError;

/// The kernel's description of its types.
pub(crate) const BTF: &str = "/sys/kernel/btf/vmlinux";

/// The reason why the gate cannot be set up, or cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The kernel does not describe its types.
    #[error("this kernel has no {BTF} (CONFIG_DEBUG_INFO_BTF): {0}")]
    NoBtf(#[source] io::Error),
    /// The description is of no use.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// Processes have other numbers here than in the kernel.
    #[error(
        "processes have other numbers here than in the kernel, as in a container: run softmig-monitor on the node itself"
    )]
    Namespace,
    /// No bpf file system is mounted there.
    #[error("{} is not in a bpf file system: mount one with 'mount -t bpf bpf /sys/fs/bpf'", .0.display())]
    NoFileSystem(PathBuf),
    /// A system call failed.
    #[error("{0}: {1}")]
    Failed(&'static str, #[source] io::Error),
}

impl GateError {
    /// Whether this process was not permitted what it tried, so that nothing is known of the kernel.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        match self {
            Self::NoBtf(error) | Self::Failed(_, error) => {
                error.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        }
    }
}

pub(crate) fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> GateError {
    move |error| GateError::Failed(doing, error)
}

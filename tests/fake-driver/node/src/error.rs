//! The errors of a node.

use std::path::PathBuf;

/// Why a node could not be made or looked at.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The operating system refused.
    #[error("{path}: {what}: {source}")]
    Os {
        /// The file.
        path: PathBuf,
        /// The step that failed.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A mapping of a file in an overlay keeps no lock, and locks tell who is alive.
    #[error("{0}: in an overlay file system; put the node on a tmpfs or a disk")]
    Overlay(PathBuf),
    /// It is too large for the file.
    #[error("the node does not fit: {0}; describe fewer GPUs")]
    TooLarge(&'static str),
    /// The file is not a node's.
    #[error("{path}: not a node of this version of the fake driver: {why}; make it anew")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The reason, as words.
        why: String,
    },
    /// The clock runs by itself.
    #[error("the node's clock is the real one; make the node with Clock::Driven to drive it")]
    RealClock,
}

impl NodeError {
    pub(crate) fn os(
        path: &std::path::Path,
        what: &'static str,
    ) -> impl FnOnce(std::io::Error) -> NodeError {
        let path = path.to_path_buf();
        move |source| NodeError::Os { path, what, source }
    }
}

/// Why a process takes no part in a node.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// This machine has no node, and so no GPU driver.
    #[error("no node there")]
    Absent,
    /// There is one, but it cannot be used.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Too many processes take part.
    #[error("256 processes use the node already")]
    Full,
}

/// Why a process was not stopped, moved or let go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// No process of that number takes part.
    #[error("no such process")]
    Unknown,
    /// It is not at that stage.
    #[error("the process is at another stage")]
    Stage,
    /// Its memory does not fit any more.
    #[error("out of device memory")]
    Full,
}

/// Why device memory was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The device is physically full.
    #[error("out of device memory")]
    Full,
    /// This process has been counted as ended.
    #[error("the process has left the node")]
    Ended,
    /// The memory's file could not be made.
    #[error("no file for the memory")]
    File,
}

//! Stopping another process, moving its device memory to the host, and back.
//!
//! A stopped process waits in its next call (src/entry.rs). The arguments of these functions, but for the process
//! number, make no difference here.

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{CheckpointError, Stage};

use crate::Out;
use crate::Outcome;
use crate::entry::process;
use crate::export::exports;

exports! {
    static SYMBOLS;

    /// How far a process is.
    fn cuCheckpointProcessGetState [cuCheckpointProcessGetState 12080] (pid: i32, out: Out<CUprocessState>) =>
        number(pid).and_then(|pid| {
            let stage = process()?.stage_of(pid).map_err(code)?;
            out.set(match stage {
                Stage::Running => CU_PROCESS_STATE_RUNNING,
                Stage::Locked => CU_PROCESS_STATE_LOCKED,
                Stage::Checkpointed => CU_PROCESS_STATE_CHECKPOINTED,
            })
        });

    /// Lets the calls of a process wait.
    fn cuCheckpointProcessLock [cuCheckpointProcessLock 12080] (pid: i32, _arguments: Out<CUcheckpointLockArgs>) =>
        step(pid, Stage::Running, Stage::Locked);

    /// Moves its memory to the host.
    fn cuCheckpointProcessCheckpoint [cuCheckpointProcessCheckpoint 12080] (
        pid: i32, _arguments: Out<CUcheckpointCheckpointArgs>
    ) => step(pid, Stage::Locked, Stage::Checkpointed);

    /// Moves its memory back.
    fn cuCheckpointProcessRestore [cuCheckpointProcessRestore 12080] (
        pid: i32, _arguments: Out<CUcheckpointRestoreArgs>
    ) => step(pid, Stage::Checkpointed, Stage::Locked);

    /// Lets it go on.
    fn cuCheckpointProcessUnlock [cuCheckpointProcessUnlock 12080] (
        pid: i32, _arguments: Out<CUcheckpointUnlockArgs>
    ) => step(pid, Stage::Locked, Stage::Running);
}

fn step(pid: i32, from: Stage, to: Stage) -> Outcome {
    let pid = number(pid)?;
    process()?.step(pid, from, to).map_err(code)
}

fn number(pid: i32) -> Outcome<u32> {
    u32::try_from(pid).map_err(|_| CUDA_ERROR_INVALID_VALUE)
}

fn code(error: CheckpointError) -> CUresult {
    match error {
        CheckpointError::Unknown => CUDA_ERROR_INVALID_VALUE,
        CheckpointError::Stage => CUDA_ERROR_ILLEGAL_STATE,
        CheckpointError::Full => CUDA_ERROR_OUT_OF_MEMORY,
    }
}

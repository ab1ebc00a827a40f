//! Every form of a request for GPUs, and what becomes of it under the example policy.

use crate::Slurm;

/// The expected result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A slice of this number of shards of an l40s.
    Slice(u32),
    /// This code.
    Refused(&'static str),
    /// Left alone: whole GPUs, or none.
    Unchanged,
}

/// A request as it is typed after sbatch, salloc, srun or `softmig explain`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The options.
    pub options: &'static [&'static str],
    /// Its expected result.
    pub expected: Expected,
    /// The first version whose own client takes these options.
    pub since: Slurm,
}

const fn row(options: &'static [&'static str], expected: Expected) -> Row {
    Row {
        options,
        expected,
        since: Slurm::V22_05,
    }
}

const fn newer(options: &'static [&'static str], expected: Expected) -> Row {
    Row {
        options,
        expected,
        since: Slurm::V24_11,
    }
}

/// An option of the third version.
const fn newest(options: &'static [&'static str], expected: Expected) -> Row {
    Row {
        options,
        expected,
        since: Slurm::V26_05,
    }
}

use Expected::{Refused, Slice, Unchanged};

/// The table.
pub const TABLE: &[Row] = &[
    row(&["--gres=gpu:l40s.4:1"], Slice(1)),
    row(&["--gres=gpu:l40s.4"], Slice(1)),
    row(&["--gres=gpu:l40s.2:1"], Slice(2)),
    newer(&["--gres=gpu:l40s.4=1"], Slice(1)),
    newer(&["--gres=gres/gpu:l40s.4:1"], Slice(1)),
    row(&["--gpus=l40s.4:1"], Slice(1)),
    row(&["--gpus=l40s.4"], Slice(1)),
    row(&["--gpus-per-node=l40s.4:1"], Slice(1)),
    row(&["--gpus-per-task=l40s.4:1", "--ntasks=1"], Slice(1)),
    row(
        &["--gpus-per-socket=l40s.4:1", "--sockets-per-node=1"],
        Slice(1),
    ),
    newer(
        &["--tres-per-task=gres/gpu:l40s.4=1", "--ntasks=1"],
        Slice(1),
    ),
    newer(
        &["--tres-per-task=gres/gpu:l40s.4:1", "--ntasks=1"],
        Slice(1),
    ),
    newer(
        &["--tres-per-task=cpu=1,gres/gpu:l40s.4:1", "--ntasks=1"],
        Slice(1),
    ),
    row(&["--gres=gpu:l40s.10g:1"], Slice(1)),
    row(&["--gres=gpu:l40s.12GiB:1"], Slice(2)),
    row(&["--gres=gpu:l40s.12000m"], Slice(2)),
    newer(&["--gres=gpu:l40s.12g=1"], Slice(2)),
    row(&["--gpus=l40s.12g:1"], Slice(2)),
    row(&["--gpus=l40s.12g"], Slice(2)),
    row(&["--gpus-per-node=l40s.12g:1"], Slice(2)),
    row(&["--gpus-per-task=l40s.12g:1", "--ntasks=1"], Slice(2)),
    row(
        &["--gpus-per-socket=l40s.12g:1", "--sockets-per-node=1"],
        Slice(2),
    ),
    newer(
        &["--tres-per-task=gres/gpu:l40s.12g=1", "--ntasks=1"],
        Slice(2),
    ),
    row(&["--gres=gpu:l40s.23g:1"], Refused("SLICE_SIZE")),
    row(&["--gres=gpu:l40s.12g:2"], Refused("SLICE_COUNT")),
    row(&["--gres=gpu:l40s.0g:1"], Refused("MALFORMED")),
    row(&["--gres=shard:l40s:1"], Slice(1)),
    row(&["--gres=shard:l40s:2"], Slice(2)),
    row(&["--gres=gpu:l40s.4:1", "--ntasks=2"], Slice(1)),
    row(&["--gres=gpu:l40s.4:1", "--nodes=1-2"], Slice(1)),
    row(&["--gres=gpu:l40s.1:1"], Refused("SLICE_IS_WHOLE_GPU")),
    row(&["--gres=gpu:l40s.3:1"], Refused("SLICE_SIZE")),
    row(&["--gpus=l40s.8:1"], Refused("SLICE_SIZE")),
    row(&["--gres=gpu:l40s.4:2"], Refused("SLICE_COUNT")),
    row(&["--gres=gpu:l40s.4:4"], Refused("SLICE_COUNT")),
    row(
        &["--gres=gpu:l40s.4:1,gpu:l40s.2:1"],
        Refused("SLICE_COUNT"),
    ),
    row(&["--gres=gpu:l40s.4:1,gpu:l40s:1"], Refused("SLICE_MIXED")),
    row(&["--gres=gpu:L40S.4:1"], Refused("SLICE_TYPE")),
    row(&["--gres=gpu:rtx.4:1"], Refused("SLICE_TYPE")),
    row(
        &["--gpus-per-task=l40s.4:1", "--nodes=2", "--ntasks=2"],
        Refused("SLICE_PER_TASK"),
    ),
    row(
        &["--gpus-per-task=l40s.4:1", "--ntasks=2"],
        Refused("SLICE_PER_TASK"),
    ),
    row(
        &["--gpus-per-socket=l40s.4:1", "--sockets-per-node=2"],
        Refused("SLICE_PER_TASK"),
    ),
    row(
        &["--gres=gpu:l40s.4:1", "--exclusive"],
        Refused("SLICE_OPTION"),
    ),
    newest(
        &["--gres=gpu:l40s.4:1", "--exclusive=allocation"],
        Refused("SLICE_OPTION"),
    ),
    row(
        &["--gres=gpu:l40s.4:1", "--gpu-freq=low"],
        Refused("SLICE_OPTION"),
    ),
    row(
        &["--gres=gpu:l40s.4:1", "--cpus-per-gpu=3", "--ntasks=2"],
        Refused("SLICE_OPTION"),
    ),
    row(&["--gres=shard:1"], Refused("RAW_SHARD")),
    row(&["--gres=shard:l40s:3"], Refused("RAW_SHARD")),
    row(&["--gres=shard:l40s:4"], Refused("RAW_SHARD")),
    row(&["--gres=shard:l40s:9"], Refused("RAW_SHARD")),
    row(&["--gres=gpu:l40s:1"], Unchanged),
    row(&["--gres=gpu:1"], Unchanged),
    row(&["--gpus=l40s:1"], Unchanged),
    row(&["--gres=gpu:l40s:1", "--exclusive"], Unchanged),
    newest(&["--gres=gpu:l40s:1", "--exclusive=allocation"], Unchanged),
    row(&["--gres=none"], Unchanged),
    row(&["--gres=gpu:0"], Unchanged),
    row(&["--gpus=l40s:0"], Unchanged),
    row(&["--gres=shard:0"], Unchanged),
    row(&["--gres=gpu:l40s.4:0"], Unchanged),
    row(&["--gres=gpu:l40s.4:1", "--gpus=0"], Slice(1)),
    row(&[], Unchanged),
];

/// Options that count something for each GPU: figures of the job for sbatch and salloc.
pub const PER_GPU: &[Row] = &[
    row(&["--gres=gpu:l40s.4:1", "--mem-per-gpu=200"], Slice(1)),
    row(&["--gres=gpu:l40s.4:1", "--cpus-per-gpu=2"], Slice(1)),
    row(&["--gres=gpu:l40s.4:1", "--ntasks-per-gpu=2"], Slice(1)),
];

/// The MiB that the example policy gives for this number of shards of an l40s.
pub const fn memory_mib(shards: u32) -> u32 {
    (46068 - 604) * shards / 4
}

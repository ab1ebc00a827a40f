//! The codes of refusals, which users see and `[messages]` names.

/// Why a request was refused. The names are public and stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// `TYPE.1`, which is a whole GPU.
    SliceIsWholeGpu,
    /// A size that is not on offer.
    SliceSize,
    /// Not exactly one slice on a node.
    SliceCount,
    /// A slice and a whole GPU in one job.
    SliceMixed,
    /// A type of GPU that the policy does not know.
    SliceType,
    /// One slice in all for more than one node.
    SliceNodes,
    /// A slice for each of several tasks or sockets.
    SlicePerTask,
    /// An option that does not go with a slice.
    SliceOption,
    /// Shards that are not a slice.
    RawShard,
    /// A request that cannot be read.
    Malformed,
    /// No policy can be read.
    PolicyUnreadable,
    /// A client whose policy is another one than slurmctld's.
    ClientPolicy,
    /// An attempt to write softmig's own mark into the job's record.
    TagEdit,
    /// A request that is only for jobs inside a reservation, by a job that names none.
    GateNoReservation,
    /// The same request by a job that names another reservation.
    GateReservation,
    /// More than the class may ever have, so that the job could never start.
    LimitJob,
    /// A QOS that is not for the user's jobs with GPUs.
    LimitQos,
    /// Not a refusal: the limits of the class, printed for a job that is granted.
    LimitNotice,
    /// A whole GPU for a class that may not use whole GPUs.
    WholeGpuClass,
    /// A GPU that is reserved for another user or account.
    Reserved,
}

impl Code {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::SliceIsWholeGpu,
        Self::SliceSize,
        Self::SliceCount,
        Self::SliceMixed,
        Self::SliceType,
        Self::SliceNodes,
        Self::SlicePerTask,
        Self::SliceOption,
        Self::RawShard,
        Self::Malformed,
        Self::PolicyUnreadable,
        Self::ClientPolicy,
        Self::TagEdit,
        Self::GateNoReservation,
        Self::GateReservation,
        Self::LimitJob,
        Self::LimitQos,
        Self::LimitNotice,
        Self::WholeGpuClass,
        Self::Reserved,
    ];

    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SliceIsWholeGpu => "SLICE_IS_WHOLE_GPU",
            Self::SliceSize => "SLICE_SIZE",
            Self::SliceCount => "SLICE_COUNT",
            Self::SliceMixed => "SLICE_MIXED",
            Self::SliceType => "SLICE_TYPE",
            Self::SliceNodes => "SLICE_NODES",
            Self::SlicePerTask => "SLICE_PER_TASK",
            Self::SliceOption => "SLICE_OPTION",
            Self::RawShard => "RAW_SHARD",
            Self::Malformed => "MALFORMED",
            Self::PolicyUnreadable => "POLICY_UNREADABLE",
            Self::ClientPolicy => "CLIENT_POLICY",
            Self::TagEdit => "TAG_EDIT",
            Self::GateNoReservation => "GATE_NO_RESERVATION",
            Self::GateReservation => "GATE_RESERVATION",
            Self::LimitJob => "LIMIT_JOB",
            Self::LimitQos => "LIMIT_QOS",
            Self::LimitNotice => "LIMIT_NOTICE",
            Self::WholeGpuClass => "WHOLE_GPU_CLASS",
            Self::Reserved => "RESERVED",
        }
    }
}

//! The reasons of refusals, as data. `wording` has the sentences.

use crate::config::gates::GateSubject;
use crate::config::gpu_types::GpuType;
use crate::config::refusal_code::Code;
use crate::config::reservable::Holder;
use crate::node::limits::Limits;
use crate::slurm::time_limit::WallTime;

/// One variant for each case. It has all that its sentence says, but for the request itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No policy can be read.
    NoPolicy,
    /// The decision failed by an error of softmig's own.
    Failure,
    /// The user wrote softmig's own mark into the job's record.
    TagEdit,
    /// A request for part of a GPU that cannot be parsed.
    UnreadableSlice { examples: Vec<Limits> },
    /// A request for whole GPUs that cannot be parsed.
    UnreadableGpu { gpu_type: Option<String> },
    /// The name of a GRES in upper case; `meant` is what `--gres` would take.
    UpperCase { meant: String },
    /// `TYPE.1`.
    WholeGpuAsSlice {
        gpu_type: String,
        count: u64,
        largest: Option<Limits>,
    },
    /// As many units of mps as a GPU has, or more.
    WholeGpuAsMps {
        gpu_type: String,
        units: u32,
        largest: Option<Limits>,
    },
    /// A size that is not on offer.
    SliceSize(Offer),
    /// More memory than any slice of the type has.
    SliceMemory(MemoryOffer),
    /// Units of mps that are not on offer. The nearest are units and the size of their slice.
    MpsUnits {
        gpu_type: String,
        units_per_gpu: u32,
        offered: Vec<u32>,
        nearest: Vec<(u32, u32)>,
    },
    /// Units of mps of another type than theirs; `same` is what this number of their own units is.
    MpsType {
        gpu_type: String,
        same: Option<Limits>,
    },
    /// Shards without a type, of which it is not clear what they would be.
    UntypedShards { examples: Vec<Limits> },
    /// A number of shards that is not on offer.
    ShardCount {
        shards: u64,
        per_gpu: u32,
        offer: Offer,
    },
    /// `shard:TYPE:0`.
    NoShards(Offer),
    /// More shards than one GPU has.
    ShardsBeyondGpu {
        gpu_type: String,
        per_gpu: u32,
        largest: Option<Limits>,
    },
    /// Several requests for part of a GPU.
    SeveralSlices { slices: usize, offer: Offer },
    /// `TYPE.N:0`, `TYPE.N:2`.
    SliceCount {
        slices: u64,
        one: Limits,
        same: Option<SameAmount>,
    },
    /// A slice and whole GPUs in one job.
    SliceAndGpus { slice: SliceOrShards },
    /// A slice of a type that is not shared.
    UnknownSliceType {
        name: String,
        shared: Vec<String>,
        meant: Meant,
    },
    /// A whole GPU of a type that the policy does not know, where the type matters.
    UnknownGpuType { name: String, meant: Meant },
    /// A slice for each of several tasks or sockets.
    SlicePer {
        each: &'static str,
        number: u64,
        slice: SliceOrShards,
    },
    /// One slice in all, for several nodes.
    SeveralNodes {
        nodes: u64,
        slice: SliceOrShards,
        /// Whether the submitter may have one on each.
        may_have_each: bool,
    },
    /// `--exclusive` with a slice.
    ExclusiveSlice { gpu_type: String },
    /// `--gpu-freq` with a slice.
    SliceFrequency { gpu_type: String },
    /// `--cpus-per-gpu` that does not fit the tasks.
    CpusPerGpu {
        cpus: u64,
        tasks: u64,
        cpus_per_task: Option<u32>,
        slice: SliceOrShards,
    },
    /// A figure for each GPU in srun, and the job's figures that say the same.
    PerGpuWithSrun {
        option: String,
        mib: Option<u64>,
        tasks: Option<u32>,
        cpus_per_task: Option<u32>,
    },
    /// A variable that makes a step ask for whole GPUs.
    PerGpuInStep {
        option: String,
        /// The variable that sets it, where it was not typed.
        variable: Option<String>,
    },
    /// A step that asks for other GPUs than the slice that its job has.
    StepInSlice {
        /// The job's shards.
        shards: u64,
        /// As a user asks for them, where that is known.
        slice: Option<String>,
    },
    /// A slice of a type that no node shares.
    NotShared {
        gpu_type: String,
        /// Whether the type is a MIG instance.
        mig: bool,
    },
    /// A client that made other shards of what was typed than slurmctld does.
    ClientPolicy { sent: String, right: String },
    /// A gate that the job's reservation does not open.
    Gate { gate: ClosedGate, denied: Denied },
    /// A GPU that is reserved for another holder, now.
    Reserved {
        holder: Holder,
        end: String,
        reason: String,
        instead: String,
    },
    /// A GPU that will be reserved; `is_own` if it will be the submitter's.
    ReservedLater {
        holder: Holder,
        start: String,
        end: String,
        reason: String,
        instead: String,
        is_own: bool,
    },
    /// GPUs of any type, which could be reserved ones. `own` are the types that are reserved for the submitter.
    MayBeReserved {
        reserved: Vec<String>,
        own: Vec<String>,
        types: Vec<String>,
        count: u64,
    },
    /// `--exclusive` where reserved GPUs cannot be avoided.
    ExclusiveReserved,
    /// A QOS that is not for GPU jobs of the submitter's class.
    QosOfClass {
        who: String,
        named: String,
        may: Vec<String>,
    },
    /// The QOS of another class.
    QosOfOthers { named: String },
    /// A QOS in a list with that of the submitter's class.
    QosBesideOwn { named: String, own: String },
    /// More than the submitter's class may ever have.
    Limit { who: String, limit: LimitPassed },
}

/// The parts of a hint's offer that the submitter may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct May {
    /// The whole GPUs that the hint offers.
    pub(crate) whole: bool,
    /// The offer in place of whole GPUs.
    pub(crate) instead: Option<Limits>,
    /// "class student", "you".
    pub(crate) who: String,
}

impl Default for May {
    fn default() -> Self {
        Self {
            whole: true,
            instead: None,
            who: "you".to_string(),
        }
    }
}

/// A gate, as its refusal tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClosedGate {
    pub(crate) about: GateSubject,
    pub(crate) partitions: Vec<String>,
    pub(crate) reservations: Vec<String>,
}

/// Why a gate is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The job names no reservation.
    NoReservation,
    /// It names one that does not open the gate.
    Reservation(String),
    /// It names more than this, which no user does on purpose.
    MoreThan(usize),
}

/// A limit of a class, and how it was passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LimitPassed {
    /// The class has no GPU jobs.
    NoJobs,
    /// The class has no whole GPUs.
    NoWholeGpus { instead: Less },
    /// Whole GPUs held at once.
    WholeGpus {
        asked: u64,
        most: u64,
        instead: Less,
    },
    /// MIG instances of a type held at once.
    Mig {
        gpu_type: String,
        asked: u64,
        most: u64,
        instead: Less,
    },
    /// GPUs of any type, where types count differently.
    Untyped { types: Vec<String> },
    /// Shards, or what whole GPUs count as.
    Shards {
        asked: u64,
        is_of_gpus: bool,
        most: MostShards,
        instead: Less,
    },
    /// The time limit; `None` is unlimited.
    Time {
        asked: Option<WallTime>,
        most: WallTime,
    },
    /// CPUs of all jobs together.
    Cpus { asked: u64, most: u64 },
    /// Host memory of all jobs together.
    Memory {
        mib: u64,
        most_mib: u64,
        most_mib_per_node: u64,
    },
    /// CPUs for the slice's shards.
    SliceCpus { asked: u64, most: u64, shards: u64 },
    /// Host memory for the slice's shards; `None` is all that a node has.
    SliceMemory {
        mib: Option<u64>,
        most_mib: u64,
        shards: u64,
    },
}

/// A limit on shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MostShards {
    AtOnce(u64),
    AtOnceOfType(u64, String),
    InOneJob(u64),
}

/// A type's slices, and those that are nearest to what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) gpu_type: String,
    pub(crate) sizes: Vec<u32>,
    pub(crate) nearest: Vec<Limits>,
}

/// What has as much memory as was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryOffer {
    pub(crate) gpu_type: String,
    /// The largest slice of the type, which has less.
    pub(crate) largest: Option<Limits>,
    /// The memory of a whole GPU of the type, in MiB.
    pub(crate) whole_mib: u32,
    /// The smallest slice of each other type that has as much.
    pub(crate) slices: Vec<Limits>,
    /// The types of whole GPUs that have as much: this one, and those without such a slice.
    pub(crate) wholes: Vec<String>,
}

/// SliceOrShards of a GPU as the user may ask for it: a slice on offer, or shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SliceOrShards {
    Slice(Limits),
    Shards(Limits),
}

impl SliceOrShards {
    pub(crate) fn from_limits(gpu: &GpuType, limits: &Limits) -> Self {
        match gpu.slice_of_shards(u64::from(limits.share().shards())) {
            Some(_) => Self::Slice(*limits),
            None => Self::Shards(*limits),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        match self {
            Self::Slice(limits) | Self::Shards(limits) => limits,
        }
    }
}

/// As much as several slices, in another form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SameAmount {
    Slice(Limits),
    WholeGpus(u64),
    /// One of them on each of so many nodes.
    OnEachNode(u64),
}

/// The most likely meaning of a name that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meant {
    Slice(Limits),
    OneOf(Offer),
    WholeGpu(String),
    /// Nothing in particular: some slices, for example.
    Examples(Vec<Limits>),
    /// Nothing in particular: one of these types.
    Types(Vec<String>),
}

/// Less of the same, or something else that the class may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Less {
    AnyGpus {
        count: u64,
    },
    WholeGpus {
        gpu_type: String,
        count: u64,
    },
    Slice(Limits),
    /// Of a job for several nodes.
    OnOneNode(Limits),
    Unknown,
}

impl Reason {
    /// The stable name of the rule, of which a rule with several sentences has one.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::NoPolicy | Self::Failure => Code::PolicyUnreadable,
            Self::TagEdit => Code::TagEdit,
            Self::UnreadableSlice { .. } | Self::UnreadableGpu { .. } | Self::UpperCase { .. } => {
                Code::Malformed
            }
            Self::WholeGpuAsSlice { .. } | Self::WholeGpuAsMps { .. } => Code::SliceIsWholeGpu,
            Self::SliceSize(_) | Self::SliceMemory(_) | Self::MpsUnits { .. } => Code::SliceSize,
            Self::UntypedShards { .. }
            | Self::ShardCount { .. }
            | Self::NoShards(_)
            | Self::ShardsBeyondGpu { .. } => Code::RawShard,
            Self::SeveralSlices { .. } | Self::SliceCount { .. } => Code::SliceCount,
            Self::SliceAndGpus { .. } => Code::SliceMixed,
            Self::UnknownSliceType { .. } | Self::UnknownGpuType { .. } | Self::MpsType { .. } => {
                Code::SliceType
            }
            Self::SlicePer { .. } => Code::SlicePerTask,
            Self::SeveralNodes { .. } => Code::SliceNodes,
            Self::ExclusiveSlice { .. }
            | Self::SliceFrequency { .. }
            | Self::CpusPerGpu { .. }
            | Self::PerGpuWithSrun { .. }
            | Self::PerGpuInStep { .. }
            | Self::StepInSlice { .. } => Code::SliceOption,
            Self::NotShared { .. } => Code::SliceType,
            Self::ClientPolicy { .. } => Code::ClientPolicy,
            Self::Gate { denied, .. } => match denied {
                Denied::NoReservation => Code::GateNoReservation,
                Denied::Reservation(_) | Denied::MoreThan(_) => Code::GateReservation,
            },
            Self::Reserved { .. }
            | Self::ReservedLater { .. }
            | Self::MayBeReserved { .. }
            | Self::ExclusiveReserved => Code::Reserved,
            Self::QosOfClass { .. } | Self::QosOfOthers { .. } | Self::QosBesideOwn { .. } => {
                Code::LimitQos
            }
            Self::Limit { limit, .. } => match limit {
                LimitPassed::NoWholeGpus { .. } => Code::WholeGpuClass,
                _ => Code::LimitJob,
            },
        }
    }
}

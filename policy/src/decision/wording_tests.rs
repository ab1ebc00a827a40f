//! All refusals on one page, for people to read: `snapshots/` has it.

use crate::config::gates::GateSubject;
use crate::config::refusal_code::Code;
use crate::config::reservable::Holder;
use crate::decision::reason::{
    ClosedGate, Denied, Less, LimitPassed, Meant, MemoryOffer, MostShards, Offer, Reason,
    SameAmount, SliceOrShards,
};
use crate::decision::refusal::Refusal;
use crate::node::limits::{Limits, Mode, Share, TypeName};
use crate::slurm::time_limit::WallTime;

/// A function that returns examples. It does not compile without a line for each variant.
macro_rules! examples {
    ($name:ident: $kind:ty { $($pattern:pat => [$($example:expr),+ $(,)?],)+ }) => {
        fn $name() -> Vec<$kind> {
            let _ = |value: &$kind| match value { $($pattern => (),)+ };
            $($(assert!(matches!($example, $pattern));)+)+
            vec![$($($example),+),+]
        }
    };
}

fn text(text: &str) -> String {
    text.to_string()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().copied().map(text).collect()
}

fn shards(shards: u32) -> Limits {
    let l40s = TypeName::new("l40s").unwrap();
    let share = Share::new(shards, 4).unwrap();
    Limits::new(l40s, share, share.part_of(45464), Mode::HARD).unwrap()
}

fn quarter() -> Limits {
    shards(1)
}

fn half() -> Limits {
    shards(2)
}

fn part() -> SliceOrShards {
    SliceOrShards::Slice(quarter())
}

fn offer() -> Offer {
    Offer {
        gpu_type: text("l40s"),
        sizes: vec![2, 4],
        nearest: vec![half(), quarter()],
    }
}

fn memory(largest: Option<Limits>, wholes: &[&str], slices: Vec<Limits>) -> MemoryOffer {
    MemoryOffer {
        gpu_type: l40s(),
        largest,
        whole_mib: 45_464,
        wholes: texts(wholes),
        slices,
    }
}

/// Of a type that is not shared.
fn no_offer() -> Offer {
    Offer {
        gpu_type: text("gtx"),
        sizes: Vec::new(),
        nearest: Vec::new(),
    }
}

fn alice() -> Holder {
    Holder::User(text("alice"))
}

fn lab() -> Holder {
    Holder::Account(text("lab"))
}

fn day() -> String {
    text("2027-01-18T08:00:00")
}

fn next_week() -> String {
    text("2027-01-25T08:00:00")
}

fn deadline() -> String {
    text("paper deadline")
}

fn l40s() -> String {
    text("l40s")
}

fn gate(about: GateSubject, partitions: &[&str], denied: Denied) -> Reason {
    Reason::Gate {
        gate: ClosedGate {
            about,
            partitions: texts(partitions),
            reservations: texts(&["course_.*", "exam"]),
        },
        denied,
    }
}

fn unknown_slice(shared: &[&str], meant: Meant) -> Reason {
    Reason::UnknownSliceType {
        name: text("l4os"),
        shared: texts(shared),
        meant,
    }
}

fn count(slices: u64, same: Option<SameAmount>) -> Reason {
    Reason::SliceCount {
        slices,
        one: quarter(),
        same,
    }
}

fn limit() -> Reason {
    Reason::Limit {
        who: text("class student"),
        limit: LimitPassed::NoJobs,
    }
}

examples! { reasons: Reason {
    Reason::NoPolicy => [Reason::NoPolicy],
    Reason::Failure => [Reason::Failure],
    Reason::TagEdit => [Reason::TagEdit],
    Reason::UnreadableSlice { .. } => [
        Reason::UnreadableSlice { examples: vec![quarter(), half()] },
        Reason::UnreadableSlice { examples: Vec::new() },
    ],
    Reason::UnreadableGpu { .. } => [
        Reason::UnreadableGpu { gpu_type: Some(l40s()) },
        Reason::UnreadableGpu { gpu_type: None },
    ],
    Reason::UpperCase { .. } => [Reason::UpperCase { meant: text("gpu:l40s:1") }],
    Reason::WholeGpuAsSlice { .. } => [
        Reason::WholeGpuAsSlice { gpu_type: l40s(), count: 1, largest: Some(half()) },
        Reason::WholeGpuAsSlice { gpu_type: l40s(), count: 4, largest: None },
    ],
    Reason::WholeGpuAsMps { .. } => [
        Reason::WholeGpuAsMps { gpu_type: l40s(), units: 320, largest: Some(half()) },
    ],
    Reason::SliceSize(_) => [Reason::SliceSize(offer()), Reason::SliceSize(no_offer())],
    Reason::SliceMemory(_) => [
        Reason::SliceMemory(memory(Some(half()), &["l40s"], vec![])),
        Reason::SliceMemory(memory(Some(half()), &["l40s", "h100"], vec![half()])),
        Reason::SliceMemory(memory(Some(half()), &[], vec![])),
        Reason::SliceMemory(memory(None, &["l40s"], vec![])),
        Reason::SliceMemory(memory(None, &[], vec![])),
    ],
    Reason::MpsUnits { .. } => [Reason::MpsUnits {
        gpu_type: l40s(),
        units_per_gpu: 320,
        offered: vec![160, 80],
        nearest: vec![(160, 2), (80, 4)],
    }],
    Reason::MpsType { .. } => [
        Reason::MpsType { gpu_type: l40s(), same: Some(quarter()) },
        Reason::MpsType { gpu_type: l40s(), same: None },
    ],
    Reason::UntypedShards { .. } => [Reason::UntypedShards { examples: vec![quarter()] }],
    Reason::ShardCount { .. } => [Reason::ShardCount { shards: 3, per_gpu: 4, offer: offer() }],
    Reason::NoShards(_) => [Reason::NoShards(offer())],
    Reason::ShardsBeyondGpu { .. } => [
        Reason::ShardsBeyondGpu { gpu_type: l40s(), per_gpu: 4, largest: Some(half()) },
    ],
    Reason::SeveralSlices { .. } => [Reason::SeveralSlices { slices: 2, offer: offer() }],
    Reason::SliceCount { .. } => [
        count(0, None),
        count(2, Some(SameAmount::Slice(half()))),
        count(3, Some(SameAmount::WholeGpus(1))),
        count(8, Some(SameAmount::WholeGpus(2))),
    ],
    Reason::SliceAndGpus { .. } => [
        Reason::SliceAndGpus { slice: part() },
        Reason::SliceAndGpus { slice: SliceOrShards::Shards(shards(3)) },
    ],
    Reason::UnknownSliceType { .. } => [
        unknown_slice(&["a100", "l40s"], Meant::Slice(quarter())),
        unknown_slice(&["a100", "l40s"], Meant::OneOf(offer())),
        unknown_slice(&["a100", "gtx"], Meant::OneOf(no_offer())),
        unknown_slice(&["a100", "l40s"], Meant::Examples(vec![quarter()])),
        unknown_slice(&[], Meant::Examples(Vec::new())),
    ],
    Reason::UnknownGpuType { .. } => [
        Reason::UnknownGpuType { name: text("l40"), meant: Meant::WholeGpu(l40s()) },
        Reason::UnknownGpuType { name: text("x"), meant: Meant::Types(texts(&["a100", "l40s"])) },
        Reason::UnknownGpuType { name: text("x"), meant: Meant::Types(Vec::new()) },
    ],
    Reason::SlicePer { .. } => [Reason::SlicePer { each: "task", number: 4, slice: part() }],
    Reason::SeveralNodes { .. } => [
        Reason::SeveralNodes { nodes: 2, slice: part(), may_have_each: true },
        Reason::SeveralNodes { nodes: 2, slice: part(), may_have_each: false },
    ],
    Reason::ExclusiveSlice { .. } => [Reason::ExclusiveSlice { gpu_type: l40s() }],
    Reason::SliceFrequency { .. } => [Reason::SliceFrequency { gpu_type: l40s() }],
    Reason::CpusPerGpu { .. } => [
        Reason::CpusPerGpu { cpus: 3, tasks: 2, cpus_per_task: None, slice: part() },
        Reason::CpusPerGpu { cpus: 4, tasks: 1, cpus_per_task: Some(2), slice: part() },
    ],
    Reason::PerGpuWithSrun { .. } => [Reason::PerGpuWithSrun {
        option: text("mem-per-gpu"),
        mib: Some(8192),
        tasks: Some(2),
        cpus_per_task: Some(4),
    }],
    Reason::PerGpuInStep { .. } => [
        Reason::PerGpuInStep { option: text("mem-per-gpu"), variable: Some(text("SLURM_MEM_PER_GPU")) },
        Reason::PerGpuInStep { option: text("cpus-per-gpu"), variable: None },
    ],
    Reason::StepInSlice { .. } => [
        Reason::StepInSlice { shards: 1, slice: Some(text("gpu:l40s.4:1")) },
        Reason::StepInSlice { shards: 3, slice: None },
    ],
    Reason::NotShared { .. } => [
        Reason::NotShared { gpu_type: l40s(), mig: false },
        Reason::NotShared { gpu_type: text("1g.10gb"), mig: true },
    ],
    Reason::ClientPolicy { .. } => [Reason::ClientPolicy {
        sent: text("shard:l40s:2"),
        right: text("shard:l40s:1"),
    }],
    Reason::Gate { .. } => [
        gate(GateSubject::Slice, &[], Denied::NoReservation),
        gate(GateSubject::Whole, &["gpu"], Denied::NoReservation),
        gate(GateSubject::Mig, &["gpu", "long"], Denied::Reservation(text("lunch"))),
        gate(GateSubject::Gres(text("license")), &[], Denied::MoreThan(64)),
    ],
    Reason::Reserved { .. } => [Reason::Reserved {
        holder: alice(),
        end: day(),
        reason: deadline(),
        instead: l40s(),
    }],
    Reason::ReservedLater { .. } => [
        Reason::ReservedLater {
            holder: alice(),
            start: day(),
            end: next_week(),
            reason: deadline(),
            instead: l40s(),
            is_own: false,
        },
        Reason::ReservedLater {
            holder: lab(),
            start: day(),
            end: next_week(),
            reason: deadline(),
            instead: l40s(),
            is_own: true,
        },
    ],
    Reason::MayBeReserved { .. } => [
        Reason::MayBeReserved {
            reserved: texts(&["l40s_r"]),
            own: Vec::new(),
            types: texts(&["a100", "l40s"]),
            count: 2,
        },
        Reason::MayBeReserved {
            reserved: texts(&["l40s_r"]),
            own: texts(&["l40s_r"]),
            types: texts(&["l40s"]),
            count: 1,
        },
    ],
    Reason::ExclusiveReserved => [Reason::ExclusiveReserved],
    Reason::QosOfClass { .. } => [Reason::QosOfClass {
        who: text("class student"),
        named: text("long"),
        may: texts(&["student", "debug"]),
    }],
    Reason::QosOfOthers { .. } => [Reason::QosOfOthers { named: text("researcher") }],
    Reason::QosBesideOwn { .. } => [
        Reason::QosBesideOwn { named: text("long"), own: text("student") },
    ],
    Reason::Limit { .. } => [limit()],
} }

fn most_shards(is_of_gpus: bool, most: MostShards, instead: Less) -> LimitPassed {
    LimitPassed::Shards {
        asked: 8,
        is_of_gpus,
        most,
        instead,
    }
}

examples! { limits: LimitPassed {
    LimitPassed::NoJobs => [LimitPassed::NoJobs],
    LimitPassed::NoWholeGpus { .. } => [
        LimitPassed::NoWholeGpus { instead: Less::Slice(half()) },
    ],
    LimitPassed::WholeGpus { .. } => [LimitPassed::WholeGpus {
        asked: 3,
        most: 2,
        instead: Less::AnyGpus { count: 2 },
    }],
    LimitPassed::Mig { .. } => [LimitPassed::Mig {
        gpu_type: text("1g.10gb"),
        asked: 1,
        most: 0,
        instead: Less::Unknown,
    }],
    LimitPassed::Untyped { .. } => [
        LimitPassed::Untyped { types: texts(&["a100", "l40s"]) },
    ],
    LimitPassed::Shards { .. } => [
        most_shards(false, MostShards::AtOnce(4), Less::Slice(quarter())),
        most_shards(false, MostShards::AtOnce(1), Less::OnOneNode(quarter())),
        most_shards(true, MostShards::AtOnce(0), Less::Unknown),
        most_shards(true, MostShards::AtOnceOfType(4, l40s()), Less::Slice(half())),
        most_shards(true, MostShards::AtOnceOfType(0, l40s()), Less::Unknown),
        most_shards(true, MostShards::InOneJob(2), Less::Slice(half())),
        most_shards(true, MostShards::InOneJob(4), Less::WholeGpus { gpu_type: l40s(), count: 1 }),
    ],
    LimitPassed::Time { .. } => [
        LimitPassed::Time { asked: WallTime::parse("2-0"), most: day_long() },
        LimitPassed::Time { asked: None, most: day_long() },
    ],
    LimitPassed::Cpus { .. } => [LimitPassed::Cpus { asked: 8, most: 4 }],
    LimitPassed::Memory { .. } => [
        LimitPassed::Memory { mib: 32000, most_mib: 16000, most_mib_per_node: 8000 },
    ],
    LimitPassed::SliceCpus { .. } => [LimitPassed::SliceCpus { asked: 8, most: 4, shards: 1 }],
    LimitPassed::SliceMemory { .. } => [
        LimitPassed::SliceMemory { mib: Some(9000), most_mib: 4000, shards: 2 },
        LimitPassed::SliceMemory { mib: None, most_mib: 4000, shards: 1 },
    ],
} }

fn day_long() -> WallTime {
    WallTime::parse("1-0").unwrap()
}

fn refusals() -> Vec<Refusal> {
    let limits = limits().into_iter().map(|limit| {
        let who = text("class student");
        Reason::Limit { who, limit }
    });
    let reasons = reasons().into_iter();
    let all = reasons.filter(|reason| !matches!(reason, Reason::Limit { .. }));
    all.chain(limits)
        .map(|reason| match reason {
            Reason::NoPolicy | Reason::Failure | Reason::TagEdit | Reason::PerGpuInStep { .. } => {
                Refusal::new("", reason)
            }
            _ => Refusal::new("gpu:REQUEST", reason),
        })
        .collect()
}

#[test]
fn refusals_read_like_a_colleague() {
    let texts = refusals().into_iter().map(|refusal| refusal.to_string());
    let page = texts.collect::<Vec<_>>().join("\n\n");
    assert!(page.is_ascii());
    insta::assert_snapshot!(page);
}

#[test]
fn each_code_has_a_refusal() {
    let refusals = refusals();
    for code in Code::ALL.iter().filter(|code| **code != Code::LimitNotice) {
        let mut codes = refusals.iter().map(Refusal::code);
        assert!(codes.any(|other| other == *code), "{}", code.as_str());
    }
}

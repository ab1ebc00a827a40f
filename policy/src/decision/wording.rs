//! Every sentence of a refusal. `limits` has those about the limits of a class, and `phrases` the parts that several share:
//! sizes, and what to type instead.
//!
//! A refusal is two lines: what was asked and which rule says no, then what to type instead.

mod limits;
mod phrases;

use crate::config::gates::GateSubject;
use crate::config::policy::Policy;
use crate::decision::reason::{ClosedGate, Denied, May, Reason, SameAmount};
use crate::decision::wording::limits::of_limit;
use crate::decision::wording::phrases::{
    another_gpu, any_of, did_you_mean, for_whole, gpus, instead, most_memory, number, or, part,
    sizes, slice, use_count_of_types, use_nearest, use_one_of, use_with_memory, whole_gpu,
    whole_gpu_or, with_limits, words,
};

pub(crate) use limits::limit_notice;
pub use limits::may_hold;
pub(crate) use phrases::Words;

/// The sentences of a refusal of `asked`.
pub(crate) fn explain(reason: &Reason, asked: &str, may: &May) -> Words {
    match reason {
        Reason::NoPolicy => words(
            format!(
                "softmig cannot read {}, so parts of GPUs are not available",
                Policy::PATH
            ),
            "use a whole GPU, for example --gres=gpu:1, or ask your administrator to run: softmig explain --gres=gpu:1",
        ),
        Reason::Failure => words(
            "softmig could not process this request for part of a GPU",
            "use a whole GPU, for example --gres=gpu:1, or ask your administrator to look in the log of slurmctld",
        ),
        Reason::TagEdit => words(
            "only softmig may set the word softmig=... in a job's comment or extra",
            "omit that word; to change the slice, use: scontrol update jobid=JOB gres=gpu:TYPE.SIZE:1",
        ),
        Reason::UnreadableSlice { examples } => words(
            "this is not a valid request for part of a GPU",
            use_one_of(examples),
        ),
        Reason::UnreadableGpu { gpu_type } => words(
            "this is not a valid request for GPUs",
            match gpu_type {
                Some(_) if !may.whole => instead(may),
                Some(gpu_type) => format!("use for example {}", gpus(gpu_type, 1)),
                None => "use for example --gres=gpu:1".to_string(),
            },
        ),
        Reason::UpperCase { meant } => words(
            "names of GRES are lower case",
            format!("did you mean --gres={meant}?"),
        ),
        Reason::WholeGpuAsSlice {
            gpu_type,
            count,
            largest,
        } => words(
            ".1 is a whole GPU, not a slice",
            whole_gpu_or(gpu_type, *count, largest.as_ref(), may),
        ),
        Reason::WholeGpuAsMps {
            gpu_type,
            units,
            largest,
        } => words(
            format!("{units} units are a whole {gpu_type}, and a job can share only one GPU"),
            whole_gpu_or(gpu_type, 1, largest.as_ref(), may),
        ),
        Reason::SliceSize(offer) => words(sizes(offer), use_nearest(offer, may)),
        Reason::SliceMemory(offer) => words(most_memory(offer), use_with_memory(offer, may)),
        Reason::MpsUnits {
            gpu_type,
            units_per_gpu,
            offered,
            nearest,
        } => words(
            format!(
                "a job can have {} of the {units_per_gpu} units of one {gpu_type}",
                any_of(offered)
            ),
            format!(
                "use {}",
                nearest
                    .iter()
                    .map(|(units, size)| format!(
                        "--gres=mps:{units}, which is --gres=gpu:{gpu_type}.{size}:1"
                    ))
                    .collect::<Vec<_>>()
                    .join("; or ")
            ),
        ),
        Reason::MpsType { gpu_type, same } => words(
            format!("units of mps are parts of GPUs of type {gpu_type}"),
            match same {
                Some(same) => format!("omit the type, or use {}", slice(same)),
                None => "omit the type".to_string(),
            },
        ),
        Reason::UntypedShards { examples } => words(
            "request a slice of a GPU type, not a number of shards",
            use_one_of(examples),
        ),
        Reason::ShardCount {
            shards,
            per_gpu,
            offer,
        } => words(
            format!(
                "{shards} of {per_gpu} shards is not a slice; {}",
                sizes(offer)
            ),
            use_nearest(offer, may),
        ),
        Reason::NoShards(offer) => words("0 shards requested", use_nearest(offer, may)),
        Reason::ShardsBeyondGpu {
            gpu_type,
            per_gpu,
            largest,
        } => words(
            format!("one {gpu_type} has {per_gpu} shards, and a job can share only one GPU"),
            whole_gpu_or(gpu_type, 1, largest.as_ref(), may),
        ),
        Reason::SeveralSlices { slices, offer } => words(
            format!("a job can have one slice of a node's GPUs, not {slices}"),
            match offer.nearest.as_slice() {
                [] => use_nearest(offer, may),
                slices => format!(
                    "use one slice, for example {}",
                    or(slices.iter().map(with_limits))
                ),
            },
        ),
        Reason::SliceCount { slices, one, same } => words(
            format!("a job can have one slice of a node's GPUs, not {slices}"),
            match same {
                Some(SameAmount::Slice(same)) => {
                    format!(
                        "use {} for the same amount on one GPU, or {}",
                        slice(same),
                        slice(one)
                    )
                }
                Some(SameAmount::OnEachNode(nodes)) => format!(
                    "use {0} --nodes={nodes} for a slice on each node, or {0} --nodes=1",
                    slice(one)
                ),
                Some(SameAmount::WholeGpus(count)) => format!(
                    "use {}, or {} {}",
                    slice(one),
                    gpus(one.gpu_type().as_str(), *count),
                    for_whole(*count)
                ),
                None => format!("use {}", slice(one)),
            },
        ),
        Reason::SliceAndGpus { slice } => words(
            "a job cannot have a slice and whole GPUs",
            if may.whole {
                format!(
                    "use only the slice, {}, or only whole GPUs, {}",
                    part(slice),
                    whole_gpu(slice)
                )
            } else {
                format!("use only the slice, {}", part(slice))
            },
        ),
        Reason::UnknownSliceType {
            name,
            shared,
            meant,
        } => words(
            match shared.as_slice() {
                [] => "no GPUs are shared here".to_string(),
                shared => format!(
                    "GPUs of type {name} cannot be shared; shared types are {}",
                    shared.join(", ")
                ),
            },
            did_you_mean(meant, may),
        ),
        Reason::UnknownGpuType { name, meant } => words(
            format!("there are no GPUs of type {name}"),
            did_you_mean(meant, may),
        ),
        Reason::SlicePer {
            each,
            number,
            slice,
        } => words(
            format!(
                "one slice per {each} would be {number} slices, and a job can have one on each node"
            ),
            format!("use {}; all tasks of a node share it", part(slice)),
        ),
        Reason::SeveralNodes {
            nodes,
            slice,
            may_have_each,
        } => words(
            format!("this is one slice in all, but --nodes={nodes} requests {nodes} nodes"),
            match may_have_each {
                true => format!(
                    "use {0} --nodes={nodes} for a slice on each node, or {0} --nodes=1",
                    part(slice)
                ),
                false => format!("use {} --nodes=1", part(slice)),
            },
        ),
        Reason::ExclusiveSlice { gpu_type } => words(
            "--exclusive requests a node without other jobs, but a slice shares its GPU",
            if may.whole {
                format!("omit --exclusive, or use {} --exclusive", gpus(gpu_type, 1))
            } else {
                "omit --exclusive".to_string()
            },
        ),
        Reason::SliceFrequency { gpu_type } => words(
            "--gpu-freq would set the clock of a GPU that other jobs share",
            if may.whole {
                format!("omit --gpu-freq, or use it with {}", gpus(gpu_type, 1))
            } else {
                "omit --gpu-freq".to_string()
            },
        ),
        Reason::CpusPerGpu {
            cpus,
            tasks,
            cpus_per_task,
            slice,
        } => words(
            match cpus_per_task {
                None => {
                    format!("--cpus-per-gpu={cpus} cannot be divided equally among {tasks} tasks")
                }
                Some(each) => format!(
                    "--cpus-per-gpu={cpus} and --cpus-per-task={each} conflict for {}",
                    number(*tasks, "task")
                ),
            },
            format!(
                "omit --cpus-per-gpu, and use {} with --cpus-per-task",
                part(slice)
            ),
        ),
        Reason::PerGpuWithSrun {
            option,
            mib,
            tasks,
            cpus_per_task,
        } => {
            let options = [
                mib.map(|mib| format!(" --mem={mib}M")),
                tasks.map(|tasks| format!(" --ntasks={tasks}")),
                cpus_per_task.map(|cpus| format!(" --cpus-per-task={cpus}")),
            ];
            let options: String = options.into_iter().flatten().collect();
            words(
                format!("srun cannot combine --{option} with a slice"),
                format!("use srun --gres={asked}{options}"),
            )
        }
        Reason::PerGpuInStep {
            variable: Some(variable),
            ..
        } => words(
            format!(
                "srun would request a whole GPU, because {variable} is set, but the job has a slice"
            ),
            format!(
                "add this line before srun: unset {variable}; or submit the job with --mem, --ntasks and --cpus-per-task"
            ),
        ),
        Reason::PerGpuInStep { option, .. } => words(
            format!("--{option} makes srun request a whole GPU, but the job has a slice"),
            "use --mem, --ntasks and --cpus-per-task instead of figures per GPU".to_string(),
        ),
        Reason::StepInSlice { shards, slice } => {
            let has = match slice {
                Some(slice) => format!("a slice {slice}"),
                None => format!("a slice of {shards} shards"),
            };
            words(
                format!("this job has {has}, and its steps can have nothing else"),
                "use srun without --gres and --gpus: each step has the slice of its job"
                    .to_string(),
            )
        }
        Reason::NotShared { gpu_type, mig } => words(
            format!(
                "no node shares its {} of type {gpu_type}: Slurm cannot share them beside MIG instances of another type",
                if *mig { "MIG instances" } else { "GPUs" }
            ),
            format!("use --gres=gpu:{gpu_type}:1 for a whole one"),
        ),
        Reason::ClientPolicy { sent, right } => words(
            format!(
                "this machine's softmig sent {sent} for that, and slurmctld would take {right}: its policy.toml is another one"
            ),
            format!(
                "use --gres={right}, and tell your administrators that /etc/softmig/policy.toml of this machine differs"
            ),
        ),
        Reason::Gate { gate, denied } => of_gate(gate, denied),
        Reason::Reserved {
            holder,
            end,
            reason,
            instead,
        } => words(
            format!("reserved for {} until {end} ({reason})", holder.called()),
            another_gpu(instead, may),
        ),
        Reason::ReservedLater {
            holder,
            start,
            end,
            reason,
            instead,
            is_own,
        } => words(
            format!(
                "reserved for {} from {start} to {end} ({reason})",
                holder.called()
            ),
            if *is_own {
                format!(
                    "you can use it from {start}; until then {}",
                    another_gpu(instead, may)
                )
            } else {
                another_gpu(instead, may)
            },
        ),
        Reason::MayBeReserved {
            reserved,
            own,
            types,
            count,
        } => words(
            format!(
                "a GPU type is required here, because some GPUs ({}) are reserved for other users",
                reserved.join(", ")
            ),
            match own.iter().chain(types).collect::<Vec<_>>().as_slice() {
                [] => instead(may),
                types => use_count_of_types(*count, types),
            },
        ),
        Reason::ExclusiveReserved => words(
            "--exclusive requests all GPUs of a node, also those that are reserved for other users",
            "omit --exclusive; with [[nodes]] in policy.toml, your administrator can make it avoid reserved GPUs",
        ),
        Reason::QosOfClass { who, named, may } => words(
            format!("GPU jobs of {who} may not use QOS {named}"),
            format!("omit --qos, or use --qos={}", may.join(" or --qos=")),
        ),
        Reason::QosOfOthers { named } => words(
            format!("you may not use QOS {named}"),
            "omit --qos, or use a QOS that is yours",
        ),
        Reason::QosBesideOwn { named, own } => words(
            format!("QOS {named} cannot be combined with QOS {own}"),
            format!("omit --qos, or use --qos={own}"),
        ),
        Reason::Limit { who, limit } => of_limit(who, limit),
    }
}

fn of_gate(gate: &ClosedGate, denied: &Denied) -> Words {
    let what = match &gate.about {
        GateSubject::Slice => "shared GPUs",
        GateSubject::Whole => "whole GPUs",
        GateSubject::Mig => "MIG instances",
        GateSubject::Gres(name) => &format!("GRES {name}"),
    };
    let place = match gate.partitions.as_slice() {
        [] => String::new(),
        [one] => format!(" in partition {one}"),
        several => format!(" in partitions {}", several.join(", ")),
    };
    let names = gate.reservations.join(" or ");
    let hint = |verb: &str| {
        format!(
            "{verb} --reservation=NAME, where NAME matches {names}; this lists reservations: scontrol show reservation"
        )
    };
    match denied {
        Denied::NoReservation => words(
            format!("{what}{place} may only be used inside a reservation"),
            hint("add"),
        ),
        Denied::Reservation(name) => words(
            format!("{what}{place} may not be used inside reservation {name}"),
            hint("use"),
        ),
        Denied::MoreThan(most) => words(
            format!("the job names more than {most} reservations"),
            hint("use"),
        ),
    }
}

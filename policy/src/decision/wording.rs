//! Every sentence of a refusal: `limits` has those about the limits of a class.
//!
//! A refusal is two lines: what was asked and which rule says no, then what to type instead.

mod limits;
mod phrases;

use crate::config::gates::GateSubject;
use crate::config::policy::Policy;
use crate::decision::reason::{ClosedGate, Denied, Reason, SameAmount};
use crate::decision::wording::limits::of_limit;
use crate::decision::wording::phrases::{
    another_gpu, any_of, did_you_mean, gpus, nearest, number, part, sizes, slice, use_one_of,
    use_one_of_types, whole_gpu, whole_gpu_or, words,
};

pub(crate) use limits::limit_notice;
pub(crate) use phrases::Words;

/// The sentences of a refusal of `asked`.
pub(crate) fn of(reason: &Reason, asked: &str) -> Words {
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
                Some(gpu_type) => format!("use for example {}", gpus(gpu_type, 1)),
                None => "use for example --gres=gpu:1".to_string(),
            },
        ),
        Reason::UpperCase { meant } => words(
            "names of GRES are lower case",
            format!("did you mean --gres={meant}?"),
        ),
        Reason::WholeGpuAsSlice { gpu_type, largest } => words(
            ".1 is a whole GPU, not a slice",
            whole_gpu_or(gpu_type, largest.as_ref()),
        ),
        Reason::WholeGpuAsMps {
            gpu_type,
            units,
            largest,
        } => words(
            format!("{units} units are a whole {gpu_type}, and a job can share only one GPU"),
            whole_gpu_or(gpu_type, largest.as_ref()),
        ),
        Reason::SliceSize(offer) => words(sizes(offer), format!("use {}", nearest(offer))),
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
            format!("use {}", nearest(offer)),
        ),
        Reason::NoShards(offer) => words("0 shards requested", format!("use {}", nearest(offer))),
        Reason::ShardsBeyondGpu {
            gpu_type,
            per_gpu,
            largest,
        } => words(
            format!("one {gpu_type} has {per_gpu} shards, and a job can share only one GPU"),
            whole_gpu_or(gpu_type, largest.as_ref()),
        ),
        Reason::SeveralSlices { slices, offer } => words(
            format!("a job can have one slice, not {slices}"),
            format!("use one slice, for example {}", nearest(offer)),
        ),
        Reason::SliceCount { slices, one, same } => words(
            format!("a job can have one slice, not {slices}"),
            match same {
                Some(SameAmount::Slice(same)) => {
                    format!(
                        "use {} for the same amount on one GPU, or {}",
                        slice(same),
                        slice(one)
                    )
                }
                Some(SameAmount::WholeGpus(count)) => format!(
                    "use {}, or {} for {}",
                    slice(one),
                    gpus(one.gpu_type().as_str(), *count),
                    if *count == 1 {
                        "a whole GPU"
                    } else {
                        "whole GPUs"
                    }
                ),
                None => format!("use {}", slice(one)),
            },
        ),
        Reason::SliceAndGpus { slice } => words(
            "a job cannot have a slice and whole GPUs",
            format!(
                "use only the slice, {}, or only whole GPUs, {}",
                part(slice),
                whole_gpu(slice)
            ),
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
            did_you_mean(meant),
        ),
        Reason::UnknownGpuType { name, meant } => words(
            format!("there are no GPUs of type {name}"),
            did_you_mean(meant),
        ),
        Reason::SlicePer {
            each,
            number,
            slice,
        } => words(
            format!("one slice per {each} would be {number} slices, and a job can have one"),
            format!("use {}; all tasks of the job share it", part(slice)),
        ),
        Reason::SeveralNodes { nodes, slice } => words(
            format!("a slice is part of one GPU, but --nodes={nodes} requests {nodes} nodes"),
            format!(
                "use {} --nodes=1, or {} for whole GPUs on several nodes",
                part(slice),
                whole_gpu(slice)
            ),
        ),
        Reason::ExclusiveSlice { gpu_type } => words(
            "--exclusive requests a node without other jobs, but a slice shares its GPU",
            format!("omit --exclusive, or use {} --exclusive", gpus(gpu_type, 1)),
        ),
        Reason::SliceFrequency { gpu_type } => words(
            "--gpu-freq would set the clock of a GPU that other jobs share",
            format!("omit --gpu-freq, or use it with {}", gpus(gpu_type, 1)),
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
        Reason::PerGpuInStep { variable } => words(
            format!(
                "srun would request a whole GPU, because {variable} is set, but the job has a slice"
            ),
            format!(
                "add this line before srun: unset {variable}; or submit the job with --mem, --ntasks and --cpus-per-task"
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
            another_gpu(instead),
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
            match is_own {
                true => format!(
                    "you can use it from {start}; until then {}",
                    another_gpu(instead)
                ),
                false => another_gpu(instead),
            },
        ),
        Reason::ReservedBefore {
            holder,
            end,
            instead,
        } => words(
            format!(
                "was reserved for {} until {end}, and is not yet available to others",
                holder.called()
            ),
            another_gpu(instead),
        ),
        Reason::MayBeReserved { reserved, types } => words(
            format!(
                "a GPU type is required here, because some GPUs ({}) are reserved for other users",
                reserved.join(", ")
            ),
            use_one_of_types(types),
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

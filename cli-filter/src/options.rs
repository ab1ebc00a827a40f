//! The client's options as a request, and a decided request written back into them.

use mlua::prelude::*;
use softmig_policy::node::job_conf::JobConf;
use softmig_policy::node::{identity, tag};
use softmig_policy::slurm::cli_options::{Options, is_exclusive};
use softmig_policy::slurm::gres::Prefix;
use softmig_policy::{Limits, MaybeKnown, Request, Submitter};

/// An option that is set; in some releases, unset options have a word of Slurm's own.
fn option(table: &LuaTable, name: &str) -> Option<String> {
    table
        .get::<Option<LuaString>>(name)
        .ok()
        .flatten()
        .map(|value| value.to_string_lossy())
        .filter(|value| !matches!(value.as_str(), "" | "unset" | "invalid-context"))
}

/// A count; the clients use 0, -2 or 65534 if the user gave none.
fn number(table: &LuaTable, name: &str) -> Option<u32> {
    const NO_VAL16: u32 = 0xfffe;
    option(table, name)?
        .parse()
        .ok()
        .filter(|number| (1..NO_VAL16).contains(number))
}

/// In a job, srun also finds the job's own options in its environment. Those give way to what was typed for the step.
fn typed(table: &LuaTable) -> Options {
    let mut inherited = Options::default();
    let mut typed = Options::default();
    let mut sort = |name: &str, variable: &str, field: fn(&mut Options) -> &mut Option<String>| {
        let value = option(table, name);
        let is_inherited = value.is_some() && std::env::var(variable).ok() == value;
        let options = if is_inherited {
            &mut inherited
        } else {
            &mut typed
        };
        *field(options) = value;
    };
    sort("gres", "SLURM_GRES", |options| &mut options.gres);
    sort("gpus", "SLURM_GPUS", |options| &mut options.gpus);
    sort("gpus-per-node", "SLURM_GPUS_PER_NODE", |options| {
        &mut options.gpus_per_node
    });
    sort("gpus-per-task", "SLURM_GPUS_PER_TASK", |options| {
        &mut options.gpus_per_task
    });
    sort("gpus-per-socket", "SLURM_GPUS_PER_SOCKET", |options| {
        &mut options.gpus_per_socket
    });
    sort("tres-per-task", "SLURM_TRES_PER_TASK", |options| {
        &mut options.tres_per_task
    });
    if typed == Options::default() {
        inherited
    } else {
        typed
    }
}

/// The request; `None` when no option names GPUs.
pub(crate) fn read(table: &LuaTable) -> Option<Request> {
    let gpus = if is_step(table) {
        typed(table)
    } else {
        Options {
            gres: option(table, "gres"),
            gpus: option(table, "gpus"),
            gpus_per_node: option(table, "gpus-per-node"),
            gpus_per_task: option(table, "gpus-per-task"),
            gpus_per_socket: option(table, "gpus-per-socket"),
            tres_per_task: option(table, "tres-per-task"),
            ..Options::default()
        }
    };
    if gpus == Options::default() {
        return None;
    }
    // A step takes its part of a job that was decided on before: which nodes and tasks it has is the job's matter,
    // and --exclusive means CPUs of its own there.
    let options = if is_step(table) {
        Options {
            ntasks: number(table, "ntasks"),
            mem_per_gpu: option(table, "mem-per-gpu"),
            cpus_per_gpu: number(table, "cpus-per-gpu"),
            ntasks_per_gpu: number(table, "ntasks-per-gpu"),
            ..gpus
        }
    } else {
        Options {
            nodes: option(table, "nodes"),
            // The client uses 1 also if the user gave no number.
            ntasks: number(table, "ntasks").filter(|&tasks| tasks > 1),
            ntasks_per_node: number(table, "ntasks-per-node"),
            cpus_per_task: number(table, "cpus-per-task"),
            sockets_per_node: number(table, "sockets-per-node"),
            exclusive: option(table, "exclusive").is_some_and(|word| is_exclusive(&word)),
            mem_per_gpu: option(table, "mem-per-gpu"),
            cpus_per_gpu: number(table, "cpus-per-gpu"),
            ntasks_per_gpu: number(table, "ntasks-per-gpu"),
            gpu_freq: option(table, "gpu-freq"),
            ..gpus
        }
    };
    options.to_request_marked(Prefix::None).ok()
}

/// The submitter as it is known here, without the user's default account and partition.
pub(crate) fn submitter(table: &LuaTable) -> Submitter {
    if is_step(table) {
        return Submitter {
            is_exempt: true,
            ..Submitter::default()
        };
    }
    let user = uzers::get_user_by_uid(uzers::get_current_uid());
    let name = user.as_ref().and_then(|user| user.name().to_str());
    Submitter {
        user: name.map(str::to_string),
        group: user.as_ref().map(|user| user.primary_group_id()),
        account: MaybeKnown::typed(option(table, "account")),
        named_partition: option(table, "partition").is_some(),
        partition: MaybeKnown::typed(option(table, "partition")),
        reservation: option(table, "reservation"),
        qos: option(table, "qos"),
        batch: option(table, "type").is_some_and(|client| client == "sbatch"),
        ..Submitter::default()
    }
}

/// The options that count something for each GPU, and the variable by which a job hands each to the srun inside it.
///
/// Slurm's client lets a filter set these but never unset them.
const PER_GPU: [(&str, &str); 3] = [
    ("mem-per-gpu", "SLURM_MEM_PER_GPU"),
    ("cpus-per-gpu", "SLURM_CPUS_PER_GPU"),
    ("ntasks-per-gpu", "SLURM_NTASKS_PER_GPU"),
];

fn per_gpu_options(table: &LuaTable) -> impl Iterator<Item = (&'static str, &'static str)> {
    PER_GPU.into_iter().filter(|(name, _)| match *name {
        "mem-per-gpu" => option(table, name).is_some(),
        count => number(table, count).is_some(),
    })
}

/// Such an option, if one is set.
pub(crate) fn per_gpu(table: &LuaTable) -> Option<&'static str> {
    per_gpu_options(table).next().map(|(name, _)| name)
}

/// True if the client is srun.
pub(crate) fn is_srun(table: &LuaTable) -> bool {
    option(table, "type").is_some_and(|client| client == "srun")
}

/// True for srun inside an allocation.
pub(crate) fn is_step(table: &LuaTable) -> bool {
    is_srun(table)
        && (option(table, "jobid").is_some() || std::env::var_os("SLURM_JOB_ID").is_some())
}

/// Writes the slice into `--gres` and clears the options it came from.
pub(crate) fn write(table: &LuaTable, decided: &Request) -> LuaResult<()> {
    table.set("gres", decided.tres_per_node.as_deref().unwrap_or(""))?;
    for name in ["gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"] {
        if option(table, name).is_some() {
            table.set(name, "")?;
        }
    }
    if option(table, "tres-per-task").is_some() {
        table.set(
            "tres-per-task",
            decided.tres_per_task.as_deref().unwrap_or(""),
        )?;
    }
    // Newer clients bind by task what was asked for by task; all tasks share the one GPU.
    if option(table, "tres-bind").is_some_and(|bind| bind.contains("per_task")) {
        table.set("tres-bind", "")?;
    }
    Ok(())
}

/// Hands job_submit what was typed, which it takes away again.
pub(crate) fn write_typed(table: &LuaTable, typed: &str) -> LuaResult<()> {
    let own = option(table, "comment").unwrap_or_default();
    table.set("comment", tag::put_typed(&own, typed))
}

/// The slice of the job that this step is of, where it has one on this node: by the job's conf, since other variables than the job's
/// number are inherited by jobs that are submitted from within a job.
pub(crate) fn slice_of_job(table: &LuaTable) -> Option<Limits> {
    let around = std::env::var("SLURM_JOB_ID").ok();
    let job = option(table, "jobid").or(around)?.parse().ok()?;
    if !is_step(table) {
        return None;
    }
    let path = identity::conf_path(job);
    let text = std::fs::read(std::str::from_utf8(path.as_bytes()).ok()?).ok()?;
    JobConf::parse(&text).ok()?.limits
}

/// An option with a figure per GPU, and the variable that has set it: sbatch leaves what was typed in the job's environment.
/// In a slice it makes srun ask for a GPU which the job does not have.
pub(crate) fn per_gpu_in_step(table: &LuaTable) -> Option<(&'static str, Option<&'static str>)> {
    let is_set = |variable: &&str| std::env::var_os(variable).is_some();
    let mut all = per_gpu_options(table);
    let (name, variable) = all.next()?;
    Some((name, Some(variable).filter(is_set)))
}

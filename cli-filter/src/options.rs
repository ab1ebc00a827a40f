//! The client's options as a request, and a decided request written back into them.

use mlua::prelude::*;
use softmig_policy::Request;
use softmig_policy::gres::Prefix;
use softmig_policy::options::Options;

/// The options that can name GPUs, and what holds them in a request.
type Field = fn(&Request) -> &Option<String>;
const TRES: [(&str, Field); 4] = [
    ("gpus", |request| &request.tres_per_job),
    ("gpus-per-task", |request| &request.tres_per_task),
    ("gpus-per-socket", |request| &request.tres_per_socket),
    ("tres-per-task", |request| &request.tres_per_task),
];

/// A set option; Slurm marks the unset ones with a word of its own in some releases.
fn option(table: &LuaTable, name: &str) -> Option<String> {
    table
        .get::<Option<LuaString>>(name)
        .ok()
        .flatten()
        .map(|value| value.to_string_lossy())
        .filter(|value| !value.is_empty() && value != "invalid-context")
}

fn number(table: &LuaTable, name: &str) -> Option<u32> {
    option(table, name)?
        .parse()
        .ok()
        .filter(|&number| number > 0)
}

/// The request; `None` when no option names GPUs.
pub(crate) fn read(table: &LuaTable) -> Option<Request> {
    let gpus = Options {
        gres: option(table, "gres"),
        gpus: option(table, "gpus"),
        gpus_per_node: option(table, "gpus-per-node"),
        gpus_per_task: option(table, "gpus-per-task"),
        gpus_per_socket: option(table, "gpus-per-socket"),
        tres_per_task: option(table, "tres-per-task"),
        ..Options::default()
    };
    if gpus == Options::default() {
        return None;
    }
    // A step takes its part of a job that was decided on before: which nodes and tasks it has is the job's matter,
    // and --exclusive means CPUs of its own there.
    let options = if is_step(table) {
        Options {
            // Older clients give a step's own tasks here; per task is per step all the same.
            ntasks: number(table, "ntasks"),
            ..gpus
        }
    } else {
        Options {
            nodes: option(table, "nodes"),
            ntasks: number(table, "ntasks"),
            cpus_per_task: number(table, "cpus-per-task"),
            sockets_per_node: number(table, "sockets-per-node"),
            exclusive: option(table, "exclusive").is_some_and(|value| value == "exclusive"),
            mem_per_gpu: option(table, "mem-per-gpu"),
            cpus_per_gpu: number(table, "cpus-per-gpu"),
            ntasks_per_gpu: number(table, "ntasks-per-gpu"),
            gpu_freq: option(table, "gpu-freq"),
            ..gpus
        }
    };
    options.to_request_marked(Prefix::None).ok()
}

/// Whether this is an srun inside an allocation.
fn is_step(table: &LuaTable) -> bool {
    option(table, "type").is_some_and(|client| client == "srun")
        && (option(table, "jobid").is_some() || std::env::var_os("SLURM_JOB_ID").is_some())
}

/// Writes the slice into `--gres` and clears the option it came from.
pub(crate) fn write(table: &LuaTable, came: &Request, decided: &Request) -> LuaResult<()> {
    table.set("gres", decided.tres_per_node.as_deref().unwrap_or(""))?;
    if option(table, "gpus-per-node").is_some() {
        table.set("gpus-per-node", "")?;
    }
    for (name, field) in TRES {
        if field(came) != field(decided) && option(table, name).is_some() {
            let kept = field(decided)
                .as_deref()
                .filter(|_| name == "tres-per-task");
            table.set(name, kept.unwrap_or(""))?;
        }
    }
    Ok(())
}

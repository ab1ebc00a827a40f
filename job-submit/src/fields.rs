//! Slurm's job description as a request, and a decided request written back into it.

use mlua::prelude::*;
use softmig_policy::{Request, Terms};

/// Slurm's "not set", in the widths that job descriptions have.
const NO_VAL16: u32 = 0xfffe;
const NO_VAL: u32 = 0xffff_fffe;

/// A text field; `None` when unset, and when it is no text.
///
/// What is not UTF-8 cannot be a request and is only looked through for the tag.
pub(crate) fn text(table: &LuaTable, name: &str) -> Option<String> {
    table
        .get::<Option<LuaString>>(name)
        .ok()
        .flatten()
        .map(|text| text.to_string_lossy())
}

/// A user's or group's number, of which 0 is one.
pub(crate) fn id(table: &LuaTable, name: &str) -> Option<u32> {
    id_of(&table.get::<LuaValue>(name).ok()?)
}

/// The same of a value.
pub(crate) fn id_of(value: &LuaValue) -> Option<u32> {
    // A Lua without integers has floats; mlua casts neither into the other.
    match *value {
        LuaValue::Integer(id) => u32::try_from(id).ok().filter(|id| *id < NO_VAL),
        LuaValue::Number(id) => (0.0..f64::from(NO_VAL)).contains(&id).then_some(id as u32),
        _ => None,
    }
}

/// MiB of memory; 0 is all that a node has.
fn memory(table: &LuaTable, name: &str) -> Option<u64> {
    // Beyond what any node has are Slurm's marks for "not set".
    const MOST: f64 = (1u64 << 50) as f64;
    let value = table.get::<Option<f64>>(name).ok().flatten()?;
    (0.0..MOST).contains(&value).then_some(value as u64)
}

/// A number; `None` when unset. Lua 5.4 hands all of Slurm's numbers over as floats.
pub(crate) fn number(table: &LuaTable, name: &str) -> Option<u32> {
    let value = table.get::<Option<f64>>(name).ok().flatten()?;
    let unset = value < 1.0 || value >= f64::from(NO_VAL);
    (!unset).then_some(value as u32)
}

/// A time limit in minutes; no limit at all is the longest.
pub(crate) fn time_limit(table: &LuaTable) -> Option<u32> {
    let value = table.get::<Option<f64>>("time_limit").ok().flatten()?;
    let unset = value < 1.0 || value == f64::from(NO_VAL);
    (!unset).then_some(value as u32)
}

/// A number that is 16 bits wide in Slurm.
fn short(table: &LuaTable, name: &str) -> Option<u32> {
    number(table, name).filter(|&value| value < NO_VAL16)
}

/// Only the fields that can mean GPUs. Most jobs have none, and are through with that.
pub(crate) fn read_gpus(table: &LuaTable) -> Request {
    let field = |name| text(table, name).filter(|text| !text.is_empty());
    Request {
        tres_per_node: field("tres_per_node"),
        tres_per_job: field("tres_per_job"),
        tres_per_socket: field("tres_per_socket"),
        tres_per_task: field("tres_per_task"),
        ntasks_per_tres: short(table, "ntasks_per_tres"),
        // JOB_SHARED_NONE; unset is NO_VAL16.
        exclusive: table
            .get::<Option<f64>>("shared")
            .is_ok_and(|shared| shared == Some(0.0)),
        ..Request::default()
    }
}

/// All that a decision looks at.
pub(crate) fn read(table: &LuaTable) -> Request {
    read_rest(table, read_gpus(table))
}

/// The rest of a request whose GPUs are read.
pub(crate) fn read_rest(table: &LuaTable, gpus: Request) -> Request {
    let field = |name| text(table, name).filter(|text| !text.is_empty());
    Request {
        tres_bind: field("tres_bind"),
        tres_freq: field("tres_freq"),
        cpus_per_tres: field("cpus_per_tres"),
        mem_per_tres: field("mem_per_tres"),
        min_nodes: number(table, "min_nodes"),
        max_nodes: number(table, "max_nodes"),
        num_tasks: number(table, "num_tasks"),
        ntasks_per_node: short(table, "ntasks_per_node"),
        cpus_per_task: short(table, "cpus_per_task"),
        min_cpus: number(table, "min_cpus"),
        min_cpus_per_node: short(table, "pn_min_cpus"),
        sockets_per_node: short(table, "sockets_per_node"),
        memory_per_node: memory(table, "min_mem_per_node"),
        memory_per_cpu: memory(table, "min_mem_per_cpu"),
        ..gpus
    }
}

/// Writes the QOS and the partition that the job is to have.
pub(crate) fn write_terms(table: &LuaTable, terms: &Terms) -> LuaResult<()> {
    for (name, text) in [("qos", &terms.qos), ("partition", &terms.partition)] {
        if let Some(text) = text {
            table.set(name, text.as_str())?;
        }
    }
    Ok(())
}

/// Keeps the job off more nodes than its user names.
pub(crate) fn keep_off(table: &LuaTable, nodes: &str) -> LuaResult<()> {
    match text(table, "exc_nodes").filter(|own| !own.is_empty()) {
        Some(own) => table.set("exc_nodes", format!("{own},{nodes}")),
        None => table.set("exc_nodes", nodes),
    }
}

/// Writes what differs between the request as it came and as it was decided.
pub(crate) fn write(table: &LuaTable, came: &Request, decided: &Request) -> LuaResult<()> {
    let text = |name: &str, came: &Option<String>, decided: &Option<String>| {
        if came == decided {
            return Ok(());
        }
        // The empty text clears a field; nil would raise an error.
        table.set(name, decided.as_deref().unwrap_or(""))
    };
    text("tres_per_node", &came.tres_per_node, &decided.tres_per_node)?;
    text("tres_per_job", &came.tres_per_job, &decided.tres_per_job)?;
    text(
        "tres_per_socket",
        &came.tres_per_socket,
        &decided.tres_per_socket,
    )?;
    text("tres_per_task", &came.tres_per_task, &decided.tres_per_task)?;
    text("tres_bind", &came.tres_bind, &decided.tres_bind)?;
    text("cpus_per_tres", &came.cpus_per_tres, &decided.cpus_per_tres)?;
    text("mem_per_tres", &came.mem_per_tres, &decided.mem_per_tres)?;
    let number = |name: &str, came: Option<u32>, decided: Option<u32>, unset: u32| {
        if came == decided {
            return Ok(());
        }
        table.set(name, decided.unwrap_or(unset))
    };
    number(
        "ntasks_per_tres",
        came.ntasks_per_tres,
        decided.ntasks_per_tres,
        NO_VAL16,
    )?;
    number("min_nodes", came.min_nodes, decided.min_nodes, NO_VAL)?;
    number("max_nodes", came.max_nodes, decided.max_nodes, NO_VAL)?;
    number("num_tasks", came.num_tasks, decided.num_tasks, NO_VAL)?;
    number(
        "cpus_per_task",
        came.cpus_per_task,
        decided.cpus_per_task,
        NO_VAL16,
    )?;
    number("min_cpus", came.min_cpus, decided.min_cpus, NO_VAL)?;
    match decided.memory_per_node {
        Some(mib) if came.memory_per_node != decided.memory_per_node => {
            table.set("min_mem_per_node", mib)
        }
        _ => Ok(()),
    }
}

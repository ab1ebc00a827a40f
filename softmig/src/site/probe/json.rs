//! The public JSON form of a node's GPUs (docs/check.md): fields are added to it, and none is renamed or taken away.

use super::catalogue::Entry;
use super::findings::Findings;
use anyhow::Context;
use serde_json::{Value, json};
use softmig_nvml::{Gpu, Instance, Memory, MigState};

/// One object, indented.
pub(super) fn encode(findings: &Findings) -> anyhow::Result<String> {
    let devices = &findings.devices;
    let json = json!({
        "host": findings.host,
        "driver": devices.driver,
        "complete": findings.is_complete(),
        "physical_gpus": devices.gpus.len(),
        "mig_instances": devices.instances(),
        "usable_devices": devices.usable(),
        "gpus": devices.gpus.iter().map(of_gpu).collect::<Value>(),
        "types": findings.catalogue.entries.iter().map(of_type).collect::<Value>(),
        "inventory": findings.catalogue.gpus(),
        "notes": findings.notes,
    });
    let text = serde_json::to_string_pretty(&json).context("writing JSON")?;
    Ok(text + "\n")
}

fn of_gpu(gpu: &Gpu) -> Value {
    let state = match gpu.standing {
        MigState::Whole => "whole",
        MigState::Divided => "divided",
        MigState::Empty => "mig_without_instances",
        MigState::Unreadable => "unreadable",
    };
    json!({
        "index": gpu.index,
        "minor": gpu.minor,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "memory": gpu.memory.as_ref().map(of_memory),
        "mig": gpu.mig.map(|mig| json!({ "current": mig.current, "pending": mig.pending })),
        "state": state,
        "instances": gpu.instances.iter().map(of_instance).collect::<Value>(),
        "error": gpu.error,
    })
}

fn of_instance(part: &Instance) -> Value {
    json!({
        "index": part.index,
        "uuid": part.uuid,
        "profile": part.profile,
        "memory": part.memory.as_ref().map(of_memory),
        "shares_memory": part.shares_memory,
    })
}

fn of_memory(memory: &Memory) -> Value {
    json!({
        "total_mib": memory.total_mib(),
        "reserved_mib": memory.reserved_mib(),
        "usable_mib": memory.usable_mib(),
    })
}

fn of_type(entry: &Entry) -> Value {
    json!({
        "type": entry.name,
        "product": entry.product,
        "profile": entry.profile,
        "mig": entry.mig(),
        "memory": entry.memory.as_ref().map(of_memory),
        "suggested_shards": entry.shards(),
        "autodetect_type": entry.autodetected(),
    })
}

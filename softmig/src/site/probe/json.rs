//! The public JSON form of a node's GPUs (docs/check.md): fields are added to it, and none is renamed or taken away.

use super::catalogue::Entry;
use super::findings::{Findings, Note};
use anyhow::Context;
use serde::Serialize;
use softmig_nvml::{Gpu, Instance, Memory, MigState};

/// One object, indented.
pub(super) fn encode(findings: &Findings) -> anyhow::Result<String> {
    let devices = &findings.devices;
    let json = Json {
        host: &findings.host,
        driver: devices.driver.as_deref(),
        complete: findings.is_complete(),
        physical_gpus: devices.gpus.len(),
        mig_instances: devices.instances(),
        usable_devices: devices.usable(),
        gpus: devices.gpus.iter().map(JsonGpu::new).collect(),
        types: findings
            .catalogue
            .entries
            .iter()
            .map(JsonType::new)
            .collect(),
        inventory: findings.catalogue.gpus(),
        notes: &findings.notes,
    };
    let text = serde_json::to_string_pretty(&json).context("writing JSON")?;
    Ok(text + "\n")
}

#[derive(Serialize)]
struct Json<'a> {
    host: &'a str,
    driver: Option<&'a str>,
    complete: bool,
    physical_gpus: usize,
    mig_instances: usize,
    usable_devices: usize,
    gpus: Vec<JsonGpu<'a>>,
    types: Vec<JsonType<'a>>,
    inventory: Vec<String>,
    notes: &'a [Note],
}

#[derive(Serialize)]
struct JsonGpu<'a> {
    index: u32,
    minor: Option<u32>,
    uuid: Option<&'a str>,
    name: Option<&'a str>,
    memory: Option<JsonMemory>,
    mig: Option<JsonMig>,
    state: &'static str,
    instances: Vec<JsonInstance<'a>>,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct JsonMig {
    current: bool,
    pending: bool,
}

#[derive(Serialize)]
struct JsonInstance<'a> {
    index: u32,
    uuid: &'a str,
    profile: &'a str,
    memory: Option<JsonMemory>,
    shares_memory: bool,
}

#[derive(Serialize)]
struct JsonMemory {
    total_mib: u64,
    reserved_mib: u64,
    usable_mib: u64,
}

#[derive(Serialize)]
struct JsonType<'a> {
    r#type: &'a str,
    product: &'a str,
    profile: Option<&'a str>,
    mig: bool,
    memory: Option<JsonMemory>,
    suggested_shards: u32,
    autodetect_type: String,
}

impl JsonMemory {
    fn new(memory: &Memory) -> Self {
        Self {
            total_mib: memory.total_mib(),
            reserved_mib: memory.reserved_mib(),
            usable_mib: memory.usable_mib(),
        }
    }
}

impl<'a> JsonGpu<'a> {
    fn new(gpu: &'a Gpu) -> Self {
        Self {
            index: gpu.index,
            minor: gpu.minor,
            uuid: gpu.uuid.as_deref(),
            name: gpu.name.as_deref(),
            memory: gpu.memory.as_ref().map(JsonMemory::new),
            mig: gpu.mig.map(|mig| JsonMig {
                current: mig.current,
                pending: mig.pending,
            }),
            state: match gpu.standing {
                MigState::Whole => "whole",
                MigState::Divided => "divided",
                MigState::Empty => "mig_without_instances",
                MigState::Unreadable => "unreadable",
            },
            instances: gpu.instances.iter().map(JsonInstance::new).collect(),
            error: gpu.error.as_deref(),
        }
    }
}

impl<'a> JsonInstance<'a> {
    fn new(part: &'a Instance) -> Self {
        Self {
            index: part.index,
            uuid: &part.uuid,
            profile: &part.profile,
            memory: part.memory.as_ref().map(JsonMemory::new),
            shares_memory: part.shares_memory,
        }
    }
}

impl<'a> JsonType<'a> {
    fn new(entry: &'a Entry) -> Self {
        Self {
            r#type: &entry.name,
            product: &entry.product,
            profile: entry.profile.as_deref(),
            mig: entry.mig(),
            memory: entry.memory.as_ref().map(JsonMemory::new),
            suggested_shards: entry.shards(),
            autodetect_type: entry.autodetected(),
        }
    }
}

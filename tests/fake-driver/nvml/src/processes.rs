//! The processes of a GPU, and their memory.

use softmig_driver_sys::nvml::*;
use softmig_driver_sys::struct_version;
use softmig_fake_node::{Bytes, Instance, Kind};

use crate::exports::exports;
use crate::session::Session;
use crate::unit::{Unit, unit};
use crate::{Out, Outcome};

exports! {
    /// Processes that compute, as NVML first told them.
    fn nvmlDeviceGetComputeRunningProcesses(
        device: nvmlDevice_t, count: Out<u32>, out: Out<nvmlProcessInfo_v1_t>
    ) => unit(device, |session, unit| fill(count, out, &running(session, unit, false), User::first));

    /// Processes that compute.
    fn nvmlDeviceGetComputeRunningProcesses_v2(
        device: nvmlDevice_t, count: Out<u32>, out: Out<nvmlProcessInfo_v2_t>
    ) => unit(device, |session, unit| fill(count, out, &running(session, unit, false), User::second));

    /// Processes that compute.
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: nvmlDevice_t, count: Out<u32>, out: Out<nvmlProcessInfo_t>
    ) => unit(device, |session, unit| fill(count, out, &running(session, unit, false), User::second));

    /// Processes that draw: there are none.
    fn nvmlDeviceGetGraphicsRunningProcesses(
        device: nvmlDevice_t, count: Out<u32>, out: Out<nvmlProcessInfo_v1_t>
    ) => unit(device, |_, _| fill(count, out, &[], User::first));

    /// Processes that draw: there are none.
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(
        device: nvmlDevice_t, count: Out<u32>, out: Out<nvmlProcessInfo_v2_t>
    ) => unit(device, |_, _| fill(count, out, &[], User::second));

    /// Processes that draw: there are none.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(
        device: nvmlDevice_t, count: Out<u32>, out: Out<nvmlProcessInfo_t>
    ) => unit(device, |_, _| fill(count, out, &[], User::second));

    /// Processes that compute through an MPS server.
    fn nvmlDeviceGetMPSComputeRunningProcesses(
        device: nvmlDevice_t, count: Out<u32>, out: Out<nvmlProcessInfo_v1_t>
    ) => unit(device, |session, unit| fill(count, out, &running(session, unit, true), User::first));

    /// Processes that compute through an MPS server.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
        device: nvmlDevice_t, count: Out<u32>, out: Out<nvmlProcessInfo_v2_t>
    ) => unit(device, |session, unit| fill(count, out, &running(session, unit, true), User::second));

    /// Processes that compute through an MPS server.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
        device: nvmlDevice_t, count: Out<u32>, out: Out<nvmlProcessInfo_t>
    ) => unit(device, |session, unit| fill(count, out, &running(session, unit, true), User::second));

    /// Processes of one kind: 0 computes, 1 draws, 2 computes through an MPS server.
    fn nvmlDeviceGetRunningProcessDetailList(device: nvmlDevice_t, list: Out<nvmlProcessDetailList_t>) =>
        unit(device, |session, unit| details(session, unit, list));
}

/// A process that has memory of a GPU.
#[derive(Clone, Copy, Debug)]
struct User {
    pid: u32,
    bytes: u64,
    /// Numbers of the GPU instance and the compute instance; all ones where there are none.
    instance: (u32, u32),
}

impl User {
    fn first(self) -> nvmlProcessInfo_v1_t {
        nvmlProcessInfo_v1_t {
            pid: self.pid,
            usedGpuMemory: self.bytes,
        }
    }

    fn second(self) -> nvmlProcessInfo_v2_t {
        nvmlProcessInfo_v2_t {
            pid: self.pid,
            usedGpuMemory: self.bytes,
            gpuInstanceId: self.instance.0,
            computeInstanceId: self.instance.1,
        }
    }

    fn detail(self) -> nvmlProcessDetail_v1_t {
        nvmlProcessDetail_v1_t {
            pid: self.pid,
            usedGpuMemory: self.bytes,
            gpuInstanceId: self.instance.0,
            computeInstanceId: self.instance.1,
            usedGpuCcProtectedMemory: 0,
        }
    }
}

/// Users of its memory, which are clients of an MPS server or are not. A process in a pid namespace that cannot be seen from here is left out, as in containers.
fn running(session: &Session, unit: Unit, are_clients: bool) -> Vec<User> {
    let usage = session.node.usage();
    let mut users = Vec::new();
    for (number, part) in unit.devices(session) {
        let mut known: Vec<(u32, Bytes)> = Vec::new();
        let processes = usage.get(number).map(|device| &device.processes);
        let processes = processes.into_iter().flatten();
        for process in processes.filter(|it| it.is_client == are_clients) {
            let Some(pid) = process.pid else {
                continue;
            };
            // One that loaded the driver twice takes part twice.
            match known.iter_mut().find(|(other, _)| *other == pid) {
                Some((_, bytes)) => bytes.add_all(&process.bytes),
                None => known.push((pid, process.bytes)),
            }
        }
        let instance = numbers(part);
        // Memory alone, without a context, does not show who has it (seen on an H200).
        known.retain(|(_, bytes)| bytes.of(Kind::Context) > 0);
        if session.node.description().unlisted {
            known.retain(|(pid, _)| *pid != std::process::id());
        }
        users.extend(known.into_iter().map(|(pid, bytes)| User {
            pid,
            bytes: bytes.seen_by_nvml(),
            instance,
        }));
    }
    users
}

/// The numbers of a part, which has one compute instance.
fn numbers(part: Option<&Instance>) -> (u32, u32) {
    part.map_or((u32::MAX, u32::MAX), |part| (part.id, 0))
}

/// Fills the caller's array, or says how long it must be.
fn fill<T: Copy>(
    count: Out<u32>,
    out: Out<T>,
    users: &[User],
    form: impl Fn(User) -> T,
) -> Outcome {
    let room = count.get()? as usize;
    count.set(users.len() as u32)?;
    if room < users.len() {
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    for (index, user) in users.iter().enumerate() {
        out.set_at(index, form(*user))?;
    }
    Ok(())
}

fn details(session: &Session, unit: Unit, list: Out<nvmlProcessDetailList_t>) -> Outcome {
    let mut asked = list.get()?;
    if asked.version != struct_version::<nvmlProcessDetailList_t>(1) {
        return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let users = match asked.mode {
        0 => running(session, unit, false),
        1 => Vec::new(),
        2 => running(session, unit, true),
        _ => return Err(NVML_ERROR_INVALID_ARGUMENT),
    };
    let room = asked.numProcArrayEntries as usize;
    asked.numProcArrayEntries = users.len() as u32;
    list.set(asked)?;
    if room < users.len() {
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller's array has as many entries as it said, which are enough.
    let out: Out<nvmlProcessDetail_v1_t> =
        unsafe { softmig_fake_node::edge::Edge::from_raw(asked.procArray) };
    for (index, user) in users.iter().enumerate() {
        out.set_at(index, user.detail())?;
    }
    Ok(())
}

//! NVML's accounts of processes, dead ones included, where the node keeps them.

use softmig_driver_sys::nvml::*;
use softmig_fake_node::ProcessUsage;

use crate::Out;
use crate::exports::exports;
use crate::session::Session;
use crate::unit::{Unit, unit};

exports! {
    /// Whether accounts are kept.
    fn nvmlDeviceGetAccountingMode(device: nvmlDevice_t, out: Out<nvmlEnableState_t>) => unit(device, |session, _| {
        let kept = session.node.description().accounting;
        out.set(if kept { NVML_FEATURE_ENABLED } else { NVML_FEATURE_DISABLED })
    });

    /// The processes of which there are accounts; none where none are kept.
    fn nvmlDeviceGetAccountingPids(device: nvmlDevice_t, count: Out<u32>, out: Out<u32>) =>
        unit(device, |session, unit| {
            let pids: Vec<u32> = accounts(session, unit).iter().filter_map(|process| process.pid).collect();
            let room = count.get()? as usize;
            count.set(pids.len() as u32)?;
            if room < pids.len() {
                return Err(NVML_ERROR_INSUFFICIENT_SIZE);
            }
            for (index, pid) in pids.into_iter().enumerate() {
                out.set_at(index, pid)?;
            }
            Ok(())
        });

    /// The account of a process.
    fn nvmlDeviceGetAccountingStats(device: nvmlDevice_t, pid: u32, out: Out<nvmlAccountingStats_t>) =>
        unit(device, |session, unit| {
            let accounts = accounts(session, unit);
            let process = accounts.iter().rfind(|process| process.pid == Some(pid));
            out.set(account(session, process.ok_or(NVML_ERROR_NOT_FOUND)?))
        });
}

fn accounts(session: &Session, unit: Unit) -> Vec<ProcessUsage> {
    if !session.node.description().accounting {
        return Vec::new();
    }
    let devices = unit.devices(session).into_iter();
    devices
        .flat_map(|(number, _)| session.node.history(number))
        .collect()
}

fn account(session: &Session, process: &ProcessUsage) -> nvmlAccountingStats_t {
    let now = process.left.unwrap_or_else(|| session.node.now());
    let lifetime = now.saturating_sub(process.joined).max(1);
    nvmlAccountingStats_t {
        gpuUtilization: (process.busy.min(lifetime) * 100 / lifetime) as u32,
        memoryUtilization: 0,
        maxMemoryUsage: process.peak,
        // Milliseconds; 0 while it runs, as the manual says.
        time: process.left.map_or(0, |_| lifetime / 1_000_000),
        // Microseconds.
        startTime: process.joined / 1000,
        isRunning: u32::from(process.left.is_none()),
        reserved: [0; 5],
    }
}

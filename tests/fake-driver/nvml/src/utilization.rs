//! How busy a GPU was, and for whom.

use std::time::{SystemTime, UNIX_EPOCH};

use softmig_driver_sys::nvml::*;
use softmig_driver_sys::struct_version;
use softmig_fake_node::{Clock, Instance};

use crate::exports::exports;
use crate::session::Session;
use crate::unit::{Unit, unit};
use crate::{Out, Outcome};

/// The stretch of time that figures are about, in nanoseconds.
const PERIOD: u64 = 1_000_000_000;
/// How many samples the driver says to make room for, however many there are (seen on an H200).
const ROOM: usize = 72;

exports! {
    /// How much of the last second it worked, in percent. Its memory is never busy.
    fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, out: Out<nvmlUtilization_t>) =>
        unit(device, |session, unit| {
            let devices = undivided(session, unit)?;
            let busy = devices.iter().map(|(number, _)| session.node.worked(*number, since(session), u64::MAX));
            let time: u64 = busy.flatten().map(|(_, time)| time).sum();
            out.set(nvmlUtilization_t { gpu: percent(time), memory: 0 })
        });

    /// A sample of each process that worked in the last second and after a time that the caller knows.
    fn nvmlDeviceGetProcessUtilization(
        device: nvmlDevice_t, out: Out<nvmlProcessUtilizationSample_t>, count: Out<u32>, after: u64
    ) => unit(device, |session, unit| {
        let samples = samples(session, unit, after)?;
        let room = count.get()? as usize;
        if !out.is_wanted() || room < samples.len() {
            count.set(ROOM as u32)?;
            return Err(NVML_ERROR_INSUFFICIENT_SIZE);
        }
        count.set(samples.len() as u32)?;
        if samples.is_empty() {
            return Err(NVML_ERROR_NOT_FOUND);
        }
        for (index, sample) in samples.iter().enumerate() {
            out.set_at(index, nvmlProcessUtilizationSample_t {
                pid: sample.pid,
                timeStamp: sample.time,
                smUtil: sample.percent,
                memUtil: 0,
                encUtil: 0,
                decUtil: 0,
            })?;
        }
        Ok(())
    });

    /// The same in one struct.
    fn nvmlDeviceGetProcessesUtilizationInfo(device: nvmlDevice_t, list: Out<nvmlProcessesUtilizationInfo_t>) =>
        unit(device, |session, unit| information(session, unit, list));
}

/// How busy a process kept a GPU.
struct Sample {
    pid: u32,
    /// Microseconds.
    time: u64,
    percent: u32,
}

/// Its devices; the driver has no such figures of divided GPUs.
fn undivided(session: &Session, unit: Unit) -> Outcome<Vec<(usize, Option<&'static Instance>)>> {
    if unit.gpu.instances().is_empty() {
        Ok(unit.devices(session))
    } else {
        Err(NVML_ERROR_NOT_SUPPORTED)
    }
}

/// Where the last second begins, on the node's clock.
fn since(session: &Session) -> u64 {
    session.node.now().saturating_sub(PERIOD)
}

fn percent(time: u64) -> u32 {
    (time * 100).div_ceil(PERIOD).min(100) as u32
}

fn samples(session: &Session, unit: Unit, after: u64) -> Outcome<Vec<Sample>> {
    let time = stamp(session);
    let mut samples = Vec::new();
    if time <= after {
        return Ok(samples);
    }
    let now = session.node.now();
    for (number, _) in undivided(session, unit)? {
        let processes = session.node.history(number);
        for (slot, busy) in session.node.worked(number, since(session), now) {
            let process = processes.iter().find(|process| process.slot == slot);
            if let Some(pid) = process.and_then(|process| process.pid) {
                samples.push(Sample {
                    pid,
                    time,
                    percent: percent(busy),
                });
            }
        }
    }
    Ok(samples)
}

/// Microseconds: since 1970 as the real ones, or of the clock that the test drives.
fn stamp(session: &Session) -> u64 {
    match session.node.description().clock {
        Clock::Driven => session.node.now() / 1000,
        Clock::Real => {
            let time = SystemTime::now().duration_since(UNIX_EPOCH);
            time.map_or(0, |time| time.as_micros() as u64)
        }
    }
}

fn information(
    session: &Session,
    unit: Unit,
    list: Out<nvmlProcessesUtilizationInfo_t>,
) -> Outcome {
    let mut asked = list.get()?;
    if asked.version != struct_version::<nvmlProcessesUtilizationInfo_t>(1) {
        return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let samples = samples(session, unit, asked.lastSeenTimeStamp)?;
    let room = asked.processSamplesCount as usize;
    if asked.procUtilArray.is_null() || room < samples.len() {
        asked.processSamplesCount = ROOM as u32;
        list.set(asked)?;
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    asked.processSamplesCount = samples.len() as u32;
    list.set(asked)?;
    if samples.is_empty() {
        return Err(NVML_ERROR_NOT_FOUND);
    }
    // SAFETY: the caller's array has as many entries as it said, which are enough.
    let out: Out<nvmlProcessUtilizationInfo_v1_t> =
        unsafe { softmig_fake_node::edge::Edge::from_raw(asked.procUtilArray) };
    for (index, sample) in samples.iter().enumerate() {
        let entry = nvmlProcessUtilizationInfo_v1_t {
            timeStamp: sample.time,
            pid: sample.pid,
            smUtil: sample.percent,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
            jpgUtil: 0,
            ofaUtil: 0,
        };
        out.set_at(index, entry)?;
    }
    Ok(())
}

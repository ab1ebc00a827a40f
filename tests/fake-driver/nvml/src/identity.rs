//! Which GPUs there are, and what each is called.

use std::ffi::c_char;

use softmig_driver_sys::nvml::*;

use crate::exports::exports;
use crate::session::{Session, session};
use crate::system::text;
use crate::unit::{Unit, unit};
use crate::{In, Out, Outcome};

exports! {
    /// How many GPUs the process has.
    fn nvmlDeviceGetCount_v2(out: Out<u32>) =>
        session(|session| out.set(u32::try_from(session.gpus.len()).unwrap_or(u32::MAX)));

    /// A GPU by its index among those that the process has.
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, out: Out<nvmlDevice_t>) => session(|session| {
        let number = session.gpus.get(index as usize).ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
        out.set(Unit::of_gpu(session, *number)?.handle())
    });

    /// A GPU or a part of one, by its UUID.
    fn nvmlDeviceGetHandleByUUID(uuid: In<c_char>, out: Out<nvmlDevice_t>) => session(|session| {
        let uuid = uuid.text()?;
        let found = all(session)?.into_iter().find(|unit| unit.uuid() == uuid);
        out.set(found.ok_or(NVML_ERROR_NOT_FOUND)?.handle())
    });

    /// A GPU by its place on the PCI bus.
    fn nvmlDeviceGetHandleByPciBusId_v2(bus: In<c_char>, out: Out<nvmlDevice_t>) => session(|session| {
        let wanted = Bus::parse(&bus.text()?).ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
        let gpus = all(session)?.into_iter().filter(|unit| unit.part.is_none());
        let found = gpus.into_iter().find(|unit| Bus::parse(&unit.gpu.bus) == Some(wanted));
        out.set(found.ok_or(NVML_ERROR_NOT_FOUND)?.handle())
    });

    /// A GPU's index among those that the process has; a part's within its GPU.
    fn nvmlDeviceGetIndex(device: nvmlDevice_t, out: Out<u32>) => unit(device, |session, unit| {
        let index = match unit.part {
            Some((part, _)) => Some(part),
            None => session.gpus.iter().position(|number| *number == unit.number),
        };
        out.set(index.ok_or(NVML_ERROR_INVALID_ARGUMENT)? as u32)
    });

    /// Its UUID.
    fn nvmlDeviceGetUUID(device: nvmlDevice_t, out: Out<c_char>, size: u32) =>
        unit(device, |_, unit| text(out, size, unit.uuid()));

    /// Its model's name.
    fn nvmlDeviceGetName(device: nvmlDevice_t, out: Out<c_char>, size: u32) => unit(device, |_, unit| {
        let name = match unit.part {
            Some((_, part)) => format!("{} MIG {}", unit.gpu.name, part.profile),
            None => unit.gpu.name.clone(),
        };
        text(out, size, &name)
    });

    /// N of its `/dev/nvidiaN`.
    fn nvmlDeviceGetMinorNumber(device: nvmlDevice_t, out: Out<u32>) => unit(device, |_, unit| {
        match unit.part {
            Some(_) => Err(NVML_ERROR_NOT_SUPPORTED),
            None => out.set(unit.gpu.minor),
        }
    });

    /// Its place on the PCI bus.
    fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, out: Out<nvmlPciInfo_t>) => unit(device, |_, unit| {
        let bus = Bus::parse(&unit.gpu.bus).ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
        out.set(nvmlPciInfo_t {
            busIdLegacy: chars(&format!("{:04X}:{:02X}:{:02X}.0", bus.domain, bus.bus, bus.device)),
            domain: bus.domain,
            bus: bus.bus,
            device: bus.device,
            pciDeviceId: unit.gpu.pci,
            pciSubSystemId: unit.gpu.pci,
            busId: chars(&format!("{:08X}:{:02X}:{:02X}.0", bus.domain, bus.bus, bus.device)),
        })
    });
}

/// All GPUs of the process and their parts.
fn all(session: &Session) -> Outcome<Vec<Unit>> {
    let mut units = Vec::new();
    for number in &session.gpus {
        let unit = Unit::of_gpu(session, *number)?;
        units.push(unit);
        for part in 0..unit.gpu.instances().len() {
            units.push(unit.part(part)?);
        }
    }
    Ok(units)
}

/// A place on the PCI bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bus {
    domain: u32,
    bus: u32,
    device: u32,
}

impl Bus {
    /// Reads `0000:21:00.0`, with more digits before the first colon, or none of it.
    fn parse(text: &str) -> Option<Bus> {
        let (head, function) = text.split_once('.')?;
        let mut numbers = head
            .rsplit(':')
            .map(|digits| u32::from_str_radix(digits, 16));
        let device = numbers.next()?.ok()?;
        let bus = numbers.next()?.ok()?;
        let domain = numbers.next().unwrap_or(Ok(0)).ok()?;
        (function == "0" && numbers.next().is_none()).then_some(Bus {
            domain,
            bus,
            device,
        })
    }
}

/// A text in a field of `N` characters, cut to fit.
fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    for (to, from) in chars.iter_mut().zip(text.bytes().take(N - 1)) {
        *to = from as c_char;
    }
    chars
}

//! How much memory there is, and how much of it is taken.

use softmig_driver_sys::nvml::*;
use softmig_driver_sys::struct_version;
use softmig_fake_node::Answers;

use crate::exports::exports;
use crate::session::Session;
use crate::unit::{Unit, unit};
use crate::{Out, Outcome};

exports! {
    /// Total, free and used. Reserved memory counts as used.
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, out: Out<nvmlMemory_t>) => unit(device, |session, unit| {
        let figures = Figures::of(session, unit)?;
        out.set(nvmlMemory_t {
            total: figures.total,
            free: figures.free(),
            used: figures.used + figures.reserved,
        })
    });

    /// Total, reserved, free and used.
    fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, out: Out<nvmlMemory_v2_t>) => unit(device, |session, unit| {
        let version = out.get()?.version;
        if version != struct_version::<nvmlMemory_v2_t>(2) {
            // Of all codes this one, on an H200.
            return Err(NVML_ERROR_FUNCTION_NOT_FOUND);
        }
        if unit.gpu.answers == Answers::NoMemoryV2 {
            return Err(NVML_ERROR_NOT_SUPPORTED);
        }
        let figures = Figures::of(session, unit)?;
        out.set(nvmlMemory_v2_t {
            version,
            total: figures.total,
            reserved: figures.reserved,
            free: figures.free(),
            used: figures.used,
        })
    });
}

/// Bytes.
struct Figures {
    total: u64,
    reserved: u64,
    used: u64,
}

impl Figures {
    fn of(session: &Session, unit: Unit) -> Outcome<Figures> {
        let usage = session.node.usage();
        let mut used = 0;
        for (number, _) in unit.devices(session) {
            used += usage.get(number).map_or(0, |device| device.used);
        }
        Ok(match unit.part {
            Some((_, part)) => Figures {
                total: part.memory,
                reserved: 0,
                used,
            },
            None => Figures {
                total: unit.gpu.memory,
                reserved: unit.gpu.reserved,
                used,
            },
        })
    }

    fn free(&self) -> u64 {
        self.total.saturating_sub(self.reserved + self.used)
    }
}

//! The unit of a handle: a GPU, or a part of a divided one.

use softmig_driver_sys::nvml::*;
use softmig_fake_node::edge::handle;
use softmig_fake_node::{Gpu, Instance};

use crate::Outcome;
use crate::session::{Session, session};

/// A GPU, or a part of one.
#[derive(Clone, Copy)]
pub(crate) struct Unit {
    /// The node's number of the GPU.
    pub(crate) number: usize,
    pub(crate) gpu: &'static Gpu,
    /// The part's number within the GPU, and the part.
    pub(crate) part: Option<(usize, &'static Instance)>,
}

impl Unit {
    /// A GPU.
    pub(crate) fn of_gpu(session: &Session, number: usize) -> Outcome<Unit> {
        let gpu = session.gpu(number)?;
        Ok(Unit {
            number,
            gpu,
            part: None,
        })
    }

    /// A part of this GPU.
    pub(crate) fn part(&self, part: usize) -> Outcome<Unit> {
        let instance = self.gpu.instances().get(part).ok_or(NVML_ERROR_NOT_FOUND)?;
        Ok(Unit {
            part: Some((part, instance)),
            ..*self
        })
    }

    /// The unit of a handle.
    pub(crate) fn of(session: &Session, handle: nvmlDevice_t) -> Outcome<Unit> {
        let handle = handle as usize;
        let gpu = (handle >> 8)
            .checked_sub(1)
            .ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
        let unit = Unit::of_gpu(session, gpu)?;
        match handle & 0xff {
            0 => Ok(unit),
            part => unit.part(part - 1).map_err(|_| NVML_ERROR_INVALID_ARGUMENT),
        }
    }

    /// Its handle.
    pub(crate) fn handle(&self) -> nvmlDevice_t {
        let part = self.part.map_or(0, |(part, _)| part + 1);
        handle((self.number + 1) << 8 | part)
    }

    pub(crate) fn uuid(&self) -> &'static str {
        self.part
            .map_or(self.gpu.uuid.as_str(), |(_, instance)| &instance.uuid)
    }

    /// The node's numbers of what it is made of, each with the part that it is: accounts are kept by those.
    pub(crate) fn devices(&self, session: &Session) -> Vec<(usize, Option<&'static Instance>)> {
        let all = session.node.description().all_devices().enumerate();
        all.filter(|(_, device)| std::ptr::eq(device.gpu, self.gpu))
            .filter(|(_, device)| {
                let wanted = self.part.map(|(_, instance)| &instance.uuid);
                wanted.is_none() || wanted == device.instance.map(|instance| &instance.uuid)
            })
            .map(|(number, device)| (number, device.instance))
            .collect()
    }
}

/// Runs something with the device of a handle.
pub(crate) fn unit<T>(
    handle: nvmlDevice_t,
    body: impl FnOnce(&Session, Unit) -> Outcome<T>,
) -> Outcome<T> {
    session(|session| body(session, Unit::of(session, handle)?))
}

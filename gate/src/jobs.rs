//! The jobs of a gate, as prolog and epilog have them.

#![forbid(unsafe_code)]

use std::io;
use std::path::Path;

use crate::error::{GateError, failed};
use crate::program::NAME;
use crate::sys::Map;
use crate::tables::{IS_CLOSED, JOBS, SHAPE_OF_JOBS, is_roots, is_set_up};

/// The jobs of a gate, as prolog and epilog have them.
#[derive(Debug)]
pub struct Jobs(Map);

impl Jobs {
    /// The jobs of the gate whose files are in this folder; `None` without a gate.
    pub fn open(folder: &Path) -> Result<Option<Self>, GateError> {
        if !is_roots(folder) || !is_set_up(folder) {
            return Ok(None);
        }
        match Map::pinned(&folder.join(JOBS), SHAPE_OF_JOBS) {
            Ok(map) => Ok(Some(Self(map))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("opening the table of jobs")(error)),
        }
    }

    /// From now on the gate is closed for the job whose control group has this name.
    pub fn add(&self, group: &str) -> Result<(), GateError> {
        let key = key(group).map_err(failed("the name of a job"))?;
        let added = self.0.put(&key, IS_CLOSED);
        added.map_err(failed("adding a job to the gate's table"))
    }

    /// It has ended. `false` if it was not there.
    pub fn remove(&self, group: &str) -> Result<bool, GateError> {
        let key = key(group).map_err(failed("the name of a job"))?;
        let removed = self.0.remove(&key);
        removed.map_err(failed("taking a job from the gate's table"))
    }
}

fn key(group: &str) -> io::Result<[u8; NAME]> {
    let mut key = [0; NAME];
    let room = key.get_mut(..group.len()).filter(|room| room.len() < NAME);
    let room = room.ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(group.as_bytes());
    Ok(key)
}

//! Finds the job whose limits hold for a process that is in none.

use softmig_policy::node::identity::{is_smaller, smallest_on};
use softmig_policy::node::job_conf::{JobConf, Uuid};

use super::host::ThisNode;
use super::message::Message;
use super::{gate, log, neighbours, share};
use crate::driver::device::{device_count, uuid, written};
use crate::os::Errno;

/// Looks who else is on this process's GPUs, if its limits depend on that and it has not looked yet.
pub(crate) fn look_once() {
    if gate::is_neighbour() && !neighbours::are_known() {
        let _errno = Errno::save();
        look_around();
    }
}

fn look_around() {
    let mut smallest: Option<(u32, JobConf)> = None;
    for uuid in (0..device_count()).filter_map(uuid) {
        let text = written(b"GPU-", &uuid);
        let text = core::str::from_utf8(text.as_bytes());
        let Some(gpu) = text.ok().and_then(Uuid::parse) else {
            return;
        };
        // A GPU whose jobs cannot be read keeps the answer open, which limits.
        let Ok(found) = smallest_on(&ThisNode, &gpu) else {
            return;
        };
        let Some((id, conf)) = found else { continue };
        if smallest.is_none_or(|(_, other)| is_smaller(&conf, &other)) {
            smallest = Some((id, conf));
        }
    }
    let limits = smallest.and_then(|(_, conf)| conf.limits);
    let share = limits.as_ref().and_then(share::of_limits).unwrap_or(0);
    let memory = limits.map_or(u32::MAX, |limits| limits.memory_mib());
    neighbours::keep(smallest.map(|(id, _)| id), memory, share);
    let message = match smallest {
        None => Message::NoNeighbours,
        Some((id, _)) => Message::LimitedAs(id),
    };
    gate::with_finding(|finding| log::say(finding, &message));
}

//! The objects of a context in the kernel driver, where the GPU has a scheduler: a client, a channel group with its
//! time slice, and channels.
//!
//! The calls go through libc's `ioctl`, as those of the real driver do, so a preloaded library sees them. The machine
//! has no kernel driver: a filter lets the kernel answer that all was done, and the node keeps the group.

use std::ffi::c_int;
use std::fs::OpenOptions;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::OnceLock;

use softmig_fake_node::kernel::{
    ALLOCATE, Answer, CHANNEL, CHANNEL_GROUP, CLIENT, CONTROL, CONTROL_FILE, FREE, SET_TIME_SLICE,
    answer_calls,
};
use softmig_fake_node::{Group, Process};

/// No file.
const NONE: c_int = -1;

/// Opens the kernel driver's file, as a client of an MPS server does at once.
pub(crate) fn open(node: &Process) {
    control_file(node);
}

/// Makes a context's group, with all that belongs to it; `None` where the device has no scheduler.
pub(crate) fn begin(node: &Process, device: usize) -> Option<Group> {
    if !node.description().scheduler {
        return None;
    }
    let file = control_file(node);
    let group = node.begin_group(device, file)?;
    let (client, handle) = (group.client(), group.handle());
    ask(file, ALLOCATE, &mut [0, 0, client, CLIENT, 0, 0, 0, 0]);
    ask(
        file,
        ALLOCATE,
        &mut [client, client, handle, CHANNEL_GROUP, 0, 0, 0, 0],
    );
    for channel in group.channels() {
        ask(
            file,
            ALLOCATE,
            &mut [client, handle, channel, CHANNEL, 0, 0, 0, 0],
        );
    }
    let slice: u64 = 2048;
    let [low, high] = words(&raw const slice as u64);
    ask(
        file,
        CONTROL,
        &mut [client, handle, SET_TIME_SLICE, 0, low, high, 8, 0],
    );
    Some(group)
}

/// Ends a context's group, with all that belongs to it.
pub(crate) fn end(node: &Process, group: Group) {
    let client = group.client();
    ask(control_file(node), FREE, &mut [client, 0, client, 0]);
    node.end_group(group);
}

/// The kernel driver's file, open as long as this process lives. Nothing is behind it, so it is opened as a name alone.
fn control_file(node: &Process) -> c_int {
    static FILE: OnceLock<c_int> = OnceLock::new();
    *FILE.get_or_init(|| {
        let path = node.description().devices.join(CONTROL_FILE);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(path);
        match file {
            Ok(file) if answer_calls(Answer::Done).is_ok() => file.into_raw_fd(),
            _ => NONE,
        }
    })
}

/// Calls the kernel driver: the last word is the status that it leaves.
fn ask(file: c_int, request: u32, words: &mut [u32]) {
    if file != NONE {
        // SAFETY: the structure of the request, which is as long as it says.
        unsafe { libc::ioctl(file, request.into(), words.as_mut_ptr()) };
    }
}

fn words(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

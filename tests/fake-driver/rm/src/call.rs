//! The kernel driver's calls.
//!
//! Places in structures are counted in words of 32 bits; `rm/` and NVIDIA's open kernel modules have the structures.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use softmig_fake_node::kernel::{
    ALLOCATE, CLIENT, CONTROL, FREE, GET_TIME_SLICE, MAP, SET_TIME_SLICE,
};
use softmig_fake_node::{Found, Node, place};

use crate::client::Client;
use crate::memory::Words;

/// The driver's answer in a structure; 0 is done.
type Status = u32;
const DONE: Status = 0;
/// `NV_ERR_INVALID_CHANNEL`, `_INVALID_CLIENT`, `_INVALID_DEVICE`, `_NOT_SUPPORTED` and `_OBJECT_NOT_FOUND`.
const NO_CHANNEL: Status = 0x21;
const NO_CLIENT: Status = 0x23;
const NO_DEVICE: Status = 0x26;
/// `NV_ERR_INVALID_PARAM_STRUCT`.
const WRONG_SIZE: Status = 0x3a;
const NOT_SUPPORTED: Status = 0x56;
const NOT_FOUND: Status = 0x57;

/// Classes: `NV01_DEVICE_0`, `NV20_SUBDEVICE_0`, `NV01_MEMORY_DEVICELESS`, `NV_EVENT_BUFFER`.
const DEVICE: u32 = 0x80;
const SUBDEVICE: u32 = 0x2080;
const MEMORY: u32 = 0x90ce;
const EVENT_BUFFER: u32 = 0x90cd;

/// Commands: `NV2080_CTRL_CMD_GPU_GET_GID_INFO`, `_FIFO_DISABLE_CHANNELS`, `_GR_FECS_BIND_EVTBUF_FOR_UID_V2`;
/// `NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS`, `_UPDATE_GET`, `_FLUSH`.
const NAME: u32 = 0x2080_014a;
const DISABLE_CHANNELS: u32 = 0x2080_110b;
const BIND_SWITCHES: u32 = 0x2080_1238;
const ENABLE_EVENTS: u32 = 0x90cd_0101;
const UPDATE_GET: u32 = 0x90cd_0102;
const FLUSH: u32 = 0x90cd_0104;

/// All that the driver knows of this process.
#[derive(Default)]
struct Driver {
    node: Option<Node>,
    clients: BTreeMap<u32, Client>,
    made: u32,
}

static DRIVER: Mutex<Driver> = Mutex::new(Driver {
    node: None,
    clients: BTreeMap::new(),
    made: 0,
});

/// Does what a thread asks of the driver.
///
/// # Safety
///
/// The argument is what the request takes.
pub(crate) unsafe fn answer(file: c_int, request: u32, argument: u64) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let words = unsafe { Words::at(argument) };
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    if driver.node.is_none() {
        driver.node = Node::open(place()).ok();
    }
    let Driver {
        node: Some(node),
        clients,
        made,
    } = &mut *driver
    else {
        return Err(libc::ENXIO);
    };
    // Before 535 the structure of allocations had no size, and the status in its place.
    let of_allocation = if node.description().is_old() { 6 } else { 7 };
    let (place, status) = match request {
        FREE => (3, free(clients, words)),
        CONTROL => (7, control(node, clients, file, words)),
        ALLOCATE if words.get(3) == CLIENT => {
            *made += 1;
            let handle = 0xc1ef_0000 + *made;
            clients.insert(handle, Client::default());
            words.set(2, handle);
            (of_allocation, DONE)
        }
        ALLOCATE => (of_allocation, allocate(node, clients, words)),
        MAP => (10, map(clients, words)),
        _ => return Err(libc::ENOTTY),
    };
    words.set(place, status);
    Ok(())
}

fn or(done: Option<()>, status: Status) -> Status {
    if done.is_some() { DONE } else { status }
}

/// Client, parent, object.
fn free(clients: &mut BTreeMap<u32, Client>, words: Words) -> Status {
    let (handle, object) = (words.get(0), words.get(2));
    let Some(client) = clients.get_mut(&handle) else {
        return NO_CLIENT;
    };
    if object == handle {
        clients.remove(&handle);
    } else {
        client.free(object);
    }
    DONE
}

/// Client, parent, object, class, parameters.
fn allocate(node: &Node, clients: &mut BTreeMap<u32, Client>, words: Words) -> Status {
    let Some(client) = clients.get_mut(&words.get(0)) else {
        return NO_CLIENT;
    };
    let object = words.get(2);
    // SAFETY: the caller gives the structure of the class.
    let parameters = unsafe { Words::at(words.get_wide(4)) };
    match words.get(3) {
        DEVICE => {
            let number = parameters.get(0) as usize;
            or(client.set_device(node, object, number), NO_DEVICE)
        }
        SUBDEVICE => DONE,
        MEMORY => or(
            client.allocate(object, parameters.get_wide(16)).ok(),
            NOT_SUPPORTED,
        ),
        EVENT_BUFFER if node.description().scheduler => {
            let memory = [parameters.get(15), parameters.get(16)];
            or(
                client.make_log(object, memory, parameters.get(5)),
                NOT_FOUND,
            )
        }
        _ => NOT_SUPPORTED,
    }
}

/// Client, device, memory; at 12 the file to map.
fn map(clients: &BTreeMap<u32, Client>, words: Words) -> Status {
    let client = clients.get(&words.get(0));
    let file = words.get(12).cast_signed();
    or(client.and_then(|it| it.map(words.get(2), file)), NOT_FOUND)
}

/// Client, object, command, flags, parameters, size.
fn control(node: &Node, clients: &mut BTreeMap<u32, Client>, file: c_int, words: Words) -> Status {
    let (handle, object, command) = (words.get(0), words.get(1), words.get(2));
    if Some(words.get(6)) != size_of_command(command) {
        return if size_of_command(command).is_some() {
            WRONG_SIZE
        } else {
            NOT_SUPPORTED
        };
    }
    // SAFETY: the caller gives the structure of the command.
    let parameters = unsafe { Words::at(words.get_wide(4)) };
    if command == SET_TIME_SLICE || command == GET_TIME_SLICE {
        let Some(found) = group(node, file, (handle, object)) else {
            return NO_CLIENT;
        };
        if command == SET_TIME_SLICE {
            node.set_time_slice(found, parameters.get_wide(0));
        } else {
            parameters.set_wide(0, node.time_slice(found).unwrap_or(0));
        }
        return DONE;
    }
    let Some(client) = clients.get_mut(&handle) else {
        return NO_CLIENT;
    };
    match command {
        NAME => or(name(node, client, parameters), NO_DEVICE),
        DISABLE_CHANNELS if !node.description().firmware => NOT_SUPPORTED,
        DISABLE_CHANNELS => disable(node, client, parameters),
        BIND_SWITCHES => DONE,
        UPDATE_GET => or(client.update_log(object, parameters.get(0)), NOT_FOUND),
        ENABLE_EVENTS => or(client.start_log(node, object), NOT_FOUND),
        // Whose log it is: it is copied for all.
        FLUSH if client.has_log(object) => {
            for client in clients.values_mut() {
                // One without a log has nothing to copy.
                let _ = client.flush(node);
            }
            DONE
        }
        FLUSH => NOT_FOUND,
        _ => NOT_SUPPORTED,
    }
}

/// The size of a command's structure.
fn size_of_command(command: u32) -> Option<u32> {
    Some(match command {
        NAME => 268,
        DISABLE_CHANNELS => 536,
        BIND_SWITCHES => 24,
        ENABLE_EVENTS | UPDATE_GET | SET_TIME_SLICE | GET_TIME_SLICE => 8,
        FLUSH => 0,
        _ => return None,
    })
}

/// The UUID of the client's GPU: index, flags, length, bytes.
fn name(node: &Node, client: &Client, parameters: Words) -> Option<()> {
    let device = node.description().device(client.device()?)?;
    let (_, digits) = device.uuid().split_once('-')?;
    let digits = digits.replace('-', "");
    let number = u128::from_str_radix(&digits, 16).ok()?;
    parameters.set(2, size_of_val(&number) as u32);
    parameters.set_bytes(3, &number.to_be_bytes());
    Some(())
}

/// Whether they are to be off, how many, and from 6 and 70 on clients and channels.
fn disable(node: &Node, client: &Client, parameters: Words) -> Status {
    const CLIENTS: usize = 6;
    const CHANNELS: usize = 70;
    let count = (parameters.get(1) as usize).min(CHANNELS - CLIENTS);
    let channel = |number| {
        (
            parameters.get(CLIENTS + number),
            parameters.get(CHANNELS + number),
        )
    };
    let channels: Vec<_> = (0..count).map(channel).collect();
    let is_on = parameters.get(0) & 0xff == 0;
    let Some(device) = client.device() else {
        return NO_DEVICE;
    };
    let done = node.enable_channels(device, &channels, is_on);
    or(done.then_some(()), NO_CHANNEL)
}

/// A group by its client's handle and its own. The driver takes a client by the open file alone that made it.
fn group(node: &Node, file: c_int, (client, group): (u32, u32)) -> Option<Found> {
    let found = node.find_group(client, group)?;
    let pid = found.pid?;
    // Of a process that has ended it cannot be asked: another one has its file.
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    let has_ended = program.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    let is_its = has_ended || is_same_file((std::process::id(), file), (pid, found.file));
    is_its.then_some(found)
}

/// Whether two processes' descriptors are of the same open file.
fn is_same_file((one, file): (u32, c_int), (other, others): (u32, c_int)) -> bool {
    const KCMP_FILE: c_int = 0;
    // SAFETY: takes numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILE, file, others) == 0 }
}

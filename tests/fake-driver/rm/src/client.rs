//! A client of the driver.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::time::{ClockId, clock_gettime};
use softmig_fake_node::{Node, Switch};

/// The length of a record in the log.
const RECORD: u64 = 32;
/// Where the log's header has the next record's number, and how many were lost.
const PUT: u64 = 4;
const LOST: u64 = 16;

/// A client: what was made for it, by its handles.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// The device that it looks at, by its number, and the handle that it has for it.
    device: Option<usize>,
    device_handle: u32,
    memory: BTreeMap<u32, File>,
    log: Option<Log>,
}

/// The log of switches, as it is copied into the client's memory.
#[derive(Debug)]
struct Log {
    handle: u32,
    header: u32,
    records: u32,
    count: u64,
    /// The number of the next switch on the node, once it is on.
    next: Option<u64>,
    /// Where its record goes, and up to where the client has read.
    put: u64,
    get: u64,
    /// How many were lost since the client last said so.
    lost: u64,
    /// The number of the next record.
    sequence: u64,
}

impl Client {
    /// The device that it looks at.
    pub(crate) fn device(&self) -> Option<usize> {
        self.device
    }

    /// Lets it look at a device of the node.
    pub(crate) fn set_device(&mut self, node: &Node, handle: u32, number: usize) -> Option<()> {
        node.description().device(number)?;
        (self.device, self.device_handle) = (Some(number), handle);
        Some(())
    }

    /// Ends one of its objects.
    pub(crate) fn free(&mut self, handle: u32) {
        self.memory.remove(&handle);
        if handle == self.device_handle {
            self.device = None;
        }
    }

    /// Makes memory.
    pub(crate) fn allocate(&mut self, handle: u32, size: u64) -> io::Result<()> {
        let file = memfd_create("softmig-fake-rm", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, size)?;
        self.memory.insert(handle, file.into());
        Ok(())
    }

    /// Lets an open file be memory, so that it can be mapped.
    pub(crate) fn map(&self, handle: u32, file: RawFd) -> Option<()> {
        let memory = self.memory.get(&handle)?.as_raw_fd();
        // SAFETY: takes numbers; the caller gave its file for this.
        let done = unsafe { libc::dup3(memory, file, libc::O_CLOEXEC) };
        (done == file).then_some(())
    }

    /// Makes a log in memory that it has.
    pub(crate) fn make_log(
        &mut self,
        handle: u32,
        [header, records]: [u32; 2],
        count: u32,
    ) -> Option<()> {
        self.memory.get(&header)?;
        self.memory.get(&records)?;
        self.log = Some(Log {
            handle,
            header,
            records,
            count: count.into(),
            next: None,
            put: 0,
            get: 0,
            lost: 0,
            sequence: 0,
        });
        Some(())
    }

    /// Begins to log what happens from now on.
    pub(crate) fn start_log(&mut self, node: &Node, handle: u32) -> Option<()> {
        let (_, next, _) = node.switches(self.device?, u64::MAX);
        let log = self.log.as_mut().filter(|log| log.handle == handle)?;
        log.next = Some(next);
        Some(())
    }

    /// Whether it has a log of this handle.
    pub(crate) fn has_log(&self, handle: u32) -> bool {
        self.log.as_ref().is_some_and(|log| log.handle == handle)
    }

    /// Copies what has happened since the last time.
    pub(crate) fn flush(&mut self, node: &Node) -> Option<()> {
        let device = self.device?;
        let log = self.log.as_mut()?;
        let (switches, next, lost) = node.switches(device, log.next?);
        log.next = Some(next);
        (log.lost, log.sequence) = (log.lost + lost, log.sequence + lost);
        let records = self.memory.get(&log.records)?;
        for switch in &switches {
            let record = record(node, switch, log.sequence as u16);
            log.sequence += 1;
            let next = (log.put + 1) % log.count;
            if next == log.get {
                log.lost += 1;
                continue;
            }
            records.write_all_at(&record, log.put * RECORD).ok()?;
            log.put = next;
        }
        let header = self.memory.get(&log.header)?;
        let put = log.put as u32;
        header.write_all_at(&log.lost.to_le_bytes(), LOST).ok()?;
        header.write_all_at(&put.to_le_bytes(), PUT).ok()
    }

    /// The client has read the log up to there. The count of lost records begins anew.
    pub(crate) fn update_log(&mut self, handle: u32, get: u32) -> Option<()> {
        let log = self.log.as_mut().filter(|log| log.handle == handle)?;
        (log.get, log.lost) = (get.into(), 0);
        let header = self.memory.get(&log.header)?;
        header.write_all_at(&log.lost.to_le_bytes(), LOST).ok()
    }
}

/// `NV_EVENT_BUFFER_RECORD`: tag at 8, its number at 10, group at 12, process at 16, time at 24.
fn record(node: &Node, switch: &Switch, sequence: u16) -> [u8; RECORD as usize] {
    /// `NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START` and `_END`.
    const START: u8 = 6;
    const END: u8 = 7;
    /// Of a process that cannot be seen from here.
    const HIDDEN: u32 = 0;
    let tag = if switch.is_start { START } else { END };
    let at = gpu_clock(switch.at.cast_signed() - node.now().cast_signed());
    let mut record = [0; RECORD as usize];
    let parts: [(usize, &[u8]); 5] = [
        (8, &[tag]),
        (10, &sequence.to_le_bytes()),
        (12, &switch.group.to_le_bytes()),
        (16, &switch.pid.unwrap_or(HIDDEN).to_le_bytes()),
        (24, &at.to_le_bytes()),
    ];
    for (start, part) in parts {
        if let Some(place) = record.get_mut(start..start + part.len()) {
            place.copy_from_slice(part);
        }
    }
    record
}

/// The GPU's clock at some time from now, in nanoseconds. The driver set it to the time of day once. It has fallen behind since then,
/// by 5 s, and falls behind by 22 us in each second.
fn gpu_clock(from_now: i64) -> u64 {
    const BEHIND: i64 = 5_000_000_000;
    let [time_of_day, uptime] = [ClockId::Realtime, ClockId::Monotonic].map(|clock| {
        let time = clock_gettime(clock);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    });
    let behind = BEHIND + (uptime + from_now) / 1_000_000 * 22;
    (time_of_day + from_now - behind).unsigned_abs()
}

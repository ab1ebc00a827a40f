//! The GPU's log of context switches: the driver copies it from the GPU's own buffer into one that is mapped here.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use memmap2::{MmapOptions, MmapRaw};

use crate::call::{
    Allocation, Control, Error, Handle, allocate, command, control, free, open, prepare_map,
};
use crate::clock::{Clock, now};
use crate::switch::{Reading, Switch};

const NV01_MEMORY_DEVICELESS: u32 = 0x90ce;
const NV_EVENT_BUFFER: u32 = 0x90cd;
const FLUSH: u32 = 0x90cd_0104;

const HEADER: Handle = 0x5c00_0003;
const RECORDS: Handle = 0x5c00_0004;
const BUFFER: Handle = 0x5c00_0005;

/// How many records there is room for: those of half a second where jobs change as fast as they can. The driver wants one piece of
/// memory for them, and a machine that runs for long has none that is large.
const COUNT: u32 = 4096;
const RECORD: usize = 32;
const HEADER_SIZE: usize = 4096;

/// What is read later than this after the last reading may lack something: the GPU's own buffer is small, and on older GPUs
/// nothing tells that it was full.
const LATEST: u64 = 500_000_000;

/// The log of one GPU.
#[derive(Debug)]
pub(crate) struct Log {
    header: MmapRaw,
    records: MmapRaw,
    next: u32,
    /// The number of the last record.
    sequence: Option<u16>,
    /// How many were lost of those that are there now.
    lost: u64,
    /// When the last reading began.
    read: u64,
    clock: Clock,
}

impl Log {
    /// Begins to log.
    pub(crate) fn start(file: &OwnedFd, client: Handle, subdevice: Handle) -> Result<Self, Error> {
        Self::begin(file, client, subdevice).inspect_err(|_| {
            for object in [BUFFER, RECORDS, HEADER] {
                // Those that were made, so that it can be tried again.
                let _ = free(file, client, client, object);
            }
        })
    }

    fn begin(file: &OwnedFd, client: Handle, subdevice: Handle) -> Result<Self, Error> {
        let header = memory(file, client, HEADER, HEADER_SIZE)?;
        let records = memory(file, client, RECORDS, COUNT as usize * RECORD)?;
        let mut buffer = BufferParameters {
            record_size: RECORD as u32,
            record_count: COUNT,
            subdevice,
            header: HEADER,
            records: RECORDS,
            ..BufferParameters::default()
        };
        allocate(file, client, client, BUFFER, &mut buffer)?;
        let mut bind = BindSwitches {
            buffer: BUFFER,
            record_size: RECORD as u32,
            detail: BindSwitches::SIMPLE,
            all_users: 1,
            ..BindSwitches::default()
        };
        let begin = now();
        if let Err(error) = control(file, client, subdevice, &mut bind) {
            return Err(match (error, bind.reason()) {
                (Error::Refused { status, .. }, Some(reason)) => Error::NoLog { reason, status },
                (error, _) => error,
            });
        }
        let mut enable = EnableEvents {
            is_on: 1,
            padding: [0; 3],
            flags: EnableEvents::KEEP_OLDEST,
        };
        control(file, client, BUFFER, &mut enable)?;
        Ok(Self {
            header,
            records,
            next: 0,
            sequence: None,
            lost: 0,
            read: begin,
            clock: Clock::new(begin),
        })
    }

    /// See [`crate::Gpu::switches`].
    pub(crate) fn read(
        &mut self,
        file: &OwnedFd,
        client: Handle,
        to: &mut Vec<Switch>,
    ) -> Result<Reading, Error> {
        let begin = flush(file, client)?;
        let put = self.word(4) % COUNT;
        let (was, before) = (self.next, to.len());
        let is_late = begin.saturating_sub(self.read) > LATEST;
        self.read = begin;
        let mut has_lost = is_late && was != put;
        while self.next != put {
            let record = self.record(self.next);
            has_lost |= !record.follows(self.sequence);
            self.sequence = Some(record.sequence);
            to.extend(record.switch());
            self.next = (self.next + 1) % COUNT;
        }
        let found = to.get_mut(before..).unwrap_or_default();
        self.clock.convert(found, begin, now());
        // The next call sets it to zero.
        let lacks_last = self.lost() != self.lost;
        if self.next != was {
            let mut update = UpdateGet {
                records: self.next,
                rest: 0,
            };
            control(file, client, BUFFER, &mut update)?;
        }
        self.lost = self.lost();
        Ok(Reading {
            at: begin,
            has_lost,
            lacks_last,
        })
    }

    /// How many found no room since the driver was told what was read.
    fn lost(&self) -> u64 {
        u64::from(self.word(16)) | u64::from(self.word(20)) << 32
    }

    /// A word of the buffer's header.
    fn word(&self, at: usize) -> u32 {
        let place = self.header.as_ptr().wrapping_add(at).cast::<u32>();
        // SAFETY: within the page that is mapped as long as `self` lives; the driver alone writes there.
        unsafe { ptr::read_volatile(place) }
    }

    fn record(&self, number: u32) -> Record {
        let place = self.records.as_ptr();
        let place = place
            .wrapping_add(number as usize * RECORD)
            .cast::<Record>();
        // SAFETY: within what is mapped as long as `self` lives, aligned, and any bytes are a record.
        unsafe { ptr::read_volatile(place) }
    }
}

/// Has the driver copy what the GPUs' own buffers have. Tells when that began.
fn flush(file: &OwnedFd, client: Handle) -> Result<u64, Error> {
    /// When the last one of this process began. One call is for all GPUs, whichever client makes it, and takes the locks of all: so
    /// those that want it at about the same time share one.
    static LAST: Mutex<u64> = Mutex::new(0);
    const SAME_TIME: u64 = 1_000_000;
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let begin = now();
    if begin - *last > SAME_TIME {
        command(file, client, BUFFER, FLUSH)?;
        *last = begin;
    }
    Ok(*last)
}

/// Memory that the driver writes and this process reads.
fn memory(file: &OwnedFd, client: Handle, handle: Handle, size: usize) -> Result<MmapRaw, Error> {
    let mut parameters = MemoryParameters {
        attributes: MemoryParameters::CACHED,
        attributes_2: MemoryParameters::USERS_READ_ONLY,
        size: size as u64,
        ..MemoryParameters::default()
    };
    allocate(file, client, client, handle, &mut parameters)?;
    let map = open("nvidiactl")?;
    prepare_map(file, client, handle, size as u64, map.as_fd())?;
    let mut options = MmapOptions::new();
    // SAFETY: MmapRaw gives no references.
    let mapped = options.len(size).map_raw_read_only(&map);
    mapped.map_err(Error::Io)
}

/// `NV_EVENT_BUFFER_RECORD` with `NV_EVENT_BUFFER_FECS_RECORD_V2` in it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    header: u64,
    tag: u8,
    vm: u8,
    sequence: u16,
    channel: u32,
    process: u32,
    reserved: u16,
    mig_gpu: u8,
    mig_compute: u8,
    at: u64,
}

impl Record {
    /// Whether nothing is missing after the one of this number. The driver counts records without room, and on newer GPUs those
    /// that the GPU itself lost.
    fn follows(&self, last: Option<u16>) -> bool {
        last.is_none_or(|last| self.sequence == last.wrapping_add(1))
    }

    /// By the GPU's clock.
    fn switch(self) -> Option<Switch> {
        /// `NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START` and `_END`.
        const START: u8 = 6;
        const END: u8 = 7;
        let is_start = match self.tag {
            START => true,
            END => false,
            _ => return None,
        };
        // The driver may not know the time of a process of its own.
        (self.at != 0).then_some(Switch {
            process: self.process,
            channel: self.channel,
            is_start,
            at: self.at,
        })
    }
}

/// `NV_MEMORY_ALLOCATION_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MemoryParameters {
    owner: u32,
    kind: u32,
    flags: u32,
    width: u32,
    height: u32,
    pitch: i32,
    attributes: u32,
    attributes_2: u32,
    format: u32,
    coverage: u32,
    depth_coverage: u32,
    padding: u32,
    range: [u64; 2],
    size: u64,
    alignment: u64,
    offset: u64,
    limit: u64,
    address: u64,
    tag_offset: u32,
    va_space: Handle,
    internal_flags: u32,
    tag: u32,
    numa_node: i32,
    padding_2: u32,
}

// SAFETY: the structure that this class takes.
unsafe impl Allocation for MemoryParameters {
    const CLASS: u32 = NV01_MEMORY_DEVICELESS;
}

impl MemoryParameters {
    /// `NVOS32_ATTR_COHERENCY_CACHED`, in the bits 31 to 29.
    const CACHED: u32 = 1 << 29;
    /// `NVOS32_ATTR2_PROTECTION_USER_READ_ONLY`: the driver takes no other memory for its log.
    const USERS_READ_ONLY: u32 = 1 << 22;
}

/// `NV_EVENT_BUFFER_ALLOC_PARAMETERS`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct BufferParameters {
    header_address: u64,
    records_address: u64,
    record_size: u32,
    record_count: u32,
    data_address: u64,
    data_size: u32,
    records_threshold: u32,
    notification: u64,
    data_threshold: u32,
    subdevice: Handle,
    flags: u32,
    header: Handle,
    records: Handle,
    data: Handle,
}

// SAFETY: the structure that this class takes.
unsafe impl Allocation for BufferParameters {
    const CLASS: u32 = NV_EVENT_BUFFER;
}

/// `NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct BindSwitches {
    buffer: Handle,
    record_size: u32,
    detail: u32,
    filter: u32,
    all_users: u8,
    padding: [u8; 3],
    reason: u32,
}

impl BindSwitches {
    /// When a group came and when it left, and nothing between.
    const SIMPLE: u32 = 1;

    /// Why the driver refuses it, in words (`NV2080_CTRL_GR_FECS_BIND_REASON_CODE`).
    fn reason(&self) -> Option<&'static str> {
        Some(match self.reason {
            0 => return None,
            1 => "the GPU is too old",
            2 => "it is not enabled on this GPU",
            3 => "it is not enabled",
            4 => "it wants an administrator",
            5 => "it wants a capability, or profiling to be enabled for this virtual GPU",
            _ => "for a reason that is not known here",
        })
    }
}

// SAFETY: the structure that this command takes.
unsafe impl Control for BindSwitches {
    const COMMAND: u32 = 0x2080_1238;
}

/// `NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct EnableEvents {
    is_on: u8,
    padding: [u8; 3],
    flags: u32,
}

impl EnableEvents {
    /// Once the log is full, new entries are lost and counted.
    const KEEP_OLDEST: u32 = 1;
}

// SAFETY: the structure that this command takes.
unsafe impl Control for EnableEvents {
    const COMMAND: u32 = 0x90cd_0101;
}

/// `NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UpdateGet {
    records: u32,
    rest: u32,
}

// SAFETY: the structure that this command takes.
unsafe impl Control for UpdateGet {
    const COMMAND: u32 = 0x90cd_0102;
}

const _: () = assert!(size_of::<Record>() == RECORD);

#[cfg(test)]
layout! {
    MemoryParameters is "NV_MEMORY_ALLOCATION_PARAMS" {
        owner: "owner", kind: "type", flags: "flags", attributes: "attr", attributes_2: "attr2", size: "size",
        alignment: "alignment", offset: "offset", limit: "limit", address: "address", va_space: "hVASpace", tag: "tag",
        numa_node: "numaNode"
    }
    BufferParameters is "NV_EVENT_BUFFER_ALLOC_PARAMETERS" {
        header_address: "bufferHeader", records_address: "recordBuffer", record_size: "recordSize", record_count: "recordCount",
        data_address: "vardataBuffer", data_size: "vardataBufferSize", records_threshold: "recordsFreeThreshold",
        notification: "notificationHandle", data_threshold: "vardataFreeThreshold", subdevice: "hSubDevice", flags: "flags",
        header: "hBufferHeader", records: "hRecordBuffer", data: "hVardataBuffer"
    }
    BindSwitches is "NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS" {
        buffer: "hEventBuffer", record_size: "recordSize", detail: "levelOfDetail", filter: "eventFilter",
        all_users: "bAllUsers", reason: "reasonCode"
    }
    EnableEvents is "NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS" { is_on: "enable", flags: "flags" }
    UpdateGet is "NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET_PARAMS" { records: "recordBufferGet", rest: "varDataBufferGet" }
}

#[cfg(test)]
pub(crate) const NUMBERS: &[(&str, u32)] = &[
    ("NV_EVENT_BUFFER", NV_EVENT_BUFFER),
    ("NV_EVENT_BUFFER_CTRL_CMD_FLUSH", FLUSH),
    (
        "NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS",
        EnableEvents::COMMAND,
    ),
    ("NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET", UpdateGet::COMMAND),
    (
        "NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_OLDEST",
        EnableEvents::KEEP_OLDEST,
    ),
    (
        "NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2",
        BindSwitches::COMMAND,
    ),
    (
        "NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_SIMPLE",
        BindSwitches::SIMPLE,
    ),
    ("NV_EVENT_BUFFER_HIDDEN_PID", Switch::HIDDEN),
    ("NV_EVENT_BUFFER_KERNEL_PID", Switch::DRIVER),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_who_came_or_left_and_when() {
        let record = |tag| Record {
            header: 0,
            tag,
            vm: 0,
            sequence: 9,
            channel: 6,
            process: 4321,
            reserved: 0,
            mig_gpu: 0xff,
            mig_compute: 0xff,
            at: 1_795_393_880_232_229_920,
        };
        let switch = record(6).switch().unwrap();
        assert_eq!((switch.process, switch.channel), (4321, 6));
        assert!(switch.is_start && !record(7).switch().unwrap().is_start);
        assert_eq!(switch.at, 1_795_393_880_232_229_920);
        // Other records that a later driver may log.
        assert_eq!(record(0xff).switch(), None);
        assert!(record(6).follows(None) && record(6).follows(Some(8)));
        assert!(!record(6).follows(Some(7)) && !record(6).follows(Some(9)));
    }
}

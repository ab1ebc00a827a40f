//! The memory of a node's devices that is taken, as a test sees it from outside, and NVML from inside.

use crate::kind::{Bytes, Kind};
use crate::layout::{Slot, get};
use crate::mapped::Mapped;
use crate::pids::Translator;
use crate::process::Process;
use crate::{block, calls, memory, reap, runlist};

/// The memory that is taken of a device (a GPU, or a part of a divided one).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUsage {
    /// The device's UUID.
    pub uuid: String,
    /// The bytes that CUDA can hand out.
    pub usable: u64,
    /// The bytes that processes took, and blocks that only descriptors keep alive.
    pub used: u64,
    /// The processes that have memory of it.
    pub processes: Vec<ProcessUsage>,
}

/// The memory that a process has of a device, and its work there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUsage {
    /// The process's number here; `None` if it lives in a pid namespace that cannot be seen from here.
    pub pid: Option<u32>,
    /// The number by which the process knows itself.
    pub own_pid: u32,
    /// Its program's name, cut to 15 characters.
    pub command: String,
    /// When it started, in clock ticks since the machine's start.
    pub start_time: u64,
    /// The memory that it has.
    pub bytes: Bytes,
    /// The most that it had at a time.
    pub peak: u64,
    /// How long its kernels ran, in nanoseconds.
    pub busy: u64,
    /// When it joined, on the node's clock.
    pub joined: u64,
    /// When it was seen to have left, with nothing any more; `None` while it is alive.
    pub left: Option<u64>,
    /// Whether it is a client of an MPS server.
    pub is_client: bool,
    /// Its slot, as [`Process::worked`] names it.
    pub slot: usize,
}

/// A process that takes part in a node, or took part not long ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// As in [`ProcessUsage`].
    pub pid: Option<u32>,
    /// As in [`ProcessUsage`].
    pub own_pid: u32,
    /// As in [`ProcessUsage`].
    pub command: String,
    /// Whether it is alive.
    pub alive: bool,
    /// The functions that it called, and how often.
    pub calls: Vec<(String, u64)>,
}

impl Process {
    /// The memory that is taken of each device, as this process sees the others.
    #[must_use]
    pub fn usage(&self) -> Vec<DeviceUsage> {
        usage(&self.mapped)
    }

    /// All processes that have or had memory of a device. Dead ones are among them until a later process takes their
    /// slot.
    #[must_use]
    pub fn history(&self, device: usize) -> Vec<ProcessUsage> {
        history(&self.mapped, device)
    }
}

/// All processes that have or had memory of a device.
pub(crate) fn history(mapped: &Mapped, device: usize) -> Vec<ProcessUsage> {
    let _held = mapped.shared().lock.lock();
    reap::reap(mapped);
    runlist::catch_up(mapped, device);
    processes(mapped, device)
        .into_iter()
        .filter(|process| process.peak > 0)
        .collect()
}

/// The memory that is taken of each device, once the dead are cleared up.
pub(crate) fn usage(mapped: &Mapped) -> Vec<DeviceUsage> {
    let _held = mapped.shared().lock.lock();
    reap::reap(mapped);
    let devices = mapped.description.all_devices().enumerate();
    devices
        .map(|(number, device)| DeviceUsage {
            uuid: device.uuid().into(),
            usable: device.usable(),
            used: memory::used(mapped, number),
            processes: processes(mapped, number)
                .into_iter()
                .filter(|process| process.bytes.total() > 0)
                .collect(),
        })
        .collect()
}

/// Those that take part or took part, the earliest first.
pub(crate) fn participants(mapped: &Mapped) -> Vec<Participant> {
    let shared = mapped.shared();
    let _held = shared.lock.lock();
    reap::reap(mapped);
    let mut translator = Translator::new();
    known(mapped)
        .map(|(_, slot)| Participant {
            pid: translator.translate(slot),
            own_pid: own_pid(slot),
            command: slot.command.get(),
            alive: slot.is_taken(),
            calls: shared
                .functions
                .iter()
                .zip(&slot.calls)
                .filter(|(_, count)| get(count) > 0)
                .map(|(name, count)| (name.get(), get(count)))
                .collect(),
        })
        .collect()
}

/// How often a function was called by those whom `which` picks.
pub(crate) fn calls_by(mapped: &Mapped, name: &str, which: impl Fn(&Slot) -> bool) -> u64 {
    let Some(function) = calls::find(mapped.shared(), name) else {
        return 0;
    };
    known(mapped)
        .filter(|(_, slot)| which(slot))
        .filter_map(|(_, slot)| slot.calls.get(function))
        .map(get)
        .sum()
}

/// The number by which a slot's process knows itself.
pub(crate) fn own_pid(slot: &Slot) -> u32 {
    u32::try_from(get(&slot.pid)).unwrap_or(0)
}

fn processes(mapped: &Mapped, device: usize) -> Vec<ProcessUsage> {
    let mut translator = Translator::new();
    known(mapped)
        .map(|(number, slot)| {
            let mut bytes = Bytes::default();
            for kind in Kind::ALL {
                let taken = slot
                    .bytes
                    .get(device)
                    .and_then(|kinds| kinds.get(kind.index()))
                    .map_or(0, get);
                bytes.add(kind, taken);
                bytes.add(kind, block::of_holder(mapped, number, device, kind));
            }
            ProcessUsage {
                pid: translator.translate(slot),
                own_pid: own_pid(slot),
                command: slot.command.get(),
                start_time: get(&slot.start_time),
                bytes,
                peak: slot.peak.get(device).map_or(0, get),
                busy: slot.busy.get(device).map_or(0, get),
                joined: get(&slot.joined),
                left: (!slot.is_taken()).then(|| get(&slot.left)),
                is_client: get(&slot.server) != 0,
                slot: number,
            }
        })
        .collect()
}

/// Slots that were ever taken, in the order in which they were.
fn known(mapped: &Mapped) -> impl Iterator<Item = (usize, &Slot)> {
    let slots = mapped.shared().slots.iter().enumerate();
    let mut known: Vec<_> = slots.filter(|(_, slot)| get(&slot.taken) > 0).collect();
    known.sort_by_key(|(_, slot)| get(&slot.taken));
    known.into_iter()
}

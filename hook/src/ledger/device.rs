//! One GPU, as this process's limits see it.

use core::ffi::{CStr, c_int};
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use softmig_driver_sys::cuda::{
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    CUDA_SUCCESS, CUdevice, CUuuid,
};
use softmig_region::{Full, Gpu, Taken, units_of_mib};

use super::allocations::Holdings;
use super::context_lock::Making;
use super::in_progress::{Busy, Calls};
use super::slot::{self, Member, Private, Reaped};
use super::{nvml_usage, oom_log, pools};
use crate::driver::{cuda_queries, device};
use crate::identity::resolve::{Finding, Standing};
use crate::identity::{gate, neighbours};
use crate::memory::alloc;
use crate::os::once::Once;
use crate::os::{self, Lock};

/// What is known of one GPU; empty when all zero.
pub(crate) struct Place {
    known: Once<Known>,
    /// What is charged beyond what has a name: contexts, code, the stacks of kernels.
    pub(crate) overhead: AtomicU32,
    /// What is charged for managed memory, which the driver's own figures for a process leave out.
    pub(crate) managed: AtomicU32,
    /// What is charged for memory that other processes or interfaces have too, which the driver counts for one of them.
    pub(crate) elsewhere: AtomicU32,
    /// What is charged for the memory nodes of graphs.
    pub(crate) graphs: AtomicU32,
    /// What one context takes.
    pub(crate) context: AtomicU32,
    /// What was free on the GPU, in bytes, when this process last looked after it loaded code.
    pub(crate) free: AtomicU64,
    /// Of what has no name, so much may not be taken yet.
    pub(crate) promised: AtomicU32,
    /// What others can have for as long as they like, by a descriptor: the driver counts it for no process.
    pub(crate) outlives: AtomicU32,
    /// What was charged by name when `free` was seen.
    pub(crate) named: AtomicU32,
    /// Not zero once a graph with memory nodes was instantiated.
    pub(crate) graph: AtomicU32,
    /// How many streams were made.
    pub(crate) streams: AtomicU32,
    /// Calls that take or give back memory: how many began in the upper half, how many are under way in the lower.
    pub(super) busy: AtomicU64,
    /// Held by the thread that looks for room.
    searching: Lock,
    /// Who makes or ends the primary context.
    pub(crate) making: Making,
    /// The pool that allocations without a pool come from.
    pub(crate) pool: AtomicU64,
    /// When the job holds so much, this process compares its account with the driver's.
    look_at: AtomicU32,
}

impl Place {
    /// Nothing is known.
    pub(crate) const fn new() -> Self {
        Self {
            known: Once::new(),
            overhead: AtomicU32::new(0),
            managed: AtomicU32::new(0),
            elsewhere: AtomicU32::new(0),
            graphs: AtomicU32::new(0),
            context: AtomicU32::new(0),
            free: AtomicU64::new(0),
            promised: AtomicU32::new(0),
            outlives: AtomicU32::new(0),
            graph: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            named: AtomicU32::new(0),
            busy: AtomicU64::new(0),
            searching: Lock::new(),
            making: Making::new(),
            pool: AtomicU64::new(0),
            look_at: AtomicU32::new(0),
        }
    }
}

/// What does not change.
#[derive(Clone, Copy)]
struct Known {
    /// Its part of the ledger; `None` where that has no room for it.
    gpu: Option<Gpu<'static>>,
    uuid: CUuuid,
    /// What the job may hold, in units; `None` for as much as there is.
    limit: Option<u32>,
}

/// A GPU of which this process's job may not take all.
#[derive(Clone, Copy)]
pub(crate) struct Limited {
    private: &'static Private,
    place: &'static Place,
    known: &'static Known,
    number: u8,
}

impl Limited {
    /// The GPU with this number in CUDA's order; `None` if nothing is limited there. A process whose account cannot be
    /// had gets nothing of it.
    pub(crate) fn on(device: CUdevice) -> Option<Self> {
        let private = Private::get().unwrap_or_else(|error| {
            oom_log::say_no_account(error);
            Private::nowhere()
        });
        let number = u8::try_from(device).ok()?;
        let place = private.places.get(usize::from(number))?;
        let known = match (place.known.get(), private.member()) {
            (Some(known), _) => known,
            (None, Some(member)) => look(place, member, device)?,
            (None, None) => &NO_ROOM,
        };
        known.limit?;
        Some(Self {
            private,
            place,
            known,
            number,
        })
    }

    /// Whether the calling thread's is the only call under way.
    pub(crate) fn is_alone(&self) -> bool {
        self.calls().is_alone()
    }

    /// The same since somebody looked at the calls.
    pub(crate) fn were_alone(&self, since: Calls) -> bool {
        since.is_alone() && self.calls() == since
    }

    /// The calls now.
    pub(crate) fn calls(&self) -> Calls {
        Calls::of(&self.place.busy)
    }

    /// What this process holds.
    pub(crate) fn holdings(&self) -> &'static Holdings {
        &self.private.holdings
    }

    /// What is known of the GPU.
    pub(crate) fn place(&self) -> &'static Place {
        self.place
    }

    /// Its number in CUDA's order.
    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// Its UUID.
    pub(crate) fn uuid(&self) -> &CUuuid {
        &self.known.uuid
    }

    /// What the job may hold.
    pub(crate) fn limit(&self) -> u32 {
        self.known.limit.unwrap_or(u32::MAX)
    }

    /// What the job holds.
    pub(crate) fn held(&self) -> u64 {
        self.known.gpu.map_or(0, |gpu| gpu.held())
    }

    /// What this process holds.
    pub(crate) fn held_here(&self) -> u32 {
        let gpu = self.known.gpu;
        gpu.map_or(0, |gpu| gpu.held_by(self.slot()))
    }

    /// Takes `units` for what `function`, the call that is under way, is about to ask of the driver. False if the job may not
    /// have it: the program is out of memory.
    #[inline]
    pub(crate) fn reserve(&self, call: &Busy, units: u32, function: &CStr) -> bool {
        self.reserve_quietly(units) || self.find_room(call, units, function)
    }

    /// The same, without looking for room.
    #[inline]
    pub(crate) fn reserve_quietly(&self, units: u32) -> bool {
        match self.try_reserve(units) {
            Ok(Taken::FromSlack) => true,
            Ok(Taken::Granted { held }) => {
                self.look_outside(held, units);
                true
            }
            Err(_) => false,
        }
    }

    fn try_reserve(&self, units: u32) -> Result<Taken, Full> {
        match self.known.gpu {
            Some(gpu) => gpu.reserve(self.slot(), units, self.limit()),
            None => Err(Full { held: 0 }),
        }
    }

    /// Compares with the driver's figures each time that half of what was left is gone: what has no name grows unseen.
    /// `units` are reserved and not the driver's yet.
    fn look_outside(&self, held: u64, units: u32) {
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        // Relaxed: to look twice, or once too seldom, does no harm.
        let look_at = self.place.look_at.load(Ordering::Relaxed);
        // What was given back since makes room for what has no name.
        let is_much_less = held < look_at / 2;
        if held < look_at.max(self.limit() / 2) && !is_much_less {
            return;
        }
        let left = self.limit().saturating_sub(held);
        let next = held.saturating_add(left / 2).max(1);
        self.place.look_at.store(next, Ordering::Relaxed);
        nvml_usage::raise(self, units);
    }

    /// Whether the job is within its limit after code was loaded, as far as the driver says.
    pub(crate) fn has_room_for_code(&self) -> bool {
        nvml_usage::after_code(self);
        self.is_within_limit()
    }

    /// Whether the job holds no more than it may. Nobody knows what a process without an account holds.
    fn is_within_limit(&self) -> bool {
        let is_within = self
            .known
            .gpu
            .is_some_and(|gpu| gpu.held() <= self.limit().into());
        is_within || gate::with_finding(|finding| finding.observe)
    }

    /// The same before more code is used: what nobody uses makes room for what came already.
    pub(crate) fn has_room(&self) -> bool {
        if self.has_room_for_code() {
            return true;
        }
        let _errno = os::Errno::save();
        let _busy = Busy::on(self);
        pools::give_back(self);
        nvml_usage::correct(self);
        self.is_within_limit()
    }

    /// Charges what the driver says now, more or less.
    pub(crate) fn look_again(&self) {
        let _busy = Busy::on(self);
        nvml_usage::correct(self);
    }

    /// Something without a name came or went: the next grant looks outside.
    pub(crate) fn expect_change(&self) {
        // Relaxed: see `look_outside`.
        self.place.look_at.store(0, Ordering::Relaxed);
    }

    /// What there is to do before a program hears that it is out of memory.
    #[cold]
    fn find_room(&self, call: &Busy, units: u32, function: &CStr) -> bool {
        let _errno = os::Errno::save();
        // One thread at a time: what is found to be held no more is given back only while no other call is under way.
        let _searching = call.pause(|| self.place.searching.hold_within(LONGEST_SEARCH));
        let fits = || self.try_reserve(units).is_ok();
        if fits() {
            return true;
        }
        // What others held that are no more. The driver takes its time to give it back; without limits a program waits
        // for that as well.
        let deadline = os::milliseconds().saturating_add(LONGEST_WAIT);
        loop {
            let is_late = os::milliseconds() > deadline;
            let reaped = self.reap();
            // Another process that waits may have forgotten them first.
            if (reaped.is_any || reaped.is_waiting) && fits() {
                return true;
            }
            if !reaped.is_waiting || is_late {
                break;
            }
            os::pause();
        }
        if fits() {
            return true;
        }
        // What pools hold and nobody uses, and what is charged for something that the driver has given up.
        pools::give_back(self);
        alloc::forget_freed(self);
        if fits() {
            return true;
        }
        nvml_usage::correct(self);
        // What another thread or process took before it asked the driver, which then gave it less or nothing.
        os::pause();
        if fits() {
            return true;
        }
        let observes = oom_log::say(self, units, function);
        if observes {
            self.charge(units);
        }
        observes
    }

    /// Charges what is there already.
    pub(crate) fn charge(&self, units: u32) {
        if let Some(gpu) = self.known.gpu.filter(|_| units > 0)
            && self.try_reserve(units).is_err()
        {
            gpu.charge(self.slot(), units);
        }
    }

    /// Gives back.
    #[inline]
    pub(crate) fn refund(&self, units: u32) {
        if let Some(gpu) = self.known.gpu {
            gpu.refund(self.slot(), units);
        }
    }

    /// True for the job's first refusal.
    pub(crate) fn is_first_refusal(&self) -> bool {
        let member = self.private.member();
        member.is_some_and(|member| member.ledger.is_first_refusal())
    }

    /// The process's slot. Where there is none, there is no ledger to use it with.
    #[inline]
    fn slot(&self) -> usize {
        self.private.member().map_or(0, |member| member.slot)
    }

    /// Forgets those who are no more.
    pub(crate) fn reap(&self) -> Reaped {
        let member = self.private.member();
        member.map_or(Reaped::default(), |member| {
            member.reap(&self.private.dead_since)
        })
    }
}

/// How many milliseconds the memory of dead processes is waited for.
const LONGEST_WAIT: u64 = 2000;
/// How many milliseconds a thread waits until others have looked for room.
const LONGEST_SEARCH: u64 = 2 * LONGEST_WAIT;

/// A GPU of which nothing may be taken.
static NO_ROOM: Known = Known {
    gpu: None,
    uuid: CUuuid { bytes: [0; 16] },
    limit: Some(0),
};

/// Finds out what there is to know of a GPU.
#[cold]
fn look(place: &'static Place, member: &Member, device: CUdevice) -> Option<&'static Known> {
    let _errno = os::Errno::save();
    let uuid = device::uuid(device)?;
    let Some(limit) = limit_of(device) else {
        return Some(&NO_ROOM);
    };
    let known = Known {
        gpu: member.ledger.gpu(key(&uuid)),
        uuid,
        limit,
    };
    place.known.keep(known);
    // What another thread keeps at this moment is waited for: a call must not pass as if nothing were limited.
    Some(place.known.wait().unwrap_or(&NO_ROOM))
}

/// A GPU's part of the job's ledger, whatever is limited of it.
pub(crate) fn ledger_of(uuid: &CUuuid) -> Option<Gpu<'static>> {
    let account = Private::get().inspect_err(|error| oom_log::say_no_account(*error));
    account.ok()?.member()?.ledger.gpu(key(uuid))
}

/// What the living processes of the job hold of a GPU, in units; also where it is known from NVML alone.
pub(crate) fn held(uuid: &CUuuid) -> u64 {
    slot::held(key(uuid))
}

/// The number that stands for a GPU in the ledger.
pub(crate) fn key(uuid: &CUuuid) -> NonZeroU64 {
    let mut number = 0_u64;
    for byte in uuid.bytes {
        // Both halves count, each byte at another place.
        number = number.rotate_left(8) ^ u64::from(byte.cast_unsigned());
    }
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

/// What this process's job may hold of the GPU with this number in CUDA's order, in units; the outer `None` while nobody
/// can tell: then it is nothing.
pub(crate) fn limit_of(device: c_int) -> Option<Option<u32>> {
    gate::with_finding(|finding| limit(finding, || usize::try_from(device).ok()))
}

/// The same of a GPU whose number, if it has one, `number` finds out.
pub(crate) fn limit(
    finding: &Finding,
    number: impl FnOnce() -> Option<usize>,
) -> Option<Option<u32>> {
    match &finding.standing {
        Standing::Job(conf) => {
            let limits = conf.limits.as_ref();
            Some(limits.map(|limits| units_of_mib(limits.memory_mib())))
        }
        Standing::Neighbours => {
            neighbours::neighbours_memory_mib().map(|mib| mib.map(units_of_mib))
        }
        Standing::Own(limits) => {
            let memory = number().and_then(|number| limits.of(number).memory);
            let units = |bytes: u64| u32::try_from(bytes / softmig_region::UNIT);
            Some(memory.map(|memory| units(memory.get()).unwrap_or(u32::MAX)))
        }
        Standing::Passive | Standing::Denied(_) => None,
    }
}

/// The GPU of the calling thread's context; `None` if there is none or nothing is limited on it.
#[inline]
pub(crate) fn here() -> Option<Limited> {
    if !gate::is_limited_process() {
        return None;
    }
    let mut device = 0;
    // SAFETY: there is room for the answer.
    let result = unsafe { crate::driver::cuda::real::cuCtxGetDevice(&raw mut device) };
    if result != CUDA_SUCCESS {
        return None;
    }
    let gpu = Limited::on(device)?;
    // Relaxed: looked at again where it matters.
    if gpu.place.overhead.load(Ordering::Relaxed) == 0 {
        meet(&gpu);
    }
    Some(gpu)
}

/// Charges a context that was made without a call that was seen, unless a thread is about to.
#[cold]
fn meet(gpu: &Limited) {
    if let Some(_making) = gpu.place.making.begin()
        && gpu.place.overhead.load(Ordering::Relaxed) == 0
    {
        nvml_usage::meet(gpu);
    }
}

/// How many threads a GPU can run at once; 0 if that cannot be had.
pub(crate) fn threads(gpu: &Limited) -> u64 {
    let attribute = |attribute| {
        let mut value = 0;
        let device = gpu.number().into();
        // SAFETY: there is room for the answer.
        let result =
            unsafe { cuda_queries::cuDeviceGetAttribute(&raw mut value, attribute, device) };
        u64::try_from(value)
            .ok()
            .filter(|_| result == CUDA_SUCCESS)
            .unwrap_or(0)
    };
    let processors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    processors.saturating_mul(attribute(
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
    ))
}

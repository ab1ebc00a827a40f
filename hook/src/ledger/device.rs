//! One GPU, as this process's limits see it.

use core::ffi::{c_char, c_int};
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU32, Ordering};

use softmig_driver_sys::cuda::{
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    CUDA_SUCCESS, CUdevice, CUuuid,
};
use softmig_policy::node::identity::{Finding, ProcessRules};
use softmig_region::{Full, GpuLedger, Ledger, Taken, units_of_mib};

use super::allocations::Holdings;
use super::context_lock::{AlreadyLocked, ContextGuard};
use super::held;
use super::in_progress::{CallGuard, Calls};
use super::oom_log;
use super::slot::{ProcessLedger, Reaped, Slot};
use super::state::{GpuState, Known};
use crate::driver::{cuda_queries, device, nvml_queries};
use crate::identity::{gate, neighbours};
use crate::os;

/// A GPU of which this process's job may not take all.
#[derive(Clone, Copy)]
pub(crate) struct LimitedGpu {
    process: &'static ProcessLedger,
    state: &'static GpuState,
    known: &'static Known,
    number: u8,
}

impl LimitedGpu {
    /// The GPU with this number in CUDA's order; `None` if nothing is limited there. A process whose account cannot be
    /// had gets nothing of it.
    pub(crate) fn on(device: CUdevice) -> Option<Self> {
        let process = ProcessLedger::get().unwrap_or_else(|error| {
            oom_log::say_no_account(error);
            ProcessLedger::nowhere()
        });
        let number = u8::try_from(device).ok()?;
        let state = process.gpus.get(usize::from(number))?;
        let known = match (state.known.get(), process.slot()) {
            (Some(known), _) => known,
            (None, Some(slot)) => look(state, slot, device)?,
            (None, None) => &NO_ROOM,
        };
        known.limit?;
        Some(Self {
            process,
            state,
            known,
            number,
        })
    }

    /// Whether the calling thread's is the only call under way.
    pub(crate) fn is_alone(&self) -> bool {
        self.calls().is_alone()
    }

    /// The same since a look at the calls.
    pub(crate) fn were_alone(&self, since: Calls) -> bool {
        since.is_alone() && self.calls() == since
    }

    /// The calls now.
    pub(crate) fn calls(&self) -> Calls {
        Calls::read(&self.state.busy)
    }

    /// The memory that this process holds.
    pub(crate) fn holdings(&self) -> &'static Holdings {
        &self.process.holdings
    }

    /// The GPU's state.
    pub(crate) fn state(&self) -> &'static GpuState {
        self.state
    }

    /// Its number in CUDA's order.
    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// Its UUID.
    pub(crate) fn uuid(&self) -> &CUuuid {
        &self.known.uuid
    }

    /// The job's limit.
    pub(crate) fn limit(&self) -> u32 {
        self.known.limit.unwrap_or(u32::MAX)
    }

    /// The memory that the job holds.
    pub(crate) fn held(&self) -> u64 {
        self.known.gpu.map_or(0, |gpu| gpu.held())
    }

    /// The memory that this process holds.
    pub(crate) fn held_here(&self) -> u32 {
        let gpu = self.known.gpu;
        gpu.map_or(0, |gpu| gpu.held_by(self.slot()))
    }

    /// Takes `units`, if the job may have them.
    pub(super) fn try_reserve(&self, units: u32) -> Result<Taken, Full> {
        match self.known.gpu {
            Some(gpu) => gpu.reserve(self.slot(), units, self.limit()),
            None => Err(Full { held: 0 }),
        }
    }

    /// Whether the job holds no more than it may. Without a ledger that is unknown.
    pub(super) fn is_within_limit(&self) -> bool {
        let is_within = self
            .known
            .gpu
            .is_some_and(|gpu| gpu.held() <= self.limit().into());
        is_within || gate::with_finding(|finding| finding.observe)
    }

    /// Something without a name came or went: the next grant looks outside.
    pub(crate) fn expect_change(&self) {
        // Relaxed: see `look_outside`.
        self.state.look_at.store(0, Ordering::Relaxed);
    }

    /// Charges what is there already.
    pub(crate) fn charge(&self, units: u32) {
        if let Some(gpu) = self.known.gpu.filter(|_| units > 0)
            && self.try_reserve(units).is_err()
        {
            gpu.charge(self.slot(), units);
        }
    }

    /// Gives units back to the job.
    #[inline]
    pub(crate) fn refund(&self, units: u32) {
        if let Some(gpu) = self.known.gpu {
            gpu.refund(self.slot(), units);
        }
    }

    /// Notes that others may keep these units when this process has given them back or has ended.
    pub(crate) fn export(&self, units: u32) {
        if let Some(gpu) = self.known.gpu {
            gpu.export(self.slot(), units);
        }
    }

    /// Notes that this process has given back what it had exported. It stays charged: see [`super::orphans`].
    pub(super) fn orphan(&self, units: u32) {
        match self.known.gpu {
            Some(gpu) if nvml_queries::lists_all() => gpu.orphan(self.slot(), units),
            _ => {
                self.state.outlives.fetch_add(units, Ordering::Relaxed);
            }
        }
    }

    /// Notes units that are charged and that the driver counts for no process, or not yet.
    pub(crate) fn count_apart(&self, part: fn(&GpuState) -> &AtomicU32, units: u32) {
        part(self.state).fetch_add(units, Ordering::Relaxed);
        if let Some(gpu) = self.known.gpu {
            gpu.change_uncounted(self.slot(), units, 0);
        }
    }

    /// Ends that.
    pub(crate) fn count_apart_no_more(&self, part: fn(&GpuState) -> &AtomicU32, units: u32) {
        let less = |had: u32| Some(had.saturating_sub(units));
        let _ = part(self.state).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if let Some(gpu) = self.known.gpu {
            gpu.change_uncounted(self.slot(), 0, units);
        }
    }

    /// Notes units that other processes or interfaces have too, which the driver counts for one of them.
    pub(crate) fn count_elsewhere(&self, units: u32) {
        self.state.elsewhere.fetch_add(units, Ordering::Relaxed);
    }

    /// Ends that.
    pub(crate) fn count_elsewhere_no_more(&self, units: u32) {
        self.state.elsewhere.fetch_sub(units, Ordering::Relaxed);
    }

    /// Remembers that this process shares exported memory by a handle of this name.
    pub(crate) fn share(&self, name: u64) {
        if let Some(gpu) = self.known.gpu {
            gpu.share(self.slot(), name);
        }
    }

    /// Whether a process of the job shares memory by a handle of this name. Then that one is charged for it.
    pub(crate) fn is_shared(&self, name: u64) -> bool {
        self.known.gpu.is_some_and(|gpu| gpu.is_shared(name))
    }

    /// The job's ledger, and this GPU's part of it.
    pub(super) fn ledger(&self) -> Option<(Ledger<'static>, GpuLedger<'static>)> {
        Some((self.process.slot()?.ledger, self.known.gpu?))
    }

    /// Notes a refusal for those who look from outside.
    pub(crate) fn note_refusal(&self, units: u32) {
        if let Some(gpu) = self.known.gpu {
            // Relaxed: a count and nothing else.
            self.state.refused.fetch_add(1, Ordering::Relaxed);
            gpu.note_refusal(units);
        }
    }

    /// The process was given memory: it does without what it was refused before.
    #[inline]
    pub(super) fn note_recovery(&self) {
        let refused = &self.state.refused;
        if refused.load(Ordering::Relaxed) > 0
            && let Some(gpu) = self.known.gpu
        {
            gpu.note_recovery(refused.swap(0, Ordering::Relaxed));
        }
    }

    /// True for the job's first refusal.
    pub(crate) fn is_first_refusal(&self) -> bool {
        let slot = self.process.slot();
        slot.is_some_and(|slot| slot.ledger.is_first_refusal())
    }

    /// The process's slot. A process without a slot has no ledger either, so its slot is not used.
    #[inline]
    fn slot(&self) -> usize {
        self.process.slot().map_or(0, |slot| slot.number)
    }

    /// Forgets processes that have ended.
    pub(crate) fn reap(&self) -> Reaped {
        let slot = self.process.slot();
        slot.map_or(Reaped::default(), |slot| slot.reap(&self.process.dead))
    }
}

/// A GPU of which nothing may be taken.
static NO_ROOM: Known = Known {
    gpu: None,
    uuid: CUuuid { bytes: [0; 16] },
    limit: Some(0),
};

impl CallGuard {
    /// A call on this GPU.
    #[inline]
    pub(crate) fn on(gpu: &LimitedGpu) -> Self {
        Self::begin(&gpu.state.busy)
    }
}

/// Keeps other threads from making or ending the primary context of the GPU with this number. `None` where nothing is counted.
pub(crate) fn hold_primary_of(
    device: CUdevice,
) -> Result<Option<ContextGuard<'static>>, AlreadyLocked> {
    if !gate::is_limited_process() {
        return Ok(None);
    }
    let process = ProcessLedger::get().ok();
    let state = process.and_then(|process| process.gpus.get(usize::try_from(device).ok()?));
    state
        .map(|state| state.context_lock.lock().ok_or(AlreadyLocked))
        .transpose()
}

/// Finds out what there is to know of a GPU.
#[cold]
fn look(state: &'static GpuState, slot: &Slot, device: CUdevice) -> Option<&'static Known> {
    let _errno = os::Errno::save();
    let uuid = device::uuid(device)?;
    let Some(limit) = limit_of(device) else {
        return Some(&NO_ROOM);
    };
    let known = Known {
        gpu: slot.ledger.gpu(key(&uuid)),
        uuid,
        limit,
    };
    state.known.keep(known);
    // Waits for the facts that another thread stores at this moment: a call must not pass as if nothing were limited.
    Some(state.known.wait().unwrap_or(&NO_ROOM))
}

/// A GPU's part of the job's ledger, whatever is limited of it.
pub(crate) fn ledger_of(uuid: &CUuuid) -> Option<GpuLedger<'static>> {
    let process = ProcessLedger::get().inspect_err(|error| oom_log::say_no_account(*error));
    process.ok()?.slot()?.ledger.gpu(key(uuid))
}

/// The units that the living processes of the job hold of a GPU, and its orphans, also if this process knows the GPU from NVML alone.
/// `first` is called before they are counted.
pub(crate) fn held(uuid: &CUuuid, first: impl Fn(Ledger<'_>, GpuLedger<'_>)) -> u64 {
    held::held(key(uuid), first)
}

/// The key of a GPU in the ledger.
pub(crate) fn key(uuid: &CUuuid) -> NonZeroU64 {
    softmig_region::key(uuid.bytes.map(c_char::cast_unsigned))
}

/// The units that this process's job may hold of the GPU with this number in CUDA's order; the inner `None` without
/// limit. The outer `None` means that the limit is not known yet: the job may then hold nothing.
pub(crate) fn limit_of(device: c_int) -> Option<Option<u32>> {
    gate::with_finding(|finding| limit(finding, || usize::try_from(device).ok()))
}

/// The same of a GPU whose number, if it has one, `number` finds out.
pub(crate) fn limit(
    finding: &Finding,
    number: impl FnOnce() -> Option<usize>,
) -> Option<Option<u32>> {
    match &finding.standing {
        ProcessRules::Job(conf) => {
            let limits = conf.limits.as_ref();
            Some(limits.map(|limits| units_of_mib(limits.memory_mib())))
        }
        ProcessRules::Neighbours => {
            neighbours::neighbours_memory_mib().map(|mib| mib.map(units_of_mib))
        }
        ProcessRules::Own(limits) => {
            let memory = number().and_then(|number| limits.for_gpu(number).memory);
            let units = |bytes: u64| u32::try_from(bytes / softmig_region::UNIT);
            Some(memory.map(|memory| units(memory.get()).unwrap_or(u32::MAX)))
        }
        ProcessRules::Passive | ProcessRules::Denied(_) => None,
    }
}

/// How many threads a GPU can run at once; 0 if that cannot be had.
pub(crate) fn threads(gpu: &LimitedGpu) -> u64 {
    let attribute = |attribute| {
        let mut value = 0;
        let device = gpu.number().into();
        let result = cuda_queries::cuDeviceGetAttribute(&mut value, attribute, device);
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

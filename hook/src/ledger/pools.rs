//! Memory pools and the memory of graphs: what is freed to them stays with them, and is charged until it is known to have
//! left.

use core::sync::atomic::{AtomicU32, Ordering};

use softmig_driver_sys::cuda::{
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUmemPool_attribute,
    CUmemoryPool, CUresult,
};
use softmig_region::units;

use super::allocations::{Holding, Kind};
use super::device::LimitedGpu;
use super::nvml_usage;
use super::slot::{gpu_states, holdings};
use crate::driver::args::Number;
use crate::driver::cuda_queries;
use crate::driver::stream::relaxed;
use crate::os;

/// A pool on a GPU.
pub(crate) struct Pool {
    gpu: LimitedGpu,
    handle: CUmemoryPool,
    /// Its memory is managed: the driver counts it for no process.
    is_managed: bool,
    /// The program names it, and it is not known: how often pools had changed then.
    new_since: Option<u32>,
}

/// In a holding's `device`: the host's.
const HOST: u8 = u8::MAX;

/// In a holding's `device`: the pool is about to be destroyed. The driver is not asked about it any more, and only a pool that is
/// created at the same handle takes its place.
const GOING: u8 = u8::MAX - 1;

impl Pool {
    /// The pool, or where it is null the one that the GPU's allocations come from; `None` for the host's.
    pub(crate) fn resolve(gpu: &LimitedGpu, pool: CUmemoryPool) -> Option<Self> {
        let since = currents();
        let current = gpu.state().pool.load(Ordering::Relaxed);
        if pool.is_null() && current != 0 {
            return Some(Self {
                gpu: *gpu,
                handle: current as usize as CUmemoryPool,
                is_managed: false,
                new_since: None,
            });
        }
        let handle = if pool.is_null() {
            find_current(gpu)?
        } else {
            pool
        };
        let known = gpu.holdings().get(Kind::Pool, handle as u64);
        let Some(known) = known.filter(|known| known.device != GOING) else {
            return Some(Self {
                gpu: *gpu,
                handle,
                is_managed: false,
                new_since: Some(since),
            });
        };
        if known.device == HOST {
            return None;
        }
        let gpu = if known.device == gpu.number() {
            *gpu
        } else {
            LimitedGpu::on(known.device.into())?
        };
        Some(Self {
            gpu,
            handle,
            is_managed: known.other == MANAGED,
            new_since: None,
        })
    }

    /// The GPU that it lies on.
    pub(crate) fn gpu(&self) -> &LimitedGpu {
        &self.gpu
    }

    /// The driver has answered to an allocation. It refuses a pool that was destroyed by another error than these.
    pub(crate) fn answered(&self, result: CUresult) {
        if let Some(since) = self.new_since
            && matches!(result, CUDA_SUCCESS | CUDA_ERROR_OUT_OF_MEMORY)
        {
            remember_if_same(&self.gpu, self.handle, 0, Some(since));
        }
    }

    /// Its unused bytes; maybe fewer than there are.
    pub(crate) fn unused(&self) -> u64 {
        let reserved = figure(self.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        let used = figure(self.handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        reserved
            .unwrap_or(0)
            .saturating_sub(used.unwrap_or(u64::MAX))
    }

    /// Charges what the pool holds after an allocation, for which `reserved_before` units are charged already. Of a pool that
    /// another thread destroys meanwhile nothing can be known: what the allocation took is then charged by the driver's own
    /// figure.
    pub(crate) fn look(&self, reserved_before: u32, result: CUresult) {
        if self.charge_growth(reserved_before) {
            return;
        }
        if result == CUDA_SUCCESS && !nvml_usage::raise(&self.gpu, reserved_before) {
            let overhead = &self.gpu.state().overhead;
            overhead.fetch_add(reserved_before, Ordering::Relaxed);
        } else {
            self.gpu.refund(reserved_before);
        }
    }

    /// Charges what the pool holds now, of which `reserved_before` units are charged already. Less than it was known to
    /// hold only if no other call may be making it grow. Returns whether the pool is known.
    fn charge_growth(&self, reserved_before: u32) -> bool {
        let calls = self.gpu.calls();
        let Some(reserved) = figure(self.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) else {
            return false;
        };
        let now = units(reserved);
        let gpu = &self.gpu;
        let name = self.handle as u64;
        let before = gpu
            .holdings()
            .change(Kind::Pool, name, |known| match known {
                None => (None, None),
                Some(known) if known.device == GOING => (Some(known), None),
                Some(known)
                    if now > known.units || (now < known.units && gpu.were_alone(calls)) =>
                {
                    (
                        Some(Holding {
                            units: now,
                            ..known
                        }),
                        Some(known.units),
                    )
                }
                other => (other, Some(now)),
            });
        let Some(before) = before else {
            return false;
        };
        let more = now.saturating_sub(before);
        gpu.charge(more.saturating_sub(reserved_before));
        gpu.refund(reserved_before.saturating_sub(more));
        gpu.refund(before.saturating_sub(now));
        if self.is_managed {
            gpu.count_apart(|state| &state.managed, more);
            gpu.count_apart_no_more(|state| &state.managed, before.saturating_sub(now));
        }
        true
    }
}

/// Finds the pool that a GPU's allocations come from, and remembers it if it is an ordinary one.
#[cold]
fn find_current(gpu: &LimitedGpu) -> Option<CUmemoryPool> {
    let mut pool: CUmemoryPool = core::ptr::null_mut();
    let before = currents();
    if cuda_queries::cuDeviceGetMemPool(&mut pool, gpu.number().into()) != CUDA_SUCCESS {
        return None;
    }
    let known = gpu.holdings().get(Kind::Pool, pool as u64);
    let Some(known) = known.or_else(|| remember_if_same(gpu, pool, 0, Some(before))) else {
        return Some(pool);
    };
    if known.device == gpu.number() && known.other != MANAGED {
        gpu.state().pool.store(pool as u64, Ordering::SeqCst);
        // It may be another one by now.
        if currents() != before {
            gpu.state().pool.store(0, Ordering::SeqCst);
        }
    }
    Some(pool)
}

/// How often the pools that allocations come from have changed.
static CURRENTS: AtomicU32 = AtomicU32::new(0);

/// How often the pools that allocations come from have changed so far.
pub(crate) fn currents() -> u32 {
    CURRENTS.load(Ordering::SeqCst)
}

/// The pools that allocations come from may be others now.
pub(crate) fn forget_currents() {
    // SeqCst, and first: a thread that stores an older answer sees this.
    CURRENTS.fetch_add(1, Ordering::SeqCst);
    for state in gpu_states().unwrap_or_default() {
        state.pool.store(0, Ordering::SeqCst);
    }
}

/// In a pool's `other`: its memory is managed.
pub(crate) const MANAGED: u64 = 1;

/// A pool that holds nothing yet.
fn empty(device: u8, kind: u64) -> Holding {
    Holding {
        units: 0,
        device,
        count: 0,
        other: kind,
    }
}

/// Remembers a pool of a GPU's that the program has created; `kind` is [`MANAGED`] or 0.
#[cold]
pub(crate) fn remember(gpu: &LimitedGpu, pool: CUmemoryPool, kind: u64) {
    remember_if_same(gpu, pool, kind, None);
}

/// Remembers a pool that the driver named when pools had changed `since` times, or that is created just now. `None` for one that
/// is being destroyed, or may have been destroyed since then: [`end_destroying`] counts before it forgets a pool.
#[cold]
fn remember_if_same(
    gpu: &LimitedGpu,
    pool: CUmemoryPool,
    kind: u64,
    since: Option<u32>,
) -> Option<Holding> {
    let new = empty(gpu.number(), kind);
    let known = gpu.holdings().change(Kind::Pool, pool as u64, |known| {
        let known = known.filter(|known| known.device != GOING || since.is_some());
        let is_there = since.is_none_or(|since| currents() == since);
        let known = known.or_else(|| is_there.then_some(new));
        (known, known)
    });
    known.filter(|known| known.device != GOING)
}

/// Remembers a pool of the host's, which is left alone.
pub(crate) fn remember_host(pool: CUmemoryPool) {
    if let Some(holdings) = holdings() {
        holdings.put(Kind::Pool, pool as u64, empty(HOST, 0));
    }
}

/// A pool that is being destroyed: what was known of it, and what it holds without its unused memory, which goes with it.
pub(crate) struct Going {
    known: Option<Holding>,
    left: u32,
}

/// Sees to it that no thread asks the driver about a pool any more, or remembers it, until it is destroyed. `None` if another
/// thread destroys it.
pub(crate) fn begin_destroying(pool: CUmemoryPool) -> Option<Going> {
    let _errno = os::Errno::save();
    let holdings = holdings()?;
    let deadline = os::milliseconds().saturating_add(PATIENCE);
    let known = loop {
        let is_late = os::milliseconds() > deadline;
        let before = holdings.change(Kind::Pool, pool as u64, |known| {
            let is_asked = known.is_some_and(|known| known.count > 0) && !is_late;
            let going = Holding {
                device: GOING,
                ..known.unwrap_or(empty(GOING, 0))
            };
            (
                if is_asked { known } else { Some(going) },
                (known, is_asked),
            )
        });
        match before {
            (Some(known), _) if known.device == GOING => return None,
            (known, false) => break known,
            _ => os::nap(LOOK_AGAIN),
        }
    };
    let mut left = None;
    if known.is_some() {
        relaxed(|| cuda_queries::cuMemPoolTrimTo(pool, 0));
        left = relaxed(|| attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    }
    let left = left.map_or(u32::MAX, units);
    Some(Going { known, left })
}

/// The driver has answered to the call that destroys a pool.
pub(crate) fn end_destroying(pool: CUmemoryPool, going: &Going, result: CUresult) {
    let mut back = going.known.map(|held| Holding { count: 0, ..held });
    if result == CUDA_SUCCESS {
        if let Some(held) = back.take() {
            destroyed(&held, going.left);
        }
        // First: whoever was told of the pool before sees this, or that it is going.
        forget_currents();
    }
    if let Some(holdings) = holdings() {
        holdings.change(Kind::Pool, pool as u64, |known| {
            let is_it = known.is_some_and(|known| known.device == GOING);
            (if is_it { back } else { known }, ())
        });
    }
}

/// How many milliseconds a thread that asks about a pool is waited for: it may wait for the thread that destroys the pool.
const PATIENCE: u64 = 10_000;

/// How long until it is looked for again, in nanoseconds.
const LOOK_AGAIN: u64 = 20_000;

/// A pool is destroyed. Its memory that is still in use stays until it is freed, at an unknown time, so it is charged
/// as memory without a name.
fn destroyed(held: &Holding, left: u32) {
    if let Some(gpu) = LimitedGpu::on(held.device.into()) {
        let left = left.min(held.units);
        let state = gpu.state();
        if held.other == MANAGED {
            // What is left of it need not be on the GPU.
            gpu.count_apart_no_more(|state| &state.managed, held.units.saturating_sub(left));
        } else {
            state.overhead.fetch_add(left, Ordering::Relaxed);
        }
        gpu.refund(held.units.saturating_sub(left));
    }
}

/// Charges what a pool holds now. The caller counts as one call under way.
pub(crate) fn refresh(pool: CUmemoryPool) {
    let known = holdings().and_then(|holdings| holdings.get(Kind::Pool, pool as u64));
    let gpu = known.and_then(|known| LimitedGpu::on(known.device.into()));
    if let Some(gpu) = gpu {
        let pool = Pool {
            gpu,
            handle: pool,
            is_managed: known.is_some_and(|known| known.other == MANAGED),
            new_since: None,
        };
        pool.charge_growth(0);
    }
}

/// Charges what all pools and graphs of a GPU hold now: pools give back by themselves when the program waits for its
/// streams.
pub(crate) fn refresh_all(gpu: &LimitedGpu) {
    if gpu.state().graphs.load(Ordering::Relaxed) > 0 {
        refresh_graphs(gpu);
    }
    gpu.holdings().each(Kind::Pool, |pool, held| {
        if held.device == gpu.number() {
            refresh(pool as usize as CUmemoryPool);
        }
    });
}

/// Makes pools and graphs give unused memory back, and charges what they then still hold.
pub(crate) fn give_back(gpu: &LimitedGpu) {
    gpu.holdings().each(Kind::Pool, |pool, held| {
        if held.device == gpu.number() {
            let pool = pool as usize as CUmemoryPool;
            trim(pool);
            refresh(pool);
        }
    });
    if gpu.state().graphs.load(Ordering::Relaxed) > 0 {
        let _ = cuda_queries::cuDeviceGraphMemTrim(gpu.number().into());
        refresh_graphs(gpu);
    }
}

/// The units of a GPU that graphs hold.
fn graphs_figure(gpu: &LimitedGpu) -> Option<u32> {
    let mut bytes = 0_u64;
    let result = cuda_queries::cuDeviceGetGraphMemAttribute(
        gpu.number().into(),
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
        Number(&mut bytes),
    );
    (result == CUDA_SUCCESS).then(|| units(bytes))
}

/// Charges what graphs hold, if it is more; `reserved_before` units of it are charged already.
pub(crate) fn graphs_grew(gpu: &LimitedGpu, reserved_before: u32) {
    let graphs = &gpu.state().graphs;
    let now = graphs_figure(gpu).unwrap_or(0);
    let before = graphs.fetch_max(now, Ordering::SeqCst);
    let more = now.saturating_sub(before);
    gpu.charge(more.saturating_sub(reserved_before));
    gpu.refund(reserved_before.saturating_sub(more));
}

/// Charges what graphs hold, if it is less.
pub(crate) fn refresh_graphs(gpu: &LimitedGpu) {
    let graphs = &gpu.state().graphs;
    let calls = gpu.calls();
    let before = graphs.load(Ordering::SeqCst);
    let Some(now) = graphs_figure(gpu).filter(|&now| now < before) else {
        return;
    };
    if !gpu.were_alone(calls) {
        return;
    }
    let swapped = graphs.compare_exchange(before, now, Ordering::SeqCst, Ordering::SeqCst);
    if swapped.is_ok() {
        gpu.refund(before.saturating_sub(now));
    }
}

/// A figure of a known pool, in bytes.
fn figure(pool: CUmemoryPool, figure: CUmemPool_attribute) -> Option<u64> {
    ask(pool, || attribute(pool, figure)).flatten()
}

/// A figure of a pool that is there.
fn attribute(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Option<u64> {
    let mut bytes = 0_u64;
    let result = cuda_queries::cuMemPoolGetAttribute(pool, attribute, Number(&mut bytes));
    (result == CUDA_SUCCESS).then_some(bytes)
}

/// Makes a known pool give unused memory back.
fn trim(pool: CUmemoryPool) {
    ask(pool, || cuda_queries::cuMemPoolTrimTo(pool, 0));
}

/// Asks the driver about a pool that is known. The driver reads what lies at the handle, and may die of it where the pool was
/// destroyed, so a thread that destroys the pool waits meanwhile ([`begin_destroying`]).
fn ask<T>(pool: CUmemoryPool, question: impl FnOnce() -> T) -> Option<T> {
    if !count_asker(pool, true) {
        return None;
    }
    let answer = relaxed(question);
    count_asker(pool, false);
    Some(answer)
}

/// Counts a thread that asks about a pool in, or out. Returns whether the pool is there.
#[inline(never)]
fn count_asker(pool: CUmemoryPool, is_in: bool) -> bool {
    let Some(holdings) = holdings() else {
        return false;
    };
    holdings.change(Kind::Pool, pool as u64, |known| {
        let is_there = known.is_some_and(|known| known.device != GOING);
        let counted = known.map(|known| Holding {
            count: if !is_in {
                known.count.saturating_sub(1)
            } else if is_there {
                known.count.saturating_add(1)
            } else {
                known.count
            },
            ..known
        });
        (counted, is_there)
    })
}

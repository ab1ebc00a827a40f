//! Contexts: each takes memory of its own, and what was allocated in it goes with it.
//!
//! The CUDA runtime makes its contexts through a private table of the driver's: those are charged when the first function
//! of the table is called in one ([`crate::ledger::here`]).

use core::sync::atomic::Ordering;

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUcontext, CUdevice, CUresult};
use softmig_policy::node::job_conf::MAX_GPUS;

use crate::driver::args::Given;
use crate::driver::context::{self, is_active, primary_of};
use crate::driver::device;
use crate::identity::gate;
use crate::ledger::device::hold_primary_of;
use crate::ledger::{self, CallGuard, Holding, Kind, LimitedGpu, mappings, nvml_usage, pools};
use crate::memory::stacks;
use crate::pacing;

/// Kinds that can only be used in the context that they were made in.
const OF_CONTEXT: [Kind; 7] = [
    Kind::Address,
    Kind::Managed,
    Kind::Piece,
    Kind::Array,
    Kind::Mipmap,
    Kind::Opened,
    Kind::External,
];

fn on(device: CUdevice) -> Option<LimitedGpu> {
    gate::is_limited_process().then(|| LimitedGpu::on(device))?
}

/// Makes a context beside the primary one.
pub(crate) fn create(
    place: &Given<CUcontext>,
    device: CUdevice,
    call: impl Fn() -> CUresult,
) -> CUresult {
    created(place, device, &call)
}

fn created(place: &Given<CUcontext>, device: CUdevice, call: &dyn Fn() -> CUresult) -> CUresult {
    if gate::is_limited_process() {
        context::expect_several_contexts();
    }
    let _context_guard = hold_primary_of(device);
    let Some(gpu) = on(device) else { return call() };
    let units = nvml_usage::of_context(&gpu);
    ledger::charged(&gpu, units, c"cuCtxCreate", call, || {
        pacing::channels::expect_context();
        gpu.state().overhead.fetch_add(units, Ordering::Relaxed);
        gpu.expect_change();
        let held = Holding {
            units: 0,
            device: gpu.number(),
            count: units,
            other: 0,
        };
        if let Some(context) = place.get() {
            ledger::keep(&gpu, Kind::Context, context as u64, held);
        }
    })
}

/// Ends a context that the program made.
pub(crate) fn destroy(context: CUcontext, call: impl Fn() -> CUresult) -> CUresult {
    destroyed(context, &call)
}

fn destroyed(context: CUcontext, call: &dyn Fn() -> CUresult) -> CUresult {
    let Some(holdings) = ledger::holdings() else {
        return pacing::ending_context(context, call);
    };
    let device = holdings.get(Kind::Context, context as u64);
    let _context_guard = device.map(|known| hold_primary_of(known.device.into()));
    let known = holdings.take(Kind::Context, context as u64);
    let gpu = known.and_then(|known| LimitedGpu::on(known.device.into()));
    let _guard = gpu.as_ref().map(CallGuard::on);
    let result = pacing::ending_context(context, call);
    if result == CUDA_SUCCESS {
        mappings::forget_gone();
        stacks::forget();
    }
    let Some(known) = known else { return result };
    if result != CUDA_SUCCESS {
        holdings.put(Kind::Context, context as u64, known);
        return result;
    }
    if let Some(gpu) = gpu {
        gpu.expect_change();
        forget(&gpu, &|name| name == context as u64);
        nvml_usage::lower(&gpu, known.count);
    }
    result
}

/// Refunds what was allocated in a context that is gone, of which `is_its` says whether a context's handle is its own.
fn forget(gpu: &LimitedGpu, is_its: &dyn Fn(u64) -> bool) {
    let holdings = gpu.holdings();
    for kind in OF_CONTEXT {
        holdings.each(kind, |name, held| {
            if held.device == gpu.number()
                && is_its(held.other)
                && let Some(held) = holdings.take(kind, name)
            {
                ledger::refund(kind, &held);
            }
        });
    }
    holdings.each(Kind::Stacks, |name, held| {
        if held.device == gpu.number() && is_its(name) {
            nvml_usage::release(gpu, stacks::forget_context(gpu, name));
        }
    });
}

/// Uses a GPU's primary context, which makes it if need be.
pub(crate) fn retain_primary(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    let context_guard = hold_primary_of(device);
    let Some(gpu) = on(device).filter(|_| context_guard.is_ok() && !is_active(device)) else {
        return call();
    };
    let units = nvml_usage::of_context(&gpu);
    ledger::charged(&gpu, units, c"cuDevicePrimaryCtxRetain", call, || {
        pacing::channels::expect_context();
        gpu.state().overhead.fetch_add(units, Ordering::Relaxed);
    })
}

/// The primary contexts of the process's other GPUs.
fn primaries_beside(device: CUdevice) -> [u64; MAX_GPUS] {
    let mut found = [0; MAX_GPUS];
    for (place, other) in found.iter_mut().zip(0..device::device_count()) {
        let context = primary_of(other).filter(|_| other != device);
        *place = context.map_or(0, |context| context as u64);
    }
    found
}

/// Calls what may end the primary context.
pub(crate) fn end_primary(device: CUdevice, call: impl Fn() -> CUresult) -> CUresult {
    maybe_ended(device, &call)
}

/// The same. No other thread makes the context anew until its old entries are gone: the new one has the same handle.
fn maybe_ended(device: CUdevice, call: &dyn Fn() -> CUresult) -> CUresult {
    let context_guard = hold_primary_of(device);
    let Some(gpu) = on(device).filter(|_| context_guard.is_ok() && is_active(device)) else {
        return pacing::ending_primary(device, call);
    };
    let _guard = CallGuard::on(&gpu);
    let result = pacing::ending_primary(device, call);
    if result == CUDA_SUCCESS && !is_active(device) {
        // Green contexts live in the primary one, and have handles of their own.
        let others = primaries_beside(device);
        let is_the_programs = |name| gpu.holdings().get(Kind::Context, name).is_some();
        forget(&gpu, &|name| {
            !others.contains(&name) && !is_the_programs(name)
        });
        // Pools outlive contexts.
        pools::refresh_all(&gpu);
        mappings::forget_gone();
        stacks::forget();
        gpu.expect_change();
        // The contexts that the program made itself are left.
        let mut others = 0_u32;
        gpu.holdings().each(Kind::Context, |context, held| {
            if held.device == gpu.number() {
                let stacks = gpu.holdings().get(Kind::Stacks, context);
                let stacks = stacks.map_or(0, |stacks| stacks.units);
                others = others.saturating_add(held.count).saturating_add(stacks);
            }
        });
        let overhead = gpu.state().overhead.load(Ordering::Relaxed);
        nvml_usage::lower(&gpu, overhead.saturating_sub(others));
    }
    result
}

/// A green context lives in the primary one, takes a little more, and keeps it until that is gone.
pub(crate) fn create_green(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    let _context_guard = hold_primary_of(device);
    let Some(gpu) = on(device) else { return call() };
    let primary = if is_active(device) {
        0
    } else {
        nvml_usage::of_context(&gpu)
    };
    let units = primary.saturating_add(nvml_usage::OF_GREEN_CONTEXT);
    ledger::charged(&gpu, units, c"cuGreenCtxCreate", call, || {
        gpu.state().overhead.fetch_add(units, Ordering::Relaxed);
        gpu.expect_change();
    })
}

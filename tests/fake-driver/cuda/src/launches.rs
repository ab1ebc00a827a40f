//! Launching kernels, in all the ways that programs do.

use std::ffi::c_void;
use std::sync::OnceLock;

use softmig_driver_sys::cuda::*;

#[cfg(not(feature = "old"))]
use crate::In;
use crate::Out;
use crate::Outcome;
use crate::context_memory;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::functions;
use crate::image::Act;
use crate::streams::{self, Default};
use crate::thread;
use crate::work::{Deed, Kernel, Op, Shape};

/// Threads in a block.
const MOST_THREADS: u32 = 1024;
/// The mark before the address of a buffer with all arguments: CU_LAUNCH_PARAM_BUFFER_POINTER.
const BUFFER: usize = 1;

exports! {
    static SYMBOLS;

    /// Launches a kernel.
    fn cuLaunchKernel [cuLaunchKernel 4000], cuLaunchKernel_ptsz [7000] (
        function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) |per_thread| => {
        let shape = Shape {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            shared,
        };
        let launched =
            locked(|driver| launch(driver, function, shape, stream, (parameters, extra), per_thread));
        launched.and_then(|()| wait_if_blocking(stream, per_thread))
    };

    /// Launches a kernel all of whose blocks run at the same time.
    fn cuLaunchCooperativeKernel [cuLaunchCooperativeKernel 9000], cuLaunchCooperativeKernel_ptsz [9000] (
        function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: CUstream, parameters: *mut *mut c_void
    ) |per_thread| => locked(|driver| {
        let shape = Shape {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            shared,
        };
        launch(driver, function, shape, stream, (parameters, std::ptr::null_mut()), per_thread)
    });

    /// Launches kernels on several devices.
    fn cuLaunchCooperativeKernelMultiDevice [cuLaunchCooperativeKernelMultiDevice 9000] (
        list: Out<CUDA_LAUNCH_PARAMS>, count: u32, _flags: u32
    ) => locked(|driver| {
        for index in 0..count as usize {
            let one = list.at(index)?;
            let shape = Shape {
                grid: [one.gridDimX, one.gridDimY, one.gridDimZ],
                block: [one.blockDimX, one.blockDimY, one.blockDimZ],
                shared: one.sharedMemBytes,
            };
            let arguments = (one.kernelParams, std::ptr::null_mut());
            launch(driver, one.function, shape, one.hStream, arguments, false)?;
        }
        Ok(())
    });

    /// Launches a kernel as old programs do: one block.
    fn cuLaunch [cuLaunch 2000] (function: CUfunction) =>
        locked(|driver| launch_old(driver, function, (1, 1), std::ptr::null_mut()));

    /// Launches a kernel as old programs do.
    fn cuLaunchGrid [cuLaunchGrid 2000] (function: CUfunction, width: i32, height: i32) =>
        locked(|driver| launch_old(driver, function, (width, height), std::ptr::null_mut()));

    /// Launches a kernel as old programs do, in a stream.
    fn cuLaunchGridAsync [cuLaunchGridAsync 2000] (
        function: CUfunction, width: i32, height: i32, stream: CUstream
    ) => locked(|driver| launch_old(driver, function, (width, height), stream));
}

#[cfg(not(feature = "old"))]
exports! {
    static NEW_SYMBOLS;

    /// Launches a kernel; its attributes are not told apart.
    fn cuLaunchKernelEx [cuLaunchKernelEx 11060], cuLaunchKernelEx_ptsz [11060] (
        configuration: In<CUlaunchConfig>, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) |per_thread| => locked(|driver| {
        let asked = configuration.get()?;
        let shape = Shape {
            grid: [asked.gridDimX, asked.gridDimY, asked.gridDimZ],
            block: [asked.blockDimX, asked.blockDimY, asked.blockDimZ],
            shared: asked.sharedMemBytes,
        };
        launch(driver, function, shape, asked.hStream, (parameters, extra), per_thread)
    });
}

/// By CUDA_LAUNCH_BLOCKING a launch returns when its work is done.
fn wait_if_blocking(stream: CUstream, per_thread: bool) -> Outcome {
    static IS_SET: OnceLock<bool> = OnceLock::new();
    let is_set = || std::env::var_os("CUDA_LAUNCH_BLOCKING").is_some_and(|it| it == "1");
    if *IS_SET.get_or_init(is_set) {
        streams::synchronize(stream as usize, Default::of(per_thread))
    } else {
        Ok(())
    }
}

/// A kernel's arguments: pointers to each, or a list with a buffer of all.
pub(crate) type Arguments = (*mut *mut c_void, *mut *mut c_void);

fn launch(
    driver: &mut Driver,
    function: CUfunction,
    shape: Shape,
    stream: CUstream,
    (parameters, extra): Arguments,
    per_thread: bool,
) -> Outcome {
    thread::launches();
    let (context, _) = driver.contexts.current()?;
    let kernel = kernel(driver, function as usize, shape, (parameters, extra))?;
    #[cfg(not(feature = "old"))]
    if let functions::Origin::Library(library) = functions::get(driver, function as usize)?.origin {
        crate::libraries::use_here(driver, library)?;
    }
    let stream = streams::resolve(driver, stream as usize, Default::of(per_thread))?;
    // Captured kernels need it when the graph is made ready.
    if streams::get(driver, stream)?.capture.is_none() {
        context_memory::provide(driver, context, &kernel)?;
    }
    streams::submit(driver, stream, Default::Legacy, Op::Kernel(kernel))
}

fn launch_old(
    driver: &mut Driver,
    function: CUfunction,
    (width, height): (i32, i32),
    stream: CUstream,
) -> Outcome {
    let size = |side: i32| u32::try_from(side).map_err(|_| CUDA_ERROR_INVALID_VALUE);
    let shape = Shape {
        grid: [size(width)?, size(height)?, 1],
        block: [1; 3],
        shared: 0,
    };
    let none = (std::ptr::null_mut(), std::ptr::null_mut());
    launch(driver, function, shape, stream, none, false)
}

/// A kernel that is to run, if it is one that a device accepts.
pub(crate) fn kernel(
    driver: &Driver,
    function: usize,
    shape: Shape,
    arguments: Arguments,
) -> Outcome<Kernel> {
    let act = functions::get(driver, function)?.act;
    let threads = shape
        .block
        .iter()
        .try_fold(1u32, |threads, side| threads.checked_mul(*side));
    let fits = threads.is_some_and(|threads| (1..=MOST_THREADS).contains(&threads));
    if !fits || shape.grid.contains(&0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let deed = match act {
        Act::Runs(time) => Deed::Run(time),
        Act::RunsAsAsked => Deed::Run(argument(arguments, 0)?),
        Act::Spins => Deed::Await(argument(arguments, 0)?),
        Act::Writes => Deed::Write {
            address: argument(arguments, 0)?,
            value: argument(arguments, 1)? as u32,
        },
    };
    Ok(Kernel {
        deed,
        function,
        shape,
    })
}

/// One of a kernel's arguments, all of which are 64 bits wide.
fn argument((parameters, extra): Arguments, number: usize) -> Outcome<u64> {
    let place = if parameters.is_null() {
        buffer(extra)?.wrapping_add(number)
    } else {
        // SAFETY: the program gives a pointer for each argument, and the kernel has more arguments than `number`.
        let place = unsafe { parameters.add(number) };
        // SAFETY: as above.
        unsafe { place.read() }.cast::<u64>()
    };
    if place.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the argument is 64 bits wide, as the module's image says; in a buffer it may be anywhere.
    Ok(unsafe { place.read_unaligned() })
}

/// The buffer in a list that begins with its address; other orders are not understood.
fn buffer(extra: *mut *mut c_void) -> Outcome<*mut u64> {
    if extra.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the list has at least the word that ends it.
    if unsafe { extra.read() } as usize != BUFFER {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: behind that word there is the buffer's address.
    let second = unsafe { extra.add(1) };
    // SAFETY: as above.
    Ok(unsafe { second.read() }.cast())
}

//! As much of the CUDA driver library as a program needs that keeps a GPU busy.

use core::ffi::{c_char, c_int, c_uint, c_void};
use libloading::{Library, Symbol};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name that a node without development files has.
const LIBRARY: &str = "libcuda.so.1";

/// A kernel of one thread: it counts until a number of nanoseconds has passed by the GPU's clock, and adds the count to the
/// counter. Time off the GPU passes too, but nothing is counted then.
const SPIN: &[u8] = b".version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 counter, .param .u64 nanos)
{
    .reg .pred %again;
    .reg .u64 %counter, %nanos, %end, %now, %count, %sum;
    ld.param.u64 %counter, [counter];
    ld.param.u64 %nanos, [nanos];
    mov.u64 %now, %globaltimer;
    add.u64 %end, %now, %nanos;
    mov.u64 %count, 0;
LOOP:
    add.u64 %count, %count, 1;
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %again, %now, %end;
    @%again bra LOOP;
    ld.volatile.u64 %sum, [%counter];
    add.u64 %sum, %sum, %count;
    st.volatile.u64 [%counter], %sum;
    ret;
}
\0";

/// How long the kernel takes that is launched over and over, in nanoseconds.
pub(crate) static NANOS: AtomicU64 = AtomicU64::new(SHORT);
pub(crate) const SHORT: u64 = 500_000;

/// The number of queued kernels, so that the GPU always has work.
const QUEUED: usize = 8;

type Handle = *mut c_void;

/// The driver's answer: 0 is success.
type Answer = c_int;

type LaunchKernel = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Answer;

/// The library, open for good.
pub(crate) struct Cuda(Library);

impl Cuda {
    /// Opens the library.
    pub(crate) fn open() -> Result<Self, String> {
        // SAFETY: the driver's library is made to be loaded.
        let library = unsafe { Library::new(LIBRARY) };
        library.map(Self).map_err(|error| error.to_string())
    }

    /// A function of the library.
    ///
    /// # Safety
    ///
    /// `T` is its type.
    unsafe fn get<T: Copy>(&self, name: &str) -> Result<T, String> {
        // SAFETY: as the caller promises.
        let found: Result<Symbol<'_, T>, _> = unsafe { self.0.get(name.as_bytes()) };
        found
            .map(|symbol| *symbol)
            .map_err(|error| error.to_string())
    }
}

/// Calls a function of the library, with arguments of these types.
macro_rules! call {
    ($cuda:expr, $name:literal ( $($argument:expr => $type:ty),* $(,)? )) => {{
        // SAFETY: the type that the library's header gives it.
        let function: unsafe extern "C" fn($($type),*) -> Answer = unsafe { $cuda.get($name) }?;
        // SAFETY: each pointer among the arguments is to something that lives through the call.
        let answer = unsafe { function($($argument),*) };
        answered($name, answer)
    }};
}

fn answered(name: &str, answer: Answer) -> Result<(), String> {
    match answer {
        0 => Ok(()),
        error => Err(format!("{name} answers {error}")),
    }
}

/// A context with the kernel in it, on the first GPU that this process sees.
pub(crate) struct Spinner {
    launch: LaunchKernel,
    record: unsafe extern "C" fn(Handle, Handle) -> Answer,
    wait: unsafe extern "C" fn(Handle) -> Answer,
    kernel: Handle,
    events: [Handle; QUEUED],
    counter: &'static AtomicU64,
    /// The counter's address on the GPU.
    address: u64,
    next: usize,
}

impl Spinner {
    /// Makes the context, current in this thread.
    pub(crate) fn new(cuda: &Cuda) -> Result<Self, String> {
        let (mut device, mut context, mut module) = (0, ptr::null_mut(), ptr::null_mut());
        call!(cuda, "cuInit"(0 => c_uint))?;
        call!(cuda, "cuDeviceGet"(&mut device => *mut c_int, 0 => c_int))?;
        call!(cuda, "cuDevicePrimaryCtxRetain"(&mut context => *mut Handle, device => c_int))?;
        call!(cuda, "cuCtxSetCurrent"(context => Handle))?;
        call!(cuda, "cuModuleLoadData"(&mut module => *mut Handle, SPIN.as_ptr().cast() => *const c_void))?;
        let mut kernel = ptr::null_mut();
        call!(cuda, "cuModuleGetFunction"(
            &mut kernel => *mut Handle, module => Handle, c"spin".as_ptr() => *const c_char,
        ))?;
        let (counter, address) = counter(cuda)?;
        let mut events = [ptr::null_mut(); QUEUED];
        for event in &mut events {
            /// A thread that waits sleeps, and the event records no time.
            const FLAGS: c_uint = 1 | 2;
            call!(cuda, "cuEventCreate"(event => *mut Handle, FLAGS => c_uint))?;
        }
        Ok(Self {
            // SAFETY: the type that the library's header gives it.
            launch: unsafe { cuda.get("cuLaunchKernel") }?,
            // SAFETY: as above.
            record: unsafe { cuda.get("cuEventRecord") }?,
            // SAFETY: as above.
            wait: unsafe { cuda.get("cuEventSynchronize") }?,
            kernel,
            events,
            counter,
            address,
            next: 0,
        })
    }

    /// The count of the kernels so far.
    pub(crate) fn counter(&self) -> &'static AtomicU64 {
        self.counter
    }

    /// Launches the kernel once more, when there is room for it in the queue.
    pub(crate) fn launch(&mut self) -> Result<(), String> {
        let event = self.events[self.next % QUEUED];
        self.next += 1;
        // SAFETY: an event of this context. One that was never recorded has come to pass.
        answered("cuEventSynchronize", unsafe { (self.wait)(event) })?;
        let (mut address, mut nanos) = (self.address, NANOS.load(Ordering::SeqCst));
        let mut parameters = [(&raw mut address).cast(), (&raw mut nanos).cast()];
        // SAFETY: the kernel's two parameters, of which the driver makes a copy.
        let launched = unsafe {
            (self.launch)(
                self.kernel,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                ptr::null_mut(),
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        answered("cuLaunchKernel", launched)?;
        // SAFETY: an event of this context, in its first stream.
        let recorded = unsafe { (self.record)(event, ptr::null_mut()) };
        answered("cuEventRecord", recorded)
    }
}

/// A word that both sides see, here and on the GPU.
fn counter(cuda: &Cuda) -> Result<(&'static AtomicU64, u64), String> {
    /// `CU_MEMHOSTALLOC_DEVICEMAP`.
    const MAPPED: c_uint = 2;
    let (mut here, mut there) = (ptr::null_mut(), 0u64);
    call!(cuda, "cuMemHostAlloc"(&mut here => *mut Handle, 8 => usize, MAPPED => c_uint))?;
    call!(cuda, "cuMemHostGetDevicePointer_v2"(&mut there => *mut u64, here => Handle, 0 => c_uint))?;
    // SAFETY: memory of this process, in whole pages, that is never given back.
    let counter = unsafe { AtomicU64::from_ptr(here.cast()) };
    counter.store(0, Ordering::SeqCst);
    Ok((counter, there))
}

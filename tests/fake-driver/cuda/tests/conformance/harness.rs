//! Each test is a process of its own, on a node of its own: the driver finds one node in the life of a process.
#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "each of both programs uses some of it"
)]

use std::any::type_name;
use std::ffi::{CString, c_int};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use libloading::os::unix::Library;
use softmig_driver_sys::cuda::*;
use softmig_fake_node::kernel::CONTROL_FILE;
use softmig_fake_node::{Description, Gpu, Node, PLACE_VARIABLE};

/// `real` here has the tests ask the machine's own driver.
const DRIVER: &str = "DRIVER";
/// Names the test or the part that this process was started for.
const PART: &str = "CONFORMANCE_PART";

pub const MIB: usize = 1 << 20;

/// Calls a function of the driver and returns its code. Literals need their types.
macro_rules! cu {
    ($name:ident ( $($arg:expr),* $(,)? )) => {{
        let address = $crate::harness::address(stringify!($name));
        let function: unsafe extern "C" fn($($crate::harness::any!($arg)),*) -> u32 =
            // SAFETY: the driver exports it, and the test passes what it takes.
            unsafe { std::mem::transmute(address) };
        // SAFETY: as above.
        unsafe { function($($arg),*) }
    }};
}

/// Calls a function that has to succeed.
macro_rules! ok {
    ($name:ident $args:tt) => {
        assert_eq!($crate::harness::cu!($name $args), 0, stringify!($name))
    };
}

/// Calls a function that has to succeed, and returns what it leaves at its first argument.
macro_rules! new {
    ($name:ident ( $($arg:expr),* $(,)? )) => {{
        let mut value = Default::default();
        $crate::harness::ok!($name(&raw mut value, $($arg),*));
        value
    }};
}

macro_rules! any {
    ($arg:expr) => {
        _
    };
}

pub(crate) use {any, cu, new, ok};

/// Memory of the first device that other processes can have.
pub const SHAREABLE: CUmemAllocationProp = CUmemAllocationProp {
    type_: CU_MEM_ALLOCATION_TYPE_PINNED,
    requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    location: DEVICE,
    win32HandleMetaData: std::ptr::null_mut(),
    allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
        compressionType: 0,
        gpuDirectRDMACapable: 0,
        usage: 0,
        reserved: [0; 4],
    },
};

/// The first device.
pub const DEVICE: CUmemLocation = CUmemLocation {
    type_: CU_MEM_LOCATION_TYPE_DEVICE,
    id: 0,
};

/// Kernels for a real GPU. The comments tell the fake driver what they do.
const KERNELS: &str = "
.version 6.0
.target sm_60
.address_size 64
// kernel busy argument
// kernel spin spins
// kernel write writes
// kernel deep 1000 local 4096
.visible .entry busy(.param .u64 time) {
    .reg .u64 %t<4>; .reg .pred %p;
    ld.param.u64 %t0, [time];
    mov.u64 %t1, %globaltimer;
again:
    mov.u64 %t2, %globaltimer;
    sub.u64 %t3, %t2, %t1;
    setp.lt.u64 %p, %t3, %t0;
    @%p bra again;
    ret;
}
.visible .entry spin(.param .u64 word) {
    .reg .u64 %a; .reg .u32 %v; .reg .pred %p;
    ld.param.u64 %a, [word];
again:
    ld.volatile.u32 %v, [%a];
    setp.eq.u32 %p, %v, 0;
    @%p bra again;
    ret;
}
.visible .entry write(.param .u64 word, .param .u64 value) {
    .reg .u64 %a<2>; .reg .u32 %v;
    ld.param.u64 %a0, [word];
    ld.param.u64 %a1, [value];
    cvt.u32.u64 %v, %a1;
    st.volatile.u32 [%a0], %v;
    ret;
}
.visible .entry deep(.param .u64 index) {
    .local .align 8 .b8 frame[4096];
    .reg .u64 %a<2>; .reg .u32 %v; .reg .pred %p;
    ld.param.u64 %a0, [index];
    mov.u64 %a1, frame;
    add.u64 %a1, %a1, %a0;
    mov.u32 %v, 1;
    st.local.u32 [%a1], %v;
    ld.local.u32 %v, [frame];
    setp.eq.u32 %p, %v, 77777;
    @%p trap;
    ret;
}
";

/// Whether the driver is a real one.
pub fn is_real() -> bool {
    std::env::var_os(DRIVER).is_some_and(|driver| driver == "real")
}

static CUDA: LazyLock<Library> = LazyLock::new(|| open("libcuda.so.1", "libsoftmig_fake_cuda.so"));
static NVML: LazyLock<Library> =
    LazyLock::new(|| open("libnvidia-ml.so.1", "libsoftmig_fake_nvml.so"));

/// The real library, or the fake one that cargo built for this test.
fn open(real: &str, fake: &str) -> Library {
    let exe = std::env::current_exe().unwrap();
    let path = if is_real() {
        real.into()
    } else {
        exe.parent().unwrap().join(fake)
    };
    // SAFETY: the library does nothing when it is loaded.
    unsafe { Library::open(Some(&path), libc::RTLD_NOW | libc::RTLD_LOCAL) }
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The address of what the driver or NVML exports under a name; `None` if neither does.
pub fn find(name: &str) -> Option<usize> {
    let library = if name.starts_with("nvml") {
        &NVML
    } else {
        &CUDA
    };
    let name = CString::new(name).unwrap();
    // SAFETY: only the address is used.
    let symbol = unsafe { library.get::<*const ()>(name.as_bytes_with_nul()) };
    symbol.ok().map(|symbol| symbol.into_raw() as usize)
}

pub fn address(name: &str) -> usize {
    find(name).unwrap_or_else(|| panic!("no {name}"))
}

/// The node of the fake driver.
pub fn node() -> Node {
    let place = std::env::var_os(PLACE_VARIABLE).unwrap();
    Node::open(std::path::PathBuf::from(place)).unwrap()
}

/// Runs a test of what each driver does, on an H200 if the driver is the fake one.
pub fn test<T: FnOnce()>(body: T) {
    start_part(&Description::new(&[Gpu::h200(0)]), &[], body);
}

/// Runs a test that only the fake driver can pass: it needs such GPUs, or looks at how they are made.
pub fn fake<T: FnOnce()>(description: &Description, body: T) {
    fake_with(description, &[], body);
}

/// The same with variables.
pub fn fake_with<T: FnOnce()>(description: &Description, variables: &[(&str, &str)], body: T) {
    if is_real() {
        // Beside libtest's own lines, which hide what a test prints.
        let (name, mut to) = (name_of::<T>(), std::io::stderr());
        writeln!(to, "{name} is left out: it needs the fake driver").unwrap();
    } else {
        start_part(description, variables, body);
    }
}

/// Makes a part of a test that another process plays. It does nothing in a run of all tests.
pub fn part<T: FnOnce()>(body: T) {
    if is_part(&name_of::<T>()) {
        body();
    }
}

fn start_part<T: FnOnce()>(description: &Description, variables: &[(&str, &str)], body: T) {
    let name = name_of::<T>();
    if is_part(&name) {
        return body();
    }
    // Others would change what a test measures of a real GPU.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = is_real().then(|| ONE.lock().unwrap_or_else(PoisonError::into_inner));
    let dir = tempfile::tempdir().unwrap();
    for gpu in &description.gpus {
        std::fs::write(dir.path().join(format!("nvidia{}", gpu.minor)), "").unwrap();
    }
    std::fs::write(dir.path().join(CONTROL_FILE), "").unwrap();
    let place = dir.path().join("node");
    Node::describe(&place, description.clone().devices(dir.path())).unwrap();
    let mut command = command(&name);
    command.env(PLACE_VARIABLE, &place);
    command.env_remove("CUDA_VISIBLE_DEVICES");
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The name by which libtest knows a test, from its function or from a closure in it.
fn name_of<T>() -> String {
    let (_, name) = type_name::<T>().split_once("::").unwrap();
    name.trim_end_matches("::{{closure}}").into()
}

fn is_part(name: &str) -> bool {
    std::env::var_os(PART).is_some_and(|part| part == name)
}

fn command(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]);
    command.env(PART, name);
    command
}

/// A process that plays a part, on the node of this one.
pub struct Actor {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Actor {
    pub fn start<T: Fn()>(part: T) -> Actor {
        Actor::with(part, &[])
    }

    /// The same with variables.
    pub fn with<T: Fn()>(_: T, variables: &[(&str, &str)]) -> Actor {
        let mut command = command(&name_of::<T>());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.envs(variables.iter().copied());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut actor = Actor { child, lines };
        actor.wait();
        actor
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it pauses.
    pub fn wait(&mut self) {
        let mut line = String::new();
        // libtest writes its own line first, without an end.
        while !line.ends_with("PAUSE\n") {
            line.clear();
            let read = self.lines.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the other process ended");
        }
    }

    /// Lets it go on.
    pub fn resume(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Lets it go on to its next pause.
    pub fn step(&mut self) {
        self.resume();
        self.wait();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it go on, and waits for its end.
    pub fn finish(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

/// Waits until the test that started this process lets it go on.
pub fn pause() {
    println!("PAUSE");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// The bytes of a handle as a variable's text, and back.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex<const N: usize>(variable: &str) -> [u8; N] {
    let text = std::env::var(variable).unwrap();
    std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
}

static BEFORE: AtomicI64 = AtomicI64::new(0);

/// `cuInit`, and a primary context of the first device.
pub fn start() -> usize {
    ok!(cuInit(0u32));
    let context = new!(cuDevicePrimaryCtxRetain(0i32));
    ok!(cuCtxSetCurrent(context));
    BEFORE.store(used(), Ordering::SeqCst);
    context
}

/// Bytes that are free on the device of the current context, and all.
pub fn info() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
    (free, total)
}

fn used() -> i64 {
    let (free, total) = info();
    (total - free) as i64
}

/// MiB that the device has given since [`start`], to whichever process.
pub fn taken() -> i64 {
    (used() - BEFORE.load(Ordering::SeqCst) + (1 << 19)) >> 20
}

/// Takes memory.
pub fn allocate(bytes: usize) -> Result<u64, u32> {
    let mut address = 0;
    match cu!(cuMemAlloc_v2(&raw mut address, bytes)) {
        0 => Ok(address),
        code => Err(code),
    }
}

/// The first bytes at a device's address.
pub fn read<const N: usize>(from: u64) -> [u8; N] {
    let mut back = [0u8; N];
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr(), from, N));
    back
}

/// A stream that does not wait for the default one.
pub fn stream() -> usize {
    new!(cuStreamCreate(CU_STREAM_NON_BLOCKING))
}

pub fn event() -> usize {
    new!(cuEventCreate(0u32))
}

/// A word that host and device see.
pub fn word() -> &'static AtomicU32 {
    let address: usize = new!(cuMemHostAlloc(4096usize, 0u32));
    // SAFETY: the driver gave this memory to this process, which keeps it.
    let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
    word.store(0, Ordering::SeqCst);
    word
}

/// One of the kernels above.
pub fn kernel(name: &str) -> usize {
    let (text, name) = (CString::new(KERNELS).unwrap(), CString::new(name).unwrap());
    let module: usize = new!(cuModuleLoadData(text.as_ptr()));
    new!(cuModuleGetFunction(module, name.as_ptr()))
}

/// Launches a kernel in one thread.
pub fn launch(kernel: usize, stream: usize, arguments: [u64; 2]) -> u32 {
    let mut places = [&raw const arguments[0], &raw const arguments[1]];
    let arguments = places.as_mut_ptr();
    cu!(cuLaunchKernel(
        kernel, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 0u32, stream, arguments, 0usize
    ))
}

/// Keeps a stream busy for as many ms.
pub fn busy(kernel: usize, stream: usize, time: u64) {
    assert_eq!(launch(kernel, stream, [time * 1_000_000, 0]), 0);
}

/// Runs a test in a child, and returns what it returned.
pub fn in_child(test: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls nothing but the driver, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let code = c_int::from(test());
        // SAFETY: no handler of the test program's is to run in the child.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's own.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1
}

/// A struct of numbers and pointers.
pub fn zeroed<T>() -> T {
    // SAFETY: the driver's structs of parameters may be all zero.
    unsafe { std::mem::zeroed() }
}

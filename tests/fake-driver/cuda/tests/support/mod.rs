//! A test in a process of its own, with a node of its own: the driver finds one node in the life of a process.
#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "each test file uses some of it"
)]

use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use libloading::os::unix::Library;
use softmig_driver_sys::cuda::*;
use softmig_fake_node::kernel::CONTROL_FILE;
use softmig_fake_node::{Description, DeviceUsage, Gpu, Kind, Node, PLACE_VARIABLE};

/// Names the test or the part that this process was started for.
const PART: &str = "FAKE_TEST_PART";

/// The driver, loaded.
pub struct Cuda {
    pub library: Library,
    pub node: Node,
}

/// Memory of the first device that other processes can have.
pub const PINNED: CUmemAllocationProp = CUmemAllocationProp {
    type_: CU_MEM_ALLOCATION_TYPE_PINNED,
    requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    location: CUmemLocation {
        type_: CU_MEM_LOCATION_TYPE_DEVICE,
        id: 0,
    },
    win32HandleMetaData: std::ptr::null_mut(),
    allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
        compressionType: 0,
        gpuDirectRDMACapable: 0,
        usage: 0,
        reserved: [0; 4],
    },
};

/// Calls a function of the driver and returns its code. Literals need their types.
macro_rules! cu {
    ($cuda:expr, $name:ident ( $($arg:expr),* $(,)? )) => {{
        let address = $cuda.address(stringify!($name));
        let function: unsafe extern "C" fn($(crate::support::argument!($arg)),*) -> u32 =
            // SAFETY: the driver exports it, and the test passes what it takes.
            unsafe { std::mem::transmute(address) };
        // SAFETY: as above.
        unsafe { function($($arg),*) }
    }};
}

macro_rules! argument {
    ($arg:expr) => {
        _
    };
}

pub(crate) use {argument, cu};

impl Cuda {
    /// Loads the library that cargo built for this test.
    pub fn load() -> Cuda {
        let node = std::env::var_os(PLACE_VARIABLE).expect("the node's place");
        Cuda {
            library: open(),
            node: Node::open(PathBuf::from(node)).unwrap(),
        }
    }

    /// The address of what the library exports under a name.
    pub fn address(&self, name: &str) -> usize {
        self.find(name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// The same, `None` if it exports nothing so named.
    pub fn find(&self, name: &str) -> Option<usize> {
        find(&self.library, name)
    }

    /// `cuInit`, and a primary context of the first device.
    pub fn start(&self) -> usize {
        assert_eq!(cu!(self, cuInit(0u32)), 0);
        let mut context = 0usize;
        assert_eq!(
            cu!(self, cuDevicePrimaryCtxRetain(&raw mut context, 0i32)),
            0
        );
        assert_eq!(cu!(self, cuCtxSetCurrent(context)), 0);
        context
    }

    /// Takes memory.
    pub fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        let mut address = 0u64;
        match cu!(self, cuMemAlloc_v2(&raw mut address, bytes)) {
            0 => Ok(address),
            code => Err(code),
        }
    }

    /// A stream that minds its own business.
    pub fn stream(&self) -> usize {
        let mut stream = 0usize;
        assert_eq!(cu!(self, cuStreamCreate(&raw mut stream, 1u32)), 0);
        stream
    }

    /// An event.
    pub fn event(&self) -> usize {
        let mut event = 0usize;
        assert_eq!(cu!(self, cuEventCreate(&raw mut event, 0u32)), 0);
        event
    }

    /// Whether a stream captures.
    pub fn capture_status(&self, stream: usize) -> u32 {
        let mut status = 9u32;
        assert_eq!(cu!(self, cuStreamIsCapturing(stream, &raw mut status)), 0);
        status
    }

    /// A kernel of a module with this text.
    pub fn kernel(&self, text: &str, name: &str) -> usize {
        let (text, name) = (CString::new(text).unwrap(), CString::new(name).unwrap());
        let (mut module, mut function) = (0usize, 0usize);
        assert_eq!(
            cu!(self, cuModuleLoadData(&raw mut module, text.as_ptr())),
            0
        );
        assert_eq!(
            cu!(
                self,
                cuModuleGetFunction(&raw mut function, module, name.as_ptr())
            ),
            0
        );
        function
    }

    /// Launches a kernel without arguments.
    pub fn launch(&self, kernel: usize, stream: usize) -> u32 {
        cu!(
            self,
            cuLaunchKernel(
                kernel, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 0u32, stream, 0usize, 0usize
            )
        )
    }

    /// This process's memory of one kind on the first device.
    pub fn mine(&self, kind: Kind) -> u64 {
        mine(&self.node.usage().unwrap()[0], kind)
    }
}

/// The address of what a library exports under a name.
pub fn find(library: &Library, name: &str) -> Option<usize> {
    let name = CString::new(name).unwrap();
    // SAFETY: only the address is used.
    let symbol = unsafe { library.get::<*const ()>(name.as_bytes_with_nul()) };
    symbol.ok().map(|symbol| symbol.into_raw() as usize)
}

/// This process's memory of one kind on a device.
pub fn mine(device: &DeviceUsage, kind: Kind) -> u64 {
    let me = std::process::id();
    let mine = device
        .processes
        .iter()
        .filter(|process| process.pid == Some(me));
    mine.map(|process| process.bytes.of(kind)).sum()
}

/// Opens the library.
pub fn open() -> Library {
    open_named("libsoftmig_fake_cuda.so")
}

/// Opens a library that cargo built for this test.
pub fn open_named(name: &str) -> Library {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().join(name);
    // SAFETY: the library does nothing when it is loaded.
    unsafe { Library::open(Some(&path), libc::RTLD_NOW | libc::RTLD_LOCAL) }
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a test in a process of its own, on a node with such GPUs.
pub fn on(name: &str, gpus: &[Gpu], test: impl FnOnce(Cuda)) {
    described(name, Description::new(gpus), |_| {}, test);
}

/// The same on a node whose clock the test drives.
pub fn driven(name: &str, test: impl FnOnce(Cuda)) {
    let description = Description::new(&[Gpu::h200(0)]).driven();
    described(name, description, |_| {}, test);
}

/// The same with more said of the node, and of the process.
pub fn described(
    name: &str,
    description: Description,
    prepare: impl FnOnce(&mut Command),
    test: impl FnOnce(Cuda),
) {
    if std::env::var_os(PART).is_some_and(|part| part == name) {
        test(Cuda::load());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for gpu in &description.gpus {
        std::fs::write(dir.path().join(format!("nvidia{}", gpu.minor)), "").unwrap();
    }
    std::fs::write(dir.path().join(CONTROL_FILE), "").unwrap();
    let place = dir.path().join("node");
    Node::describe(&place, description.devices(dir.path())).unwrap();
    let mut command = part(name);
    command
        .env(PLACE_VARIABLE, &place)
        .env_remove("CUDA_VISIBLE_DEVICES");
    prepare(&mut command);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Whether this process was started for one test.
pub fn is_part() -> bool {
    std::env::var_os(PART).is_some()
}

/// A part of a test for another process; it does nothing in a run of all tests.
pub fn role(name: &str, body: impl FnOnce(Cuda)) {
    if std::env::var_os(PART).is_some_and(|part| part == name) {
        body(Cuda::load());
    }
}

/// A process that plays a part, on the node of this one.
pub struct Actor {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Actor {
    pub fn start(name: &str, prepare: impl FnOnce(&mut Command)) -> Actor {
        let mut command = part(name);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Actor { child, lines }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its next line by [`say`].
    pub fn hears(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.lines.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the other process said nothing more");
            // libtest writes its own line first, without an end.
            if let Some((_, said)) = line.split_once("SAYS ") {
                return said.trim_end().into();
            }
        }
    }

    /// Lets it go on to the next time that it waits.
    pub fn go_on(&mut self) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(b"\n").unwrap();
    }

    /// Ends it as nothing else does.
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

/// Tells the test that started this process something.
pub fn say(what: &str) {
    println!("SAYS {what}");
}

/// Waits until the test that started this process lets it go on.
pub fn wait_to_finish() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

fn part(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture"])
        .env(PART, name);
    command
}

//! The program: what the kernel does when a process opens a device.
//!
//! ```text
//! the device is not a GPU of NVIDIA's                    -> open
//! the user is root                                       -> open
//! no control group above the process has a job's name
//!   that is in `jobs`                                    -> open
//! the process is in `admitted`                           -> open
//! the device is the driver's control device              -> open, and the process is in `asked`
//! else                                                   -> refused, and job and user are in `refused`
//! ```
//!
//! **A process** is its number, the time at which it began, and how many programs it has executed (`self_exec_id`). Both the
//! number and the address of its memory (`mm`) can become another program's: a process that executes programs again and
//! again gets the same two addresses in turn.
//!
//! **A job** is known by its group's name, which only Slurm gives. So the prolog can put it in `jobs` before the group exists,
//! and the program knows each process of a job from its first moment. A user who has groups of their
//! own can name one like another job, which only refuses their own processes. A refusal is therefore told with the user.
//!
//! **The control device** (`/dev/nvidiactl`) and `nvidia-uvm` give neither memory nor time without a GPU's own device. The
//! library opens the control device to be in `asked`, and then asks the monitor to admit the process.
//!
//! The kernel lends `bpf_probe_read_kernel` only to programs under the GPL. This one may be used under the MIT licence or the
//! GPL, version 2, as well.

#![forbid(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::instruction::{Assembly, Function, Instruction, Label, Register, When};
use crate::layout::Layout;

use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, Stack};

/// The devices that the gate is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Devices {
    /// Their major number.
    pub major: u32,
    /// The last minor number of a GPU; the first is 0.
    pub last_gpu: u32,
    /// The minor number of the control device.
    pub control: u32,
}

impl Devices {
    /// Those of NVIDIA's driver (`nv.h` in its open kernel modules).
    pub const NVIDIA: Self = Self {
        major: 195,
        last_gpu: 247,
        control: 255,
    };
}

/// The program's tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps<'a> {
    pub(crate) jobs: BorrowedFd<'a>,
    pub(crate) admitted: BorrowedFd<'a>,
    pub(crate) asked: BorrowedFd<'a>,
    pub(crate) refused: BorrowedFd<'a>,
}

/// How long a job's name can be, with a zero at its end.
pub(crate) const NAME: usize = 32;

/// How many groups are looked at, from a process's own upwards. A process further down is in a job.
const DEPTH: usize = 32;
/// The same in hierarchies of version 1, where Slurm's groups are at most five deep.
const DEPTH_OF_VERSION_1: usize = 16;

/// Offsets in `struct bpf_cgroup_dev_ctx`.
const MAJOR: i16 = 4;
const MINOR: i16 = 8;

/// On the stack: a number that was read.
const SCRATCH: i16 = -8;
/// A name. In a refusal's key `SCRATCH` follows, with the user in the upper half.
const NAME_AT: i16 = -40;
/// The record of a refusal.
const REFUSAL: i16 = -48;
/// A process as a key of `admitted`: number, beginning, programs. The latter two are the value in `asked` as well.
const PROCESS: i16 = -72;
const START: i16 = PROCESS + 8;
const EXEC: i16 = PROCESS + 16;

/// Writes the program for this kernel.
pub(crate) fn program(
    layout: &Layout,
    devices: Devices,
    maps: Maps<'_>,
) -> Option<Vec<Instruction>> {
    let mut writer = Writer {
        program: Assembly::default(),
        layout,
        maps,
    };
    let number = |number: u32| i32::try_from(number).ok();
    writer.write(
        number(devices.major)?,
        number(devices.last_gpu)?,
        number(devices.control)?,
    );
    writer.program.finish()
}

struct Writer<'a> {
    program: Assembly,
    layout: &'a Layout,
    maps: Maps<'a>,
}

impl Writer<'_> {
    fn write(&mut self, major: i32, last_gpu: i32, control: i32) {
        let (open, refuse) = (self.program.label(), self.program.label());
        let (gpu, in_job) = (self.program.label(), self.program.label());
        // R6: the minor number.
        self.program.load(R2, R1, MAJOR);
        self.program.jump(When::IsNot(R2, major), open);
        self.program.load(R6, R1, MINOR);
        self.program.jump(When::Is(R6, control), gpu);
        self.program.jump(When::Above(R6, last_gpu), open);
        self.program.here(gpu);

        self.program.call(Function::User);
        // The upper half is the group.
        self.program.shift_left(R0, 32);
        self.program.jump(When::Is(R0, 0), open);

        // R7: the thread, R8: its control groups.
        self.program.call(Function::Task);
        self.program.copy(R7, R0);
        self.read(R7, self.layout.groups);
        self.program.load_double(R8, Stack, SCRATCH);
        self.read(R8, self.layout.group);
        self.program.load_double(R9, Stack, SCRATCH);
        self.program.add(R9, self.layout.own_state);
        self.look_upwards(DEPTH, in_job);
        for state in self.layout.states.clone() {
            self.read(R8, state);
            self.program.load_double(R9, Stack, SCRATCH);
            self.look_upwards(DEPTH_OF_VERSION_1, in_job);
        }
        self.program.jump(When::Always, open);

        self.program.here(in_job);
        self.name_process();
        self.lookup(self.maps.admitted, PROCESS);
        self.program.jump(When::IsNot(R0, 0), open);
        self.program.jump(When::IsNot(R6, control), refuse);
        self.update(self.maps.asked, PROCESS, START);
        self.program.here(open);
        self.program.set(R0, 1);
        self.program.exit();

        self.program.here(refuse);
        self.program.call(Function::User);
        self.program.shift_left(R0, 32);
        self.program.store_double(SCRATCH, R0);
        // Beside each other: the number of the process, and that of the device.
        self.program.load_double(R1, Stack, PROCESS);
        self.program.shift_left(R6, 32);
        self.program.add_register(R1, R6);
        self.program.store_double(REFUSAL, R1);
        self.update(self.maps.refused, NAME_AT, REFUSAL);
        self.program.set(R0, 0);
        self.program.exit();
    }

    /// Goes to `found` with the name of a job's group on the stack, if R9's group or one above it is one, or if there are more.
    fn look_upwards(&mut self, depth: usize, found: Label) {
        let end = self.program.label();
        for _ in 0..depth {
            self.program.jump(When::Is(R9, 0), end);
            self.read(R9, self.layout.state_group);
            self.follow(self.layout.folder);
            self.follow(self.layout.name);
            // The key is all of it.
            for at in (0..NAME as i16).step_by(8) {
                self.program.store_number(NAME_AT + at, 0);
            }
            self.program.load_double(R3, Stack, SCRATCH);
            self.copy_from_kernel(NAME_AT, NAME as i32, Function::ReadText);
            self.lookup(self.maps.jobs, NAME_AT);
            self.program.jump(When::IsNot(R0, 0), found);
            self.read(R9, self.layout.state_parent);
            self.program.load_double(R9, Stack, SCRATCH);
        }
        self.program.jump(When::IsNot(R9, 0), found);
        self.program.here(end);
    }

    /// Puts the process on the stack.
    fn name_process(&mut self) {
        self.program.store_number(PROCESS, 0);
        self.program.store_number(EXEC, 0);
        let fields = [
            (PROCESS, 4, self.layout.tgid),
            (EXEC, self.layout.exec_size, self.layout.exec),
        ];
        for (to, size, offset) in fields {
            self.program.copy(R3, R7);
            self.program.add(R3, offset);
            self.copy_from_kernel(to, size, Function::Read);
        }
        self.read(R7, self.layout.leader);
        self.program.load_double(R3, Stack, SCRATCH);
        self.program.add(R3, self.layout.start);
        self.copy_from_kernel(START, 8, Function::Read);
    }

    /// Reads eight bytes of the structure at this address.
    fn read(&mut self, from: Register, offset: i32) {
        self.program.copy(R3, from);
        self.program.add(R3, offset);
        self.copy_from_kernel(SCRATCH, 8, Function::Read);
    }

    /// Reads eight bytes of the structure whose address was read.
    fn follow(&mut self, offset: i32) {
        self.program.load_double(R3, Stack, SCRATCH);
        self.program.add(R3, offset);
        self.copy_from_kernel(SCRATCH, 8, Function::Read);
    }

    /// Copies to the stack from the address in R3.
    fn copy_from_kernel(&mut self, to: i16, size: i32, function: Function) {
        self.program.address(R1, to);
        self.program.set(R2, size);
        self.program.call(function);
    }

    fn lookup(&mut self, map: BorrowedFd<'_>, key: i16) {
        self.program.map(R1, map.as_raw_fd());
        self.program.address(R2, key);
        self.program.call(Function::Lookup);
    }

    fn update(&mut self, map: BorrowedFd<'_>, key: i16, value: i16) {
        self.program.map(R1, map.as_raw_fd());
        self.program.address(R2, key);
        self.program.address(R3, value);
        self.program.set(R4, 0);
        self.program.call(Function::Update);
    }
}

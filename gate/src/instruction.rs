//! BPF instructions, as many as the program needs. The numbers are those of the kernel's include/uapi/linux/bpf.h; the
//! Documentation/bpf/standardization/instruction-set.rst there says what they do.

#![forbid(unsafe_code)]

/// One instruction, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A register. `R1` to `R5` hold a function's arguments and `R0` its result; it keeps `R6` to `R9`. `Stack` is the end of the
/// stack, and cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// A function's result.
    R0,
    /// Arguments.
    R1,
    /// The second argument.
    R2,
    /// The third argument.
    R3,
    /// The fourth argument.
    R4,
    /// The first that functions keep.
    R6 = 6,
    /// The second that functions keep.
    R7,
    /// The third that functions keep.
    R8,
    /// The fourth that functions keep.
    R9,
    /// The stack.
    Stack,
}

/// A function of the kernel's that a program may call, by its number in `enum bpf_func_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `bpf_map_lookup_elem(map, key)`: the value's address, or 0.
    Lookup = 1,
    /// `bpf_map_update_elem(map, key, value, flags)`.
    Update = 2,
    /// `bpf_get_current_uid_gid()`: the real user, as the first namespace has it, in the lower half.
    User = 15,
    /// `bpf_get_current_task()`: the address of the thread's `task_struct`.
    Task = 35,
    /// `bpf_probe_read_kernel(to, size, from)`: fills with zeros what cannot be read.
    Read = 113,
    /// `bpf_probe_read_kernel_str(to, size, from)`: the same, up to a zero.
    ReadText = 115,
}

const LOAD: u8 = 0x61;
const LOAD_DOUBLE: u8 = 0x79;
const STORE_DOUBLE: u8 = 0x7b;
const STORE_NUMBER: u8 = 0x7a;
const LOAD_MAP: u8 = 0x18;
const MAP: u8 = 1;
const MOVE: u8 = 0xbf;
const MOVE_NUMBER: u8 = 0xb7;
const ADD_NUMBER: u8 = 0x07;
const ADD: u8 = 0x0f;
const SHIFT_LEFT: u8 = 0x67;
const JUMP: u8 = 0x05;
const JUMP_EQUAL: u8 = 0x15;
const JUMP_NOT_EQUAL: u8 = 0x55;
const JUMP_GREATER: u8 = 0x25;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// A place in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// When to jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In any case.
    Always,
    /// The register is this number.
    Is(Register, i32),
    /// It is another.
    IsNot(Register, i32),
    /// It is larger, both without a sign.
    Above(Register, i32),
}

/// A program that is being written.
#[derive(Debug, Default)]
pub struct Assembly {
    instructions: Vec<Instruction>,
    /// Where each label is, once it is known.
    labels: Vec<Option<usize>>,
    /// Jumps, and where to.
    jumps: Vec<(usize, Label)>,
}

impl Assembly {
    fn push(&mut self, code: u8, to: Register, from: u8, offset: i16, immediate: i32) {
        self.instructions.push(Instruction {
            code,
            registers: to as u8 | from << 4,
            offset,
            immediate,
        });
    }

    /// A new label, which has no place yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub fn here(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    /// `to = from`
    pub fn copy(&mut self, to: Register, from: Register) {
        self.push(MOVE, to, from as u8, 0, 0);
    }

    /// `to = number`
    pub fn set(&mut self, to: Register, number: i32) {
        self.push(MOVE_NUMBER, to, 0, 0, number);
    }

    /// `to += number`
    pub fn add(&mut self, to: Register, number: i32) {
        self.push(ADD_NUMBER, to, 0, 0, number);
    }

    /// `to += from`
    pub fn add_register(&mut self, to: Register, from: Register) {
        self.push(ADD, to, from as u8, 0, 0);
    }

    /// `to <<= bits`
    pub fn shift_left(&mut self, to: Register, bits: i32) {
        self.push(SHIFT_LEFT, to, 0, 0, bits);
    }

    /// `to = *(u32 *)(from + offset)`
    pub fn load(&mut self, to: Register, from: Register, offset: i16) {
        self.push(LOAD, to, from as u8, offset, 0);
    }

    /// `to = *(u64 *)(from + offset)`
    pub fn load_double(&mut self, to: Register, from: Register, offset: i16) {
        self.push(LOAD_DOUBLE, to, from as u8, offset, 0);
    }

    /// `*(u64 *)(stack + offset) = from`
    pub fn store_double(&mut self, offset: i16, from: Register) {
        self.push(STORE_DOUBLE, Register::Stack, from as u8, offset, 0);
    }

    /// `*(u64 *)(stack + offset) = number`
    pub fn store_number(&mut self, offset: i16, number: i32) {
        self.push(STORE_NUMBER, Register::Stack, 0, offset, number);
    }

    /// `to = stack + offset`
    pub fn address(&mut self, to: Register, offset: i16) {
        self.copy(to, Register::Stack);
        self.add(to, offset.into());
    }

    /// `to = map`, of which this process has this descriptor.
    pub fn map(&mut self, to: Register, descriptor: i32) {
        self.push(LOAD_MAP, to, MAP, 0, descriptor);
        // The upper half of the number.
        self.push(0, Register::R0, 0, 0, 0);
    }

    /// Calls a function.
    pub fn call(&mut self, function: Function) {
        self.push(CALL, Register::R0, 0, 0, function as i32);
    }

    /// Goes on at a label.
    pub fn jump(&mut self, when: When, label: Label) {
        let (code, register, number) = match when {
            When::Always => (JUMP, Register::R0, 0),
            When::Is(register, number) => (JUMP_EQUAL, register, number),
            When::IsNot(register, number) => (JUMP_NOT_EQUAL, register, number),
            When::Above(register, number) => (JUMP_GREATER, register, number),
        };
        self.jumps.push((self.instructions.len(), label));
        self.push(code, register, 0, 0, number);
    }

    /// Ends with `R0`.
    pub fn exit(&mut self) {
        self.push(EXIT, Register::R0, 0, 0, 0);
    }

    /// The program. `None` if a label has no place, or one too far away.
    pub fn finish(mut self) -> Option<Vec<Instruction>> {
        for (at, label) in self.jumps {
            let to = self.labels.get(label.0).copied().flatten()?;
            // Counted from the next instruction. None goes back: older kernels allow no loops.
            let distance = to.checked_sub(at + 1)?;
            self.instructions.get_mut(at)?.offset = i16::try_from(distance).ok()?;
        }
        Some(self.instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const _: () = assert!(size_of::<Instruction>() == 8);

    /// Compared with what clang makes of the same.
    #[test]
    fn instructions_are_the_kernels() {
        use Register::{R0, R1, R6, Stack};
        let mut program = Assembly::default();
        let end = program.label();
        program.copy(R6, R1);
        program.load(R1, R6, 4);
        program.jump(When::IsNot(R1, 195), end);
        program.address(R1, -16);
        program.store_number(-16, 7);
        program.store_double(-8, Stack);
        program.load_double(R1, Stack, -8);
        program.shift_left(R1, 32);
        program.map(R1, 5);
        program.call(Function::Lookup);
        program.here(end);
        program.set(R0, 1);
        program.exit();
        let bytes = |it: &Instruction| {
            let number = u64::from(it.code) << 56 | u64::from(it.registers) << 48;
            number
                | u64::from(it.offset.cast_unsigned()) << 32
                | u64::from(it.immediate.cast_unsigned())
        };
        let bytes: Vec<u64> = program.finish().unwrap().iter().map(bytes).collect();
        assert_eq!(
            bytes,
            [
                0xbf16_0000_0000_0000,
                0x6161_0004_0000_0000,
                0x5501_0009_0000_00c3,
                0xbfa1_0000_0000_0000,
                0x0701_0000_ffff_fff0,
                0x7a0a_fff0_0000_0007,
                0x7baa_fff8_0000_0000,
                0x79a1_fff8_0000_0000,
                0x6701_0000_0000_0020,
                0x1811_0000_0000_0005,
                0,
                0x8500_0000_0000_0001,
                0xb700_0000_0000_0001,
                0x9500_0000_0000_0000,
            ]
        );
    }

    #[test]
    fn a_jump_to_nowhere_is_no_program() {
        let mut program = Assembly::default();
        let label = program.label();
        program.jump(When::Always, label);
        assert_eq!(program.finish(), None);
    }
}

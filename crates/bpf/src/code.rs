//! An assembler for BPF, the kernel's virtual machine.
//!
//! It has only the instructions that [`crate::programs`] needs. All jumps go forward, so every
//! program ends.

use std::os::fd::{AsRawFd, BorrowedFd};

/// A register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Register(u8);

/// Result of a call, and of the program.
pub(crate) const RESULT: Register = Register(0);
/// The program's argument at its start, and the arguments of a call, which overwrites them.
pub(crate) const ARGUMENTS: [Register; 4] = [Register(1), Register(2), Register(3), Register(4)];
/// Registers that a call preserves.
pub(crate) const KEPT: [Register; 4] = [Register(6), Register(7), Register(8), Register(9)];
/// Address above the stack.
const STACK: Register = Register(10);

/// Kernel functions that a program may call (`linux/bpf.h`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Helper {
    MapLookup = 1,
    ReadKernel = 113,
    CurrentProcessIn = 120,
    CurrentTask = 158,
}

/// Number of bytes to load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    Two,
    Four,
    Eight,
}

impl Width {
    /// Returns the code of the load instruction.
    fn load(self) -> u8 {
        match self {
            Width::Two => 0x69,
            Width::Four => 0x61,
            Width::Eight => 0x79,
        }
    }
}

/// Target of a jump, placed later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Label(usize);

/// The end of the program, which returns 0.
pub(crate) const END: Label = Label(0);

/// A program under construction.
#[derive(Debug)]
pub(crate) struct Code {
    instructions: Vec<u64>,
    /// Indices of the jumps, with their targets.
    jumps: Vec<(usize, Label)>,
    /// Index of the instruction behind each label.
    labels: Vec<Option<usize>>,
}

impl Code {
    pub(crate) fn new() -> Self {
        Self { instructions: Vec::new(), jumps: Vec::new(), labels: vec![None] }
    }

    /// Appends the end and returns the program.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        self.place(END);
        self.set(RESULT, 0);
        self.put(0x95, Register(0), Register(0), 0, 0);
        for (at, label) in &self.jumps {
            let to = self.labels[label.0].expect("a jump has a placed label");
            let over = u16::try_from(to - at - 1).expect("programs are short");
            self.instructions[*at] |= u64::from(over) << 16;
        }
        self.instructions
    }

    /// Returns a new label.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label at the next instruction.
    pub(crate) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.put(0xbf, to, from, 0, 0);
    }

    /// Copies the lower 32 bits and clears the upper ones.
    pub(crate) fn copy_lower(&mut self, to: Register, from: Register) {
        self.put(0xbc, to, from, 0, 0);
    }

    pub(crate) fn set(&mut self, to: Register, value: i32) {
        self.put(0xb7, to, Register(0), 0, value);
    }

    /// Sets all 64 bits.
    pub(crate) fn set_wide(&mut self, to: Register, value: u64) {
        self.put(0x18, to, Register(0), 0, lower(value));
        self.put(0, Register(0), Register(0), 0, lower(value >> 32));
    }

    pub(crate) fn set_map(&mut self, to: Register, map: BorrowedFd<'_>) {
        self.put(0x18, to, Register(1), 0, map.as_raw_fd());
        self.put(0, Register(0), Register(0), 0, 0);
    }

    pub(crate) fn load(&mut self, to: Register, width: Width, base: Register, offset: u32) {
        let offset = i16::try_from(offset).expect("the structs are small");
        self.put(width.load(), to, base, offset, 0);
    }

    pub(crate) fn store(&mut self, base: Register, offset: u32, from: Register) {
        let offset = i16::try_from(offset).expect("counters are few");
        self.put(0x7b, base, from, offset, 0);
    }

    /// Stores eight bytes, `below` the top of the stack.
    pub(crate) fn store_on_stack(&mut self, below: u8, from: Register) {
        self.put(0x7b, STACK, from, -i16::from(below), 0);
    }

    pub(crate) fn load_from_stack(&mut self, to: Register, width: Width, below: u8) {
        self.put(width.load(), to, STACK, -i16::from(below), 0);
    }

    pub(crate) fn address_on_stack(&mut self, to: Register, below: u8) {
        self.copy(to, STACK);
        self.add_number(to, -i32::from(below));
    }

    pub(crate) fn add(&mut self, to: Register, from: Register) {
        self.put(0x0f, to, from, 0, 0);
    }

    pub(crate) fn add_number(&mut self, to: Register, value: i32) {
        self.put(0x07, to, Register(0), 0, value);
    }

    pub(crate) fn subtract(&mut self, to: Register, from: Register) {
        self.put(0x1f, to, from, 0, 0);
    }

    pub(crate) fn and_number(&mut self, to: Register, value: i32) {
        self.put(0x57, to, Register(0), 0, value);
    }

    pub(crate) fn shift_left(&mut self, to: Register, bits: i32) {
        self.put(0x67, to, Register(0), 0, bits);
    }

    pub(crate) fn call(&mut self, helper: Helper) {
        self.put(0x85, Register(0), Register(0), 0, helper as i32);
    }

    pub(crate) fn jump(&mut self, to: Label) {
        self.jump_if(0x05, Register(0), Register(0), 0, to);
    }

    pub(crate) fn jump_if_equal(&mut self, one: Register, value: i32, to: Label) {
        self.jump_if(0x15, one, Register(0), value, to);
    }

    pub(crate) fn jump_if_other(&mut self, one: Register, value: i32, to: Label) {
        self.jump_if(0x55, one, Register(0), value, to);
    }

    pub(crate) fn jump_if_same(&mut self, one: Register, other: Register, to: Label) {
        self.jump_if(0x1d, one, other, 0, to);
    }

    pub(crate) fn jump_unless_same(&mut self, one: Register, other: Register, to: Label) {
        self.jump_if(0x5d, one, other, 0, to);
    }

    /// Unsigned comparison.
    pub(crate) fn jump_if_less(&mut self, one: Register, other: Register, to: Label) {
        self.jump_if(0xad, one, other, 0, to);
    }

    /// Unsigned comparison.
    pub(crate) fn jump_if_below(&mut self, one: Register, value: i32, to: Label) {
        self.jump_if(0xa5, one, Register(0), value, to);
    }

    /// Signed comparison.
    pub(crate) fn jump_if_not_above_zero(&mut self, one: Register, to: Label) {
        self.jump_if(0xd5, one, Register(0), 0, to);
    }

    fn jump_if(&mut self, code: u8, one: Register, other: Register, value: i32, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.put(code, one, other, 0, value);
    }

    fn put(&mut self, code: u8, to: Register, from: Register, offset: i16, value: i32) {
        let registers = u64::from(from.0 << 4 | to.0);
        let offset = u64::from(offset.cast_unsigned());
        let value = u64::from(value.cast_unsigned());
        self.instructions.push(value << 32 | offset << 16 | registers << 8 | u64::from(code));
    }
}

/// Returns the lower half, as an immediate operand.
fn lower(value: u64) -> i32 {
    ((value & 0xffff_ffff) as u32).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_go_to_their_labels_and_every_program_ends() {
        let mut code = Code::new();
        let over = code.label();
        code.jump_if_equal(KEPT[0], 7, over);
        code.jump(END);
        code.place(over);
        code.set_wide(KEPT[1], 0x1122_3344_5566_7788);
        let words = code.finish();
        assert_eq!(words[0], 0x0000_0007_0001_0615, "over one instruction");
        assert_eq!(words[1], 0x0000_0000_0002_0005, "to the end");
        assert_eq!(words[2..4], [0x5566_7788_0000_0718, 0x1122_3344_0000_0000]);
        assert_eq!(words[4..], [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095]);
    }
}

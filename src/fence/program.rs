//! A [`Filter`] as a `BPF_PROG_TYPE_CGROUP_DEVICE` program. Pure.
//!
//! The kernel runs every program that is effective for a cgroup, and one verdict of 0 denies, so a
//! program that says 1 to everything it does not know only narrows. No map, no helper, no loop: the
//! program reads the three words of `struct bpf_cgroup_dev_ctx` (`linux/bpf.h`) and compares.
//!
//! Invariants: jumps go forward only and stay within the program; every path ends in an exit; every
//! instruction can be reached.

use super::filter::{Denied, Filter};

/// One instruction, as `struct bpf_insn` lays it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    /// Operation.
    pub(super) code: u8,
    /// Destination register in the low half, source register in the high half.
    pub(super) registers: u8,
    /// Jump distance, or offset of a load.
    pub(super) offset: i16,
    /// Immediate operand.
    pub(super) immediate: i32,
}

/// `*(u32 *)(src + offset)`: `BPF_LDX | BPF_MEM | BPF_W`.
pub(super) const LOAD: u8 = 0x61;
/// `dst &= immediate`: `BPF_ALU | BPF_AND | BPF_K`.
pub(super) const AND: u8 = 0x54;
/// `dst = immediate`: `BPF_ALU64 | BPF_MOV | BPF_K`.
pub(super) const MOVE: u8 = 0xb7;
/// Jump if the low 32 bits equal the immediate: `BPF_JMP32 | BPF_JEQ | BPF_K`.
pub(super) const JUMP_EQUAL: u8 = 0x16;
/// Jump if they differ: `BPF_JMP32 | BPF_JNE | BPF_K`.
pub(super) const JUMP_UNEQUAL: u8 = 0x56;
/// `BPF_JMP | BPF_EXIT`.
pub(super) const EXIT: u8 = 0x95;

/// `BPF_DEVCG_DEV_CHAR`, in the low half of the context's first word.
const CHARACTER: u32 = 2;

const VERDICT: u8 = 0;
const CONTEXT: u8 = 1;
const TYPE: u8 = 2;
const MAJOR: u8 = 3;
const MINOR: u8 = 4;

/// More numbers than one program can hold: a jump reaches 32 767 instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} device numbers of one major are more than a device program can hold")]
pub struct TooMany(usize);

/// The program that denies what `filter` denies, for reading, writing and mknod alike.
pub(super) fn compile(filter: &Filter) -> Result<Vec<Instruction>, TooMany> {
    let mut program = vec![
        instruction(LOAD, TYPE | (CONTEXT << 4), 0, 0),
        instruction(AND, TYPE, 0, 0xffff),
        instruction(JUMP_EQUAL, TYPE, 2, CHARACTER),
        verdict(true),
        exit(),
        instruction(LOAD, MAJOR | (CONTEXT << 4), 4, 0),
        instruction(LOAD, MINOR | (CONTEXT << 4), 8, 0),
    ];
    for (major, denied) in filter.majors() {
        block(&mut program, major, denied)?;
    }
    program.extend([verdict(true), exit()]);
    Ok(program)
}

/// Tests of one major, passed over as a whole for others:
/// each excepted minor jumps to the second of two verdicts at the end.
fn block(program: &mut Vec<Instruction>, major: u32, denied: &Denied) -> Result<(), TooMany> {
    let (minors, otherwise) = match denied {
        Denied::AllBut(minors) => (minors, false),
        Denied::Only(minors) => (minors, true),
    };
    let mut verdicts = vec![verdict(otherwise), exit()];
    if !minors.is_empty() {
        // The kernel rejects a program with instructions that nothing leads to.
        verdicts.extend([verdict(!otherwise), exit()]);
    }
    let distance = |length: usize| i16::try_from(length).map_err(|_| TooMany(minors.len()));
    let length = minors.len() + verdicts.len();
    program.push(instruction(JUMP_UNEQUAL, MAJOR, distance(length)?, major));
    for (position, minor) in minors.iter().enumerate() {
        let remaining = minors.len() - position - 1;
        let exception = distance(remaining + 2)?;
        program.push(instruction(JUMP_EQUAL, MINOR, exception, *minor));
    }
    program.extend(verdicts);
    Ok(())
}

fn instruction(code: u8, registers: u8, offset: i16, immediate: u32) -> Instruction {
    Instruction {
        code,
        registers,
        offset,
        immediate: immediate.cast_signed(),
    }
}

fn verdict(allow: bool) -> Instruction {
    instruction(MOVE, VERDICT, 0, u32::from(allow))
}

fn exit() -> Instruction {
    instruction(EXIT, 0, 0, 0)
}

#[cfg(test)]
mod tests;

//! The program against its specification, run by an interpreter of the few instructions it uses.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::filter::tests::{granted, numbers, vfio};
use super::*;
use crate::host::VfioNodes;

const BLOCK: u32 = 1;

/// Runs a program as the kernel would; an error where the kernel's verifier would reject it.
fn run(
    program: &[Instruction],
    kind: u32,
    access: u32,
    major: u32,
    minor: u32,
) -> Result<bool, String> {
    let context = [(access << 16) | kind, major, minor];
    let mut registers: [Option<u64>; 11] = [None; 11];
    let mut at = 0usize;
    // Every jump goes forward, so this ends.
    while let Some(step) = program.get(at) {
        let destination = usize::from(step.registers & 0xf);
        let source = usize::from(step.registers >> 4);
        let immediate = step.immediate.cast_unsigned();
        let value = registers[destination];
        let low = |value: Option<u64>| value.map(|v| u32::try_from(v & 0xffff_ffff).unwrap());
        at += 1;
        let mut jump = |taken: bool| -> Result<(), String> {
            let distance = usize::try_from(step.offset).map_err(|_| "a jump back".to_owned())?;
            if taken {
                at += distance;
            }
            Ok(())
        };
        match step.code {
            LOAD => {
                if source != 1 || step.offset % 4 != 0 {
                    return Err(format!("a load from elsewhere: {step:?}"));
                }
                let word = usize::try_from(step.offset / 4).map_err(|e| e.to_string())?;
                let word = context.get(word).ok_or("a load beyond the context")?;
                registers[destination] = Some(u64::from(*word));
            }
            AND => registers[destination] = Some(u64::from(low(value).ok_or("unset")? & immediate)),
            MOVE => registers[destination] = Some(i64::from(step.immediate).cast_unsigned()),
            JUMP_EQUAL => jump(low(value).ok_or("unset")? == immediate)?,
            JUMP_UNEQUAL => jump(low(value).ok_or("unset")? != immediate)?,
            EXIT => {
                return match registers[0] {
                    Some(0) => Ok(false),
                    Some(1) => Ok(true),
                    other => Err(format!("a verdict of {other:?}")),
                };
            }
            code => return Err(format!("unknown code {code:#x}")),
        }
    }
    Err(format!("fell off the end at {at}"))
}

/// Instructions that no path leads to, for which the kernel's verifier rejects a program.
fn unreachable(program: &[Instruction]) -> Vec<usize> {
    let mut reached = vec![false; program.len()];
    let mut open = vec![0usize];
    while let Some(at) = open.pop() {
        if at >= program.len() || std::mem::replace(&mut reached[at], true) {
            continue;
        }
        let step = &program[at];
        if matches!(step.code, JUMP_EQUAL | JUMP_UNEQUAL) {
            open.push(at + 1 + usize::try_from(step.offset).unwrap());
        }
        if step.code != EXIT {
            open.push(at + 1);
        }
    }
    (0..program.len()).filter(|at| !reached[*at]).collect()
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        0u32..10,
        124u32..136,
        190u32..260,
        505u32..515,
        any::<u32>()
    ]
}

proptest! {
    #[test]
    fn the_program_denies_exactly_what_the_filter_denies(
        gpus in proptest::collection::btree_set(0u32..256, 0..9),
        extra in proptest::collection::btree_set((505u32..515, number()), 0..20),
        kind in prop_oneof![Just(BLOCK), Just(CHARACTER), 0u32..0x1_0000],
        access in 0u32..8,
        major in prop_oneof![Just(195u32), Just(226), 234u32..240, number()],
        minor in number(),
    ) {
        let nodes: VfioNodes = extra;
        let filter = Filter::of(&granted(gpus), &numbers(), &nodes);
        let program = compile(&filter).unwrap();
        prop_assert_eq!(unreachable(&program), Vec::<usize>::new());
        let denied = kind == CHARACTER && filter.denies(major, minor);
        prop_assert_eq!(run(&program, kind, access, major, minor), Ok(!denied));
    }

    #[test]
    fn equal_filters_give_equal_programs_and_others_differ(
        a in proptest::collection::btree_set(0u32..8, 0..5),
        b in proptest::collection::btree_set(0u32..8, 0..5),
    ) {
        let of = |minors: &BTreeSet<u32>| compile(&Filter::of(&granted(minors.clone()), &numbers(), &vfio())).unwrap();
        prop_assert_eq!(of(&a) == of(&b), a == b);
    }
}

/// Not by chance: all of major 195 and its neighbours, with each of the three accesses.
#[test]
fn every_minor_of_the_gpu_s_major_has_the_specified_verdict() {
    let filter = Filter::of(&granted([1, 3]), &numbers(), &vfio());
    let program = compile(&filter).unwrap();
    for major in 190..241 {
        for minor in 0..300 {
            for access in [1, 2, 4, 6] {
                let allowed = run(&program, CHARACTER, access, major, minor).unwrap();
                assert_eq!(allowed, !filter.denies(major, minor), "{major}:{minor}");
                assert!(run(&program, BLOCK, access, major, minor).unwrap());
            }
        }
    }
}

#[test]
fn numbers_that_no_jump_can_pass_over_are_an_error_and_no_wrong_program() {
    let nodes: VfioNodes = (0..40_000).map(|minor| (511, minor)).collect();
    let filter = Filter::of(&granted([]), &numbers(), &nodes);
    assert_eq!(compile(&filter), Err(TooMany(40_000)));
}

//! The verdicts of programs on each call.

use crate::common::{cases, data, expected, range_flags_at, specs};
use synconce_filter::{
    Abi, Call, FilterVerdict, HANDSHAKE_FLAGS, HANDSHAKE_SEALED_ERRNO, HeldAnswer, Program, Spec,
    interpret, program,
};

const SUPERVISED: Spec =
    Spec { answer: HeldAnswer::Supervised, io_uring_pass: false, identity: None, page_size: 4096 };
const SEALED: Spec = Spec { answer: HeldAnswer::Sealed, ..SUPERVISED };

fn verdict(program: &Program, abi: Abi, call: Call, args: [u64; 6]) -> FilterVerdict {
    let number = call.number(abi).expect("the ABI has the call");
    interpret(program, &data(abi, number, args)).expect("a valid program")
}

#[test]
fn every_call_of_every_abi_gets_the_verdict_of_the_rules() {
    let mut asked = 0;
    for spec in specs() {
        let program = program(&spec, Abi::ALL);
        for &abi in Abi::ALL {
            for &call in Call::ALL {
                for filler in [0, u64::MAX] {
                    for args in cases(call, abi, filler) {
                        for number in call.numbers(abi) {
                            let found = interpret(&program, &data(abi, number, args));
                            let wanted = Ok(expected(&spec, abi, call, &args));
                            let name = (abi, call.name());
                            assert_eq!(found, wanted, "{name:?} {args:x?} under {spec:?}");
                            asked += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(asked > 10_000, "only {asked} questions");
}

#[test]
fn abis_that_were_not_asked_for_are_left_alone() {
    for spec in specs() {
        for set in crate::common::abi_sets() {
            let program = program(&spec, &set);
            for &abi in Abi::ALL {
                for &call in Call::ALL {
                    for args in cases(call, abi, 0) {
                        let Some(number) = call.number(abi) else {
                            continue;
                        };
                        let wanted = if set.contains(&abi) {
                            expected(&spec, abi, call, &args)
                        } else {
                            FilterVerdict::Allow
                        };
                        let found = interpret(&program, &data(abi, number, args));
                        assert_eq!(found, Ok(wanted), "{abi:?} {call:?} of {set:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn an_unknown_architecture_is_allowed_whatever_the_number() {
    for spec in specs() {
        let program = program(&spec, Abi::ALL);
        for arch in [0, 0x4000_00F3, 0xC000_00F3, u32::MAX] {
            for nr in -1..600 {
                let mut question = data(Abi::X86_64, 0, [u64::MAX; 6]);
                (question.arch, question.nr) = (arch, nr);
                assert_eq!(interpret(&program, &question), Ok(FilterVerdict::Allow));
            }
        }
    }
}

#[test]
fn a_plain_open_is_never_stopped_and_a_synchronous_one_is() {
    let program = program(&SUPERVISED, Abi::ALL);
    let ask = |call, args| verdict(&program, Abi::X86_64, call, args);
    let (sync, dsync) = (libc::O_SYNC as u64, libc::O_DSYNC as u64);
    assert_eq!(ask(Call::Openat, [0, 0, 0o102, 0o644, 0, 0]), FilterVerdict::Allow);
    assert_eq!(ask(Call::Openat, [0, 0, 0o102 | sync, 0o644, 0, 0]), FilterVerdict::Notify);
    assert_eq!(ask(Call::Openat, [0, 0, dsync, 0, 0, 0]), FilterVerdict::Notify);
    assert_eq!(ask(Call::Open, [0, dsync, 0, 0, 0, 0]), FilterVerdict::Notify);
    assert_eq!(ask(Call::Open, [0, 0, dsync, 0, 0, 0]), FilterVerdict::Allow);
}

#[test]
fn the_flags_of_pwritev2_are_found_where_each_abi_keeps_them() {
    let program = program(&SUPERVISED, Abi::ALL);
    let dsync = libc::RWF_DSYNC as u64;
    let at = |abi| if abi == Abi::X32 { 4 } else { 5 };
    for (abi, at) in Abi::ALL.iter().map(|&abi| (abi, at(abi))) {
        for flags_at in [4, 5] {
            let mut args = [0; 6];
            args[flags_at] = dsync;
            let wanted = if flags_at == at { FilterVerdict::Notify } else { FilterVerdict::Allow };
            assert_eq!(verdict(&program, abi, Call::Pwritev2, args), wanted, "{abi:?} {flags_at}");
        }
    }
}

#[test]
fn the_kernel_answers_a_negative_descriptor_itself() {
    for spec in [SUPERVISED, SEALED] {
        let program = program(&spec, Abi::ALL);
        for call in [Call::Fsync, Call::Fdatasync, Call::Syncfs, Call::SyncFileRange] {
            for fd in [u64::MAX, 0xFFFF_FFFF, 0x8000_0000] {
                let found = verdict(&program, Abi::X86_64, call, [fd, 0, 0, 2, 0, 0]);
                assert_eq!(found, FilterVerdict::Allow, "{call:?}({fd:#x}) under {spec:?}");
            }
        }
    }
}

#[test]
fn a_held_process_can_ask_whether_it_is_held() {
    let kernel_flags = 7;
    assert_ne!(HANDSHAKE_FLAGS & !kernel_flags, 0, "the kernel must refuse the flags");
    let question = |abi| {
        let mut args = [u64::from(u32::MAX), 0, 0, 0, 0, 0];
        args[range_flags_at(abi)] = u64::from(HANDSHAKE_FLAGS);
        args
    };
    for spec in specs() {
        let wanted = match spec.answer {
            HeldAnswer::Supervised => FilterVerdict::Notify,
            HeldAnswer::Sealed => FilterVerdict::Errno(HANDSHAKE_SEALED_ERRNO),
        };
        let program = program(&spec, Abi::ALL);
        for &abi in Abi::ALL {
            assert_eq!(verdict(&program, abi, Call::SyncFileRange, question(abi)), wanted);
        }
    }
    assert_eq!(i32::from(HANDSHAKE_SEALED_ERRNO), libc::ENOTUNIQ);
}

#[test]
fn a_sealed_msync_is_held_only_at_the_start_of_a_page() {
    for page_size in [4096, 16_384, 65_536] {
        let program = program(&Spec { page_size, ..SEALED }, Abi::ALL);
        for address in [0x1000, 0x4000, 0x1_0000, 0x1_4000] {
            let held = address % u64::from(page_size) == 0;
            let wanted = if held { FilterVerdict::Errno(0) } else { FilterVerdict::Allow };
            for &abi in Abi::ALL {
                let found = verdict(&program, abi, Call::Msync, [address, 1, 4, 0, 0, 0]);
                assert_eq!(found, wanted, "{address:#x} with pages of {page_size} on {abi:?}");
            }
        }
    }
}

#[test]
fn a_sealed_program_never_notifies_and_a_supervised_one_never_answers() {
    for spec in specs() {
        let program = program(&spec, Abi::ALL);
        let returns = program.instructions().iter().filter(|i| i.code == 0x06);
        for k in returns.map(|i| i.k) {
            match spec.answer {
                HeldAnswer::Sealed => assert!(matches!(k, 0x7FFF_0000 | 0x5_0000..=0x5_FFFF)),
                HeldAnswer::Supervised => assert!(matches!(k, 0x7FFF_0000 | 0x7FC0_0000)),
            }
        }
    }
}

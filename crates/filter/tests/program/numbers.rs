//! Compares system call numbers with the kernel headers of this machine.

use std::collections::HashMap;
use std::fs;

use synconce_filter::{Abi, Call, native_abis};

const X32_BIT: u32 = 0x4000_0000;

/// Returns the `__NR_*` definitions of a header, or `None` if it is not installed.
fn header(path: &str) -> Option<HashMap<String, u32>> {
    let text = fs::read_to_string(path).ok()?;
    let number = |value: &str| match value.strip_prefix("(__X32_SYSCALL_BIT") {
        Some(rest) => {
            rest.trim_matches([' ', '+', ')']).parse::<u32>().ok().map(|number| X32_BIT | number)
        }
        None => value.trim().parse().ok(),
    };
    let entry = |line: &str| {
        let (name, value) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((name.to_owned(), number(value)?))
    };
    Some(text.lines().filter_map(entry).collect())
}

fn compare_with(abi: Abi, path: &str) {
    let Some(header) = header(path) else {
        crate::common::skipped(&format!("{abi:?} numbers"), &format!("no {path}"));
        return;
    };
    assert!(header.len() > 250, "{path} was not understood: {} entries", header.len());
    for &call in Call::ALL {
        let wanted = header.get(call.name()).copied();
        assert_eq!(call.number(abi), wanted, "{} on {abi:?}", call.name());
    }
    let umounts: Vec<u32> = Call::Umount.numbers(abi).collect();
    let wanted = ["umount2", "umount"].iter().filter_map(|&name| header.get(name).copied());
    assert_eq!(umounts, wanted.collect::<Vec<_>>(), "umount on {abi:?}");
}

#[test]
fn x86_64_numbers_are_those_of_the_installed_header() {
    compare_with(Abi::X86_64, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h");
}

#[test]
fn x32_numbers_are_those_of_the_installed_header() {
    compare_with(Abi::X32, "/usr/include/x86_64-linux-gnu/asm/unistd_x32.h");
}

#[test]
fn i386_numbers_are_those_of_the_installed_header() {
    compare_with(Abi::I386, "/usr/include/x86_64-linux-gnu/asm/unistd_32.h");
}

#[test]
fn aarch64_numbers_are_those_of_the_installed_generic_header() {
    // aarch64 uses the generic table, which every architecture's headers carry.
    compare_with(Abi::Aarch64, "/usr/include/asm-generic/unistd.h");
}

/// From arch/arm/tools/syscall.tbl. Headers of 32-bit Arm are on few machines.
const ARM: [(Call, u32); 21] = [
    (Call::Fsync, 118),
    (Call::Fdatasync, 148),
    (Call::Sync, 36),
    (Call::Syncfs, 373),
    (Call::Msync, 144),
    (Call::SyncFileRange, 341),
    (Call::Open, 5),
    (Call::Openat, 322),
    (Call::Openat2, 437),
    (Call::OpenByHandleAt, 371),
    (Call::Preadv2, 392),
    (Call::Pwritev2, 393),
    (Call::IoSubmit, 246),
    (Call::IoUringSetup, 425),
    (Call::Ioctl, 54),
    (Call::Quotactl, 131),
    (Call::QuotactlFd, 443),
    (Call::Umount, 52),
    (Call::Seccomp, 383),
    (Call::Prctl, 172),
    (Call::Reboot, 88),
];

#[test]
fn arm_numbers_are_those_of_the_table_of_the_kernel() {
    assert_eq!(ARM.map(|(call, _)| call), Call::ALL);
    for (call, number) in ARM {
        assert_eq!(call.numbers(Abi::Arm).collect::<Vec<_>>(), [number], "{}", call.name());
    }
}

#[test]
fn every_number_leads_back_to_its_call() {
    for &abi in Abi::ALL {
        for &call in Call::ALL {
            for number in call.numbers(abi) {
                let found = Call::identify(abi.audit_arch(), number.cast_signed());
                assert_eq!(found, Some((abi, call)), "{number:#x} on {abi:?}");
            }
        }
    }
}

#[test]
fn no_number_of_an_abi_stands_for_two_calls() {
    for &abi in Abi::ALL {
        let mut numbers: Vec<u32> = Call::ALL.iter().flat_map(|call| call.numbers(abi)).collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "{abi:?}");
    }
}

#[test]
fn both_umounts_of_i386_are_one_call() {
    let arch = Abi::I386.audit_arch();
    assert_eq!(Call::identify(arch, 22), Some((Abi::I386, Call::Umount)));
    assert_eq!(Call::identify(arch, 52), Some((Abi::I386, Call::Umount)));
    assert_eq!(Call::Umount.number(Abi::I386), Some(52));
}

#[test]
fn numbers_of_no_interest_are_not_identified() {
    assert_eq!(Call::identify(Abi::X86_64.audit_arch(), 0), None);
    assert_eq!(Call::identify(Abi::X86_64.audit_arch(), -1), None);
    assert_eq!(Call::identify(0, 74), None);
    // ioctl has its own number on x32; the x86_64 number is not valid there.
    assert_eq!(Call::identify(Abi::X32.audit_arch(), 0x4000_0010), None);
}

#[test]
fn audit_architectures_are_those_of_linux_audit_h() {
    assert_eq!(Abi::X86_64.audit_arch(), 0xC000_003E);
    assert_eq!(Abi::X32.audit_arch(), 0xC000_003E);
    assert_eq!(Abi::I386.audit_arch(), 0x4000_0003);
    assert_eq!(Abi::Aarch64.audit_arch(), 0xC000_00B7);
    assert_eq!(Abi::Arm.audit_arch(), 0x4000_0028);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_x86_64_host_has_three_ways_into_the_kernel() {
    assert_eq!(native_abis(), [Abi::X86_64, Abi::X32, Abi::I386]);
}

#[test]
#[cfg(target_arch = "aarch64")]
fn an_aarch64_host_has_two_ways_into_the_kernel() {
    assert_eq!(native_abis(), [Abi::Aarch64, Abi::Arm]);
}

//! The system call ABIs that a program distinguishes.

/// A system call convention, with its own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Abi {
    /// 64-bit x86.
    X86_64,
    /// 64-bit x86 with 32-bit pointers. It shares the audit architecture of [`Abi::X86_64`];
    /// bit 30 of the number distinguishes them.
    X32,
    /// 32-bit x86, native or under a 64-bit kernel.
    I386,
    /// 64-bit Arm.
    Aarch64,
    /// 32-bit Arm (EABI), under a 64-bit kernel.
    Arm,
}

/// `EM_386 | __AUDIT_ARCH_LE`, include/uapi/linux/audit.h.
const AUDIT_ARCH_I386: u32 = 0x4000_0003;
/// `EM_X86_64 | __AUDIT_ARCH_64BIT | __AUDIT_ARCH_LE`, include/uapi/linux/audit.h.
const AUDIT_ARCH_X86_64: u32 = 0xC000_003E;
/// `EM_AARCH64 | __AUDIT_ARCH_64BIT | __AUDIT_ARCH_LE`, include/uapi/linux/audit.h.
const AUDIT_ARCH_AARCH64: u32 = 0xC000_00B7;
/// `EM_ARM | __AUDIT_ARCH_LE`, include/uapi/linux/audit.h.
const AUDIT_ARCH_ARM: u32 = 0x4000_0028;

impl Abi {
    /// Every ABI.
    pub const ALL: &'static [Self] =
        &[Self::X86_64, Self::X32, Self::I386, Self::Aarch64, Self::Arm];

    /// Returns the `AUDIT_ARCH_*` value that seccomp reports for this ABI
    /// (include/uapi/linux/audit.h). x86_64 and x32 have the same value.
    #[must_use]
    pub const fn audit_arch(self) -> u32 {
        match self {
            Self::X86_64 | Self::X32 => AUDIT_ARCH_X86_64,
            Self::I386 => AUDIT_ARCH_I386,
            Self::Aarch64 => AUDIT_ARCH_AARCH64,
            Self::Arm => AUDIT_ARCH_ARM,
        }
    }

    /// Returns whether arguments have 32 bits: a 64-bit argument is split into two halves.
    #[must_use]
    pub const fn is_32_bit(self) -> bool {
        matches!(self, Self::I386 | Self::Arm)
    }

    /// Returns the size of a pointer in the caller's memory, in bytes.
    #[must_use]
    pub const fn pointer_width(self) -> u64 {
        if self.is_32_bit() || matches!(self, Self::X32) { 4 } else { 8 }
    }
}

/// Returns the ABIs that a process on this host can use, the most common first. Empty on an
/// architecture that this crate does not support.
#[must_use]
pub const fn native_abis() -> &'static [Abi] {
    if cfg!(target_arch = "x86_64") {
        &[Abi::X86_64, Abi::X32, Abi::I386]
    } else if cfg!(target_arch = "aarch64") {
        &[Abi::Aarch64, Abi::Arm]
    } else {
        &[]
    }
}

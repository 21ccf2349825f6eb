//! Turns a policy into a classic BPF program for seccomp(2), which stops the system calls that a
//! hold must see.
//!
//! The crate has no side effects: it opens and installs nothing. The `sys` crate installs a
//! [`Program`].
//!
//! # Terms
//! - **ABI** ([`Abi`]): a system call convention. A process may use several: an x86_64 host also
//!   accepts calls of x32 and i386, an aarch64 host those of 32-bit Arm. A program covers each
//!   ABI that it is made for.
//! - **call** ([`Call`]): a system call that syncs, that can make a descriptor sync, or that the
//!   supervisor must see for another reason.
//! - **supervised**: the program stops a call with `SECCOMP_RET_USER_NOTIF`, and a supervisor
//!   answers the call.
//! - **sealed**: the program itself answers, with `SECCOMP_RET_ERRNO`.
//! - **verdict** ([`FilterVerdict`]): the result of a program for one call.
//!
//! # Shape of a program
//! The program reads the audit architecture first, then the number. It allows a call at once if
//! the architecture is unknown or the number has no rule, and reads no argument then. So the
//! kernel (5.11 and later, `seccomp_is_const_allow` in kernel/seccomp.c) can put such a number in
//! a bitmap and skip the program.
//!
//! ```
//! use synconce_filter::{HeldAnswer, Call, SeccompData, Spec, FilterVerdict, Abi};
//!
//! let answer = HeldAnswer::Supervised;
//! let spec = Spec { answer, io_uring_pass: false, identity: None, page_size: 4096 };
//! let program = synconce_filter::program(&spec, synconce_filter::Abi::ALL);
//! let call = SeccompData {
//!     nr: Call::Fsync.number(Abi::X86_64).unwrap() as i32,
//!     arch: Abi::X86_64.audit_arch(),
//!     instruction_pointer: 0,
//!     args: [3, 0, 0, 0, 0, 0],
//! };
//! assert_eq!(synconce_filter::interpret(&program, &call), Ok(FilterVerdict::Notify));
//! ```

#![forbid(unsafe_code)]

mod abi;
pub mod args;
mod assemble;
mod call;
mod instruction;
mod interpret;
mod numbers;
mod program;
mod rule;
mod sealed;
mod spec;

pub use abi::{Abi, native_abis};
pub use call::{Call, CallProperty};
pub use instruction::{Instruction, Program};
pub use interpret::{FilterVerdict, InterpretError, SeccompData, Trace, interpret, trace};
pub use program::program;
pub use sealed::{SEALED, SealedAnswer};
pub use spec::{
    HANDSHAKE_FLAGS, HANDSHAKE_SEALED_ERRNO, HANDSHAKE_STEP, HANDSHAKE_STEP_ERRNO, HeldAnswer,
    Identity, Spec,
};

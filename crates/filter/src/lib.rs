//! Policy in, classic BPF out: which system calls a process under a hold has
//! to stop at, written as a program for seccomp(2).
//!
//! The crate is pure. It opens nothing, installs nothing and contains no
//! `unsafe`; installing a [`Program`] is the business of the `sys` crate.
//!
//! # Terms
//! - **ABI** ([`Abi`]): one way into the kernel. A process may use several: an
//!   x86_64 host also takes x32 and i386 calls, so a program covers all of them.
//! - **call** ([`Call`]): a system call that syncs, can make a descriptor sync,
//!   or that the supervisor has to see for another reason.
//! - **supervised**: the program stops a call with `SECCOMP_RET_USER_NOTIF` and
//!   a supervisor answers it.
//! - **sealed**: the program itself answers, with `SECCOMP_RET_ERRNO`.
//! - **verdict** ([`Verdict`]): what a program says about one call.
//!
//! # Shape of a program
//! The audit architecture is read first, then the number; an unknown
//! architecture or a number of no interest is allowed at once. No argument is
//! read on those paths, which is what lets the kernel (5.11 and later,
//! `seccomp_is_const_allow` in kernel/seccomp.c) put such calls in a bitmap and
//! not run the program for them at all.
//!
//! ```
//! use synconce_filter::{Answer, Call, SeccompData, Spec, Verdict, Abi};
//!
//! let spec = Spec { answer: Answer::Supervised, io_uring_pass: false, watch_exec: false, identity: None };
//! let program = synconce_filter::program(&spec, synconce_filter::Abi::ALL);
//! let call = SeccompData {
//!     nr: Call::Fsync.number(Abi::X86_64).unwrap() as i32,
//!     arch: Abi::X86_64.audit_arch(),
//!     instruction_pointer: 0,
//!     args: [3, 0, 0, 0, 0, 0],
//! };
//! assert_eq!(synconce_filter::interpret(&program, &call), Ok(Verdict::Notify));
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
mod spec;

pub use abi::{Abi, native_abis};
pub use call::Call;
pub use instruction::{Instruction, Program};
pub use interpret::{InterpretError, SeccompData, Trace, Verdict, interpret, trace};
pub use program::program;
pub use spec::{Answer, HANDSHAKE_FLAGS, HANDSHAKE_SEALED_ERRNO, Identity, Spec};

//! Steps that can be taken away, to prove that a lost step would be seen.
//!
//! Only with the feature `mutants`, which no shipped binary has: without it every
//! question is answered `false` at compile time. `prove` knows the names.

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Whether the step `name` is taken away (`SYNCONCE_MUTANT`).
#[cfg(feature = "mutants")]
pub fn is(name: &str) -> bool {
    std::env::var_os("SYNCONCE_MUTANT").is_some_and(|mutant| mutant == name)
}

/// Whether the step `name` is taken away.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is(_name: &str) -> bool {
    false
}

/// Whether the step `name` is taken away the first few times.
#[cfg(feature = "mutants")]
pub fn is_at_first(name: &str) -> bool {
    static TIMES: AtomicU32 = AtomicU32::new(0);
    is(name) && TIMES.fetch_add(1, SeqCst) < 8
}

/// Whether the step `name` is taken away the first few times.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is_at_first(_name: &str) -> bool {
    false
}

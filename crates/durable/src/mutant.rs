//! Protocol steps that can be removed, to prove that the tests detect a lost step.
//!
//! Active only with the feature `mutants`, which no shipped binary has: without it every query
//! is `false` at compile time. `prove` has the list of names.

#[cfg(feature = "mutants")]
use std::ffi::OsString;
#[cfg(feature = "mutants")]
use std::sync::OnceLock;
#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Whether the step `name` is removed (`SYNCONCE_MUTANT`). The variable is read once: a supervisor
/// that serves survivors has no environment.
#[cfg(feature = "mutants")]
pub fn is(name: &str) -> bool {
    static MUTANT: OnceLock<Option<OsString>> = OnceLock::new();
    MUTANT.get_or_init(|| std::env::var_os("SYNCONCE_MUTANT")).as_ref().is_some_and(|it| it == name)
}

/// Whether the step `name` is removed.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is(_name: &str) -> bool {
    false
}

/// Whether the step `name` is removed the first few times.
#[cfg(feature = "mutants")]
pub fn is_at_first(name: &str) -> bool {
    static TIMES: AtomicU32 = AtomicU32::new(0);
    is(name) && TIMES.fetch_add(1, SeqCst) < 8
}

/// Whether the step `name` is removed the first few times.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is_at_first(_name: &str) -> bool {
    false
}

//! The harness of every fuzzing target.
//!
//! A target is a test of the crate whose code it tests, so that it can call private functions.
//! In `cargo test` a target runs on the kept inputs, then on a set number of seeded ones.
//! Under `cargo xtask fuzz` libFuzzer makes inputs by coverage for the requested time.
//!
//! The kept inputs of the target `NAME`, one per file: `corpora/NAME` for inputs that reach
//! code that other inputs do not reach, and `found/NAME` for inputs that once showed a defect.
#![forbid(unsafe_code)]

#[cfg(not(fuzzing_libfuzzer))]
mod mutate;
#[cfg(not(fuzzing_libfuzzer))]
mod short;

pub use arbitrary;

use arbitrary::{Arbitrary, Unstructured};

/// Calls `check` with inputs for the target `name`: with all kept ones, then with `inputs`
/// seeded ones or, under libFuzzer, with the inputs that libFuzzer makes.
///
/// # Panics
/// If `check` panics. The input is then written to a file, which is named on standard error.
pub fn target(name: &str, inputs: u32, check: impl FnMut(&[u8])) {
    #[cfg(not(fuzzing_libfuzzer))]
    short::run(name, inputs, check);
    #[cfg(fuzzing_libfuzzer)]
    {
        let _ = inputs;
        // The engine stops at the first panic, so no half-changed state is used again.
        let mut check = std::panic::AssertUnwindSafe(check);
        bolero::check!(name = name).for_each(move |input: &[u8]| (*check)(input));
    }
}

/// Like [`target`], with the bytes converted to a value. Bytes that convert to no value are
/// skipped.
///
/// # Panics
/// If `check` panics.
pub fn values<T: for<'a> Arbitrary<'a>>(name: &str, inputs: u32, mut check: impl FnMut(T)) {
    target(name, inputs, |bytes| {
        if let Ok(value) = T::arbitrary_take_rest(Unstructured::new(bytes)) {
            check(value);
        }
    });
}

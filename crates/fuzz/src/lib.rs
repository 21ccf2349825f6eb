//! One harness for every fuzzing target.
//!
//! A target is a test of the crate whose code it is about, so that private
//! functions can be reached. In `cargo test` it goes through the inputs that
//! are kept, then through a set number of seeded ones; under `cargo xtask fuzz`
//! libFuzzer makes inputs by coverage for as long as it is told.
//!
//! Kept for the target `NAME`, one input a file: `corpora/NAME`, inputs that
//! reach what others do not, and `found/NAME`, inputs that once showed a defect.
#![forbid(unsafe_code)]

#[cfg(not(fuzzing_libfuzzer))]
mod mutate;
#[cfg(not(fuzzing_libfuzzer))]
mod short;

pub use arbitrary;

use arbitrary::{Arbitrary, Unstructured};

/// Calls `check` with inputs for the target `name`: with all that are kept, then
/// with `inputs` seeded ones or, under libFuzzer, with whatever it makes.
///
/// # Panics
/// When `check` does. The input is written to a file, which standard error names.
pub fn target(name: &str, inputs: u32, check: impl FnMut(&[u8])) {
    #[cfg(not(fuzzing_libfuzzer))]
    short::run(name, inputs, check);
    #[cfg(fuzzing_libfuzzer)]
    {
        let _ = inputs;
        // The engine stops at the first panic, so nobody sees a half-changed state.
        let mut check = std::panic::AssertUnwindSafe(check);
        bolero::check!(name = name).for_each(move |input: &[u8]| (*check)(input));
    }
}

/// Like [`target`], with the bytes made into a value. Bytes that make none are skipped.
///
/// # Panics
/// When `check` does.
pub fn values<T: for<'a> Arbitrary<'a>>(name: &str, inputs: u32, mut check: impl FnMut(T)) {
    target(name, inputs, |bytes| {
        if let Ok(value) = T::arbitrary_take_rest(Unstructured::new(bytes)) {
            check(value);
        }
    });
}

//! The short run: the kept inputs, then seeded ones.

use crate::mutate::mutated;
use fastrand::Rng;
use std::fs;
use std::path::{Path, PathBuf};

/// A fixed seed: the inputs are the same on every machine, so that a failure in CI can be
/// repeated.
const SEED: u64 = 0x5359_4E43;

pub(crate) fn run(name: &str, inputs: u32, mut check: impl FnMut(&[u8])) {
    let kept = kept(name);
    for input in &kept {
        tell_when_failing(name, input, &mut check);
    }
    let mut random = Rng::with_seed(SEED);
    for _ in 0..inputs {
        tell_when_failing(name, &mutated(&kept, &mut random), &mut check);
    }
}

/// Returns the kept inputs of the target `name`, in the order of their file names.
fn kept(name: &str) -> Vec<Vec<u8>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = |kind: &str| {
        let entries = fs::read_dir(here.join(kind).join(name)).into_iter().flatten();
        let mut files: Vec<PathBuf> =
            entries.map(|entry| entry.expect("a readable directory").path()).collect();
        files.sort();
        files
    };
    let files = files("found").into_iter().chain(files("corpora"));
    files.map(|file| fs::read(file).expect("a readable input")).collect()
}

fn tell_when_failing(name: &str, input: &[u8], check: &mut impl FnMut(&[u8])) {
    let teller = Teller { name, input };
    check(input);
    std::mem::forget(teller);
}

/// Writes the input to a file if the check panics.
struct Teller<'a> {
    name: &'a str,
    input: &'a [u8],
}

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        let Self { name, input } = self;
        let file =
            std::env::temp_dir().join(format!("synconce-fuzz-{name}-{}", std::process::id()));
        let kept = match fs::write(&file, *input) {
            Ok(()) => file.display().to_string(),
            Err(_) => "nowhere".to_owned(),
        };
        eprintln!("the input, to be kept in proof/fuzz/found/{name}, is in {kept}:");
        eprintln!("{}", input.escape_ascii());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_short_runs_see_the_same_inputs() {
        let inputs = || {
            let mut seen = Vec::new();
            run("none-of-this-name", 50, |input| seen.push(input.to_vec()));
            seen
        };
        assert_eq!(inputs().len(), 50);
        assert_eq!(inputs(), inputs());
    }
}

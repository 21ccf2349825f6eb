//! Versions of programs.

/// Returns the major and the minor number of the first version in `said`, the output of a program.
pub fn numbers(said: &str) -> Option<(u32, u32)> {
    said.split_whitespace().find_map(|word| {
        let (major, rest) = word.trim_start_matches('v').split_once('.')?;
        let minor = rest.split(|digit: char| !digit.is_ascii_digit()).next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_a_program_says_first_is_read() {
        for (said, version) in [
            ("Docker version 20.10.24+dfsg1, build 5d6db84", Some((20, 10))),
            (
                "buildah version 1.28.2 (image-spec 1.0.2-dev, runtime-spec 1.0.2-dev)",
                Some((1, 28)),
            ),
            ("cargo 1.90.0 (840b83a10 2025-07-30)", Some((1, 90))),
            ("Docker version 26.0.0-rc1, build 0", Some((26, 0))),
            ("Docker version 28.5, build 0", Some((28, 5))),
            ("runc version 1.1+dev\nspec: 1.0.2", Some((1, 1))),
            ("containerd github.com/containerd/containerd/v2 v2.4.2 1c4457\n", Some((2, 4))),
            ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1", Some((1, 6))),
            ("containerd github.com/containerd/containerd/v2 2.4.0-beta.0", Some((2, 4))),
            ("containerd github.com/containerd/containerd/v2 2.x.y", None),
            ("Docker version dev, build 265f709647", None),
            ("", None),
        ] {
            assert_eq!(numbers(said), version, "{said}");
        }
    }
}

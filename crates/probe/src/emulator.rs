//! Programs that run programs of another architecture.

/// QEMU's names of architectures begin so: `qemu-system-aarch64` and `qemu-img` run no programs of
/// users.
const ARCHITECTURES: [&str; 17] = [
    "aarch64",
    "alpha",
    "arm",
    "hexagon",
    "hppa",
    "i386",
    "loongarch",
    "m68k",
    "microblaze",
    "mips",
    "or1k",
    "ppc",
    "riscv",
    "s390x",
    "sh4",
    "sparc",
    "x86_64",
];

/// Returns the architecture, by QEMU's name, whose programs the file `name` runs if it is one of
/// QEMU's emulators for users.
pub fn architecture(name: &str) -> Option<&str> {
    // BuildKit carries emulators of its own.
    let rest = name.trim_start_matches("buildkit-").strip_prefix("qemu-")?;
    let is_known = ARCHITECTURES.iter().any(|it| rest.starts_with(it));
    is_known.then(|| rest.trim_end_matches("-static"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulator_of_programs_is_told_from_one_of_machines() {
        for (name, wanted) in [
            ("qemu-aarch64-static", Some("aarch64")),
            ("qemu-arm", Some("arm")),
            ("buildkit-qemu-riscv64", Some("riscv64")),
            ("qemu-system-aarch64", None),
            ("qemu-img", None),
            ("sh", None),
        ] {
            assert_eq!(architecture(name), wanted, "{name}");
        }
    }
}

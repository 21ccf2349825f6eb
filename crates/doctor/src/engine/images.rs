//! Images of another architecture, whose programs this machine runs in an emulator.

use serde::Serialize;
use std::fs;
use std::path::Path;
use synconce_probe::emulator;

/// The kernel's handlers of programs in other formats (Documentation/admin-guide/binfmt-misc.rst).
const HANDLERS: &str = "/proc/sys/fs/binfmt_misc";

/// How many images an emulator runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EmulatedImages {
    /// The images that the engine has.
    pub images: usize,
    /// Those that need an emulator.
    pub emulated: usize,
    /// The first of these.
    pub first: String,
    /// Its architecture, as images name it.
    pub architecture: String,
    /// The emulator.
    pub by: String,
}

/// An image that an engine has.
#[derive(Clone, Debug)]
pub(super) struct ImageOf {
    /// Its first name, or its id.
    pub name: String,
    /// As images name it, such as `arm64`.
    pub architecture: String,
}

/// The emulators that the kernel starts for programs of other architectures.
pub(super) struct Emulators(Vec<String>);

impl Emulators {
    /// Returns `None` if there are none: then images of other architectures do not run at all.
    pub fn of_kernel() -> Option<Self> {
        Self::in_directory(Path::new(HANDLERS))
    }

    fn in_directory(handlers: &Path) -> Option<Self> {
        let entries = fs::read_dir(handlers).ok()?.flatten();
        let program = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            let mut lines = text.lines();
            lines.next().filter(|first| *first == "enabled")?;
            lines.find_map(|line| line.strip_prefix("interpreter ")).map(str::to_owned)
        };
        let all = entries.filter_map(program).filter(|path| architecture_of(path).is_some());
        let all: Vec<_> = all.collect();
        (!all.is_empty()).then_some(Self(all))
    }

    /// Counts the images of `all` that an emulator runs, because a processor of `native` does not;
    /// `None` if there are none.
    pub fn run_among(&self, all: &[ImageOf], native: &str) -> Option<EmulatedImages> {
        let emulated = |image: &ImageOf| {
            let by = self.emulator_of(&image.architecture)?;
            (!runs(native, &image.architecture)).then(|| (image.clone(), by.to_owned()))
        };
        let mut found = all.iter().filter_map(emulated);
        let (first, by) = found.next()?;
        Some(EmulatedImages {
            images: all.len(),
            emulated: 1 + found.count(),
            first: first.name,
            architecture: first.architecture,
            by,
        })
    }

    /// Returns the emulator of `architecture`.
    fn emulator_of(&self, architecture: &str) -> Option<&str> {
        let name = match architecture {
            "386" => "i386",
            "amd64" => "x86_64",
            "arm64" => "aarch64",
            "loong64" => "loongarch64",
            "mips64le" => "mips64el",
            other => other,
        };
        self.0.iter().find(|path| architecture_of(path) == Some(name)).map(String::as_str)
    }
}

fn architecture_of(program: &str) -> Option<&str> {
    emulator::architecture(program.rsplit('/').next()?)
}

/// Whether a processor of `native` runs programs of `other` itself.
fn runs(native: &str, other: &str) -> bool {
    native == other || matches!((native, other), ("amd64", "386") | ("arm64", "arm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(architecture: &str) -> ImageOf {
        ImageOf { name: format!("of-{architecture}"), architecture: architecture.to_owned() }
    }

    #[test]
    fn an_image_is_emulated_if_the_processor_cannot_run_it_and_a_handler_can() {
        let programs = ["/usr/bin/qemu-aarch64-static", "/x/buildkit-qemu-riscv64"];
        let emulators = Emulators(programs.map(str::to_owned).to_vec());
        let all = ["amd64", "386", "arm64", "riscv64", "s390x"].map(image);
        let found = emulators.run_among(&all, "amd64").unwrap();
        assert_eq!((found.images, found.emulated), (5, 2));
        assert_eq!((&*found.first, &*found.by), ("of-arm64", "/usr/bin/qemu-aarch64-static"));
        assert_eq!(emulators.run_among(&all[..2], "amd64"), None);
        assert_eq!(emulators.run_among(&["arm64", "arm"].map(image), "arm64"), None);
    }

    #[test]
    fn a_handler_that_is_disabled_runs_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("qemu-arm", "disabled\ninterpreter /usr/bin/qemu-arm-static\nflags: \n");
        write("python", "enabled\ninterpreter /usr/bin/python3\nflags: \n");
        write("status", "enabled\n");
        assert!(Emulators::in_directory(directory.path()).is_none());
        write("qemu-aarch64", "enabled\ninterpreter /usr/bin/qemu-aarch64-static\nflags: F\n");
        let found = Emulators::in_directory(directory.path()).unwrap();
        assert_eq!(found.0, ["/usr/bin/qemu-aarch64-static"]);
        assert!(Emulators::in_directory(Path::new("/none")).is_none());
    }
}

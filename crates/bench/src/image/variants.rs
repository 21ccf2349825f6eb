//! The variants as data: one Dockerfile each, and one of two runtimes.

use super::docker::{self, Databases, Runtime};
use crate::scenario::{Promise, Variant};

/// The default: the official images configure dpkg to skip its syncs of files, but not those
/// of its database.
pub(super) const DEFAULT: &str = "image-default";

/// Tags of images: the two from which builds start, the tool's, and the result.
pub(super) const BARE_BASE: &str = "synconce-bench-bare";
pub(super) const DEFAULT_BASE: &str = "synconce-bench-default";
pub(super) const TOOL: &str = "synconce-bench-tool";
pub(super) const RESULT: &str = "synconce-bench-result";

/// A mount whose data outlive the step, so that its syncs are real (`oci::outliving`).
const CACHE: &str = "--mount=type=cache,target=/unused ";

/// One variant: what differs from the others.
pub(super) struct ImageVariant {
    pub(super) name: &'static str,
    about: &'static str,
    promise: Promise,
    base: &'static str,
    /// Instructions before the measured step.
    before: &'static str,
    /// Words before the command of the measured step, with a space at their end.
    prefix: &'static str,
    pub(super) runtime: Runtime,
    pub(super) databases: Databases,
}

const IMAGE_DEFAULT: ImageVariant = ImageVariant {
    name: DEFAULT,
    about: "dpkg with force-unsafe-io, as in the official images",
    promise: Promise::Nothing,
    base: DEFAULT_BASE,
    before: "",
    prefix: "",
    runtime: Runtime::Plain,
    databases: Databases::Plain,
};

const WAYS: [ImageVariant; 9] = [
    IMAGE_DEFAULT,
    ImageVariant {
        name: "full-fsync",
        about: "dpkg with its own syncs",
        promise: Promise::OwnSyncs,
        base: BARE_BASE,
        ..IMAGE_DEFAULT
    },
    ImageVariant {
        name: "eatmydata",
        about: "the default under eatmydata, which is in the base",
        prefix: "eatmydata ",
        ..IMAGE_DEFAULT
    },
    ImageVariant {
        name: "wrapper",
        about: "the default, with synconce-oci as the builder's runtime, roots as mounted",
        runtime: Runtime::Wrapped,
        ..IMAGE_DEFAULT
    },
    ImageVariant {
        name: "wrapper-hold",
        about: "the wrapper, and BuildKit's databases are held",
        runtime: Runtime::Wrapped,
        databases: Databases::Held,
        ..IMAGE_DEFAULT
    },
    ImageVariant {
        name: "volatile",
        about: "the wrapper with volatile roots, its default",
        runtime: Runtime::Volatile,
        ..IMAGE_DEFAULT
    },
    ImageVariant {
        name: "volatile-hold",
        about: "the same, and BuildKit's databases are held",
        runtime: Runtime::Volatile,
        databases: Databases::Held,
        ..IMAGE_DEFAULT
    },
    ImageVariant {
        name: "volatile-unheld",
        about: "volatile, and a cache mount prevents the filter: only the root is volatile",
        prefix: CACHE,
        runtime: Runtime::Volatile,
        ..IMAGE_DEFAULT
    },
    ImageVariant {
        name: "shell",
        about: "the default, with synconce as the Dockerfile's SHELL",
        before: "COPY --from=synconce-bench-tool /synconce /usr/local/bin/\n\
            SHELL [\"synconce\", \"run\", \"--sealed\", \"--no-commit\", \"--\", \"/bin/sh\", \"-c\"]\n",
        ..IMAGE_DEFAULT
    },
];

/// Returns all ways.
pub(super) fn ways() -> impl Iterator<Item = &'static ImageVariant> {
    WAYS.iter()
}

/// Returns the way of a variant; the default for a name that no variant has.
pub(super) fn way(variant: &str) -> &'static ImageVariant {
    ways().find(|way| way.name == variant).unwrap_or(&IMAGE_DEFAULT)
}

/// Returns the variants of all ways, the baseline first.
pub(super) fn all() -> Vec<Variant> {
    ways()
        .map(|way| {
            let mut command = docker::client_words();
            let file = format!("{{context}}/../{}.Dockerfile", way.name);
            let words = ["build", "--network", "none", "--no-cache", "--progress", "plain"];
            let words = words.into_iter().chain(["--tag", RESULT, "--file", &file, "{context}"]);
            command.extend(words.map(str::to_owned));
            Variant {
                about: way.about.to_owned(),
                promise: way.promise,
                against: DEFAULT.to_owned(),
                ..Variant::new(way.name, command)
            }
        })
        .collect()
}

impl ImageVariant {
    /// Returns the Dockerfile whose measured step is `command`.
    pub(super) fn dockerfile(&self, command: &str) -> String {
        let Self { base, before, prefix, .. } = self;
        format!("FROM {base}\nCOPY . /src\n{before}RUN {prefix}{command}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_install_by_the_same_words_and_only_ours_differ_by_the_runtime() {
        for way in ways() {
            let text = way.dockerfile("apt-get install gcc");
            let step = text.lines().last().expect("there are lines");
            let bare = step.replace("eatmydata ", "").replace(CACHE, "");
            assert_eq!(bare, "RUN apt-get install gcc", "{}", way.name);
            assert_eq!(way.runtime == Runtime::Wrapped, way.name.starts_with("wrapper"));
            assert_eq!(way.runtime == Runtime::Volatile, way.name.starts_with("volatile"));
        }
    }
}

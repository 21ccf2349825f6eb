//! A small root, and helpers that enter it.

use rustix::fs::{Mode, OFlags, open};
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_testkit::manifest::{Manifest, ManifestOptions};
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::Rig;
use synconce_tree::enter::{Bind, EnterSpec};

/// Runs a test's closure, with a disk, in a process and namespaces of its own.
pub fn isolated<T: Fn(&Path)>(test: T) {
    synconce_testkit::isolation::isolated(test, |_, test| {
        let rig = Rig::builder().up().expect("a rig");
        test(rig.path());
    });
}

pub fn opened(path: &Path) -> OwnedFd {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()))
}

/// A script that makes a root with some of the host's programs and their libraries, and users.
const ROOT: &str = r#"
    mkdir -p "$1" && cd "$1" && mkdir -p bin lib lib64 etc tmp root home/builder run usr
    chmod 1777 tmp
    for program in sh cat echo id ls stat sleep mkdir rm touch env mount kill sync true readlink chown chmod hostname; do
        path=$(command -v $program) || continue
        case $path in /*) ;; *) path=/bin/$program ;; esac
        cp -L "$path" bin/
        for library in $(ldd "$path" | grep -o '/[^ ]*'); do
            mkdir -p ".${library%/*}" && cp -L "$library" ".$library"
        done
    done
    printf 'root:x:0:0::/root:/bin/sh\nbuilder:x:1000:1000::/home/builder:/bin/dash\n' >etc/passwd
    printf 'root:x:0:\nbuilder:x:1000:\nsrc:x:40:builder,root\n' >etc/group
    chown 1000:1000 home/builder
"#;

/// Makes a root at `place/name`.
pub fn root(place: &Path, name: &str) -> PathBuf {
    let root = place.join(name);
    let words = [
        Path::new("sh"),
        Path::new("-eu"),
        Path::new("-c"),
        Path::new(ROOT),
        Path::new("sh"),
        &root,
    ];
    let made = process::run(Command::new(words[0]).args(&words[1..]), limit()).unwrap();
    assert!(made.status.success(), "{}", made.stderr);
    root
}

pub fn limit() -> Duration {
    patiently(Duration::from_secs(30))
}

pub fn spec(root: &Path, command: &[&str]) -> EnterSpec {
    EnterSpec {
        root: root.into(),
        command: command.iter().map(OsString::from).collect(),
        ..EnterSpec::default()
    }
}

pub fn script(root: &Path, script: &str) -> EnterSpec {
    spec(root, &["/bin/sh", "-eu", "-c", script])
}

pub fn bind(source: &Path, target: &str) -> Bind {
    Bind { source: source.into(), target: target.into(), read_only: false }
}

pub fn bind_read_only(source: &Path, target: &str) -> Bind {
    Bind { read_only: true, ..bind(source, target) }
}

/// Returns a command that runs this program with a verb.
pub fn verb(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(words);
    command
}

pub fn entering(spec: &EnterSpec) -> Command {
    let mut command = verb(&["enter", &serde_json::to_string(spec).unwrap()]);
    command.env_clear();
    command
}

pub fn entered(spec: &EnterSpec) -> Finished {
    process::run(&mut entering(spec), limit()).unwrap()
}

/// Returns the command's standard output, and asserts that it succeeded.
pub fn output(spec: &EnterSpec) -> String {
    let finished = entered(spec);
    assert!(finished.status.success(), "{:?}: {finished:?}", spec.command);
    finished.stdout
}

/// Returns a manifest of the root, with the times of its directories and files.
pub fn manifest(root: &Path) -> Manifest {
    Manifest::with(root, &ManifestOptions::default().mtimes()).expect("a manifest")
}

pub fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

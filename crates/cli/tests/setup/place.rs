//! A small system for one test.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use synconce_testkit::harness::{Debian, contents_below};
use synconce_testkit::manifest::{Manifest, ManifestOptions};

pub const SYNCONCE: &str = env!("CARGO_BIN_EXE_synconce");

/// A root directory. Its drop removes it.
pub struct TestRoot {
    pub root: PathBuf,
}

impl TestRoot {
    /// Makes a system with synconce-oci, a dockerd of unknown version, its unit and its
    /// configuration.
    pub fn new(name: &str) -> Self {
        let own = format!("setup-{name}-{}", std::process::id());
        let place = Self { root: Path::new(env!("CARGO_TARGET_TMPDIR")).join(own) };
        let _ = fs::remove_dir_all(&place.root);
        place.program("usr/local/bin/synconce-oci");
        place.program("usr/bin/dockerd");
        let unit = "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n";
        place.write("lib/systemd/system/docker.service", unit);
        place.write("etc/docker/daemon.json", "{\n  \"debug\": true\n}\n");
        place
    }

    pub fn write(&self, path: &str, content: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }

    pub fn program(&self, path: &str) {
        self.write(path, "");
        fs::set_permissions(self.root.join(path), PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Returns the arguments of `synconce setup WORDS` for this system.
    pub fn arguments(&self, words: &[&str]) -> Vec<String> {
        let root = self.root.to_str().unwrap();
        let words = [&["setup"], words, &["--root", root]].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    /// Runs `synconce setup WORDS` for this system to its end.
    pub fn setup(&self, words: &[&str]) -> EndedCommand {
        EndedCommand::run(Command::new(SYNCONCE).args(self.arguments(words)))
    }

    /// Returns the files of the system, without synconce's own state.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut found = contents_below(&self.root);
        found.retain(|path, _| !path.starts_with(self.root.join("var")));
        let plain =
            |(path, (metadata, content)): (_, (Metadata, _))| (path, (metadata.mode(), content));
        found.into_iter().map(plain).collect()
    }
}

impl Drop for TestRoot {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// The output and the exit status of a command.
#[derive(Debug)]
pub struct EndedCommand {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl EndedCommand {
    pub fn run(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().expect("it can be started");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Self { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}

/// Returns the files of the root, without those that each call of apt changes, and without
/// what matches one of the patterns in `also`.
pub fn manifest_of(root: &Debian, also: &[&str]) -> Manifest {
    let mut options = ManifestOptions::default().ignore_calls_of_apt().unwrap();
    for path in ["lost+found"].iter().chain(also) {
        options = options.ignore(path).unwrap();
    }
    Manifest::with(root.path(""), &options).unwrap()
}

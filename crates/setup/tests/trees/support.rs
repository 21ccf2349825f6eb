//! A system below a directory, and snapshots of it.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use synconce_setup::error::Error;
use synconce_setup::host::Host;
use synconce_setup::plan::Plan;
use synconce_setup::undo::Edits;
use synconce_setup::{Engine, apply, plan, plan_builds_only, undo};
use synconce_testkit::harness::contents_below;
use tempfile::TempDir;

pub const RUNTIME: &str = "/usr/local/bin/synconce-oci";
pub const SYNCONCE: &str = "/usr/local/bin/synconce";

/// A system with `synconce` and `synconce-oci`, and nothing else.
pub struct TestSystem {
    root: TempDir,
}

/// Everything in a system: kind, mode, owner, and content.
pub type Snapshot = BTreeMap<String, (u32, u32, u32, String)>;

impl TestSystem {
    pub fn new() -> Self {
        let tree = Self { root: tempfile::tempdir().unwrap() };
        tree.program(RUNTIME).program(SYNCONCE)
    }

    /// Adds an executable file at `path`.
    pub fn program(self, path: &str) -> Self {
        let tree = self.with(path, "#!/bin/sh\n");
        tree.mode(path, 0o755)
    }

    /// Adds a file.
    pub fn with(self, path: &str, content: &str) -> Self {
        self.write(path, content);
        self
    }

    pub fn mode(self, path: &str, mode: u32) -> Self {
        fs::set_permissions(self.real(path), PermissionsExt::from_mode(mode)).unwrap();
        self
    }

    pub fn link(self, target: &str, path: &str) -> Self {
        let real = self.real(path);
        fs::create_dir_all(real.parent().unwrap()).unwrap();
        symlink(target, real).unwrap();
        self
    }

    pub fn write(&self, path: &str, content: &str) {
        let real = self.real(path);
        fs::create_dir_all(real.parent().unwrap()).unwrap();
        fs::write(real, content).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.real(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub fn real(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Returns the host, on which every program prints the version `printed`.
    pub fn host(&self, printed: &'static str) -> Host {
        let version = move |_: &Path, _: &Path| (!printed.is_empty()).then(|| printed.to_owned());
        let state = self.real("/var/lib/synconce");
        Host::new(self.root.path(), &state, Path::new(RUNTIME), Box::new(version))
    }

    pub fn plan(&self, engine: Engine, printed: &'static str) -> Result<Plan, Error> {
        plan(engine, &self.host(printed))
    }

    /// Sets up, and returns how many paths were changed.
    pub fn set_up(&self, engine: Engine, printed: &'static str) -> Result<usize, Error> {
        let host = self.host(printed);
        let plan = plan(engine, &host)?;
        apply::apply(&plan, &host, engine)?;
        Ok(plan.changes.len())
    }

    /// Sets dockerd up for builds alone, and returns how many paths were changed.
    pub fn set_up_builds(&self, printed: &'static str) -> Result<usize, Error> {
        let host = self.host(printed);
        let plan = plan_builds_only(&host)?;
        apply::apply(&plan, &host, Engine::Docker)?;
        Ok(plan.changes.len())
    }

    /// Undoes, and returns how many paths were changed; `None` without a journal.
    pub fn undo(&self, engine: Engine, edits: Edits) -> Result<Option<usize>, Error> {
        let host = self.host("");
        let Some(undo) = undo::plan(&host, engine, edits)? else { return Ok(None) };
        undo::carry_out(&undo, &host, engine)?;
        Ok(Some(undo.steps.len()))
    }

    pub fn snapshot(&self) -> Snapshot {
        let contents = contents_below(self.root.path()).into_iter();
        let entry = |(path, (metadata, content)): (PathBuf, (Metadata, Vec<u8>))| {
            let name = path.strip_prefix(self.root.path()).unwrap().display().to_string();
            let content = String::from_utf8_lossy(&content).into_owned();
            (name, (metadata.mode(), metadata.uid(), metadata.gid(), content))
        };
        contents.map(entry).collect()
    }
}

/// Returns the message of a refusal.
pub fn refusal<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => {
            assert!(error.remedy().is_some(), "no remedy: {error}");
            error.to_string()
        }
    }
}

/// Sets up, sets up again, undoes, and asserts: changes once, then nothing, then back to the
/// byte.
pub fn there_and_back(tree: &TestSystem, engine: Engine, printed: &'static str) {
    let before = tree.snapshot();
    assert!(tree.set_up(engine, printed).unwrap() > 0);
    let after = tree.snapshot();
    assert_ne!(before, after);
    assert_eq!(tree.set_up(engine, printed).unwrap(), 0, "the second time");
    assert_eq!(after, tree.snapshot());
    assert!(tree.undo(engine, Edits::Refuse).unwrap().is_some_and(|steps| steps > 0));
    assert_eq!(before, tree.snapshot());
    assert_eq!(tree.undo(engine, Edits::Refuse).unwrap(), None);
}

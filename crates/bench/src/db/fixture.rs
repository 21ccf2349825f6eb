//! The fixture of the database scenario: compiled programs, and an empty database for each
//! iteration.

use super::DatabaseOptions;
use super::engines::{self, DatabaseEngine, ProgramSource};
use crate::command::{fill, show};
use crate::launcher::Launcher;
use crate::scenario::{Iteration, IterationConfig, Observation, SamplePart, Steps};
use crate::work_dir::WorkDir;
use crate::{Error, files, hold, mounts};
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Environment variables by which `go` finds its cache.
const CACHE_VARIABLES: [&str; 3] = ["GOCACHE", "XDG_CACHE_HOME", "HOME"];

/// Compiles the programs, and makes and removes databases.
pub(super) struct DatabaseFixture {
    options: DatabaseOptions,
    synconce: PathBuf,
    /// The first lines that programs print, which name their options; each line with the variants
    /// that printed the line.
    settings: BTreeMap<String, Vec<String>>,
    work: WorkDir,
}

impl DatabaseFixture {
    pub(super) fn new(options: &DatabaseOptions, synconce: &Path) -> Self {
        Self {
            options: options.clone(),
            synconce: synconce.to_owned(),
            settings: BTreeMap::new(),
            work: WorkDir::new(&options.common.dir),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// Returns the program of `engine`, and compiles the program before the engine's first
    /// iteration.
    fn program(&self, engine: &DatabaseEngine, launcher: &Launcher) -> Result<PathBuf, Error> {
        let Some(source) = &engine.source else {
            return Ok(self.options.redb.clone().unwrap_or_default());
        };
        let program = self.path(engine.name);
        if !program.exists() {
            self.compile(source, &program, launcher)?;
        }
        Ok(program)
    }

    fn compile(
        &self,
        source: &ProgramSource,
        program: &Path,
        launcher: &Launcher,
    ) -> Result<(), Error> {
        let file = self.path(source.file);
        files::write(&file, source.text)?;
        let values = BTreeMap::from([("file", show(&file)), ("program", show(program))]);
        let mut command = fill(&source.command(), &values);
        if command[0] == "env" && CACHE_VARIABLES.iter().all(|it| std::env::var_os(it).is_none()) {
            command.insert(1, format!("GOCACHE={}", show(&self.path("go-cache"))));
        }
        launcher.run_helper(&format!("compile {}", source.file), &command)
    }

    /// Makes the directory of a database. Returns the directory's path and the path to hold: a file
    /// in the directory for `bolt`, the directory itself for other kinds.
    fn database(&self, engine: &DatabaseEngine) -> Result<(PathBuf, PathBuf), Error> {
        let base = self.path("base");
        // etcd 3.4.10 refuses a directory that other users can read; newer versions only print a
        // warning.
        std::fs::DirBuilder::new().mode(0o700).create(&base).map_err(Error::io("create", &base))?;
        let held = if engine.kind == "bolt" { base.join("base") } else { base.clone() };
        Ok((base, held))
    }
}

impl Steps for DatabaseFixture {
    fn prepare(&mut self, _launcher: &Launcher) -> Result<(), Error> {
        self.work.lock_and_clear()
    }

    fn reset(
        &mut self,
        iteration: &Iteration<'_>,
        launcher: &Launcher,
    ) -> Result<IterationConfig, Error> {
        let Some(engine) = engines::engine_of(&iteration.variant.name) else {
            return Ok(IterationConfig::default());
        };
        let program = self.program(engine, launcher)?;
        let (base, held) = self.database(engine)?;
        let file = hold::write_file(self.work.path(), &[(held.clone(), engine.kind)])?;
        let values = [
            (engine.name, show(&program)),
            ("base", show(&base)),
            ("held", show(&held)),
            ("hold", show(&file)),
            ("dir", show(self.work.path())),
            ("server", show(&self.options.etcd)),
            ("synconce", show(&self.synconce)),
            ("transactions", self.options.transactions.to_string()),
        ];
        Ok(IterationConfig {
            values: values.into(),
            settle: Some(self.work.path().to_owned()),
            ..IterationConfig::default()
        })
    }

    fn parts(
        &mut self,
        iteration: &Iteration<'_>,
        timed: Vec<SamplePart>,
        log: &Path,
    ) -> Result<Vec<SamplePart>, Error> {
        let printed = files::read(log.with_extension("out"))?;
        let settings = printed.lines().next().unwrap_or_default();
        let variants = self.settings.entry(settings.to_owned()).or_default();
        if !variants.contains(&iteration.variant.name) {
            variants.push(iteration.variant.name.clone());
        }
        Ok(timed)
    }

    fn clear(&mut self, _iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        launcher.kill_leftovers();
        // The overlays of a killed hold stay mounted.
        mounts::unmount_below(self.work.path())?;
        mounts::remove_tree(&self.path("base"))
    }

    fn conclude(&mut self) -> Result<Vec<Observation>, Error> {
        self.work.remove()?;
        let settings = std::mem::take(&mut self.settings).into_iter();
        let text = |(settings, mut variants): (String, Vec<String>)| {
            variants.sort();
            Observation::new(format!("{}: {settings}", variants.join(", ")))
        };
        Ok(settings.map(text).collect())
    }
}

//! Scenario `build`: a Docker build installs packages with apt.
//!
//! Every variant builds the same steps from the same base, with downloaded packages, by the
//! benchmark's own dockerd: its state is in the work directory, its sockets are in a /run that
//! no other process sees, and only its own cache is emptied. dockerd is restarted for every
//! iteration, outside the measured time, so that all iterations use the same daemon except for
//! its runtime. Needs root and Docker.

mod cgroup;
mod docker;
mod fixture;
mod progress;
mod variants;

use crate::install::{require_disk, resolve};
use crate::launcher::Launcher;
use crate::report::Report;
use crate::report::host::Host;
use crate::runner::{Settings, WarmUp, run};
use crate::scenario::{Need, Scenario, Tool, select};
use crate::{Error, base, mounts};
use fixture::Fixture;
use std::path::{Path, PathBuf};

/// What to build, where and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Work directory on the disk under test.
    pub dir: PathBuf,
    /// The packages, and the base that they are installed into.
    pub base: base::Options,
    /// Measured rounds.
    pub rounds: u32,
    /// Untimed builds before the rounds.
    pub warm_up: WarmUp,
    /// Names of the variants; empty means all.
    pub variants: Vec<String>,
    /// Seed of the order, of the context's content and of the bootstrap.
    pub seed: u64,
}

impl Options {
    /// Returns the defaults for a work directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            base: base::Options::default(),
            rounds: 5,
            warm_up: WarmUp::Baselines,
            variants: Vec::new(),
            seed: 1,
        }
    }
}

/// Runs the scenario and returns its report.
///
/// # Errors
/// See [`crate::build()`]. The logs of a failure stay in place, and the error names them.
pub fn measure(options: &Options, synconce: &Path) -> Result<Report, Error> {
    let unsuitable = |what: &str, reason: &str| {
        Err(Error::Unsuitable { what: what.to_owned(), reason: reason.to_owned() })
    };
    if !rustix::process::geteuid().is_root() {
        return unsuitable("the build scenario", "it starts a dockerd, which needs root");
    }
    for program in ["dockerd", "docker"] {
        if !Need::new(program, "docker.io").is_met() {
            let reason = format!("{program} is not installed; the package docker.io brings it");
            return unsuitable("this host", &reason);
        }
    }
    std::fs::create_dir_all(&options.dir).map_err(Error::io("create", &options.dir))?;
    let options = Options {
        dir: options.dir.canonicalize().map_err(Error::io("find", &options.dir))?,
        ..options.clone()
    };
    require_disk(&options.dir)?;
    for dir in [&options.dir, &std::env::temp_dir(), &options.base.cache] {
        let real = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        if real.starts_with(docker::RUN) {
            return unsuitable(&dir.display().to_string(), "the daemon has a /run of its own");
        }
    }
    let synconce = resolve(synconce);
    let launcher = Launcher::new()?;
    let result = mounts::in_private_namespace(|| with_launcher(&options, &synconce, &launcher));
    if let Err(Error::Variant { .. } | Error::Helper { .. }) = &result {
        launcher.keep_logs();
    }
    result
}

fn with_launcher(options: &Options, synconce: &Path, launcher: &Launcher) -> Result<Report, Error> {
    let settings =
        Settings { rounds: options.rounds, warm_up: options.warm_up, seed: options.seed };
    let tool = |name: &str, program: &str| Tool {
        name: name.to_owned(),
        command: vec![program.to_owned(), "--version".to_owned()],
    };
    let mut scenario = Scenario {
        name: "build".to_owned(),
        about: format!(
            "docker build: COPY {} files, apt-get install {} on {}",
            fixture::FILES,
            options.base.packages.join(" "),
            options.base.suite,
        ),
        dir: options.dir.clone(),
        variants: select(variants::all(), &options.variants)?,
        tools: vec![
            tool("synconce", &synconce.display().to_string()),
            tool("dockerd", "dockerd"),
            tool("runc", "runc"),
        ],
        steps: Box::new(Fixture::new(options, synconce)?),
    };
    let host = Host::read(&options.dir, &scenario.tools, launcher)?;
    let record = run(&mut scenario, &settings, launcher)?;
    Ok(Report::new(&scenario, settings, host, record))
}

//! The fixture of the build scenario: a daemon, its images and a context.

use super::cgroup;
use super::docker::{Databases, DockerState, Runtime};
use super::progress;
use super::variants::{self, BARE_BASE, DEFAULT_BASE, RESULT, TOOL};
use crate::base::{self, Base, Recipe};
use crate::command::show;
use crate::harness::Common;
use crate::launcher::Launcher;
use crate::scenario::{Iteration, IterationConfig, Observation, SamplePart, Steps};
use crate::work_dir::{self, WorkDir};
use crate::{Error, files};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What to build, where and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageOptions {
    /// The work directory, the variants and the rounds. The seed also determines the content of the
    /// build's context.
    pub common: Common,
    /// The packages, and the base into which they are installed.
    pub base: base::BaseOptions,
    /// What the measured step does.
    pub step: MeasuredStep,
}

/// What the measured step of a build does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredStep {
    /// Installs the packages.
    Install,
    /// Changes the owner of this number of files in the layer below.
    Chown(u32),
    /// Appends to a file of this number of MiB in the layer below: the overlay copies the file up.
    CopyUp(u32),
    /// Reinstalls every package of a base in which the packages are installed. dpkg replaces the
    /// files as in an upgrade. A real upgrade of an older base would be a different one each day.
    Upgrade,
}

impl ImageOptions {
    /// Returns the number of files in the context, and the size of each in units of [`BYTES`].
    fn files(&self) -> (u32, u32) {
        match self.step {
            MeasuredStep::Chown(files) => (files, 1),
            MeasuredStep::CopyUp(mebibytes) => (1, mebibytes * ((1 << 20) / BYTES)),
            MeasuredStep::Install | MeasuredStep::Upgrade => (FILES, 1),
        }
    }

    /// Returns a description of the files in the context.
    pub(super) fn copied(&self) -> String {
        match self.step {
            MeasuredStep::CopyUp(size) => format!("a file of {size} MiB"),
            _ => format!("{} files", self.files().0),
        }
    }

    /// Returns the command of the measured step.
    pub(super) fn command(&self) -> String {
        let packages = self.base.packages.join(" ");
        match self.step {
            MeasuredStep::Install => format!("apt-get install --yes --no-download {packages}"),
            MeasuredStep::Chown(_) => "chown -R 1:1 /src".to_owned(),
            MeasuredStep::CopyUp(_) => format!("echo >>{LARGE}"),
            MeasuredStep::Upgrade => UPGRADE.to_owned(),
        }
    }
}

/// The number of files in the context: a source tree of some size.
const FILES: u32 = 1000;
/// The size of each of these files in bytes.
const BYTES: u32 = 8 << 10;

/// The path in the image of a file that is alone in the context.
const LARGE: &str = "/src/0/0";

/// Reinstalls every package that dpkg lists.
const UPGRADE: &str = "apt-get install --yes --no-download --reinstall \
    $(dpkg-query --show --showformat='${Package} ')";

/// The dpkg configuration of the official images.
const SPEEDUP: &str = "force-unsafe-io\n";
const DEFAULT_STEPS: &str =
    "FROM synconce-bench-bare\nCOPY docker-apt-speedup /etc/dpkg/dpkg.cfg.d/\n";
const TOOL_STEPS: &str = "FROM scratch\nCOPY synconce /synconce\n";

/// Builds, checks and removes images.
pub(super) struct ImageFixture {
    options: ImageOptions,
    recipe: Recipe,
    synconce: PathBuf,
    base: Option<Base>,
    docker: Option<DockerState>,
    work: WorkDir,
}

impl ImageFixture {
    pub(super) fn new(options: &ImageOptions, synconce: &Path) -> Result<Self, Error> {
        Ok(Self {
            recipe: Recipe::new(&options.base)?,
            synconce: synconce.to_owned(),
            base: None,
            docker: None,
            work: WorkDir::new(&options.common.dir),
            options: options.clone(),
        })
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    fn context(&self) -> PathBuf {
        self.dir("context")
    }

    /// Writes the contexts and the Dockerfiles.
    fn write(&self) -> Result<(), Error> {
        let write_file = |path: &Path, bytes: &[u8]| {
            let dir = path.parent().unwrap_or(path);
            files::create_dir(dir)?;
            files::write(path, bytes)
        };
        let mut random = fastrand::Rng::with_seed(self.options.common.settings.seed);
        let (files, pieces) = self.options.files();
        let mut bytes = [0; BYTES as usize];
        for number in 0..files {
            let path = self.context().join(format!("{}/{number}", number % 10));
            write_file(&path, &[])?;
            let mut file =
                File::options().append(true).open(&path).map_err(Error::io("open", &path))?;
            // Written in pieces, because a large file need not fit in memory.
            for _ in 0..pieces {
                random.fill(&mut bytes);
                file.write_all(&bytes).map_err(Error::io("write", &path))?;
            }
        }
        for way in variants::ways() {
            let text = way.dockerfile(&self.options.command());
            write_file(&self.dir(&format!("{}.Dockerfile", way.name)), text.as_bytes())?;
        }
        write_file(&self.dir("default/docker-apt-speedup"), SPEEDUP.as_bytes())?;
        write_file(&self.dir("default/Dockerfile"), DEFAULT_STEPS.as_bytes())?;
        write_file(&self.dir("tool/Dockerfile"), TOOL_STEPS.as_bytes())?;
        let tool = self.dir("tool/synconce");
        fs::copy(&self.synconce, &tool).map(drop).map_err(Error::io("copy", &self.synconce))
    }

    /// Loads the images from which builds start into the daemon.
    fn load_images(&mut self, launcher: &Launcher) -> Result<(), Error> {
        let base = Base::obtain(&self.recipe, launcher)?;
        let tar = show(&base.tar);
        self.base = Some(base);
        let dirs = ["tool", "default"].map(|name| show(&self.dir(name)));
        let mut docker = DockerState::new(&self.dir("docker"), &self.synconce)?;
        docker.choose_client(launcher)?;
        let docker = self.docker.insert(docker);
        docker.start(Runtime::Plain, Databases::Plain, launcher)?;
        docker.client("import the base", &["import", &tar, BARE_BASE], launcher)?;
        for (purpose, tag, dir) in [
            ("make an image of the tool", TOOL, &dirs[0]),
            ("make the default base", DEFAULT_BASE, &dirs[1]),
        ] {
            let words = ["build", "--quiet", "--network", "none", "--tag", tag, dir];
            docker.client(purpose, &words, launcher)?;
        }
        docker.stop(launcher)
    }

    /// Fails unless the measured step has done its work in the image.
    fn require_work(&self, iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let (Some(docker), Some(base)) = (&self.docker, &self.base) else { return Ok(()) };
        let look = |words: &[&str]| {
            let run = ["run", "--rm", "--network", "none", RESULT];
            docker.output(&[&run[..], words].concat(), launcher)
        };
        let lacking = match self.options.step {
            MeasuredStep::Install => {
                let status = look(&["cat", "/var/lib/dpkg/status"])?;
                let mut packages = self.options.base.packages.iter();
                packages
                    .find(|package| !is_installed(&status, package))
                    .map(|package| format!("{package} is not installed"))
            }
            MeasuredStep::Chown(files) => {
                let last = files.saturating_sub(1);
                let file = format!("/src/{}/{last}", last % 10);
                let is_changed = look(&["stat", "--format", "%u", &file])? == "1";
                (!is_changed).then(|| "the owner is not changed".to_owned())
            }
            MeasuredStep::CopyUp(mebibytes) => {
                let bytes = (u64::from(mebibytes) << 20) + 1;
                let is_longer = look(&["stat", "--format", "%s", LARGE])? == bytes.to_string();
                (!is_longer).then(|| "the file is not longer".to_owned())
            }
            MeasuredStep::Upgrade => {
                let upgraded = look(&["cat", "/var/log/dpkg.log"])?.matches(" upgrade ").count();
                (upgraded < base.archives)
                    .then(|| format!("only {upgraded} of {} packages are replaced", base.archives))
            }
        };
        lacking.map_or(Ok(()), |what| {
            let ending = format!("exit code 0, yet {what} in the image");
            Err(iteration.error(&iteration.variant.commands[0], ending, &iteration.log(launcher)))
        })
    }
}

/// Whether dpkg's status file lists a package as installed.
fn is_installed(status: &str, package: &str) -> bool {
    // apt-get also takes NAME=VERSION, NAME:ARCHITECTURE and NAME/SUITE.
    let package = package.split(['=', ':', '/']).next().unwrap_or(package);
    status.split("\n\n").any(|stanza| {
        let has = |line: &str| stanza.lines().any(|own| own == line);
        has(&format!("Package: {package}")) && has("Status: install ok installed")
    })
}

impl Steps for ImageFixture {
    fn prepare(&mut self, launcher: &Launcher) -> Result<(), Error> {
        self.work.lock()?;
        // A build step of a killed benchmark may still run, without its daemon.
        cgroup::remove(&work_dir::unique_name(self.work.path())?);
        self.work.clear()?;
        self.write()?;
        let result = self.load_images(launcher);
        if result.is_err()
            && let Some(docker) = &mut self.docker
        {
            let _ = docker.stop(launcher);
        }
        result
    }

    fn reset(
        &mut self,
        iteration: &Iteration<'_>,
        launcher: &Launcher,
    ) -> Result<IterationConfig, Error> {
        let mut config = IterationConfig::default();
        if let Some(docker) = &mut self.docker {
            let way = variants::way(&iteration.variant.name);
            docker.start(way.runtime, way.databases, launcher)?;
            config.values = docker.values();
            config.settle = Some(docker.data());
            config.server = docker.pid();
        }
        config.values.insert("context", show(&self.context()));
        Ok(config)
    }

    fn parts(
        &mut self,
        _iteration: &Iteration<'_>,
        _timed: Vec<SamplePart>,
        log: &Path,
    ) -> Result<Vec<SamplePart>, Error> {
        let text = files::read(log)?;
        Ok(progress::parts(&text))
    }

    fn check(&mut self, iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        self.require_work(iteration, launcher)
    }

    fn clear(&mut self, _iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let Some(docker) = &mut self.docker else { return Ok(()) };
        let forgotten = match docker.pid() {
            None => Ok(()),
            Some(_) => docker
                .client("remove the image", &["image", "rm", "--force", RESULT], launcher)
                .and_then(|()| {
                    let words = ["builder", "prune", "--all", "--force"];
                    docker.client("empty the builder's cache", &words, launcher)
                }),
        };
        docker.stop(launcher).and(forgotten)
    }

    fn conclude(&mut self) -> Result<Vec<Observation>, Error> {
        let summary = self.base.as_ref().map(Base::summary);
        self.docker = None;
        self.work.remove()?;
        Ok(summary.map(Observation::new).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_package_that_is_installed_counts() {
        let status = "Package: gcc\nStatus: install ok unpacked\n\n\
            Package: make\nStatus: install ok installed\nVersion: 1\n";
        assert!(is_installed(status, "make") && is_installed(status, "make=1"));
        assert!(!is_installed(status, "gcc"));
        assert!(!is_installed(status, "mak"));
    }
}

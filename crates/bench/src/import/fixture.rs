//! The fixture of the import scenario: an image, and a daemon with an empty root.

use super::containerd::{ContainerdState, SOCKET};
use super::image;
use super::variants;
use crate::Error;
use crate::command::show;
use crate::harness::Common;
use crate::launcher::Launcher;
use crate::scenario::{Iteration, IterationConfig, Observation, Steps};
use crate::work_dir::WorkDir;
use std::path::{Path, PathBuf};

/// What to import, where and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// The work directory, the variants and the rounds. The seed also makes the content of the
    /// image.
    pub common: Common,
    /// containerd: a program, looked up in PATH unless it has a slash. Its client is beside it.
    pub containerd: PathBuf,
    /// Layers of the image.
    pub layers: u32,
    /// Files in each layer, of up to 32 KiB.
    pub files: u32,
}

/// Makes the image; starts, checks and stops daemons.
pub(super) struct ImportFixture {
    options: ImportOptions,
    synconce: PathBuf,
    containerd: Option<ContainerdState>,
    work: WorkDir,
}

impl ImportFixture {
    pub(super) fn new(options: &ImportOptions, synconce: &Path) -> Self {
        Self {
            synconce: synconce.to_owned(),
            containerd: None,
            work: WorkDir::new(&options.common.dir),
            options: options.clone(),
        }
    }

    fn image(&self) -> PathBuf {
        self.work.path().join("image.tar")
    }
}

impl Steps for ImportFixture {
    fn prepare(&mut self, launcher: &Launcher) -> Result<(), Error> {
        self.work.lock_and_clear()?;
        let ImportOptions { layers, files, common, containerd } = &self.options;
        image::write(&self.image(), *layers, *files, common.settings.seed)?;
        let made = ContainerdState::new(self.work.path(), containerd, &self.synconce, launcher)?;
        self.containerd = Some(made);
        Ok(())
    }

    fn reset(
        &mut self,
        iteration: &Iteration<'_>,
        launcher: &Launcher,
    ) -> Result<IterationConfig, Error> {
        let image = show(&self.image());
        let mut config = IterationConfig::default();
        let way = variants::ways().find(|way| way.variant_name() == iteration.variant.name);
        if let (Some(containerd), Some(way)) = (&mut self.containerd, way) {
            containerd.start(way, launcher)?;
            config.values = [
                ("ctr", show(&containerd.client())),
                ("socket", SOCKET.to_owned()),
                ("image", image),
            ]
            .into();
            config.settle = Some(containerd.root());
            config.server = containerd.pid();
        }
        Ok(config)
    }

    /// Fails unless all layers of the image are there and unpacked.
    fn check(&mut self, iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let Some(containerd) = &self.containerd else { return Ok(()) };
        let (snapshotter, _) = iteration.variant.name.split_once('/').unwrap_or_default();
        let client = show(&containerd.client());
        let words = [&client, "--address", SOCKET, "images", "check", "--snapshotter", snapshotter];
        let log = iteration.other_log("-check", launcher);
        let (outcome, text) = launcher.output(&words, &log)?;
        // The layers, and the image's configuration; nothing else is in the manifest.
        let blobs = self.options.layers + 1;
        let complete = format!("complete ({blobs}/{blobs})");
        let listed = text.lines().find(|line| line.starts_with(image::NAME));
        let is_whole = listed
            .is_some_and(|line| line.contains(&complete) && line.trim_end().ends_with("true"));
        if outcome.status.success() && is_whole {
            return Ok(());
        }
        let ending = format!("exit code 0, yet the image is not complete: {text:?}");
        Err(iteration.error(&iteration.variant.commands[0], ending, &log))
    }

    fn clear(&mut self, _iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        self.containerd.as_mut().map_or(Ok(()), |containerd| containerd.stop(launcher))
    }

    fn conclude(&mut self) -> Result<Vec<Observation>, Error> {
        self.containerd = None;
        self.work.remove()?;
        Ok(Vec::new())
    }
}

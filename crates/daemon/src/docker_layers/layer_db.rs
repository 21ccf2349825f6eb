//! dockerd's layer database: `ROOT/image/DRIVER/layerdb`.
//!
//! `sha256/CHAIN` is a layer of images: `cache-id` names its directory, `diff` is the digest of
//! its content, `parent` the layer below. `mounts/CONTAINER` is the writable layer of a
//! container: `mount-id` and `init-id` name its directories.

use super::{At, Unsure, names, unsure};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The beginning of a digest.
const ALGORITHM: &str = "sha256:";

/// What dockerd refers to.
#[derive(Debug, Default)]
pub(super) struct LayerDb {
    /// Names of directories of layers.
    ids: BTreeSet<OsString>,
    /// The layers of images, by the digests of their chains.
    chains: BTreeSet<String>,
    /// The digests of their content.
    contents: BTreeSet<String>,
    /// The layers below others, and the files that say so.
    parents: Vec<(PathBuf, String)>,
}

/// The part of an image's configuration that names its layers.
#[derive(Deserialize)]
struct Image {
    rootfs: Option<RootFs>,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Option<Vec<String>>,
}

impl LayerDb {
    /// Reads the database of the dockerd in `root`. Checks that it is complete: that each image
    /// has its layers there, each container its writable layer, and each layer the one below.
    pub(super) fn read(root: &Path, driver: &str) -> Result<Self, Unsure> {
        let image = root.join("image").join(driver);
        let layers = image.join("layerdb");
        let mut all = Self::default();
        // A crash can take the directory with all that is in it; dockerd makes it at each start.
        names(&layers).at("cannot read", &layers)?;
        for path in entries(&layers.join("sha256"))? {
            all.read_layer(&path)?;
        }
        let mounts = entries(&layers.join("mounts"))?;
        for path in &mounts {
            all.read_mount(path)?;
        }
        all.check_parents()?;
        all.check_images(&image.join("imagedb/content/sha256"))?;
        for container in entries(&root.join("containers"))? {
            let name = container.file_name();
            if !mounts.iter().any(|mount| mount.file_name() == name) {
                return unsure(&container, "the container has no writable layer");
            }
        }
        Ok(all)
    }

    /// Returns the names of the directories of layers that are referred to.
    pub(super) fn references(self) -> BTreeSet<OsString> {
        self.ids
    }

    fn read_layer(&mut self, path: &Path) -> Result<(), Unsure> {
        // A layer whose removal was cut short has its cache-id in its name, too. dockerd itself
        // finishes the removal.
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.ids.insert(id(&path.join("cache-id"))?);
        if name.ends_with("-removing") {
            return Ok(());
        }
        self.chains.insert(digest(path, &format!("{ALGORITHM}{name}"))?);
        let content = path.join("diff");
        self.contents.insert(digest(&content, &word(&content)?)?);
        self.read_parent(path)
    }

    fn read_mount(&mut self, path: &Path) -> Result<(), Unsure> {
        self.ids.insert(id(&path.join("mount-id"))?);
        let init = path.join("init-id");
        if exists(&init)? {
            self.ids.insert(id(&init)?);
        }
        self.read_parent(path)
    }

    fn read_parent(&mut self, path: &Path) -> Result<(), Unsure> {
        let parent = path.join("parent");
        if exists(&parent)? {
            let above = digest(&parent, &word(&parent)?)?;
            self.parents.push((parent, above));
        }
        Ok(())
    }

    fn check_parents(&self) -> Result<(), Unsure> {
        match self.parents.iter().find(|(_, parent)| !self.chains.contains(parent)) {
            Some((path, parent)) => unsure(path, format_args!("there is no layer {parent}")),
            None => Ok(()),
        }
    }

    fn check_images(&self, directory: &Path) -> Result<(), Unsure> {
        for path in entries(directory)? {
            let text = fs::read(&path).at("cannot read", &path)?;
            let image: Image = match serde_json::from_slice(&text) {
                Ok(image) => image,
                Err(error) => return unsure(&path, error),
            };
            let layers = image.rootfs.and_then(|rootfs| rootfs.diff_ids).unwrap_or_default();
            if let Some(missing) = layers.iter().find(|layer| !self.contents.contains(*layer)) {
                return unsure(&path, format_args!("there is no layer with {missing}"));
            }
        }
        Ok(())
    }
}

/// Returns the paths in `directory`, sorted; none if it is missing.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, Unsure> {
    match names(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        names => {
            let names = names.at("cannot read", directory)?.into_iter();
            let names = names.filter(|name| !name.as_encoded_bytes().starts_with(b"."));
            let mut paths: Vec<_> = names.map(|name| directory.join(name)).collect();
            paths.sort();
            Ok(paths)
        }
    }
}

fn exists(path: &Path) -> Result<bool, Unsure> {
    path.try_exists().at("cannot look at", path)
}

fn word(path: &Path) -> Result<String, Unsure> {
    let text = fs::read_to_string(path).at("cannot read", path)?;
    Ok(text.trim_end().to_owned())
}

/// Reads the name of a layer's directory.
fn id(path: &Path) -> Result<OsString, Unsure> {
    let name = word(path)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match !name.is_empty() && name.bytes().all(is_plain) {
        true => Ok(name.into()),
        false => unsure(path, format_args!("{name:?} is not the name of a layer")),
    }
}

/// Returns `text` if it is a digest, as the file `path` says.
fn digest(path: &Path, text: &str) -> Result<String, Unsure> {
    let hex = text.strip_prefix(ALGORITHM).unwrap_or_default();
    match hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_owned()),
        false => unsure(path, format_args!("{text:?} is not a digest")),
    }
}

//! dockerd's layer database: `ROOT/image/DRIVER/layerdb`.
//!
//! `sha256/CHAIN` is a layer of images: `cache-id` names its directory, `diff` is the digest of
//! its content, `parent` the layer below. `mounts/CONTAINER` is the writable layer of a
//! container: `mount-id` and `init-id` name its directories.

use super::{At, Unsure, names, unsure};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::iter;
use std::path::{Path, PathBuf};

/// The beginning of a digest.
const ALGORITHM: &str = "sha256:";

/// What dockerd refers to.
#[derive(Debug, Default)]
pub(super) struct LayerDb {
    /// Names of directories of layers that are referred to, whatever images there are.
    ids: BTreeSet<OsString>,
    /// The layers of images, by the digests of their chains.
    pub layers: BTreeMap<String, DockerLayer>,
    /// The images that have layers.
    pub images: Vec<LayerUser>,
    /// The containers that have an image.
    pub containers: Vec<LayerUser>,
}

/// An image or a container.
#[derive(Debug)]
pub(super) struct LayerUser {
    /// The configuration of the image, or the entry of the container.
    pub path: PathBuf,
    /// The highest layer of the image, or the one below the container: the digest of its chain.
    pub top: String,
}

/// A layer of images.
#[derive(Debug)]
pub(super) struct DockerLayer {
    /// Its entry in the database.
    pub entry: PathBuf,
    /// The name of its directory.
    pub id: OsString,
    /// The digest of its content.
    content: String,
    /// The chain below.
    pub parent: Option<String>,
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
    /// Reads the database of the dockerd in `root`. Checks that the database is complete: it has
    /// the layers of each image, the writable layer of each container, and the layer below each
    /// layer.
    pub(super) fn read(root: &Path, driver: &str) -> Result<Self, Unsure> {
        let image = root.join("image").join(driver);
        let layers = image.join("layerdb");
        let mut all = Self::default();
        // A crash can take the directory with all that is in it; dockerd makes it at each start.
        names(&layers).at("cannot read", &layers)?;
        for path in entries(&layers.join("sha256"))? {
            all.read_layer(path)?;
        }
        let mounts = entries(&layers.join("mounts"))?;
        for path in &mounts {
            all.read_mount(path)?;
        }
        for path in entries(&image.join("imagedb/content/sha256"))? {
            all.read_image(path)?;
        }
        all.check_chains()?;
        for container in entries(&root.join("containers"))? {
            let name = container.file_name();
            if !mounts.iter().any(|mount| mount.file_name() == name) {
                return unsure(&container, "the container has no writable layer");
            }
        }
        Ok(all)
    }

    /// Returns `top` and the chains below it, from the top down.
    pub(super) fn stack<'a>(&'a self, top: &'a str) -> impl Iterator<Item = &'a str> {
        iter::successors(Some(top), |chain| self.layers.get(*chain)?.parent.as_deref())
    }

    /// Returns the names of the directories of the layers `chains`.
    pub(super) fn ids_of<'a>(&self, chains: impl Iterator<Item = &'a str>) -> BTreeSet<OsString> {
        chains.filter_map(|chain| Some(self.layers.get(chain)?.id.clone())).collect()
    }

    /// Returns the chains of all layers that `users` refer to.
    pub(super) fn used_by<'a>(&'a self, users: &'a [LayerUser]) -> BTreeSet<&'a str> {
        users.iter().flat_map(|user| self.stack(&user.top)).collect()
    }

    /// Returns the names of the directories of layers that are referred to, and the chains of
    /// layers that no image or container refers to.
    pub(super) fn references(&self) -> (BTreeSet<OsString>, Vec<&str>) {
        let mut used = self.used_by(&self.images);
        used.append(&mut self.used_by(&self.containers));
        let mut ids = self.ids_of(used.iter().copied());
        ids.extend(self.ids.iter().cloned());
        let all = self.layers.keys().map(String::as_str);
        (ids, all.filter(|chain| !used.contains(chain)).collect())
    }

    fn read_layer(&mut self, entry: PathBuf) -> Result<(), Unsure> {
        // A layer whose removal was cut short has its cache-id in its name, too. dockerd itself
        // finishes the removal.
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let id = id(&entry.join("cache-id"))?;
        if name.ends_with("-removing") {
            self.ids.insert(id);
            return Ok(());
        }
        let chain = digest(&entry, &format!("{ALGORITHM}{name}"))?;
        let content = entry.join("diff");
        let content = digest(&content, &word(&content)?)?;
        let parent = parent(&entry)?;
        self.layers.insert(chain, DockerLayer { entry, id, content, parent });
        Ok(())
    }

    fn read_mount(&mut self, path: &Path) -> Result<(), Unsure> {
        self.ids.insert(id(&path.join("mount-id"))?);
        let init = path.join("init-id");
        if exists(&init)? {
            self.ids.insert(id(&init)?);
        }
        let top = parent(path)?;
        self.containers.extend(top.map(|top| LayerUser { path: path.to_owned(), top }));
        Ok(())
    }

    fn read_image(&mut self, path: PathBuf) -> Result<(), Unsure> {
        let text = fs::read(&path).at("cannot read", &path)?;
        let image: Image = match serde_json::from_slice(&text) {
            Ok(image) => image,
            Err(error) => return unsure(&path, error),
        };
        let contents = image.rootfs.and_then(|rootfs| rootfs.diff_ids).unwrap_or_default();
        let top = contents.into_iter().reduce(|below, content| chain(&below, &content));
        self.images.extend(top.map(|top| LayerUser { path, top }));
        Ok(())
    }

    /// Checks that every chain that is referred to is there, and is what its name says.
    fn check_chains(&self) -> Result<(), Unsure> {
        let below = self.layers.values();
        let below = below.filter_map(|layer| Some((&layer.entry, layer.parent.as_ref()?)));
        let used = self.images.iter().chain(&self.containers);
        let used = used.map(|user| (&user.path, &user.top));
        if let Some((path, chain)) =
            used.chain(below).find(|(_, chain)| !self.layers.contains_key(*chain))
        {
            return unsure(path, format_args!("there is no layer {chain}"));
        }
        for (name, layer) in &self.layers {
            let content = &layer.content;
            let is = layer.parent.as_ref().map_or(content.clone(), |below| chain(below, content));
            if is != *name {
                return unsure(&layer.entry, format_args!("its content makes it {is}"));
            }
        }
        Ok(())
    }
}

/// Returns the digest of the chain of a layer with `content` over the chain `below` (image
/// specification of OCI, "Layer ChainID").
fn chain(below: &str, content: &str) -> String {
    let digest = Sha256::digest(format!("{below} {content}"));
    let hex = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{ALGORITHM}{hex}")
}

/// Reads which chain is below the layer of `entry`, if any.
fn parent(entry: &Path) -> Result<Option<String>, Unsure> {
    let path = entry.join("parent");
    if exists(&path)? { digest(&path, &word(&path)?).map(Some) } else { Ok(None) }
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
    if !name.is_empty() && name.bytes().all(is_plain) {
        Ok(name.into())
    } else {
        unsure(path, format_args!("{name:?} is not the name of a layer"))
    }
}

/// Returns `text` if it is a digest, as the file `path` says.
fn digest(path: &Path, text: &str) -> Result<String, Unsure> {
    let hex = text.strip_prefix(ALGORITHM).unwrap_or_default();
    if hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_owned())
    } else {
        unsure(path, format_args!("{text:?} is not a digest"))
    }
}

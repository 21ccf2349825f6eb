//! The images that the engines import, and the content of each of their snapshots.

use super::command;
use crate::Result;
use fastrand::Rng;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_probe::architecture::architecture_of_images;
use synconce_testkit::manifest::Manifest;

/// How many images there are. The script names an image by its number, from 0.
pub(super) const IMAGES: usize = 4;
/// How many layers belong to one image alone. Below them is a layer that all images share.
const OWN_LAYERS: usize = 3;
/// The number of small files in a layer that is not shared.
const SMALL: usize = 24;
/// The size in bytes of the one large file in such a layer.
const LARGE: usize = 600 << 10;

/// Archives of images in the format of OCI, and what their snapshots contain.
pub(super) struct ImageArchives {
    directory: PathBuf,
    /// The content of each snapshot, by chain id (OCI image specification): containerd names the
    /// snapshot by this id.
    pub chains: BTreeMap<String, Manifest>,
    /// What sha256sum(1) prints for the files below `data` of each image, sorted by name.
    pub digests: Vec<String>,
}

impl ImageArchives {
    /// Makes the images in the new directory `directory`.
    pub(super) fn make(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let mut chains = BTreeMap::new();
        for image in 0..IMAGES {
            make_image(directory, image, &mut chains)?;
        }
        let digests = (0..IMAGES).map(|image| digests(directory, image)).collect::<Result<_>>()?;
        Ok(Self { directory: directory.to_owned(), chains, digests })
    }

    /// Returns the directory with one directory for each layer of an image, named by its number.
    pub(super) fn context(&self, image: usize) -> PathBuf {
        self.directory.join(format!("{image}.layers"))
    }

    /// Returns the numbers of the layers that belong to one image alone.
    pub(super) fn own_layers(&self) -> impl Iterator<Item = usize> {
        1..=OWN_LAYERS
    }

    /// Returns the path of the tar archive of a layer.
    pub(super) fn layer_archive(&self, image: usize, layer: usize) -> PathBuf {
        self.directory.join(format!("{image}.{layer}.tar"))
    }

    /// Returns the path of the tar archive of an image, in OCI's layout.
    pub(super) fn archive(&self, image: usize) -> PathBuf {
        self.directory.join(format!("{image}.tar"))
    }
}

/// Returns the name of an image.
pub(super) fn name(image: usize) -> String {
    format!("local/image{image}:1")
}

/// Returns the content of the directory `root` without `root` itself, whose mode comes from the
/// snapshotter.
pub(super) fn content(root: &Path) -> Result<Manifest> {
    let mut manifest = Manifest::read(root)?;
    manifest.entries.remove(".");
    Ok(manifest)
}

fn make_image(
    directory: &Path,
    image: usize,
    chains: &mut BTreeMap<String, Manifest>,
) -> Result<()> {
    let layout = directory.join(format!("{image}"));
    let merged = directory.join(format!("{image}.merged"));
    fs::create_dir_all(layout.join("blobs/sha256"))?;
    fs::create_dir_all(&merged)?;
    let (mut digests, mut descriptors, mut chain) = (Vec::new(), Vec::new(), String::new());
    for layer in 0..=OWN_LAYERS {
        let files = directory.join(format!("{image}.layers/{layer}"));
        fill(&files, image, layer)?;
        let archive = directory.join(format!("{image}.{layer}.tar"));
        let mut tar = Command::new("tar");
        tar.args(["--create", "--sort=name", "--mtime=@0", "--numeric-owner", "--file"]);
        command(tar.arg(&archive).arg("--directory").arg(&files).arg("."))?;
        command(Command::new("cp").arg("-aT").arg(&files).arg(&merged))?;
        let (digest, size) = blob(&layout, &fs::read(&archive)?)?;
        chain = match chain.as_str() {
            "" => digest.clone(),
            below => sha256(format!("{below} {digest}").as_bytes()),
        };
        chains.insert(chain.clone(), content(&merged)?);
        let kind = "application/vnd.oci.image.layer.v1.tar";
        descriptors.push(json!({"mediaType": kind, "digest": digest, "size": size}));
        digests.push(digest);
    }
    index(&layout, image, &digests, &descriptors)?;
    let archive = directory.join(format!("{image}.tar"));
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--file").arg(archive).arg("--directory").arg(&layout);
    command(tar.args(["oci-layout", "index.json", "blobs"]))
}

/// Returns what sha256sum(1) prints for the files below `data` of an image, sorted by name.
fn digests(directory: &Path, image: usize) -> Result<String> {
    let data = directory.join(format!("{image}.merged/data"));
    let mut names: Vec<_> =
        fs::read_dir(&data)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    names.sort();
    let mut text = String::new();
    for name in names {
        let digest = sha256(&fs::read(data.join(&name))?);
        let digest = digest.trim_start_matches("sha256:");
        text += &format!("{digest}  data/{}\n", name.to_string_lossy());
    }
    Ok(text)
}

/// Fills a layer. The lowest layer, 0, has a shell. Each other layer has files of its own, and
/// `data/replaced`, which replaces the file of the layer below from layer 2 on.
fn fill(files: &Path, image: usize, layer: usize) -> Result<()> {
    fs::create_dir_all(files.join("data"))?;
    if layer == 0 {
        for empty in ["bin", "dev", "proc", "sys", "tmp"] {
            fs::create_dir_all(files.join(empty))?;
        }
        fs::copy("/bin/busybox", files.join("bin/busybox"))?;
        std::os::unix::fs::symlink("busybox", files.join("bin/sh"))?;
        return Ok(());
    }
    let mut random = Rng::with_seed((image * 100 + layer) as u64);
    let mut bytes = vec![0; LARGE];
    random.fill(&mut bytes);
    fs::write(files.join(format!("data/large{layer}")), &bytes)?;
    fs::write(files.join("data/replaced"), format!("by layer {layer} of image {image}\n"))?;
    for small in 0..SMALL {
        let path = files.join(format!("data/{layer}.{small}"));
        fs::write(&path, &bytes[..random.usize(1..9000)])?;
        fs::set_permissions(&path, fs::Permissions::from_mode([0o644, 0o600, 0o755][small % 3]))?;
    }
    Ok(())
}

/// Writes the config, the manifest and the index of an image (OCI image specification).
fn index(
    layout: &Path,
    image: usize,
    digests: &[String],
    descriptors: &[serde_json::Value],
) -> Result<()> {
    let config = json!({
        "architecture": architecture_of_images(), "os": "linux",
        "config": {"Cmd": ["/bin/busybox", "true"], "Labels": {"image": image.to_string()}},
        "rootfs": {"type": "layers", "diff_ids": digests},
    });
    let (digest, size) = blob(layout, config.to_string().as_bytes())?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest, "size": size,
        },
        "layers": descriptors,
    });
    let (digest, size) = blob(layout, manifest.to_string().as_bytes())?;
    let index = json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest, "size": size,
            "annotations": {"io.containerd.image.name": name(image)},
        }],
    });
    fs::write(layout.join("index.json"), index.to_string())?;
    Ok(fs::write(layout.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}")?)
}

/// Writes a blob; returns its digest and its size in bytes.
fn blob(layout: &Path, bytes: &[u8]) -> Result<(String, usize)> {
    let digest = sha256(bytes);
    fs::write(layout.join("blobs").join(digest.replace(':', "/")), bytes)?;
    Ok((digest, bytes.len()))
}

/// Returns the digest of `bytes` as OCI writes it: `sha256:` and hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

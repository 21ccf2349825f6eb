//! Makes an image as an archive of the OCI image layout. The same numbers give the same bytes.

use crate::Error;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use synconce_probe::architecture::architecture_of_images;
use tar::{Builder, EntryType, Header};

/// The image's name.
pub(super) const NAME: &str = "localhost/synconce-bench:latest";

/// Sizes of files are spread evenly below this number of bytes.
const LARGEST: usize = 32 << 10;
/// Files in one directory.
const DIRECTORY: u32 = 50;
/// When all members were changed, in seconds since the epoch.
const TIME: u64 = 1_600_000_000;

/// Writes an image of `layers` layers with `files` files each to `path`.
pub(super) fn write(path: &Path, layers: u32, files: u32, seed: u64) -> Result<(), Error> {
    let write = || {
        let mut archive = Archive(Builder::new(BufWriter::new(File::create(path)?)));
        archive.image(layers, files, seed)?;
        archive.0.into_inner()?.flush()
    };
    write().map_err(Error::io("write", path))
}

/// An archive whose members belong to root and have one time.
struct Archive<W: Write>(Builder<W>);

impl<W: Write> Archive<W> {
    fn image(&mut self, layers: u32, files: u32, seed: u64) -> io::Result<()> {
        self.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut descriptors, mut ids) = (Vec::new(), Vec::new());
        for number in 0..layers {
            let bytes = layer(number, files, &mut random)?;
            let descriptor = self.blob("application/vnd.oci.image.layer.v1.tar", &bytes)?;
            ids.push(descriptor["digest"].clone());
            descriptors.push(descriptor);
        }
        let config = json!({
            "architecture": architecture_of_images(), "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": ids},
        });
        let config = self.document("application/vnd.oci.image.config.v1+json", &config)?;
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({
            "schemaVersion": 2, "mediaType": kind, "config": config, "layers": descriptors,
        });
        let mut manifest = self.document(kind, &manifest)?;
        manifest["annotations"] = json!({"io.containerd.image.name": NAME});
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        self.file("index.json", index.to_string().as_bytes())
    }

    fn document(&mut self, kind: &str, content: &Value) -> io::Result<Value> {
        self.blob(kind, content.to_string().as_bytes())
    }

    /// Adds a blob under its digest and returns its descriptor.
    fn blob(&mut self, kind: &str, bytes: &[u8]) -> io::Result<Value> {
        let digest = Sha256::digest(bytes);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.file(&format!("blobs/sha256/{digest}"), bytes)?;
        Ok(json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len()}))
    }

    fn directory(&mut self, name: &str) -> io::Result<()> {
        self.member(name, EntryType::Directory, 0o755, &[])
    }

    fn file(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.member(name, EntryType::Regular, 0o644, bytes)
    }

    fn member(&mut self, name: &str, kind: EntryType, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_path(name)?;
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(TIME);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        self.0.append(&header, bytes)
    }
}

/// Returns the archive of one layer, in a directory of its own.
fn layer(number: u32, files: u32, random: &mut fastrand::Rng) -> io::Result<Vec<u8>> {
    let mut archive = Archive(Builder::new(Vec::new()));
    let top = format!("layer{number}/");
    archive.directory(&top)?;
    for file in 0..files {
        let directory = format!("{top}{}/", file / DIRECTORY);
        if file % DIRECTORY == 0 {
            archive.directory(&directory)?;
        }
        let mut bytes = vec![0; random.usize(..LARGEST)];
        random.fill(&mut bytes);
        archive.file(&format!("{directory}{file}"), &bytes)?;
    }
    archive.0.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn list(archive: &Path) -> String {
        let listed = Command::new("tar").arg("--list").arg("--file").arg(archive).output();
        let listed = listed.expect("tar runs");
        assert!(listed.status.success() && listed.stderr.is_empty(), "{listed:?}");
        String::from_utf8(listed.stdout).expect("the names are ours")
    }

    #[test]
    fn tar_reads_the_image_and_its_layers_and_two_images_are_the_same() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let path = |name: &str| dir.path().join(name);
        write(&path("one"), 2, 60, 1).expect("it can be written");
        write(&path("two"), 2, 60, 1).expect("it can be written");
        let bytes = std::fs::read(path("one")).expect("it is there");
        assert_eq!(bytes, std::fs::read(path("two")).expect("it is there"));
        let names = list(&path("one"));
        assert_eq!(names.matches("blobs/sha256/").count(), 4, "{names}");
        let layer = layer(1, 60, &mut fastrand::Rng::with_seed(1)).expect("memory suffices");
        std::fs::write(path("layer"), layer).expect("it can be written");
        let names = list(&path("layer"));
        assert!(names.starts_with("layer1/\nlayer1/0/\nlayer1/0/0\n"), "{names}");
        assert!(names.ends_with("layer1/1/59\n"), "{names}");
    }
}

//! An image as an archive of the OCI image layout, the same for the same numbers.

use crate::Error;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The image's name.
pub(super) const NAME: &str = "localhost/synconce-bench:latest";

/// Sizes of files are spread evenly below this number of bytes.
const LARGEST: usize = 32 << 10;
/// Files in one directory.
const DIRECTORY: u32 = 50;
/// The size of a block of an archive.
const BLOCK: usize = 512;

/// Writes an image of `layers` layers with `files` files each to `path`.
pub(super) fn write(path: &Path, layers: u32, files: u32, seed: u64) -> Result<(), Error> {
    let write = || {
        let file = BufWriter::new(File::create(path)?);
        let mut archive = Archive { out: file };
        archive.image(layers, files, seed)?;
        archive.end()
    };
    write().map_err(Error::io("write", path))
}

/// An archive in the ustar format (POSIX.1-1988).
struct Archive<W> {
    out: W,
}

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
            "architecture": architecture(), "os": "linux", "config": {},
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
        self.out.write_all(&header(name, b'5', 0o755, 0))
    }

    fn file(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(&header(name, b'0', 0o644, bytes.len()))?;
        self.out.write_all(bytes)?;
        self.out.write_all(&vec![0; bytes.len().next_multiple_of(BLOCK) - bytes.len()])
    }

    /// Writes the two empty blocks at the end.
    fn end(mut self) -> io::Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()
    }
}

/// Returns the archive of one layer, in a directory of its own.
fn layer(number: u32, files: u32, random: &mut fastrand::Rng) -> io::Result<Vec<u8>> {
    let mut archive = Archive { out: Vec::new() };
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
    archive.out.extend([0; 2 * BLOCK]);
    Ok(archive.out)
}

/// Returns the header of a member that belongs to root and is as old as all others.
fn header(name: &str, kind: u8, mode: u32, size: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{:011o}", 1_600_000_000).as_bytes());
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    // The sum of all bytes, with blanks in the place of the sum.
    put(148, b"        ");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Returns the name of this machine's architecture in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
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

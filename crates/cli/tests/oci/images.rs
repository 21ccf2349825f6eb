//! An image is the same whether its steps were held or not: the content of every layer, and
//! the digest of the whole image where the engine accepts a fixed time.

use crate::engines::buildkit::{BuildKit, ON_CONTAINERD, Worker};
use crate::engines::containerd::Containerd;
use crate::engines::daemonless::{Buildah, Podman};
use crate::engines::docker::Docker;
use crate::engines::{Given, ImageBuilder, Site, assert_steps_bare, assert_steps_held, prepare};
use serde_json::Value;
use std::path::Path;
use synconce_testkit::harness::{Place, finish};
use synconce_testkit::manifest::{Entry, FileKind, Manifest, ManifestOptions, diff};

/// A step that prints whether it is held, one that makes and changes files, and one that
/// removes.
const TREE: &str = "FROM scratch\nCOPY probe step /\nADD below.tar /\n\
                    RUN [\"/probe\", \"well\"]\nRUN [\"/step\", \"tree\"]\nRUN [\"/step\", \"remove\"]\n";

/// Files below these steps. Some are at the mount points of runtimes: dockerd leaves these in
/// a layer, with the current time.
const BELOW: &str = "mkdir -p below/dev below/etc below/proc below/sys
                     cd below && touch gone changed etc/hosts etc/resolv.conf
                     tar --create --file=../context/below.tar --mtime=@1 --owner=0 --group=0 *";

/// An image that an engine has built.
pub struct Image {
    layers: Vec<ImageLayer>,
    /// The digest of its configuration, which names the layers and has the time of each.
    digest: String,
}

struct ImageLayer {
    /// The digest of its archive, uncompressed.
    digest: String,
    content: Manifest,
}

fn context(place: &Place) {
    prepare(place);
    add_tree(place);
}

/// Puts the Dockerfile of [`TREE`] and its files into the context of a build.
pub fn add_tree(place: &Place) {
    let made = finish(place.command("sh").args(["-ec", BELOW]));
    assert!(made.status.success(), "{made:?}");
    place.write("context/Dockerfile", TREE);
}

/// Builds by `builder` with the runtime `given`, and reads the image.
pub fn built(given: Given, place: &Place, builder: &impl ImageBuilder) -> Image {
    let build = builder.build(&[]);
    let assert = match given {
        Given::Us => assert_steps_held,
        Given::Runc => assert_steps_bare,
    };
    assert("the image", &build, 1);
    Image::read(place, &builder.save())
}

impl Image {
    fn read(place: &Place, archive: &Path) -> Self {
        let directory = unpacked(place, archive, "archive");
        let json = std::fs::read(directory.join("manifest.json")).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        let image = &json[0];
        let layers = image["Layers"].as_array().unwrap().iter();
        let layer = |(at, path): (usize, &Value)| {
            let packed = directory.join(path.as_str().unwrap());
            let content = unpacked(place, &packed, &format!("layer{at}"));
            let plain = finish(place.command("sh").args(["-c", PLAIN, "sh"]).arg(&packed));
            assert!(plain.status.success(), "{plain:?}");
            let mut content =
                Manifest::with(content, &ManifestOptions::default().mtimes()).unwrap();
            // The directory was made by this test just now. The digest covers an entry for it
            // in the archive.
            content.entries.remove(".");
            // In dockerd's layers the entry for a removed file has the current time.
            let removed = content.entries.iter_mut().filter(|(path, _)| stands_for_removed(path));
            removed.for_each(|(_, entry)| entry.mtime = None);
            ImageLayer { digest: plain.stdout, content }
        };
        let config = directory.join(image["Config"].as_str().unwrap());
        let digest = finish(place.command("sha256sum").arg(config)).stdout;
        let digest = digest.split(' ').next().unwrap_or_default().to_owned();
        Self { layers: layers.enumerate().map(layer).collect(), digest }
    }

    /// Asserts that the image has everything that the steps made.
    fn assert_whole(&self) {
        let has = |name: &str, wanted: &dyn Fn(&Entry) -> bool| {
            let entries = self.layers.iter().flat_map(|layer| &layer.content.entries);
            let found = entries.filter(|(path, _)| *path == name).any(|(_, entry)| wanted(entry));
            assert!(found, "{name} is not as it was made");
        };
        has("new/pipe", &|entry| entry.kind == FileKind::Fifo);
        has("new/link", &|entry| entry.kind == FileKind::Symlink);
        has("new/program", &|entry| entry.mode == 0o4755);
        has("new/same", &|entry| entry.links.is_some());
        has("new/group/other", &|entry| (entry.uid, entry.gid) == (12, 34));
        has("new/group/other", &|entry| entry.xattrs.contains_key("security.capability"));
        has("changed", &|entry| entry.size == Some(7));
        let last = &self.layers.last().unwrap().content.entries;
        let removed = last.keys().any(|path| stands_for_removed(path)) || self.layers.len() == 1;
        assert!(removed && !last.contains_key("gone"), "it is removed");
    }
}

/// Whether a path of a layer marks a removed file (OCI image layers).
fn stands_for_removed(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with(".wh."))
}

/// Prints the digest of an archive, compressed or not.
const PLAIN: &str = "(gzip --decompress --stdout \"$1\" 2>/dev/null || cat \"$1\") | sha256sum";

/// Unpacks `archive` into the new directory `name`.
fn unpacked(place: &Place, archive: &Path, name: &str) -> std::path::PathBuf {
    let directory = place.path(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let mut tar = place.command("tar");
    tar.args(["--extract", "--numeric-owner", "--same-owner", "--same-permissions", "--xattrs"]);
    tar.args(["--xattrs-include=*", "--file"]).arg(archive).arg("--directory").arg(&directory);
    let unpacked = finish(&mut tar);
    assert!(unpacked.status.success(), "{unpacked:?}");
    directory
}

/// Asserts that the images have the same layers, except for the times of removals.
pub fn assert_same_layers(what: &str, bare: &Image, held: &Image) {
    bare.assert_whole();
    assert_eq!(bare.layers.len(), held.layers.len(), "{what}");
    for (bare, held) in bare.layers.iter().zip(&held.layers) {
        let differences = diff(&bare.content, &held.content);
        assert!(differences.is_empty(), "{what}: {differences:#?}");
        if !bare.content.entries.keys().any(|path| stands_for_removed(path)) {
            assert_eq!(bare.digest, held.digest, "{what}");
        }
    }
}

/// Asserts that the images are identical: the digest covers everything.
fn assert_same(what: &str, bare: &Image, held: &Image) {
    assert_same_layers(what, bare, held);
    assert_eq!(bare.digest, held.digest, "{what}");
}

pub const BOTH: [Given; 2] = [Given::Runc, Given::Us];

fn site(place: &Place, given: Given) -> Site<'_> {
    let storage = place.path(&format!("{given:?}"));
    std::fs::create_dir_all(&storage).unwrap();
    Site::with(place, given, &storage)
}

pub fn of_podman_and_buildah_are_the_same(place: &Place) {
    context(place);
    let [bare, held] = BOTH.map(|given| {
        let site = site(place, given);
        (built(given, place, &Buildah(&site)), built(given, place, &Podman(&site)))
    });
    assert_same("buildah", &bare.0, &held.0);
    assert_same("podman", &bare.1, &held.1);
}

pub fn of_docker_have_the_same_layers(place: &Place) {
    context(place);
    let [bare, held] = BOTH.map(|given| {
        let site = site(place, given);
        let docker = Docker::start(&site);
        let images =
            (built(given, place, &docker.classic()), built(given, place, &docker.buildkit()));
        docker.stop();
        images
    });
    assert_same_layers("the classic builder", &bare.0, &held.0);
    assert_same_layers("its BuildKit", &bare.1, &held.1);
}

pub fn of_buildkit_are_the_same(place: &Place) {
    context(place);
    let [bare, held] = BOTH.map(|given| {
        let site = site(place, given);
        let buildkit = BuildKit::start(&site, Worker::Oci);
        let image = built(given, place, &buildkit);
        buildkit.stop();
        image
    });
    assert_same("buildkit", &bare, &held);
}

pub fn of_buildkit_on_containerd_are_the_same(place: &Place) {
    context(place);
    let [bare, held] = BOTH.map(|given| {
        let site = site(place, given);
        let containerd = Containerd::start(&site);
        let buildkit = BuildKit::start(&site, ON_CONTAINERD);
        let image = built(given, place, &buildkit);
        buildkit.stop();
        containerd.stop();
        image
    });
    assert_same("buildkit on containerd", &bare, &held);
}

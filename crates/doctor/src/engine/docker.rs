//! dockerd, by its API.

use super::bolt::DatabasesOf;
use super::build_cache::{BuildCache, DiskUsage};
use super::images::{EmulatedImages, Emulators, ImageOf};
use super::{ContainerEngine, DockerApi, Exportable, ask_containerd, layers};
use crate::error::Error;
use crate::not_measured::NotMeasured;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use synconce_durable::record;
use synconce_probe::docker::{connect as connect_to, disk_usage_path, get_from};
use synconce_sys::peer::Peer;
use synconce_sys::reason;

const PROGRAM: &str = "dockerd";
/// The component that podman names in its answer to `/version`.
const PODMAN: &str = "Podman Engine";
/// The socket of the system's containerd.
pub(super) const CONTAINERD: &str = "/run/containerd/containerd.sock";
/// The largest number of images that are inspected.
const IMAGES: usize = 200;
/// The sizes, in bytes, of images whose export is measured. A smaller image takes only a few polls
/// of [`crate::program::POLL`], so its time would be too coarse.
const EXPORTED: RangeInclusive<i64> = (64 << 20)..=(512 << 20);
/// What dockerd before 24 lists as the name of an image without a name.
const UNTAGGED: &str = "<none>:<none>";
/// What cannot be measured if the containerd of an image store cannot be asked.
pub(super) const STORE: &str = "the directory of containerd, which has the layers";

/// The answer to `/info`, as far as it is used.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Info {
    server_version: String,
    docker_root_dir: PathBuf,
    driver: String,
    /// Pairs of a name and a value; `null` without any.
    driver_status: Option<Vec<(String, String)>>,
    #[serde(default)]
    default_runtime: Option<String>,
    /// The name of dockerd's host.
    #[serde(default)]
    name: Option<String>,
    /// The containerd of dockerd, since version 1.46 of the API (Docker 27).
    #[serde(default)]
    containerd: Option<DockersContainerd>,
    /// Such as `name=rootless`.
    #[serde(default)]
    security_options: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockersContainerd {
    #[serde(default)]
    address: Option<PathBuf>,
}

/// The answer to `/version`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerVersion {
    api_version: String,
    /// Such as `amd64`.
    #[serde(default)]
    arch: String,
    /// The programs that answer; podman answers in dockerd's place.
    #[serde(default)]
    components: Vec<Component>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Component {
    name: String,
}

/// A part of the answer to `/images/json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedImage {
    id: String,
    repo_tags: Option<Vec<String>>,
    /// Bytes.
    #[serde(default)]
    size: i64,
}

/// The answer to `/images/ID/json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedImage {
    #[serde(default)]
    architecture: String,
}

/// Asks the dockerd at `socket`.
///
/// # Errors
/// dockerd does not answer, podman answers, or dockerd runs in another container or on another
/// host.
pub fn ask_docker(socket: &Path) -> Result<ContainerEngine, Error> {
    let failed =
        |error: io::Error| Error::Engine { program: PROGRAM, at: Some(socket.to_owned()), error };
    let connect = || connect_to(socket).map_err(failed);
    // The process that made the socket is dockerd, systemd beside it, or a proxy.
    let maker = Peer::read(connect()?).map_err(failed)?.pid;
    let info: Info = answer(connect()?, "/info").map_err(failed)?;
    let version: DockerVersion = answer(connect()?, "/version").map_err(failed)?;
    if version.components.iter().any(|one| one.name == PODMAN) {
        return Err(failed(io::Error::new(ErrorKind::InvalidInput, "podman answers there")));
    }
    if is_of_another_host(maker, &info) {
        return Err(Error::Elsewhere(PROGRAM));
    }
    let mut unknown = Vec::new();
    let build_cache = match disk_usage_path(&version.api_version) {
        // The rest of the report needs no build cache.
        Some(path) => match answer::<DiskUsage>(connect()?, &path) {
            Ok(usage) => Some(BuildCache::from_usage(&usage, &record::now())),
            Err(error) => {
                unknown.push(NotMeasured::new("build cache", reason(&error)));
                None
            }
        },
        None => {
            let why = "dockerd before 23 walks all volumes to say its size: docker system df";
            unknown.push(NotMeasured::new("build cache", why));
            None
        }
    };
    let store = info.is_image_store().then(|| {
        let address = info.containerd.as_ref().and_then(|it| it.address.as_deref());
        ask_containerd(address.unwrap_or(Path::new(CONTAINERD)))
    });
    let store = store.and_then(|asked| {
        asked.map_err(|error| unknown.push(NotMeasured::new(STORE, error.to_string()))).ok()
    });
    let images = answer::<Vec<ListedImage>>(connect()?, "/images/json").unwrap_or_else(|error| {
        unknown.push(NotMeasured::new("images", reason(&error)));
        Vec::new()
    });
    let exportable = exportable(&images, socket, &info);
    let emulated_images = emulated_images(images, socket, &version.arch);
    let emulated_images = emulated_images.unwrap_or_else(|error| {
        unknown.push(NotMeasured::new("architectures of images", reason(&error)));
        None
    });
    let root = info.docker_root_dir.clone();
    let api = DockerApi { socket: socket.to_owned(), root: root.clone() };
    let mut engine = engine(info, store, build_cache, unknown);
    engine.add_databases(DatabasesOf::Docker(&root));
    Ok(ContainerEngine { emulated_images, exportable, api: Some(api), ..engine })
}

/// Returns the images that the kernel runs by an emulator; `None` if there are none. `native` is
/// the architecture of dockerd.
fn emulated_images(
    images: Vec<ListedImage>,
    socket: &Path,
    native: &str,
) -> io::Result<Option<EmulatedImages>> {
    let Some(emulators) = Emulators::of_kernel() else { return Ok(None) };
    Ok(emulators.run_among(&inspect(images, socket)?, native))
}

/// Asks for the architectures of images. Skips images that dockerd refuses to inspect.
fn inspect(images: Vec<ListedImage>, socket: &Path) -> io::Result<Vec<ImageOf>> {
    let mut all = Vec::new();
    for image in images.into_iter().take(IMAGES) {
        let path = format!("/images/{}/json", image.id);
        match answer(connect_to(socket)?, &path) {
            Ok(InspectedImage { architecture }) => {
                all.push(ImageOf { name: image.name(), architecture });
            }
            // An HTTP error: the image was removed after it was listed.
            Err(error) if error.kind() == ErrorKind::Other => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Returns the largest of `images` whose size is in [`EXPORTED`].
fn exportable(images: &[ListedImage], socket: &Path, info: &Info) -> Option<Exportable> {
    let fits = |image: &&ListedImage| EXPORTED.contains(&image.size);
    let image = images.iter().filter(fits).max_by_key(|image| image.size)?;
    Some(Exportable {
        socket: socket.to_owned(),
        id: image.id.clone(),
        name: image.name(),
        bytes: u64::try_from(image.size).unwrap_or(0),
        temporary: (!info.is_image_store()).then(|| info.docker_root_dir.join("tmp")),
    })
}

impl ListedImage {
    /// Returns the first name of the image, or its id.
    fn name(&self) -> String {
        let mut tags = self.repo_tags.iter().flatten();
        tags.find(|tag| *tag != UNTAGGED).unwrap_or(&self.id).clone()
    }
}

/// Whether dockerd is in another container or on another host, so that the directory that `info`
/// names is another one there. `maker` is the process that made the socket.
fn is_of_another_host(maker: u32, info: &Info) -> bool {
    let host = rustix::system::uname();
    let is_named = |name: &String| name.as_bytes() == host.nodename().to_bytes();
    if maker == 0 || !info.name.as_ref().is_none_or(is_named) {
        return true;
    }
    // Without the rights to look there, dockerd counts as running on this host.
    super::is_elsewhere(maker, &info.docker_root_dir).unwrap_or(false)
}

/// Requests `path`, and parses the answer, a JSON object.
fn answer<T: DeserializeOwned>(stream: UnixStream, path: &str) -> io::Result<T> {
    serde_json::from_str(&get_from(stream, path)?).map_err(|_| {
        let why = format!("the answer to {path} is none of dockerd's");
        io::Error::new(ErrorKind::InvalidData, why)
    })
}

impl Info {
    /// Returns the value of `name` in the status of the driver.
    fn status(&self, name: &str) -> Option<String> {
        let found = self.driver_status.iter().flatten().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone())
    }

    /// Whether images and layers are in the directory of containerd.
    fn is_image_store(&self) -> bool {
        let kind = self.status("driver-type");
        kind.is_some_and(|kind| kind.starts_with("io.containerd.snapshotter"))
    }
}

/// Returns the engine, with the directory of `store` if containerd has the images.
fn engine(
    info: Info,
    store: Option<ContainerEngine>,
    build_cache: Option<BuildCache>,
    unknown: Vec<NotMeasured>,
) -> ContainerEngine {
    let (backing, native_diff) =
        (info.status("Backing Filesystem"), info.status("Native Overlay Diff"));
    let layers = if store.is_none() { layers(&info.docker_root_dir, &info.driver) } else { None };
    let is_rootless =
        info.security_options.is_some_and(|all| all.iter().any(|one| one == "name=rootless"));
    let engine = ContainerEngine {
        is_rootless,
        default_runtime: info.default_runtime,
        layers,
        mount_program: (info.driver == "fuse-overlayfs").then(|| "fuse-overlayfs".to_owned()),
        backing,
        native_diff: native_diff.map(|value| value == "true"),
        build_cache,
        unknown,
        ..ContainerEngine::new("docker", info.server_version, info.docker_root_dir, info.driver)
    };
    match store {
        Some(store) => engine.on(store),
        None => engine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    fn info(status: &str) -> Info {
        let text = format!(
            r#"{{"ServerVersion": "29.0.0", "DockerRootDir": "/none/docker", "Driver":
            "overlayfs", "DriverStatus": {status}, "Containerd": {{"Address": "/none/c"}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn image(id: &str, tag: &str, size: i64) -> ListedImage {
        ListedImage { id: id.to_owned(), repo_tags: Some(vec![tag.to_owned()]), size }
    }

    #[test]
    fn only_an_image_store_exports_without_temporary_files() {
        let images = [image("small", "a:1", 63 << 20), image("large", UNTAGGED, 70 << 20)];
        let exported = |status| exportable(&images, Path::new("/none"), &info(status)).unwrap();
        let plain = exported("null");
        assert_eq!((&*plain.id, &*plain.name), ("large", "large"));
        assert_eq!(plain.temporary.as_deref(), Some(Path::new("/none/docker/tmp")));
        let of_store = exported(r#"[["driver-type", "io.containerd.snapshotter.v1"]]"#);
        assert_eq!(of_store.temporary, None);
    }

    #[test]
    fn an_image_that_is_gone_is_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let answers = [
            "HTTP/1.0 404 Not Found\r\n\r\n{}",
            "HTTP/1.0 200 OK\r\n\r\n{\"Architecture\": \"arm64\"}",
        ];
        let daemon = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let all = inspect(vec![image("gone", "a:1", 1), image("there", "b:1", 1)], &socket);
        daemon.join().unwrap();
        let all: Vec<_> = all.unwrap().into_iter().map(|it| (it.name, it.architecture)).collect();
        assert_eq!(all, [("b:1".to_owned(), "arm64".to_owned())]);
    }

    /// Returns what dockerd answers about a build cache of `count` records of a byte, of which
    /// every tenth was used long ago.
    fn disk_usage(count: usize) -> String {
        let record = |at: usize| {
            let (year, parent) =
                (if at.is_multiple_of(10) { 2020 } else { 2026 }, at.saturating_sub(1));
            format!(
                r#"{{"ID": "{at:064x}", "Parents": ["{parent:064x}"], "Type": "regular",
                "Description": "mount / from exec /bin/sh -c make step-{at}", "InUse": false,
                "Shared": true, "Size": 1, "CreatedAt": "2020-01-01T00:00:00Z",
                "LastUsedAt": "{year}-11-28T00:00:00.123456789Z", "UsageCount": 3}}"#
            )
        };
        let records: Vec<_> = (0..count).map(record).collect();
        format!("{{\"LayersSize\": 0, \"BuildCache\": [{}]}}", records.join(","))
    }

    #[test]
    fn a_build_cache_of_10_000_records_is_some_words() {
        let (stream, mut daemon) = UnixStream::pair().unwrap();
        let daemon = std::thread::spawn(move || {
            let _ = daemon.read(&mut [0; 1024]).unwrap();
            write!(daemon, "HTTP/1.0 200 OK\r\n\r\n{}", disk_usage(10_000)).unwrap();
        });
        let path = disk_usage_path("1.47").unwrap();
        let usage: DiskUsage = answer(stream, &path).unwrap();
        daemon.join().unwrap();
        let cache = BuildCache::from_usage(&usage, "2026-11-30T00:00:00Z");
        assert_eq!(cache, BuildCache { entries: 10_000, bytes: 10_000, unused: 1_000 });
        let summary = engine(info("null"), None, Some(cache), Vec::new()).summary();
        let words = "build cache of 10.0 kB in 10,000 records (1.0 kB unused for a week)";
        assert!(summary.ends_with(words) && summary.len() < 150, "{summary}");
        let small = engine(info("null"), None, Some(BuildCache::default()), Vec::new());
        let large = engine(info("null"), None, Some(cache), Vec::new());
        let [small, large] = [small, large].map(|it| serde_json::to_string(&it).unwrap().len());
        assert!(large < small + 20, "the report has {large} bytes, and {small} without a cache");
    }

    #[test]
    fn an_image_store_is_measured_in_the_directory_of_containerd() {
        let of_store = info(r#"[["driver-type", "io.containerd.snapshotter.v1"]]"#);
        let named = of_store.containerd.as_ref().unwrap().address.as_deref();
        assert_eq!(named, Some(Path::new("/none/c")));
        assert!(of_store.is_image_store());
        let mut store = engine(info("null"), None, None, Vec::new());
        (store.data_root, store.layers) = (PathBuf::from("/none/containerd"), Some(7));
        store.no_sync = vec!["io.containerd.metadata.v1.bolt".to_owned()];
        store.add_not_measured("a part", "a reason".to_owned());
        let found = engine(of_store, Some(store), None, Vec::new());
        assert_eq!(found.unknown, [NotMeasured::new("a part", "a reason")]);
        assert_eq!((found.name, found.layers), ("docker", Some(7)));
        // It is shown, and says nothing about build steps.
        assert!(found.no_sync.len() == 1 && found.builds_are_held().is_none());
        assert_eq!(found.data_root, Path::new("/none/containerd"));
        let plain = info(r#"[["Backing Filesystem", "extfs"]]"#);
        assert!(!plain.is_image_store());
        assert_eq!(engine(plain, None, None, Vec::new()).data_root, Path::new("/none/docker"));
    }
}

//! Annotations of Podman's containers, which include those of the image's manifest.
//!
//! An image's author must not decide about the durability of its users' data. An annotation
//! therefore counts only if the image's manifest is found and lacks it. Podman's bundles are
//! `<root>/<driver>-containers/<ID>/userdata`, its images `<root>/<driver>-images/<ID>`
//! (containers/storage).

use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

#[derive(Deserialize)]
struct Container {
    id: String,
    #[serde(default)]
    image: String,
}

/// The files in which containers/storage lists containers; the second lists those that end
/// with a reboot.
const LISTS: [&str; 2] = ["containers.json", "volatile-containers.json"];

/// Returns whether `bundle` is in containers/storage.
pub(crate) fn is_stored(bundle: &Path) -> bool {
    let containers = bundle.parent().and_then(Path::parent).and_then(Path::file_name);
    bundle.file_name().is_some_and(|name| name == "userdata")
        && containers.is_some_and(|name| name.to_string_lossy().ends_with("-containers"))
}

/// Returns whether the image of the container in `bundle` has an annotation, or `None` when
/// that cannot be determined.
pub(crate) fn image_brings(bundle: &Path, annotation: &str) -> Option<bool> {
    let container = bundle.parent()?;
    let containers = container.parent()?;
    let id = container.file_name()?.to_str()?;
    let image = LISTS.iter().find_map(|list| {
        let text = std::fs::read(containers.join(list)).ok()?;
        let list: Vec<Container> = serde_json::from_slice(&text).ok()?;
        list.into_iter().find(|container| container.id == id).map(|found| found.image)
    })?;
    let driver = containers.file_name()?.to_str()?.strip_suffix("-containers")?;
    let images = containers.parent()?.join(format!("{driver}-images"));
    // The image's manifest, and one for each of its names, which are encoded ("=...").
    let files = std::fs::read_dir(images.join(image)).ok()?.flatten();
    let manifests: Vec<Value> = files
        .filter(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            name.starts_with("manifest") || name.starts_with('=')
        })
        .filter_map(|file| serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok())
        .collect();
    // One manifest suffices. The raw text is searched, because Go ignores the case of keys.
    let mentions = |manifest: &Value| manifest.to_string().contains(annotation);
    (!manifests.is_empty()).then(|| manifests.iter().any(mentions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored(manifest: Option<Value>) -> (tempfile::TempDir, std::path::PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let bundle = root.path().join("overlay-containers/c1/userdata");
        std::fs::create_dir_all(&bundle).unwrap();
        let list = json!([{"id": "c0", "image": "i0"}, {"id": "c1", "image": "i1"}]);
        std::fs::write(root.path().join("overlay-containers/containers.json"), list.to_string())
            .unwrap();
        let image = root.path().join("overlay-images/i1");
        std::fs::create_dir_all(&image).unwrap();
        if let Some(manifest) = manifest {
            std::fs::write(image.join("manifest"), manifest.to_string()).unwrap();
        }
        (root, bundle)
    }

    #[test]
    fn an_image_brings_what_its_manifest_has() {
        let (_root, bundle) = stored(Some(json!({"annotations": {"a.b": "true"}})));
        assert!(is_stored(&bundle));
        assert_eq!(image_brings(&bundle, "a.b"), Some(true));
        assert_eq!(image_brings(&bundle, "a.c"), Some(false));
    }

    #[test]
    fn without_a_manifest_there_is_no_answer() {
        let (root, bundle) = stored(None);
        assert_eq!(image_brings(&bundle, "a.b"), None);
        std::fs::remove_file(root.path().join("overlay-containers/containers.json")).unwrap();
        assert_eq!(image_brings(&bundle, "a.b"), None);
    }

    #[test]
    fn other_bundles_are_not_podmans() {
        assert!(!is_stored(Path::new("/run/containerd/io.containerd.runtime.v2.task/moby/c1")));
        assert!(!is_stored(Path::new("/x/y/userdata")));
    }
}

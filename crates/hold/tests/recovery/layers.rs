//! Layers of dockerd: none counts as unreferenced or damaged unless all of the layer database is
//! understood. (The directory of a real dockerd is in the test program `docker`.)

use crate::support::{isolated, sh};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use synconce_hold::docker_layers::{Orphans, find};

const ROOT: &str = "/var/lib/docker";

fn digest(digit: char) -> String {
    String::from(digit).repeat(64)
}

/// Makes the directory of a dockerd with the image `app:1` of the layers `base` and `top`, which
/// is over `hidden`; the image `small:1` of the layer `base`; a container of `app:1`; a layer
/// whose removal was cut short; and three layers of BuildKit.
fn make_root() {
    let [content, other, image, small] = ['c', 'd', 'e', 'f'].map(digest);
    let (base, top, lost) = (content.clone(), chain(&content, &other), chain(&content, &image));
    sh(&format!(
        "rm -rf {ROOT}; mkdir -p {ROOT}/overlay2/l {ROOT}/buildkit {ROOT}/containers/box; cd {ROOT}
        for id in base top hidden box box-init going k1 k2 k3; do
            mkdir -p overlay2/$id/diff; printf L$id >overlay2/$id/link
            ln -s ../$id/diff overlay2/l/L$id
        done
        echo x >overlay2/backingFsBlockDev
        printf l/Lhidden:l/Lbase >overlay2/top/lower
        printf l/Lbox-init:l/Ltop >overlay2/box/lower
        printf l/Lk1 >overlay2/k2/lower; printf l/Lbase >overlay2/k3/lower
        mkdir -p image/overlay2/imagedb/content/sha256 image/overlay2/layerdb/sha256/{base}
        mkdir -p image/overlay2/imagedb/metadata/sha256/{image}
        cd image/overlay2/layerdb; mkdir -p sha256/{top} sha256/{other}-going-removing mounts/box tmp
        printf base >sha256/{base}/cache-id; printf sha256:{content} >sha256/{base}/diff
        printf top >sha256/{top}/cache-id; printf sha256:{other} >sha256/{top}/diff
        printf sha256:{base} >sha256/{top}/parent
        mkdir sha256/{lost}; printf k3 >sha256/{lost}/cache-id
        printf sha256:{image} >sha256/{lost}/diff; printf sha256:{base} >sha256/{lost}/parent
        printf going >sha256/{other}-going-removing/cache-id
        printf box >mounts/box/mount-id; printf box-init >mounts/box/init-id
        printf sha256:{top} >mounts/box/parent
        echo '{{\"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:{content}\",\"sha256:{other}\"]}}}}' \
            >../imagedb/content/sha256/{image}
        echo '{{\"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:{content}\"]}}}}' \
            >../imagedb/content/sha256/{small}
        echo '{{\"Repositories\":{{
            \"app\":{{\"app:1\":\"sha256:{image}\",\"app@sha256:{base}\":\"sha256:{image}\"}},
            \"small\":{{\"small:1\":\"sha256:{small}\"}}}}}}' >../repositories.json"
    ));
}

/// Removes the container.
fn remove_container() {
    sh(&format!(
        "cd {ROOT}; rm -r overlay2/box* overlay2/l/Lbox* containers/box \
         image/overlay2/layerdb/mounts/box"
    ));
}

/// Makes an image without a name of the layers `base` and `k3`. Returns its configuration.
fn make_side_image() -> PathBuf {
    let [base, above, id] = ['c', 'e', 'a'].map(digest);
    let path = Path::new(ROOT).join("image/overlay2/imagedb/content/sha256").join(id);
    let layers = format!("[\"sha256:{base}\",\"sha256:{above}\"]");
    fs::write(&path, format!("{{\"rootfs\":{{\"diff_ids\":{layers}}}}}")).unwrap();
    path
}

/// Returns the digest of the chain of `content` over the chain `below`.
fn chain(below: &str, content: &str) -> String {
    let sum = sh(&format!("printf 'sha256:{below} sha256:{content}' | sha256sum"));
    sum.split(' ').next().unwrap_or_default().to_owned()
}

fn error() -> String {
    find(Path::new(ROOT)).expect_err("it is not known").to_string()
}

fn found() -> Orphans {
    find(Path::new(ROOT)).expect("all is understood")
}

/// Returns the paths of directories and links of layers, and of entries of the database.
fn paths(layers: &[&str], chains: &[&str]) -> Vec<PathBuf> {
    let layers = layers.iter().map(|name| Path::new(ROOT).join("overlay2").join(name));
    let entries = Path::new(ROOT).join("image/overlay2/layerdb/sha256");
    layers.chain(chains.iter().map(|chain| entries.join(chain))).collect()
}

#[test]
fn layers_of_images_and_containers_and_what_is_below_them_are_referenced() {
    isolated(|| {
        make_root();
        let lost = chain(&digest('c'), &digest('e'));
        let paths = paths(&["k1", "k2", "k3", "l/Lk1", "l/Lk2", "l/Lk3"], &[&lost]);
        assert_eq!(found(), Orphans { unreferenced: 3, paths, ..Orphans::default() });
    });
}

#[test]
fn whatever_cannot_be_understood_leaves_every_layer() {
    isolated(|| {
        let base = digest('c');
        let top = chain(&base, &digest('d'));
        let layers = "image/overlay2/layerdb";
        for (damage, said) in [
            (format!(": >{layers}/sha256/{base}/cache-id"), "cache-id"),
            (format!("printf ../x >{layers}/sha256/{base}/cache-id"), "cache-id"),
            (format!("rm {layers}/sha256/{top}/cache-id"), "cache-id"),
            (format!(": >{layers}/sha256/{base}/diff"), "diff"),
            (format!(": >{layers}/sha256/{top}/parent"), "parent"),
            (format!("rm -r {layers}/sha256/{base}"), "no layer sha256:cc"),
            (format!("rm -r {layers}/sha256"), "no layer"),
            (
                format!(
                    "mkdir {layers}/sha256/strange; printf s >{layers}/sha256/strange/cache-id"
                ),
                "strange",
            ),
            (format!("rm -r {layers}/mounts/box"), "containers/box"),
            (format!("rm {layers}/mounts/box/mount-id"), "mount-id"),
            (format!(": >{layers}/mounts/box/init-id"), "init-id"),
            (format!("rm -r {layers}"), "layerdb"),
            (
                "for image in image/overlay2/imagedb/content/sha256/*; do : >$image; done".into(),
                "imagedb",
            ),
            (format!("rm -r {layers}/sha256 {layers}/mounts/* containers/box"), "imagedb"),
            (": >overlay2/box/lower".into(), "lower"),
            ("printf l/Lgone >overlay2/box/lower".into(), "Lgone"),
            (": >overlay2/hidden/lower".into(), "hidden"),
            ("ln -s elsewhere overlay2/l/strange".into(), "elsewhere"),
            ("rm -r overlay2/l".into(), "overlay2/l"),
            (": >buildkit/cache.db".into(), "cache.db"),
            ("rm -r overlay2; mv image/overlay2 image/vfs".into(), "vfs"),
        ] {
            make_root();
            sh(&format!("cd {ROOT}; {damage}"));
            let error = error();
            assert!(error.contains(said), "{damage}: {error}");
        }
    });
}

#[test]
fn a_damaged_layer_is_found_with_its_images_and_the_layers_above() {
    isolated(|| {
        let top = chain(&digest('c'), &digest('d'));
        let [top, base] = [top, digest('c')].map(|chain| paths(&[], &[&chain])[0].clone());
        let both = ["app:1", "small:1"];
        // Nothing refers to the layers of BuildKit, and to `hidden` without `top`.
        for (damage, images, unreferenced) in [
            ("rm -r top", &both[..1], 4),
            ("rm -r top l/Ltop", &both[..1], 4),
            ("rm -r top/diff", &both[..1], 4),
            ("rm -r top/diff; : >top/diff", &both[..1], 4),
            (": >top/link", &both[..1], 4),
            ("rm top/link", &both[..1], 4),
            ("echo >>top/link", &both[..1], 4),
            ("rm l/Ltop", &both[..1], 4),
            ("ln -sfn ../base/diff l/Ltop", &both[..1], 4),
            (": >top/lower", &both[..1], 4),
            ("rm top/lower", &both[..1], 4),
            ("printf l/Lgone >top/lower", &both[..1], 4),
            ("printf 'l/Lhidden:\\0' >top/lower", &both[..1], 4),
            ("rm -r hidden", &both[..1], 3),
            ("rm -r hidden/diff", &both[..1], 4),
            ("rm -r base", &both, 4),
            ("rm l/Lbase", &both, 4),
        ] {
            make_root();
            remove_container();
            sh(&format!("cd {ROOT}/overlay2; {damage}"));
            let found = found();
            assert_eq!(found.images, images, "{damage}");
            assert!(found.containers.is_empty(), "{damage}");
            // Of all layers above `base`, only `top` is of an image.
            let counts = (found.damaged, found.unreferenced);
            assert_eq!(counts, (images.len(), unreferenced), "{damage}");
            assert!(found.paths.contains(&top), "{damage}");
            assert_eq!(found.paths.contains(&base), images.len() == 2, "{damage}");
            for path in &found.paths {
                sh(&format!("rm -r {}", path.display()));
            }
            // What is left is whole, and only that.
            assert_eq!(find(Path::new(ROOT)).unwrap(), Orphans::default(), "{damage}");
            let left = sh(&format!("cd {ROOT}/image/overlay2/imagedb; ls content/* metadata/*"));
            assert!(!left.contains(&digest('e')), "{damage}: {left}");
            assert_eq!(left.contains(&digest('f')), images.len() == 1, "{damage}: {left}");
        }
    });
}

#[test]
fn a_damaged_layer_below_a_container_is_left_with_all_that_may_be_below() {
    isolated(|| {
        for damage in ["rm -r top", "rm l/Ltop", ": >top/lower", "rm -r base", "rm -r hidden"] {
            make_root();
            sh(&format!("cd {ROOT}/overlay2; {damage}"));
            let containers = vec!["box".to_owned()];
            assert_eq!(found(), Orphans { containers, ..Orphans::default() }, "{damage}");
        }
        make_root();
        let side = make_side_image();
        sh(&format!("cd {ROOT}/overlay2; rm -r top k3/diff"));
        let above = chain(&digest('c'), &digest('e'));
        let mut paths = paths(&["k3", "l/Lk3"], &[&above]);
        paths.push(side);
        let containers = vec!["box".to_owned()];
        assert_eq!(found(), Orphans { damaged: 1, containers, paths, ..Orphans::default() });
    });
}

#[test]
fn a_container_is_left_as_it_is_if_another_image_is_damaged() {
    isolated(|| {
        make_root();
        let side = make_side_image();
        sh(&format!("rm -r {ROOT}/overlay2/k3"));
        let above = chain(&digest('c'), &digest('e'));
        let mut paths = paths(&["k1", "k2", "l/Lk1", "l/Lk2", "l/Lk3"], &[&above]);
        paths.push(side);
        assert_eq!(found(), Orphans { unreferenced: 2, damaged: 1, paths, ..Orphans::default() });
    });
}

#[test]
fn a_dockerd_that_runs_and_a_mounted_layer_are_refused() {
    isolated(|| {
        make_root();
        let open = File::open(format!("{ROOT}/overlay2/backingFsBlockDev")).unwrap();
        assert!(error().contains("open"));
        drop(open);
        sh(&format!("mount -t tmpfs m {ROOT}/overlay2/top"));
        assert!(error().contains("mounted"));
        sh(&format!("umount {ROOT}/overlay2/top"));
        found();
    });
}

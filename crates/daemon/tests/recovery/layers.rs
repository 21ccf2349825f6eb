//! Layers of dockerd: none counts as unreferenced unless all of the layer database is
//! understood. (The directory of a real dockerd is in the test program `docker`.)

use crate::support::{isolated, sh};
use std::fs::File;
use std::path::Path;
use synconce_daemon::docker_layers::unreferenced;

const ROOT: &str = "/var/lib/docker";

fn digest(digit: char) -> String {
    String::from(digit).repeat(64)
}

/// Makes the directory of a dockerd with the image of the layers `base` and `top`, which is
/// over `hidden`; a container; a layer whose removal was cut short; and two layers of BuildKit.
fn make_root() {
    let [content, other, image] = ['c', 'd', 'e'].map(digest);
    let (base, top, lost) = (content.clone(), chain(&content, &other), chain(&content, &image));
    sh(&format!(
        "rm -rf {ROOT}; mkdir -p {ROOT}/overlay2/l {ROOT}/buildkit {ROOT}/containers/box; cd {ROOT}
        for id in base top hidden box box-init going k1 k2 k3; do
            mkdir -p overlay2/$id/diff; echo L$id >overlay2/$id/link
            ln -s ../$id/diff overlay2/l/L$id
        done
        echo x >overlay2/backingFsBlockDev
        printf l/Lhidden:l/Lbase >overlay2/top/lower
        printf l/Lbox-init:l/Ltop >overlay2/box/lower
        printf l/Lk1 >overlay2/k2/lower; printf l/Lbase >overlay2/k3/lower
        mkdir -p image/overlay2/imagedb/content/sha256 image/overlay2/layerdb/sha256/{base}
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
            >../imagedb/content/sha256/{image}"
    ));
}

/// Returns the digest of the chain of `content` over the chain `below`.
fn chain(below: &str, content: &str) -> String {
    let sum = sh(&format!("printf 'sha256:{below} sha256:{content}' | sha256sum"));
    sum.split(' ').next().unwrap_or_default().to_owned()
}

fn error() -> String {
    unreferenced(Path::new(ROOT)).expect_err("it is not known").to_string()
}

#[test]
fn layers_of_images_and_containers_and_what_is_below_them_are_referenced() {
    isolated(|| {
        make_root();
        let found = unreferenced(Path::new(ROOT)).unwrap();
        let lost = chain(&digest('c'), &digest('e'));
        let entry = Path::new(ROOT).join("image/overlay2/layerdb/sha256").join(lost);
        let names = ["k1", "k2", "k3", "l/Lk1", "l/Lk2", "l/Lk3"];
        let mut paths = names.map(|name| Path::new(ROOT).join("overlay2").join(name)).to_vec();
        paths.push(entry);
        assert_eq!((found.layers, found.paths), (3, paths));
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
            (": >overlay2/top/lower".into(), "lower"),
            ("printf l/Lgone >overlay2/top/lower".into(), "Lgone"),
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
fn a_dockerd_that_runs_and_a_mounted_layer_are_refused() {
    isolated(|| {
        make_root();
        let open = File::open(format!("{ROOT}/overlay2/backingFsBlockDev")).unwrap();
        assert!(error().contains("open"));
        drop(open);
        sh(&format!("mount -t tmpfs m {ROOT}/overlay2/top"));
        assert!(error().contains("mounted"));
        sh(&format!("umount {ROOT}/overlay2/top"));
        unreferenced(Path::new(ROOT)).unwrap();
    });
}

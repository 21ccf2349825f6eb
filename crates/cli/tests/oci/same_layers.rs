//! Layers of Dockerfiles, built by plain runc and with volatile roots: the archives are equal byte
//! for byte, apart from times. 20 have the shape of published ones. The others repeat a report to
//! the project of an engine; the title has the number of the report.

use crate::engines::docker::{self, Docker};
use crate::engines::{Given, Site, prepare, report};
use libtest_mimic::Trial;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use synconce_testkit::harness::{Need, Place, debian, finish, trial};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::Rig;

const NEEDS: [Need; 4] = [
    docker::NEEDS[0],
    docker::NEEDS[1],
    docker::NEEDS[2],
    Need::Program("mmdebstrap", "mmdebstrap"),
];
const DOCKERFILES: &str = include_str!("same_layers/dockerfiles.txt");
const REPORTS: &str = include_str!("same_layers/reports.txt");
const HABITS: &str = include_str!("same_layers/habits.txt");
/// With so many layers dockerd mounts a root by relative paths. overlay2 allows 128.
const MANY: usize = 120;
/// Files of the contexts, and a package without dependencies.
const CONTEXT: &str = "cd context; mkdir -p data src app/lib small/DEBIAN small/usr/share/small
    for n in $(seq 60); do echo \"data $n\" >data/$n; echo \"source $n\" >src/$n; done
    for n in $(seq 9); do echo \"jar $n\" >app/lib/$n.jar; done; echo app >app/app.jar
    tar --create --file=app.tar app; rm -r app
    echo '{}' >package.json; echo 'one==1' >requirements.txt; echo 'server' >server.js
    printf '#!/bin/sh\\nexec \"$@\"\\n' >entrypoint.sh
    printf 'Package: small\\nVersion: 1\\nArchitecture: all\\nMaintainer: M <m@example.org>\\n\
    Description: small\\n' >small/DEBIAN/control
    cp data/* small/usr/share/small; dpkg-deb --root-owner-group --build small small.deb; rm -r small";

/// The members of one layer's archive: the name, and a digest of the headers and the content.
type LayerMembers = Vec<(String, u64)>;

pub fn trials() -> Vec<Trial> {
    // Named in CONTRIBUTING.md.
    vec![
        trial(layers_of_twenty_dockerfiles_are_the_same, &NEEDS).with_ignored_flag(true),
        trial(layers_of_reported_dockerfiles_are_the_same, &NEEDS).with_ignored_flag(true),
        trial(layers_of_reported_habits_are_the_same, &NEEDS).with_ignored_flag(true),
    ]
}

fn layers_of_twenty_dockerfiles_are_the_same(place: &Place) {
    layers_are_the_same(place, DOCKERFILES, 20);
}

fn layers_of_reported_dockerfiles_are_the_same(place: &Place) {
    layers_are_the_same(place, REPORTS, 24);
}

fn layers_of_reported_habits_are_the_same(place: &Place) {
    let steps: String =
        (0..MANY).map(|at| format!("RUN echo {at} >>/log && chmod 6{}0 /log\n", at % 8)).collect();
    let deep = format!(
        "=== buildkit 3067: many layers, and each changes the same file\nFROM base\n{steps}"
    );
    layers_are_the_same(place, &format!("{HABITS}{deep}"), 10);
}

fn layers_are_the_same(place: &Place, dockerfiles: &str, count: usize) {
    prepare(place);
    let made = finish(place.command("sh").args(["-ec", CONTEXT]));
    assert!(made.status.success(), "{made:?}");
    place.write("oci.toml", "step-root = \"volatile\"\n");
    let texts: Vec<_> = dockerfiles.split("=== ").skip(1).collect();
    assert_eq!(texts.len(), count);
    let [plain, volatile] = [Given::Runc, Given::Us].map(|given| built(place, given, &texts));
    assert_eq!(plain.len(), volatile.len());
    for (image, layers) in &plain {
        let found = &volatile[image];
        assert_eq!(layers.len(), found.len(), "{image}");
        for (at, (layer, other)) in layers.iter().zip(found).enumerate() {
            let differ = layer.iter().zip(other).find(|(one, other)| one != other);
            assert_eq!(layer.len(), other.len(), "{image}, layer {at}, {differ:?}");
            assert_eq!(differ, None, "{image}, layer {at}");
        }
    }
    let count: usize = plain.values().map(Vec::len).sum();
    report(&format!("{} images, {count} layers: equal apart from times", plain.len()));
}

/// Builds all Dockerfiles by a dockerd of its own. Returns the layers of each image.
fn built(place: &Place, given: Given, texts: &[&str]) -> BTreeMap<String, Vec<LayerMembers>> {
    let rig = Rig::builder().size(8 << 30).up().unwrap();
    let site = Site::with(place, given, &rig.path().join("storage"));
    let docker = Docker::with_storage(&site, "overlay2");
    let base = debian::base();
    run(docker.client("1", &["import", base.to_str().unwrap(), "base"]));
    let secret = format!("id=key,src={}", place.write("secret", "the secret\n").display());
    let mut tags = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let (title, text) = text.split_once('\n').unwrap();
        place.write("context/Dockerfile", text);
        // The classic builder has no mounts in steps.
        let builders =
            ["1", "0"].into_iter().filter(|way| *way == "1" || !text.contains("--mount"));
        for builder in builders {
            let tag = format!("image{at}-{builder}");
            println!("{given:?}: {title}: {tag}");
            let words = ["build", "--network", "none", "--no-cache", "--tag", &tag, "context"];
            let secret = ["--secret", &secret];
            let options = if builder == "1" { &secret[..] } else { &[] };
            run(process::run(
                docker.command(builder).args(words).args(options),
                synconce_testkit::patiently(std::time::Duration::from_secs(300)),
            )
            .unwrap());
            tags.push(tag);
        }
    }
    if given == Given::Us {
        let log = site.storage.join("docker/buildkit/executor/runc-log.json");
        let log = fs::read_to_string(log).unwrap();
        let count = |words: &str| log.matches(words).count();
        let (all, volatile) = (count("root of this step"), count("root of this step is volatile"));
        let relative = count("the paths of its layers are relative");
        report(&format!("{volatile} of {all} steps of BuildKit had a volatile root"));
        assert!(volatile > texts.len() && all == volatile + relative, "{log}");
        let has_many = texts.iter().any(|text| text.matches("\nRUN ").count() >= MANY);
        assert_eq!(relative > 0, has_many, "{log}");
    }
    let archive = rig.path().join("images.tar");
    let words: Vec<&str> = tags.iter().map(String::as_str).collect();
    run(docker.client("1", &[&["save", "--output", archive.to_str().unwrap()], &*words].concat()));
    let images = layers_of(place, &archive, &rig.path().join("images"));
    docker.stop();
    drop(site);
    rig.down().unwrap();
    images
}

fn run(finished: Finished) {
    assert!(finished.status.success(), "{finished:?}");
}

/// Reads an archive of `docker save`.
fn layers_of(place: &Place, archive: &Path, to: &Path) -> BTreeMap<String, Vec<LayerMembers>> {
    fs::create_dir(to).unwrap();
    run(finish(place.command("tar").arg("--extract").arg("--file").arg(archive).arg("-C").arg(to)));
    let manifest: Value =
        serde_json::from_slice(&fs::read(to.join("manifest.json")).unwrap()).unwrap();
    let mut images = BTreeMap::new();
    for image in manifest.as_array().unwrap() {
        let tag = image["RepoTags"][0].as_str().unwrap().to_owned();
        // The first layer of an image is the base, which no step has made.
        let layers = image["Layers"].as_array().unwrap().iter().skip(1);
        let layers =
            layers.map(|layer| members(&fs::read(to.join(layer.as_str().unwrap())).unwrap()));
        images.insert(tag, layers.collect());
    }
    images
}

/// Reads the members of an archive in its order (tar(5)), without times and what depends on them.
fn members(archive: &[u8]) -> LayerMembers {
    let mut found = Vec::new();
    let mut hasher = DefaultHasher::new();
    let mut at = 0;
    while at + 512 <= archive.len() {
        let mut header = archive[at..at + 512].to_vec();
        let text = |range: std::ops::Range<usize>| {
            String::from_utf8_lossy(&archive[at..at + 512][range])
                .trim_end_matches(['\0', ' '])
                .to_owned()
        };
        let size = usize::from_str_radix(&text(124..136), 8).unwrap_or(0);
        let body = &archive[at + 512..at + 512 + size];
        let is_extended = matches!(header[156], b'x' | b'g');
        header[136..156].fill(0);
        if is_extended {
            // Extended headers with times have another size.
            header[124..136].fill(0);
        }
        hasher.write(&header);
        if is_extended {
            let is_time = |line: &&[u8]| {
                ["mtime=", "atime=", "ctime="].iter().any(|name| {
                    line.splitn(2, |byte| *byte == b' ')
                        .nth(1)
                        .is_some_and(|it| it.starts_with(name.as_bytes()))
                })
            };
            body.split(|byte| *byte == b'\n')
                .filter(|line| !is_time(line))
                .for_each(|line| hasher.write(line));
        } else {
            hasher.write(body);
            found.push((text(0..100), hasher.finish()));
            hasher = DefaultHasher::new();
        }
        at += 512 + size.next_multiple_of(512);
    }
    found
}

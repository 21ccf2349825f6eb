//! The image of synconce, as its script makes it.

use crate::dockerfile::{COPY, MOUNT, SHELL, TAKEN_BACK, assert_prints, assert_quiet};
use crate::engines::SOCKET;
use crate::plain::{self, Dockerd};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_testkit::harness::debian::base;
use synconce_testkit::harness::{Need, trial};
use synconce_testkit::harness::{Place, binary, finish};
use synconce_testkit::patiently;
use synconce_testkit::process::{Finished, run};

pub const STRIP: Need = Need::Program("strip", "binutils");
pub const IMAGE: &str = concat!("synconce:", env!("CARGO_PKG_VERSION"));
const GUIDE: &str = include_str!("../../../../docs/guide.md");
const README: &str = include_str!("../../../../README.md");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/image/build");
/// Where an ELF header has `e_machine`.
const MACHINE: usize = 18;
const ARCHITECTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/architecture");

const PASTED: [Need; 6] = [
    plain::DOCKER[0],
    plain::DOCKER[1],
    plain::DOCKER[2],
    STRIP,
    Need::Program("mmdebstrap", "mmdebstrap"),
    Need::Network,
];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(the_image_is_the_same_whenever_it_is_made, &[STRIP]),
        trial(a_binary_that_is_not_static_is_refused, &[STRIP]),
        trial(an_image_has_the_architecture_of_its_binary, &[STRIP]),
        trial(binaries_of_two_architectures_make_a_list_of_platforms, &[STRIP]),
        trial(the_guide_and_the_readme_contain_the_tested_commands, &[]),
        trial(the_block_of_the_readme_and_the_guide_builds_as_it_is_pasted, &PASTED),
    ]
}

/// Returns a copy of the tested binary without debug information, as small as the binary of a
/// release.
fn stripped(place: &Place) -> PathBuf {
    let stripped = place.path("synconce");
    let strip = finish(Command::new("strip").arg("-o").arg(&stripped).arg(binary()));
    assert!(strip.status.success(), "{strip:?}");
    stripped
}

/// Makes the image of synconce at `to`, by the script that users call.
pub fn make_image(place: &Place, command: &mut Command, to: &Path) {
    let stripped = stripped(place);
    let mut made = Command::new(SCRIPT);
    made.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let made = finish(made.arg("--binary").arg(stripped).arg(to));
    assert_eq!((made.stdout.trim_end(), made.status.code()), (IMAGE, Some(0)), "{made:?}");
}

fn the_image_is_the_same_whenever_it_is_made(place: &Place) {
    let make = |to: &str, environment: &[(&str, &str)]| {
        let mut command = Command::new("unused");
        make_image(place, command.envs(environment.iter().copied()), &place.path(to));
    };
    make("one", &[]);
    make("other", &[("TZ", "Asia/Kathmandu"), ("LC_ALL", "C")]);
    let differ = finish(place.command("diff").args(["-r", "one", "other"]));
    assert!(differ.status.success(), "{differ:?}");
    make("later", &[("SOURCE_DATE_EPOCH", "86400")]);
    let differ = finish(place.command("diff").args(["-rq", "one", "later"]));
    assert!(!differ.status.success());
    let dated = finish(place.command("grep").args(["-rlF", "1970-01-02T00:00:00Z", "later"]));
    assert!(dated.status.success(), "{dated:?}");
}

fn the_guide_and_the_readme_contain_the_tested_commands(_: &Place) {
    for (text, wanted) in
        [(GUIDE, [COPY, SHELL].concat()), (GUIDE, TAKEN_BACK.into()), (GUIDE, MOUNT.into())]
    {
        assert!(text.contains(&wanted), "{wanted}");
    }
    assert!(README.contains(MOUNT), "{MOUNT}");
}

/// Returns the block of a Dockerfile in `text` that installs packages.
fn installing_block(text: &str) -> &str {
    let blocks = text.split("```dockerfile\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| Some(rest.split_once("```")?.0));
    blocks.find(|block| block.contains("apt-get")).expect("a block")
}

/// The block is appended to a Debian image. Steps use the network of the machine, because this
/// dockerd has no bridge.
fn the_block_of_the_readme_and_the_guide_builds_as_it_is_pasted(place: &Place) {
    let block = installing_block(README);
    assert_eq!(block, installing_block(GUIDE));
    crate::engines::prepare(place);
    let docker = Dockerd::start(place, place.command("dockerd"));
    make_image(place, Command::new("docker").env("DOCKER_HOST", SOCKET), Path::new("docker"));
    let debian = docker.client("1").arg("import").arg(base()).arg("debian:bookworm").status();
    assert!(debian.expect("a client").success());
    let used = "RUN echo 'int main(void) { return 0; }' | cc -xc -o /made - && /made && \
                test ! -e /dev/synconce && echo \"it is \"used\n";
    place.write("context/Dockerfile", &format!("FROM debian:bookworm\n{block}{used}"));
    let mut build = docker.client("1");
    build.args(["build", "--network", "host", "--no-cache", "--progress", "plain", "context"]);
    // Packages are downloaded.
    let built = run(&mut build, patiently(Duration::from_secs(500))).expect("a client");
    assert!(built.status.success(), "{built:?}");
    assert_prints(&built, "it is used\n");
    assert_quiet(&built);
    docker.stop();
}

fn a_binary_that_is_not_static_is_refused(place: &Place) {
    let made = finish(Command::new(SCRIPT).args(["--binary", "/bin/ls"]).arg(place.path("image")));
    assert_eq!(made.status.code(), Some(1));
    assert!(made.stderr.contains("/ls is not static"), "{made:?}");
    assert!(!place.path("image").exists());
}

fn an_image_has_the_architecture_of_its_binary(place: &Place) {
    let look = |program: &Path| finish(Command::new(ARCHITECTURE).arg(program));
    let file = place.path("header");
    for (machine, name) in [(libc::EM_X86_64, "amd64\n"), (libc::EM_AARCH64, "arm64\n")] {
        let header = [&[0; MACHINE][..], &machine.to_le_bytes()].concat();
        fs::write(&file, header).expect("a header");
        assert_eq!(look(&file).stdout, name);
    }
    fs::write(&file, [0; MACHINE + 2]).expect("a header");
    let unknown = look(&file);
    assert_eq!((unknown.stdout.as_str(), unknown.status.code()), ("", Some(1)), "{unknown:?}");
    make_image(place, &mut Command::new("unused"), &place.path("image"));
    let config = format!("\"architecture\":\"{}\"", look(Path::new(binary())).stdout.trim_end());
    let found = finish(place.command("grep").args(["-rqF", &config, "image/blobs"]));
    assert!(found.status.success(), "no {config}");
}

/// Makes the image of two binaries at `to`.
fn make_list(place: &Place, binaries: [&Path; 2], to: &str) -> Finished {
    let mut command = place.command(SCRIPT);
    for binary in binaries {
        command.arg("--binary").arg(binary);
    }
    finish(command.arg(to))
}

fn binaries_of_two_architectures_make_a_list_of_platforms(place: &Place) {
    let (amd64, arm64) = (place.path("for-amd64"), place.path("for-arm64"));
    let mut program = fs::read(stripped(place)).expect("a binary");
    for (machine, file) in [(libc::EM_X86_64, &amd64), (libc::EM_AARCH64, &arm64)] {
        program[MACHINE..MACHINE + 2].copy_from_slice(&machine.to_le_bytes());
        fs::write(file, &program).expect("a program");
    }
    for (binaries, to) in [([&amd64, &arm64], "list"), ([&arm64, &amd64], "other")] {
        let made = make_list(place, binaries.map(PathBuf::as_path), to);
        assert_eq!((made.stdout.trim_end(), made.status.code()), (IMAGE, Some(0)), "{made:?}");
    }
    let differ = finish(place.command("diff").args(["-r", "list", "other"]));
    assert!(differ.status.success(), "{differ:?}");

    let json = |path: &str| -> Value { serde_json::from_str(&place.read(path)).expect(path) };
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().expect("a digest").replace(':', "/");
        format!("list/blobs/{digest}")
    };
    let top = json("list/index.json");
    assert_eq!(top["manifests"].as_array().map(Vec::len), Some(1), "{top}");
    let top = &top["manifests"][0];
    assert_eq!(top["annotations"]["org.opencontainers.image.ref.name"], IMAGE);
    let list = json(&blob(top));
    assert_eq!(
        (&list["mediaType"], list["manifests"].as_array().map(Vec::len)),
        (&top["mediaType"], Some(2))
    );
    for (number, name, file) in [(0, "amd64", &amd64), (1, "arm64", &arm64)] {
        let descriptor = &list["manifests"][number];
        assert_eq!(descriptor["platform"], json!({"architecture": name, "os": "linux"}));
        let manifest = json(&blob(descriptor));
        assert_eq!(json(&blob(&manifest["config"]))["architecture"], name);
        let layer = blob(&manifest["layers"][0]);
        let content = format!("tar -xOf {layer} synconce | cmp - '{}'", file.display());
        let same = finish(place.command("sh").args(["-c", &content]));
        assert!(same.status.success(), "{same:?}");
    }
    // By the list of a `docker save`, Docker would take one of them on every machine.
    assert!(!place.path("list/manifest.json").exists());

    for (binaries, to, refusal) in [
        ([&amd64, &amd64], "twice", "is the second binary for amd64"),
        ([&amd64, &arm64], "podman", "podman takes the image of one architecture"),
    ] {
        let made = make_list(place, binaries.map(PathBuf::as_path), to);
        assert_eq!(made.status.code(), Some(1), "{made:?}");
        assert!(made.stderr.contains(refusal), "{made:?}");
    }
}

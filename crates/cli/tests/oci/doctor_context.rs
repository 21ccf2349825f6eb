//! `synconce doctor --context`: `.dockerignore` leaves out what dockerd's builders leave out.

use crate::engines::docker::{self, Docker};
use crate::engines::{Site, prepare};
use crate::ignore_cases::{PATTERNS, UNIT, bytes_below, make_files};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use synconce_testkit::harness::{Place, finish, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial(the_same_files_are_sent_as_by_dockers_builders, &docker::NEEDS)]
}

/// Returns the sum of the lengths of the files in an image of `COPY . /` by a builder of `docker`.
fn copied(place: &Place, docker: &Docker<'_>, buildkit: &str) -> u64 {
    let run = |words: &[&str]| {
        let ended = docker.client(buildkit, words);
        assert!(ended.status.success(), "{words:?}: {ended:?}");
    };
    run(&["build", "--tag", "sent", "--file", "Dockerfile", "files"]);
    run(&["create", "--name", "sent", "sent", "/none"]);
    run(&["export", "--output", "sent.tar", "sent"]);
    run(&["rm", "sent"]);
    fs::create_dir(place.path("sent")).unwrap();
    let unpacked = finish(place.command("tar").args(["-xf", "sent.tar", "-C", "sent"]));
    assert!(unpacked.status.success(), "{unpacked:?}");
    let bytes = bytes_below(&place.path("sent"));
    fs::remove_dir_all(place.path("sent")).unwrap();
    bytes
}

fn the_same_files_are_sent_as_by_dockers_builders(place: &Place) {
    prepare(place);
    make_files(&place.path("files"));
    place.write("Dockerfile", "FROM scratch\nCOPY . /\n");
    let site = Site::new(place);
    let docker = Docker::start(&site);
    for patterns in PATTERNS {
        place.write("files/.dockerignore", patterns);
        let ended = finish(&mut place.synconce(&["doctor", "--context", "files", "--json"]));
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        // .dockerignore is shorter than a unit.
        let ours = report["sent"]["bytes"].as_u64().unwrap() / UNIT;
        for (builder, buildkit) in [("classic", "0"), ("BuildKit", "1")] {
            let theirs = copied(place, &docker, buildkit) / UNIT;
            assert_eq!(format!("{ours:014b}"), format!("{theirs:014b}"), "{builder}: {patterns:?}");
        }
    }
    docker.stop();
}

//! `packaging/ci/install` with the tarballs of a release.

use super::place::SYNCONCE;
use std::fs;
use synconce_testkit::harness::{finish, isolated};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/ci/install");

/// Makes the tarballs of two machines, and their checksums.
const RELEASE: &str = r#"
for machine in x86_64 aarch64; do
    mkdir synconce-1-$machine-linux
    cp "$1" synconce-1-$machine-linux/synconce
    tar --create synconce-1-$machine-linux | gzip -1 >synconce-1-$machine-linux.tar.gz
done
sha256sum *.tar.gz >synconce-1-SHA256SUMS
"#;

#[test]
fn a_job_installs_the_tarball_of_its_machine() {
    isolated(|place| {
        let made = finish(place.command("sh").args(["-ec", RELEASE, "sh", SYNCONCE]));
        assert!(made.status.success(), "{made:?}");
        let install = |name: &str, options: &[&str]| {
            let mut command = place.command(SCRIPT);
            // A job of a CI would get the directory in its PATH.
            command.env_remove("GITHUB_PATH").arg("--file").arg(place.path(name));
            finish(command.arg("--to").arg(place.path("bin")).args(options))
        };
        let tarball = |machine: &str| format!("synconce-1-{machine}-linux.tar.gz");
        let own = std::env::consts::ARCH;
        let other = if own == "x86_64" { "aarch64" } else { "x86_64" };
        let refused = install(&tarball(other), &[]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let reason = format!("is for another machine; this one is {own}\n");
        assert!(refused.stderr.ends_with(&reason), "{refused:?}");
        assert!(!place.path("bin").exists());
        // A name without a machine is no reason to refuse a file, nor to take it unchecked.
        let renamed = "renamed-linux.tar.gz";
        fs::copy(place.path(&tarball(own)), place.path(renamed)).unwrap();
        let unchecked = install(renamed, &[]);
        let reason = "put renamed-linux.tar.gz-SHA256SUMS beside it\n";
        assert!(unchecked.stderr.ends_with(reason), "{unchecked:?}");
        let sums = fs::read_to_string(place.path("synconce-1-SHA256SUMS")).unwrap();
        let sum = sums.lines().find(|line| line.ends_with(&tarball(own))).unwrap();
        let sum = sum.split(' ').next().unwrap();
        for (name, options) in [(renamed, &["--sha256", sum][..]), (&tarball(own), &[])] {
            let installed = install(name, options);
            assert!(installed.status.success(), "{installed:?}");
            fs::remove_file(place.path("bin/synconce")).unwrap();
        }
    });
}

//! `packaging/ci/install` with the tarballs of a release.

use super::place::SYNCONCE;
use std::process::Command;
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
        let install = |machine: &str| {
            let file = place.path(&format!("synconce-1-{machine}-linux.tar.gz"));
            let mut command = Command::new(SCRIPT);
            finish(command.arg("--file").arg(file).arg("--to").arg(place.path("bin")))
        };
        let own = std::env::consts::ARCH;
        let other = if own == "x86_64" { "aarch64" } else { "x86_64" };
        let refused = install(other);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let reason = format!("is for another machine; this one is {own}\n");
        assert!(refused.stderr.ends_with(&reason), "{refused:?}");
        assert!(!place.path("bin").exists());
        let installed = install(own);
        assert!(installed.status.success(), "{installed:?}");
        assert!(place.path("bin/synconce").exists());
    });
}

//! Commands of synconce in held build steps of a real dockerd, from a Dockerfile that also builds
//! on a host without a set-up.

use crate::engines::docker::{self, Docker};
use crate::engines::{Given, ImageBuilder, Site, add_synconce, prepare};
use libtest_mimic::Trial;
use synconce_testkit::harness::{Need, Place, debian, finish, trial};
use synconce_testkit::rig::Rig;

const NEEDS: [Need; 4] = [
    docker::NEEDS[0],
    docker::NEEDS[1],
    docker::NEEDS[2],
    Need::Program("mmdebstrap", "mmdebstrap"),
];

/// Makes a package without dependencies in the context.
const PACKAGE: &str = "cd context; mkdir -p small/DEBIAN small/usr/share/small
    printf 'Package: small\\nVersion: 1\\nArchitecture: all\\nMaintainer: M <m@example.org>\\n\
    Description: small\\n' >small/DEBIAN/control
    echo file >small/usr/share/small/file
    dpkg-deb --root-owner-group --build small small.deb; rm -r small";

/// Without a set-up each run has a commit; in a held step none has one. The wrapper of dpkg says
/// that it starts no run where the step is not held: the step has no CAP_SYS_ADMIN.
const DOCKERFILE: &str = "FROM base
COPY synconce /usr/bin/synconce
COPY small.deb /tmp/
RUN synconce setup apt && synconce setup apt --check
RUN dpkg --install /tmp/small.deb 2>/said && test -e /usr/share/small/file \
    && if test -s /said; then grep -q no_new_privs /said; fi
RUN synconce run --commit-all -- dpkg --purge small && test ! -e /usr/share/small
RUN synconce setup apt --undo && synconce status
";

pub fn trials() -> Vec<Trial> {
    vec![trial(a_set_up_and_its_runs_work_in_steps_held_and_not, &NEEDS)]
}

fn a_set_up_and_its_runs_work_in_steps_held_and_not(place: &Place) {
    prepare(place);
    let made = finish(place.command("sh").args(["-ec", PACKAGE]));
    assert!(made.status.success(), "{made:?}");
    add_synconce(place);
    place.write("context/Dockerfile", DOCKERFILE);
    let rig = Rig::builder().size(4 << 30).up().unwrap();
    for given in [Given::Runc, Given::Us] {
        let site = Site::with(place, given, &rig.path().join("storage"));
        let docker = Docker::with_storage(&site, "overlay2");
        // The second dockerd has the image of the first one.
        if given == Given::Runc {
            docker.import(debian::base().to_str().unwrap(), "base");
        }
        let builders: [(&str, &dyn ImageBuilder); 2] =
            [("classic", &docker.classic()), ("BuildKit", &docker.buildkit())];
        for (name, builder) in builders {
            let build = builder.build(&[]);
            assert!(build.status.success(), "{given:?}, {name}: {build:?}");
        }
        docker.stop();
    }
    rig.down().unwrap();
}

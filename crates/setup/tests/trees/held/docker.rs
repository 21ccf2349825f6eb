//! The hold of dockerd's BuildKit.

use super::{DOCKER, KINDS, document, held, set_aside};
use crate::support::{TestSystem, refusal, there_and_back};

#[test]
fn dockerd_holds_the_databases_of_its_buildkit_and_nothing_else() {
    let kind = &KINDS[1];
    let old = "Docker version 20.10.24+dfsg1, build 5d6db84";
    let new = "Docker version 28.3.0, build 265f709647";
    let usual = ["cache.db", "containerdmeta.db", "metadata_v2.db", "snapshots.db"];
    let history = ["cache.db", "containerdmeta.db", "history.db", "metadata_v2.db", "snapshots.db"];
    for (printed, names) in [(old, &usual[..]), (new, &history[..])] {
        for (config, root) in [("", "/var/lib/docker"), ("{\"data-root\": \"/srv/d\"}", "/srv/d")] {
            let tree = kind.tree().with(kind.config, config);
            there_and_back(&tree, DOCKER, printed);
            tree.set_up(DOCKER, printed).unwrap();
            let expected: Vec<_> =
                names.iter().map(|name| format!("{root}/buildkit/{name}")).collect();
            assert_eq!(held(&tree, "docker"), expected);
            assert_eq!(set_aside(&tree, "docker"), [format!("{root}/buildkit")]);
            assert_eq!(document(&tree, "docker")["docker_root"].as_str(), Some(root));
        }
    }
}

#[test]
fn dockerd_with_the_image_store_holds_its_worker_and_keeps_its_layers() {
    let worker = "/var/lib/docker/buildkit/containerd-overlayfs";
    let tree = KINDS[1].tree().with(&format!("{worker}/metadata_v2.db"), "");
    there_and_back(&tree, DOCKER, "");
    tree.set_up(DOCKER, "").unwrap();
    let buildkit = "/var/lib/docker/buildkit";
    let expected = [
        format!("{buildkit}/cache.db"),
        format!("{worker}/metadata_v2.db"),
        format!("{buildkit}/history_c8d.db"),
    ];
    assert_eq!(held(&tree, "docker"), expected);
    assert!(document(&tree, "docker").get("docker_root").is_none());
}

#[test]
fn dockerd_with_remapped_users_or_a_root_that_is_not_known_is_refused_with_the_line() {
    let kind = &KINDS[1];
    for (config, part) in [
        ("{\n\"userns-remap\": \"default\"}", "line 2: has \"userns-remap\""),
        ("{\n\"data-root\": 1}", "line 2: \"data-root\" is no text"),
        ("{\n\"data-root\": \"srv\"}", "line 2: gives \"srv\" as the directory"),
        ("{\n\"data-root\": \"/srv/a b\"}", "line 2: gives \"/srv/a b\""),
        ("[]", "line 1: is no JSON object"),
    ] {
        let tree = kind.tree().with(kind.config, config);
        let before = tree.snapshot();
        let printed = refusal(tree.set_up(DOCKER, ""));
        assert!(printed.contains(part), "{printed}");
        assert_eq!(before, tree.snapshot());
    }
    for flag in ["--userns-remap=default", "--data-root=/srv/%i", "-g $DATA"] {
        let unit = format!("[Service]\nExecStart=/usr/bin/dockerd {flag}\n");
        let tree = TestSystem::new().with("/etc/systemd/system/docker.service", &unit);
        let printed = refusal(tree.set_up(DOCKER, ""));
        assert!(printed.contains("docker.service, line 2: gives"), "{printed}");
    }
    let unit = "[Service]\nExecStart=/usr/bin/dockerd --data-root /srv/flag\n";
    let tree = TestSystem::new().with("/etc/systemd/system/docker.service", unit);
    there_and_back(&tree, DOCKER, "");
    tree.set_up(DOCKER, "").unwrap();
    assert_eq!(set_aside(&tree, "docker"), ["/srv/flag/buildkit"]);
}

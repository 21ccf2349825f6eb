//! dockerd: versions, flags, other runtimes, containers that name synconce's.

use super::support::{RUNTIME, TestSystem, refusal, there_and_back};
use synconce_setup::undo::Edits;
use synconce_setup::{Engine, HeldDaemon, still_in_use};

const CONFIG: &str = "/etc/docker/daemon.json";
const UNIT: &str = "/lib/systemd/system/docker.service";
const DROP_INS: &str = "/etc/systemd/system/docker.service.d";
const DROP_IN: &str = "/etc/systemd/system/docker.service.d/synconce.conf";
const STOCK_UNIT: &str = "[Unit]\nDescription=Docker Application Container Engine\n\n[Service]\n\
    Type=notify\nEnvironmentFile=-/etc/default/docker\n\
    ExecStart=/usr/sbin/dockerd -H fd:// \\\n  --containerd=/run/containerd/containerd.sock $DOCKER_OPTS\n\
    ExecReload=/bin/kill -s HUP $MAINPID\n";
const OLD: &str = "Docker version 20.10.24+dfsg1, build 5d6db84";
const LAST_OLD: &str = "Docker version 25.0.6, build 032797e";
const FIRST_NEW: &str = "Docker version 26.0.0, build 8b79278";

fn tree() -> TestSystem {
    TestSystem::new().program("/usr/sbin/dockerd").with(UNIT, STOCK_UNIT)
}

fn notes(tree: &TestSystem, printed: &'static str) -> String {
    tree.plan(Engine::Docker, printed).unwrap().notes.join("\n")
}

#[test]
fn a_file_that_is_absent_becomes_what_dockerd_takes() {
    let tree = tree();
    tree.set_up(Engine::Docker, OLD).unwrap();
    let config: serde_json::Value = serde_json::from_str(&tree.read(CONFIG)).unwrap();
    let expected = serde_json::json!({
        "default-runtime": "synconce",
        "runtimes": {"synconce": {"path": RUNTIME}}
    });
    assert_eq!(config, expected);
}

#[test]
fn before_version_26_the_embedded_buildkit_is_reached_by_path() {
    for printed in [OLD, LAST_OLD] {
        let tree = tree();
        there_and_back(&tree, Engine::Docker, printed);
        assert!(
            notes(&tree, printed)
                .contains("because it knows DOCKER_BUILDKIT_RUNC_COMMAND only from v26")
        );
        tree.set_up(Engine::Docker, printed).unwrap();
        let path = "Environment=PATH=/usr/local/lib/synconce/docker:/usr/local/sbin:";
        assert!(tree.read(DROP_IN).contains(path));
        let link = std::fs::read_link(tree.real("/usr/local/lib/synconce/docker/runc")).unwrap();
        assert_eq!(link.to_str(), Some(RUNTIME));
    }
}

#[test]
fn from_version_26_the_embedded_buildkit_is_reached_by_its_variable() {
    for printed in [FIRST_NEW, "Docker version 28.3.0, build 38b7060"] {
        let tree = tree();
        there_and_back(&tree, Engine::Docker, printed);
        tree.set_up(Engine::Docker, printed).unwrap();
        let setting = format!("[Service]\nEnvironment=DOCKER_BUILDKIT_RUNC_COMMAND={RUNTIME}\n");
        assert!(tree.read(DROP_IN).ends_with(&setting));
        assert!(!tree.real("/usr/local/lib").exists());
    }
}

#[test]
fn without_dockerd_or_its_version_the_setting_of_all_versions_is_used() {
    let tree = TestSystem::new();
    assert!(notes(&tree, "").contains("without a dockerd that says its version"));
    tree.set_up(Engine::Docker, "").unwrap();
    assert!(tree.read(DROP_IN).contains("Environment=PATH="));
    assert!(
        notes(&TestSystem::new().program("/usr/bin/dockerd"), "")
            .contains("does not say its version")
    );
}

#[test]
fn for_a_dockerd_without_systemd_the_variable_is_shown_for_the_operator() {
    let tree = TestSystem::new().program("/usr/bin/dockerd");
    let printed = notes(&tree, FIRST_NEW);
    assert!(printed.contains("start dockerd with DOCKER_BUILDKIT_RUNC_COMMAND="), "{printed}");
    tree.set_up(Engine::Docker, FIRST_NEW).unwrap();
    assert!(!tree.real(DROP_IN).exists());
}

#[test]
fn a_path_of_the_service_comes_after_the_added_directory() {
    let tree = tree().with(
        &format!("{DROP_INS}/10-path.conf"),
        "[Service]\nEnvironment=\"HTTP_PROXY=http://a b\" PATH=/opt/bin:/usr/bin\n",
    );
    there_and_back(&tree, Engine::Docker, OLD);
    tree.set_up(Engine::Docker, OLD).unwrap();
    assert!(tree.read(DROP_IN).contains("PATH=/usr/local/lib/synconce/docker:/opt/bin:/usr/bin\n"));
}

#[test]
fn a_variable_that_would_override_the_new_one_is_refused_with_its_line() {
    let later = format!("{DROP_INS}/zz.conf");
    for (path, content, line, printed) in [
        (later.as_str(), "[Service]\nEnvironment=PATH=/opt/bin\n", "zz.conf, line 2", OLD),
        (
            later.as_str(),
            "[Service]\nEnvironment=\nEnvironment=A=1\n",
            "zz.conf, line 2",
            FIRST_NEW,
        ),
        ("/etc/default/docker", "# PATH=no\n\nPATH=/opt/bin\n", "default/docker, line 3", OLD),
        (
            "/etc/default/docker",
            "DOCKER_BUILDKIT_RUNC_COMMAND=crun\n",
            "default/docker, line 1",
            FIRST_NEW,
        ),
    ] {
        let tree = tree().with(path, content);
        let before = tree.snapshot();
        let refused = refusal(tree.set_up(Engine::Docker, printed));
        assert!(refused.contains(line) && refused.contains("wins over"), "{refused}");
        assert_eq!(before, tree.snapshot());
    }
}

#[test]
fn flags_that_dockerd_takes_only_once_are_refused_with_their_line() {
    let override_unit =
        "[Service]\nExecStart=\nExecStart=/usr/sbin/dockerd --default-runtime=runc\n";
    let options = "DOCKER_OPTS=\"--dns 8.8.8.8 --add-runtime crun=/usr/bin/crun\"\n";
    let own = format!("{DROP_INS}/override.conf");
    for (path, content, line) in [
        (own.as_str(), override_unit, "override.conf, line 3: gives dockerd --default-runtime"),
        ("/etc/default/docker", options, "default/docker, line 1: gives dockerd --add-runtime"),
    ] {
        let tree = tree().with(path, content);
        let printed = refusal(tree.set_up(Engine::Docker, OLD));
        assert!(printed.contains(line), "{printed}");
    }
    // The first drop-in file resets the flag.
    let tree = tree()
        .with(UNIT, "[Service]\nExecStart=/usr/sbin/dockerd --default-runtime=crun\n")
        .with(&own, "[Service]\nExecStart=\nExecStart=/usr/sbin/dockerd\n");
    there_and_back(&tree, Engine::Docker, OLD);
}

#[test]
fn the_configuration_file_of_dockerds_option_is_edited() {
    let unit = "[Service]\nExecStart=/usr/sbin/dockerd --config-file /srv/docker.json\n";
    let tree = TestSystem::new().with(UNIT, unit).with("/srv/docker.json", "{}");
    there_and_back(&tree, Engine::Docker, OLD);
    tree.set_up(Engine::Docker, OLD).unwrap();
    assert!(tree.read("/srv/docker.json").contains(RUNTIME));
    assert!(!tree.real(CONFIG).exists());
}

#[test]
fn what_would_be_changed_twice_is_not() {
    let content = format!(
        "{{\"default-runtime\":\"synconce\",\"runtimes\":{{\"synconce\":{{\"path\":\"{RUNTIME}\"}}}}}}"
    );
    let tree = tree().with(CONFIG, &content);
    tree.set_up(Engine::Docker, OLD).unwrap();
    assert_eq!(tree.read(CONFIG), content);
}

#[test]
fn containers_that_could_not_be_started_any_more_stand_in_the_way_of_an_undo() {
    let tree = tree().with(CONFIG, "{\"data-root\": \"/srv/docker\"}");
    tree.set_up(Engine::Docker, OLD).unwrap();
    let host = tree.host(OLD);
    tree.write("/srv/docker/containers/0123456789abcdef/hostconfig.json", "{\"Runtime\":\"runc\"}");
    assert!(still_in_use(Engine::Docker, &host).unwrap().is_none());
    tree.write(
        "/srv/docker/containers/fedcba9876543210/hostconfig.json",
        "{\"Runtime\":\"synconce\"}",
    );
    let printed = still_in_use(Engine::Docker, &host).unwrap().unwrap().to_string();
    assert!(
        printed.contains("/srv/docker/containers") && printed.ends_with(": fedcba987654"),
        "{printed}"
    );
}

#[test]
fn containers_of_a_dockerd_with_userns_remap_stand_in_the_way_of_an_undo() {
    let tree = tree().with(CONFIG, "{\"userns-remap\": \"default\"}");
    tree.set_up(Engine::Docker, OLD).unwrap();
    // dockerd has the data of a remapped root in `UID.GID` (daemon_unix.go, setupDaemonRoot).
    let records = "/var/lib/docker/100000.100000/containers";
    tree.write(
        &format!("{records}/0123456789abcdef/hostconfig.json"),
        "{\"Runtime\":\"synconce\"}",
    );
    let refused = still_in_use(Engine::Docker, &tree.host(OLD)).unwrap();
    let printed = refused.map(|refused| refused.to_string()).unwrap_or_default();
    assert!(printed.contains(records) && printed.ends_with(": 0123456789ab"), "{printed}");
}

#[test]
fn a_path_with_a_space_stays_one_word() {
    let path = format!("{DROP_INS}/10-path.conf");
    let tree = tree().with(&path, "[Service]\nEnvironment=\"PATH=/opt/my tools:/usr/bin\"\n");
    there_and_back(&tree, Engine::Docker, OLD);
    tree.set_up(Engine::Docker, OLD).unwrap();
    let setting = "\nEnvironment=\"PATH=/usr/local/lib/synconce/docker:/opt/my tools:/usr/bin\"\n";
    assert!(tree.read(DROP_IN).contains(setting));
    tree.write(&path, "[Service]\nEnvironment=\"PATH=/opt/my\\x20tools:/usr/bin\"\n");
    let printed = refusal(tree.set_up(Engine::Docker, OLD));
    assert!(
        printed.contains("10-path.conf, line 2: sets a PATH whose value only systemd"),
        "{printed}"
    );
}

#[test]
fn a_command_that_does_not_execute_dockerd_itself_is_refused_with_its_line() {
    for command in [
        "/bin/sh -c \"exec dockerd --default-runtime=crun\"",
        "-/usr/bin/env DOCKER_BUILDKIT_RUNC_COMMAND=crun /usr/sbin/dockerd",
    ] {
        let unit = format!("[Service]\nType=notify\nExecStart={command}\n");
        let tree = tree().with(UNIT, &unit);
        let before = tree.snapshot();
        let printed = refusal(tree.set_up(Engine::Docker, OLD));
        assert!(printed.contains("docker.service, line 3: starts /"), "{printed}");
        assert!(printed.contains("not dockerd itself"), "{printed}");
        assert_eq!(before, tree.snapshot());
    }
}

#[test]
fn a_byte_order_mark_and_line_ends_of_windows_stay_and_are_undone() {
    for content in [
        "\u{feff}{\n  \"debug\": true\n}\n",
        "{\r\n  \"debug\": true\r\n}\r\n",
        "\u{feff}{\r\n  \"debug\": true,\r\n  \"data-root\": \"/srv/docker\"\r\n}",
        "{\r\n  \"debug\": true\n}\r\n",
    ] {
        for engine in [Engine::Docker, Engine::Held(HeldDaemon::Docker)] {
            let tree = tree().with(CONFIG, content);
            let before = std::fs::read(tree.real(CONFIG)).unwrap();
            there_and_back(&tree, engine, FIRST_NEW);
            assert_eq!(std::fs::read(tree.real(CONFIG)).unwrap(), before, "{content:?}");
        }
        let tree = tree().with(CONFIG, content);
        tree.set_up(Engine::Docker, FIRST_NEW).unwrap();
        let edited = tree.read(CONFIG);
        let first = content.find("true").unwrap() + 4;
        assert!(edited.starts_with(&content[..first]), "{edited:?}");
        let text = edited.trim_start_matches('\u{feff}');
        let config: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(config["default-runtime"], "synconce");
    }
}

#[test]
fn where_another_runtime_is_the_default_builds_alone_are_set_up() {
    let unit = "[Service]\nExecStart=/usr/sbin/dockerd --default-runtime=nvidia\n";
    let config = |name: &str, path: &str| {
        format!(
            "{{\"runtimes\": {{\"{name}\": {{\"path\": \"{path}\"}}}},\n\"default-runtime\": \"{name}\"}}"
        )
    };
    for (path, content, said) in [
        (CONFIG, config("nvidia", "nvidia-container-runtime"), "daemon.json, line 2: the default"),
        (CONFIG, config("gvisor", "/usr/local/bin/runsc"), "stays gvisor: only builds are held"),
        (UNIT, unit.to_owned(), "docker.service, line 2: the default runtime stays nvidia"),
    ] {
        for printed in [OLD, FIRST_NEW, ""] {
            let tree = tree().with(CONFIG, "{ }").with(path, &content);
            there_and_back(&tree, Engine::Docker, printed);
            assert!(notes(&tree, printed).contains(said), "{}", notes(&tree, printed));
            let before = tree.read(CONFIG);
            tree.set_up(Engine::Docker, printed).unwrap();
            assert_eq!(tree.read(CONFIG), before);
            let path = "\nEnvironment=PATH=/usr/local/lib/synconce/docker-builds:/usr/local/sbin:";
            assert!(tree.read(DROP_IN).contains(path), "{}", tree.read(DROP_IN));
            let link = tree.real("/usr/local/lib/synconce/docker-builds/runc");
            assert_eq!(std::fs::read_link(link).unwrap().to_str(), Some(RUNTIME));
        }
    }
}

#[test]
fn builds_alone_stay_set_up_until_they_are_undone_and_not_beside_a_whole_set_up() {
    let tree = tree();
    let before = tree.snapshot();
    assert_eq!(tree.set_up_builds(FIRST_NEW).unwrap(), 2);
    assert!(!tree.real(CONFIG).exists());
    assert_eq!(tree.set_up(Engine::Docker, FIRST_NEW).unwrap(), 0);
    // A part that is gone is made again, and no more.
    for part in [DROP_IN, "/usr/local/lib/synconce/docker-builds/runc"] {
        std::fs::remove_file(tree.real(part)).unwrap();
        assert_eq!(tree.set_up(Engine::Docker, FIRST_NEW).unwrap(), 1, "{part}");
    }
    let record = "/var/lib/docker/containers/0123456789abcdef/hostconfig.json";
    tree.write(record, "{\"Runtime\":\"synconce\"}");
    assert!(still_in_use(Engine::Docker, &tree.host(FIRST_NEW)).unwrap().is_none());
    std::fs::remove_dir_all(tree.real("/var/lib/docker")).unwrap();
    tree.undo(Engine::Docker, Edits::Refuse).unwrap();
    assert_eq!(before, tree.snapshot());

    tree.set_up(Engine::Docker, FIRST_NEW).unwrap();
    let refused = refusal(tree.set_up_builds(FIRST_NEW));
    assert!(refused.contains("daemon.json, line 2: has \"synconce\" as the default"), "{refused}");
}

#[test]
fn a_variable_that_wins_over_the_path_of_builds_alone_is_refused_with_its_line() {
    let first = format!("{DROP_INS}/10-path.conf");
    for (path, content, line) in [
        ("/etc/default/docker", "DOCKER_BUILDKIT_RUNC_COMMAND=crun\n", "default/docker, line 1"),
        (
            &first,
            "[Service]\nEnvironment=DOCKER_BUILDKIT_RUNC_COMMAND=crun\n",
            "10-path.conf, line 2",
        ),
        ("/etc/default/docker", "\nPATH=/opt/bin\n", "default/docker, line 2"),
    ] {
        let tree = tree().with(path, content);
        let before = tree.snapshot();
        let refused = refusal(tree.set_up_builds(FIRST_NEW));
        assert!(refused.contains(line), "{refused}");
        assert_eq!(before, tree.snapshot());
    }
}

#[test]
fn another_default_runtime_over_a_whole_set_up_does_not_hide_the_containers_that_need_it() {
    let tree = tree();
    tree.set_up(Engine::Docker, FIRST_NEW).unwrap();
    // Another program makes its own runtime the default.
    let config = tree.read(CONFIG).replacen(": \"synconce\"", ": \"nvidia\"", 1);
    tree.write(CONFIG, &config);
    tree.set_up(Engine::Docker, FIRST_NEW).unwrap();
    assert_eq!(tree.read(CONFIG), config);
    let record = "/var/lib/docker/containers/0123456789abcdef/hostconfig.json";
    tree.write(record, "{\"Runtime\":\"synconce\"}");
    let refused = still_in_use(Engine::Docker, &tree.host(FIRST_NEW)).unwrap();
    assert!(refused.is_some_and(|refused| refused.to_string().ends_with(": 0123456789ab")));
}

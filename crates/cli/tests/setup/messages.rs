//! The messages of `synconce setup`, where they are printed, and the exit codes.

use super::place::{EndedCommand, SYNCONCE, TestRoot};
use std::process::Command;

#[test]
fn a_set_up_prints_what_it_wrote_and_that_the_daemon_has_to_be_restarted() {
    let place = TestRoot::new("says");
    let ended = place.setup(&["docker"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    for part in ["edited ", "wrote ", "dockerd in ", "does not say its version"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    // systemctl would restart the daemon of the running system.
    assert!(!ended.stderr.contains("systemctl"), "{ended:?}");
    let again = place.setup(&["docker"]);
    let message = "synconce: docker is set up already: nothing was changed\n";
    assert_eq!((again.code, again.stderr.as_str()), (Some(0), message));
    let undone = place.setup(&["docker", "--undo"]);
    assert!(undone.code == Some(0) && undone.stderr.contains("restored "), "{undone:?}");
    let again = place.setup(&["docker", "--undo"]);
    let message = "synconce: docker was not set up by synconce: there is nothing to undo\n";
    assert_eq!((again.code, again.stderr.as_str()), (Some(0), message));
}

#[test]
fn a_check_says_whether_the_roots_of_build_steps_are_volatile() {
    let place = TestRoot::new("roots");
    assert_eq!(place.setup(&["docker"]).code, Some(0));
    let says = |text: &str, code: i32, part: &str| {
        let file = place.root.join("etc/synconce/oci.toml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
        let ended = place.setup(&["docker", "--check"]);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    };
    says("", 0, "synconce: overlay roots of build steps are volatile\n");
    let kept = "synconce: overlay roots of build steps are not volatile: step-root = \"as-mounted\" is in ";
    says("step-root = \"as-mounted\"\n", 0, kept);
    says("step-rot = \"volatile\"\n", 1, "synconce: no container starts: cannot understand ");
    // No container has shown it.
    let held = "synconce: by the files of the set-up, a build step is held";
    says("", 0, &format!("{held}, an ordinary container is not\n"));
    let rule = "synconce: a build step is not held: rule 1 of /etc/synconce/oci.toml; edit ";
    says("[[rule]]\nhold = false\n", 1, rule);
    let both = format!("{held}, and so is an ordinary container: rule 1 of ");
    says("[[rule]]\nhold = true\n", 0, &both);
    let json = place.setup(&["docker", "--check", "--json"]);
    assert!(json.stdout.contains("\"faults\": []"), "{json:?}");
}

#[test]
fn an_engine_that_is_not_installed_is_said_before_anything_else() {
    let place = TestRoot::new("absent");
    std::fs::remove_file(place.root.join("usr/bin/dockerd")).unwrap();
    let root = place.root.display();
    for (words, program) in [
        (&["docker"][..], "dockerd is"),
        (&["docker"], "dockerd is"),
        (&["docker", "--check"], "dockerd is"),
        (&["buildkit", "--dry-run"], "buildkitd is"),
        (&["podman"], "podman and buildah are"),
    ] {
        let ended = place.setup(words);
        let first =
            format!("synconce: {program} not installed in {root}; the set-up takes effect later");
        assert_eq!(ended.stderr.lines().next(), Some(&*first), "{words:?} {ended:?}");
    }
    let json = place.setup(&["buildkit", "--dry-run", "--json"]);
    assert!(json.stdout.contains("\"buildkitd is not installed") && json.stderr.is_empty());
}

#[test]
fn a_dry_run_shows_a_diff_and_writes_nothing() {
    let place = TestRoot::new("dry");
    let before = place.snapshot();
    let ended = place.setup(&["docker", "--dry-run"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.ends_with("dry run: nothing was written\n"), "{ended:?}");
    let config = place.root.join("etc/docker/daemon.json");
    let head = format!("--- {0}\n+++ {0}\n@@ -1,3 +1,9 @@\n {{\n", config.display());
    assert!(ended.stdout.starts_with(&head), "{}", ended.stdout);
    assert!(ended.stdout.contains("\n+  \"default-runtime\": \"synconce\",\n"), "{}", ended.stdout);
    assert_eq!(before, place.snapshot());
    assert!(!place.root.join("var").exists());
    place.setup(&["docker"]);
    let after = place.snapshot();
    let back = place.setup(&["docker", "--undo", "--dry-run"]);
    assert!(back.stdout.contains("\n-  \"default-runtime\": \"synconce\",\n"), "{}", back.stdout);
    assert_eq!(after, place.snapshot());
}

#[test]
fn every_command_that_is_printed_for_another_system_has_its_root() {
    let place = TestRoot::new("it's another root");
    let root = place.root.to_str().unwrap().replace('\'', r"'\''");
    place.program("usr/bin/synconce");
    place.program("usr/bin/containerd");
    place.write("etc/containerd/config.toml", "version = 1\n");
    let version_1 =
        format!("containerd --config '{root}/etc/containerd/config.toml' config migrate");
    let setup = |words: &str| format!("synconce setup {words} --root '{root}'");
    for (words, command) in [
        (&["containerd"][..], version_1),
        (&["kubernetes", "--check"], setup("containerd") + " --check"),
        (&["docker", "--check"], setup("docker")),
    ] {
        let ended = place.setup(words);
        assert_ne!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.ends_with(&format!("{command}\n")), "{command}: {}", ended.stderr);
    }
    // The last command works.
    let script = format!("{SYNCONCE} {}", setup("docker").trim_start_matches("synconce "));
    let ended = EndedCommand::run(Command::new("sh").args(["-c", &script]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let edited = place.read("etc/docker/daemon.json");
    let edited = edited.replace("synconce-oci\"", "synconce-oci\", \"runtimeArgs\": []");
    place.write("etc/docker/daemon.json", &edited);
    let ended = place.setup(&["docker", "--undo"]);
    let lost = format!("; or: {} --undo --force, which saves your file\n", setup("docker"));
    assert!(ended.code == Some(125) && ended.stderr.ends_with(&lost), "{}", ended.stderr);
}

#[test]
fn a_refusal_names_file_and_line_hints_at_the_remedy_and_is_exit_code_125() {
    let place = TestRoot::new("refused");
    place.write("etc/docker/daemon.json", "{\n  \"runtimes\": []\n}\n");
    let before = place.snapshot();
    let ended = place.setup(&["docker"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(125), ""));
    let said = "daemon.json, line 2: \"runtimes\" is no object\nsynconce: hint: repair the file";
    assert!(ended.stderr.contains(said), "{ended:?}");
    assert_eq!(before, place.snapshot());
}

#[test]
fn builds_alone_are_set_up_where_asked_for_or_where_another_runtime_is_the_default() {
    let place = TestRoot::new("builds");
    let green = || {
        let ended = place.setup(&["docker", "--check"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("synconce: docker --builds-only is set up\n"), "{ended:?}");
    };
    let before = place.snapshot();
    let red = place.setup(&["docker", "--builds-only", "--check"]);
    let said =
        "docker --builds-only is not set up: it would be by synconce setup docker --builds-only ";
    assert!(red.code == Some(1) && red.stderr.contains(said), "{red:?}");
    assert_eq!(place.setup(&["docker", "--builds-only"]).code, Some(0));
    green();
    let said = "synconce: docker --builds-only is set up already: nothing was changed\n";
    let again = place.setup(&["docker", "--builds-only"]);
    assert_eq!((again.code, again.stderr.as_str()), (Some(0), said));
    let root = place.root.display();
    let other = format!(
        "{said}synconce: for all containers, not only builds: synconce setup docker --undo \
         --root {root} && synconce setup docker --root {root}\n"
    );
    let again = place.setup(&["docker"]);
    assert_eq!((again.code, again.stderr), (Some(0), other));
    assert_eq!(place.setup(&["docker", "--undo"]).code, Some(0));
    assert_eq!(before, place.snapshot());

    let nvidia = "{\n  \"default-runtime\": \"nvidia\"\n}\n";
    place.write("etc/docker/daemon.json", nvidia);
    let ended = place.setup(&["docker"]);
    let said = "daemon.json, line 2: the default runtime stays nvidia: only builds are held\n";
    assert!(ended.code == Some(0) && ended.stderr.contains(said), "{ended:?}");
    assert_eq!(place.read("etc/docker/daemon.json"), nvidia);
    green();
    // An undo would not help: the other runtime is the reason.
    let again = place.setup(&["docker"]);
    let part = "the default runtime stays nvidia: only builds are held\n";
    assert!(again.code == Some(0) && again.stderr.ends_with(part), "{again:?}");
    for engine in ["podman", "apt"] {
        let refused = place.setup(&[engine, "--builds-only"]);
        let said = format!(
            "synconce: cannot set up builds only: {engine} has no such choice\n\
             synconce: hint: synconce setup {engine} --root {}\n",
            place.root.display()
        );
        assert_eq!((refused.code, refused.stderr), (Some(125), said));
    }
    // `setup docker --undo` takes back both set-ups.
    assert_eq!(place.setup(&["docker", "--builds-only", "--undo"]).code, Some(125));
}

#[test]
fn a_file_system_that_is_read_only_is_named_and_nothing_is_changed() {
    let place = TestRoot::new("read-only");
    let before = place.snapshot();
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(&place.root).arg(SYNCONCE);
    let ended = EndedCommand::run(command.args(place.arguments(&["docker"])));
    assert_eq!(ended.code, Some(125), "{ended:?}");
    let message = "synconce: cannot create ";
    assert!(
        ended.stderr.starts_with(message) && ended.stderr.contains(": Read-only file system"),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("hint: make the file system writable"), "{ended:?}");
    assert_eq!(before, place.snapshot());
}

#[test]
fn what_cannot_be_written_after_the_journal_is_named_and_leaves_no_journal() {
    let place = TestRoot::new("half");
    let before = place.snapshot();
    // The journal can be written, but the file cannot.
    let script = "mount --bind \"$0/etc\" \"$0/etc\" && mount -o remount,bind,ro \"$0/etc\" && \
                  exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(&place.root).arg(SYNCONCE);
    let ended = EndedCommand::run(command.args(place.arguments(&["docker"])));
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(ended.stderr.contains("daemon.json: Read-only file system"), "{ended:?}");
    assert!(!place.root.join("var/lib/synconce/setup").exists(), "nothing is to be undone");
    // A set-up that was killed before its first change leaves a journal.
    assert_eq!(place.setup(&["docker"]).code, Some(0));
    let journal = place.read("var/lib/synconce/setup/docker/journal.json");
    assert_eq!(place.setup(&["docker", "--undo"]).code, Some(0));
    place.write("var/lib/synconce/setup/docker/journal.json", &journal.replace("true", "false"));
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(&place.root).arg(SYNCONCE);
    let undone = EndedCommand::run(command.args(place.arguments(&["docker", "--undo"])));
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert_eq!(before, place.snapshot());
}

#[test]
fn kubernetes_gets_a_manifest_on_standard_output_and_nothing_is_changed() {
    let place = TestRoot::new("kubernetes");
    let before = place.snapshot();
    let ended = place.setup(&["kubernetes"]);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.starts_with("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\n"));
    assert!(ended.stderr.contains("packaging/helm/synconce"), "{ended:?}");
    let undone = place.setup(&["kubernetes", "--undo"]);
    assert_eq!((undone.code, undone.stdout.as_str()), (Some(0), ""));
    let first = undone.stderr.lines().next().unwrap();
    assert!(first.ends_with("away by `kubectl delete runtimeclass synconce`"), "{undone:?}");
    assert!(!undone.stderr.contains("apply"), "{undone:?}");
    assert_eq!(before, place.snapshot());
}

#[test]
fn an_engine_that_is_not_known_is_exit_code_125() {
    let place = TestRoot::new("unknown");
    assert_eq!(place.setup(&["rkt"]).code, Some(125));
    assert_eq!(place.setup(&["docker", "--force"]).code, Some(125));
}

#[test]
fn containers_that_name_the_runtime_stand_in_the_way_of_an_undo_unless_forced() {
    let place = TestRoot::new("in-use");
    let before = place.snapshot();
    place.setup(&["docker"]);
    let path = "var/lib/docker/containers/0123456789abcdef/hostconfig.json";
    place.write(path, "{\"Runtime\":\"synconce\"}");
    let ended = place.setup(&["docker", "--undo"]);
    assert!(ended.code == Some(125) && ended.stderr.contains("0123456789ab"), "{ended:?}");
    assert!(place.read("etc/docker/daemon.json").contains("synconce"));
    assert_eq!(place.setup(&["docker", "--undo", "--force"]).code, Some(0));
    assert_eq!(before, place.snapshot());
}

#[test]
fn a_refused_undo_prints_the_lines_of_the_edit_alone() {
    let place = TestRoot::new("edit");
    // The set-up makes the file.
    std::fs::remove_file(place.root.join("etc/docker/daemon.json")).unwrap();
    assert_eq!(place.setup(&["docker"]).code, Some(0));
    let config = place.read("etc/docker/daemon.json");
    let edited = config.replacen("      \"path\"", "      \"runtimeArgs\": [],\n      \"path\"", 1);
    place.write("etc/docker/daemon.json", &edited);
    let refused = place.setup(&["docker", "--undo"]);
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(refused.stderr.contains("nothing was changed. The edit:\n"), "{refused:?}");
    let added: Vec<_> =
        refused.stderr.lines().filter(|line| line.starts_with("synconce: +")).collect();
    assert!(matches!(added[..], [_, "synconce: +      \"runtimeArgs\": [],"]), "{refused:?}");
    assert!(!refused.stderr.contains("\\n"), "{refused:?}");
}

#[test]
fn an_undo_by_force_ignores_an_unreadable_unit_and_prints_where_the_edit_is_saved() {
    let place = TestRoot::new("forced");
    place.setup(&["docker"]);
    let config = place.read("etc/docker/daemon.json");
    let edited = config.replace("\"debug\": true", "\"debug\": false");
    place.write("etc/docker/daemon.json", &edited);
    let unit = place.root.join("lib/systemd/system/docker.service");
    std::fs::write(unit, b"[Service]\n# \xff\n").unwrap();
    assert_eq!(place.setup(&["docker", "--undo"]).code, Some(125));
    let before = place.snapshot();
    let dry = place.setup(&["docker", "--undo", "--force", "--dry-run"]);
    assert_eq!((dry.code, place.snapshot() == before), (Some(0), true), "{dry:?}");
    let undone = place.setup(&["docker", "--undo", "--force"]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert_eq!(place.read("etc/docker/daemon.json"), "{\n  \"debug\": true\n}\n");
    let message = "daemon.json is saved as ";
    let saved = undone.stderr.lines().find_map(|line| Some(line.split_once(message)?.1)).unwrap();
    assert!(saved.contains("var/lib/synconce/setup/docker/"), "{saved}");
    assert_eq!(std::fs::read_to_string(saved).unwrap(), edited);
    let notice = format!("daemon.json would be saved as {saved}\n");
    assert!(dry.stderr.contains(&notice), "{}", dry.stderr);
}

#[test]
fn a_dpkg_that_was_removed_with_the_directory_of_the_programs_is_named_by_its_path() {
    let place = TestRoot::new("apt-lost");
    for program in ["usr/bin/synconce", "usr/bin/dpkg"] {
        place.program(program);
    }
    place.write("var/lib/dpkg/diversions", "");
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    let set_up = place.snapshot();
    let (programs, lost) = ("usr/lib/synconce/diverted", "var/lost");
    std::fs::rename(place.root.join(programs), place.root.join(lost)).unwrap();
    for (words, code, remedy) in [
        (&["apt", "--check"][..], 1, "; put that file back"),
        (&["apt"], 125, "\nsynconce: hint: put that file back"),
    ] {
        let ended = place.setup(words);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let real = place.root.join(programs).join("dpkg");
        let reason = "dpkg: is a wrapper, and its program is gone";
        let said = format!("{reason}: {}{remedy}", real.display());
        assert!(ended.stderr.contains(&said), "{ended:?}");
    }
    std::fs::rename(place.root.join(lost), place.root.join(programs)).unwrap();
    assert_eq!(set_up, place.snapshot());
    assert_eq!(place.setup(&["apt", "--check"]).code, Some(0));
}

/// The author of an image can write such a file: many files of a host have contents that are known.
#[test]
fn a_journal_that_leads_out_of_the_target_undoes_nothing() {
    let place = TestRoot::new("journal-outside");
    assert_eq!(place.setup(&["docker"]).code, Some(0));
    let above = place.root.parent().unwrap();
    let outside = above.join("journal-outside.json");
    let config = place.read("etc/docker/daemon.json");
    std::fs::write(&outside, &config).unwrap();
    std::os::unix::fs::symlink(above.canonicalize().unwrap(), place.root.join("link")).unwrap();
    let journal = "var/lib/synconce/setup/docker/journal.json";
    let written = place.read(journal);
    for path in ["/../journal-outside.json", "/link/journal-outside.json"] {
        place.write(journal, &written.replace("/etc/docker/daemon.json", path));
        let undone = place.setup(&["docker", "--undo"]);
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), config, "{path}: {undone:?}");
        assert_eq!(undone.code, Some(125), "{path}: {undone:?}");
        assert!(undone.stderr.contains("journal.json: names "), "{path}: {undone:?}");
    }
    std::fs::remove_file(&outside).unwrap();
}

/// The directory of the journal would otherwise be one of the host.
#[test]
fn a_journal_behind_a_link_is_neither_written_nor_removed() {
    let place = TestRoot::new("journal-link");
    let outside = place.root.parent().unwrap().join("journal-link-host");
    let _ = std::fs::remove_dir_all(&outside);
    std::fs::create_dir_all(outside.join("docker")).unwrap();
    std::fs::create_dir_all(place.root.join("var/lib/synconce")).unwrap();
    std::os::unix::fs::symlink(&outside, place.root.join("var/lib/synconce/setup")).unwrap();
    let before = place.snapshot();
    let set_up = place.setup(&["docker"]);
    assert_eq!(set_up.code, Some(125), "{set_up:?}");
    assert!(set_up.stderr.contains("setup/docker/journal.json: is behind a link"), "{set_up:?}");
    assert_eq!(before, place.snapshot());
    let journal = outside.join("docker/journal.json");
    assert!(!journal.exists());
    std::fs::write(&journal, r#"{"version":1,"files":[],"directories":[],"levels":0}"#).unwrap();
    assert_eq!(place.setup(&["docker", "--undo"]).code, Some(125));
    assert!(journal.exists());
    // The last name may be a link, too.
    std::fs::remove_file(place.root.join("var/lib/synconce/setup")).unwrap();
    std::fs::create_dir_all(place.root.join("var/lib/synconce/setup/docker")).unwrap();
    let link = place.root.join("var/lib/synconce/setup/docker/journal.json");
    std::os::unix::fs::symlink(&journal, &link).unwrap();
    assert_eq!(place.setup(&["docker", "--undo"]).code, Some(125));
    assert!(journal.exists() && link.is_symlink());
    std::fs::remove_dir_all(&outside).unwrap();
}

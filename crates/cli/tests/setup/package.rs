//! The scripts of the Debian package, on a directory that stands for a system.

use super::kept::of_another_version;
use super::place::{EndedCommand, SYNCONCE, TestRoot};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use synconce_testkit::harness::contents_below;

const PRERM: &str = include_str!("../../../../packaging/debian/synconce.prerm");
const POSTINST: &str = include_str!("../../../../packaging/debian/synconce.postinst");
const POSTRM: &str = include_str!("../../../../packaging/debian/synconce.postrm");

/// Runs a maintainer script for `place`. The words after `synconce` get `--root`.
fn run(place: &TestRoot, script: &str, word: &str) -> EndedCommand {
    let root = place.root.to_str().expect("a path of ours");
    let mut script = script.to_owned();
    let paths = "/var/lib/synconce /usr/lib/synconce /etc/synconce /etc/systemd /run/systemd \
                 /run/synconce /run/motd /usr/local/lib/systemd /etc/docker /etc/default \
                 /var/lib/rancher /etc/containers /etc/containerd /etc/buildkit";
    for path in paths.split(' ') {
        script = script.replace(path, &format!("{root}{path}"));
    }
    // Journals and wrappers have paths without the root.
    script = script.replace(r#"\"$1\""#, &format!(r#"\"${{1#{root}}}\""#));
    script = script.replace("\"$program\"", &format!("\"{root}$program\""));
    script = script.replace(" /usr/bin/", &format!(" {root}/usr/bin/"));
    let tools = place.root.join("var/tools");
    script = script.replace("PATH=/usr/bin:", &format!("PATH={}:", tools.display()));
    script = script.replace("PATH=$PATH:/usr/local/", &format!("PATH={root}/usr/local/"));
    // Holds are of the running system only: their markers have a variable of their own.
    let tool = format!(
        "#!/bin/sh\n\
         [ \"$1\" != hold ] || SYNCONCE_STATE_DIR={root}/var/lib/synconce exec {SYNCONCE} \"$@\"\n\
         exec {SYNCONCE} \"$@\" --root {root}\n"
    );
    place.write("var/tools/synconce", &tool);
    fs::set_permissions(tools.join("synconce"), PermissionsExt::from_mode(0o755)).unwrap();
    // Another one, which no script may call.
    place.write("var/others/synconce", "#!/bin/sh\necho 'not of this package' >&2\nexit 1\n");
    let others = place.root.join("var/others");
    fs::set_permissions(others.join("synconce"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", others.display(), std::env::var("PATH").unwrap_or_default());
    EndedCommand::run(Command::new("sh").args(["-c", &script, "sh", word]).env("PATH", path))
}

/// Makes a system with a containerd and a dockerd.
fn place(name: &str) -> TestRoot {
    let place = TestRoot::new(name);
    fs::remove_dir_all(place.root.join("usr/local")).unwrap();
    for program in ["usr/bin/synconce", "usr/bin/containerd"] {
        place.program(program);
    }
    symlink("synconce", place.root.join("usr/bin/synconce-oci")).unwrap();
    let unit = "[Service]\nExecStart=/usr/bin/containerd\n";
    place.write("lib/systemd/system/containerd.service", unit);
    place.write("etc/containerd/config.toml", "version = 2\n");
    place
}

/// Adds a dpkg.
fn with_dpkg(place: &TestRoot) {
    place.program("usr/bin/dpkg");
    for path in ["status", "lock", "diversions"] {
        place.write(&format!("var/lib/dpkg/{path}"), "");
    }
}

#[test]
fn a_removal_undoes_every_set_up_and_a_purge_leaves_nothing() {
    let place = place("package");
    let before = place.snapshot();
    for words in
        [&["docker"][..], &["docker", "--hold"], &["containerd"], &["containerd", "--hold"]]
    {
        assert_eq!(place.setup(words).code, Some(0));
    }
    // An upgrade changes nothing.
    let after = place.snapshot();
    assert_eq!(run(&place, PRERM, "upgrade").code, Some(0));
    assert_eq!(after, place.snapshot());
    let removed = run(&place, PRERM, "remove");
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let mut undone: Vec<_> = removed.stdout.lines().collect();
    undone.sort_unstable();
    let names = ["containerd", "containerd --hold", "docker", "docker --hold"];
    assert_eq!(undone, names.map(|name| format!("synconce: undone: synconce setup {name}")));
    assert_eq!(before, place.snapshot());
    fs::create_dir_all(place.root.join("var/lib/synconce/holds")).unwrap();
    assert_eq!(run(&place, POSTRM, "purge").code, Some(0));
    assert!(!place.root.join("var/lib/synconce").exists());
    assert_eq!(before, place.snapshot());
}

/// apt can be the command of a run, by `synconce setup apt`. It then purges within that run.
#[test]
fn a_purge_keeps_the_marker_of_a_living_run() {
    let place = place("package-in-a-run");
    let runs = "var/lib/synconce/runs";
    for file in ["living.json", "living.private", "dead.json", "dead.private", ".dead.json.new"] {
        place.write(&format!("{runs}/{file}"), "{}");
    }
    // flock(1) would wait for a writer.
    let fifo = place.root.join(runs).join("fifo.json");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let living = ["living.json", "living.private"].map(|name| {
        let file = fs::File::open(place.root.join(runs).join(name)).unwrap();
        file.try_lock().unwrap();
        file
    });
    let left = || {
        let entries = fs::read_dir(place.root.join(runs)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // Another run may have registered another directory of markers.
    place.write("var/lib/synconce/directories/1000-0-0.json", "{}");
    place.write("run/synconce/counts/runs", "1");
    let purged = run(&place, POSTRM, "purge");
    assert_eq!(purged.code, Some(0), "{purged:?}");
    assert_eq!(left(), ["living.json", "living.private"]);
    assert!(place.root.join("var/lib/synconce/directories/1000-0-0.json").exists());
    assert!(!place.root.join("run/synconce").exists());
    let mut named: Vec<_> = purged.stderr.lines().collect();
    named.sort_unstable();
    let records = ["dead", "fifo"]
        .map(|id| format!("synconce: a run was cut short; its record is removed: {id}"));
    assert_eq!(named, records);
    // A child process of another test has the descriptors until it executes its program.
    for file in &living {
        file.unlock().unwrap();
    }
    assert_eq!(run(&place, POSTRM, "purge").code, Some(0));
    assert!(!place.root.join("var/lib/synconce").exists());
}

#[test]
fn set_ups_and_a_hold_of_another_copy_outlive_the_package() {
    let place = place("package-copy");
    with_dpkg(&place);
    // Comes first: the set-ups call this copy.
    for program in ["usr/local/bin/synconce", "usr/local/bin/synconce-oci"] {
        place.program(program);
    }
    for words in [&["docker"][..], &["containerd", "--hold"], &["apt"]] {
        assert_eq!(place.setup(words).code, Some(0));
    }
    let wrapper = place.read("usr/bin/dpkg");
    place.write("usr/bin/dpkg", &of_another_version(&wrapper));
    let before = place.snapshot();
    for (script, word) in [(POSTINST, "configure"), (PRERM, "remove")] {
        assert_eq!(run(&place, script, word).code, Some(0));
        assert_eq!(before, place.snapshot(), "{word}");
    }
    // Also if that copy is not in PATH.
    fs::rename(place.root.join("usr/local/bin"), place.root.join("opt")).unwrap();
    for path in ["holds/containerd.json", "runs/dead.json", "directories/1000-0-0.json"] {
        place.write(&format!("var/lib/synconce/{path}"), "{}");
    }
    let state = contents_below(&place.root.join("var/lib/synconce"));
    let purged = run(&place, POSTRM, "purge");
    assert!(purged.stderr.contains("/var/lib/synconce is left"), "{purged:?}");
    assert_eq!(state.len(), contents_below(&place.root.join("var/lib/synconce")).len());
    fs::rename(place.root.join("opt"), place.root.join("usr/local/bin")).unwrap();
    fs::remove_dir_all(place.root.join("var/lib/synconce/holds")).unwrap();
    for words in [&["docker"][..], &["containerd", "--hold"], &["apt"]] {
        let undone = place.setup(&[words, &["--undo"]].concat());
        assert!(undone.code == Some(0) && !undone.stderr.contains("nothing"), "{undone:?}");
    }

    // Without that copy the set-ups do not work any more.
    for words in [&["docker"][..], &["apt"]] {
        assert_eq!(place.setup(words).code, Some(0));
    }
    fs::remove_dir_all(place.root.join("usr/local/bin")).unwrap();
    assert_eq!(run(&place, PRERM, "remove").code, Some(0));
    assert_eq!(place.read("usr/bin/dpkg"), "");
    assert!(!place.read("etc/docker/daemon.json").contains("synconce"));
}

/// The set-ups stay, because their journals call the other copy.
#[test]
fn an_edit_that_calls_the_package_in_a_set_up_of_another_copy_keeps_the_package() {
    let place = place("package-edited-copy");
    for program in ["usr/local/bin/synconce", "usr/local/bin/synconce-oci"] {
        place.program(program);
    }
    for words in [&["docker"][..], &["containerd", "--hold"]] {
        assert_eq!(place.setup(words).code, Some(0));
    }
    assert_eq!(run(&place, PRERM, "remove").code, Some(0));
    let units = "etc/systemd/system";
    let [unit, json] =
        [&format!("{units}/synconce-hold-containerd.service"), "etc/docker/daemon.json"];
    let requirer = &format!("{units}/containerd.service.d/50-synconce-hold.conf");
    for (edited, named) in [(unit, &[unit, requirer][..]), (json, &[json])] {
        let theirs = place.read(edited);
        place.write(edited, &theirs.replace("/usr/local/bin/", "/usr/bin/"));
        let before = place.snapshot();
        let ended = run(&place, PRERM, "remove");
        assert_eq!(
            (ended.code, ended.stderr.lines().count()),
            (Some(1), 2 + named.len()),
            "{ended:?}"
        );
        for path in named {
            assert!(ended.stderr.contains(&format!("/{path}\n")), "{path}: {ended:?}");
        }
        assert_eq!(before, place.snapshot());
        place.write(edited, &theirs);
    }
}

/// A link in the way to the program does not make it another copy.
#[test]
fn set_ups_of_the_package_are_its_own_behind_links() {
    let place = place("package-linked");
    with_dpkg(&place);
    fs::rename(place.root.join("usr/bin/synconce"), place.root.join("opt-synconce")).unwrap();
    symlink("../../opt-synconce", place.root.join("usr/bin/synconce")).unwrap();
    for directory in ["usr/lib", "usr/local/bin"] {
        fs::create_dir_all(place.root.join(directory)).unwrap();
    }
    symlink("../../bin/synconce", place.root.join("usr/local/bin/synconce")).unwrap();
    let before = place.snapshot();
    for words in [&["docker"][..], &["apt"]] {
        assert_eq!(place.setup(words).code, Some(0));
    }
    let wrapper =
        place.read("usr/bin/dpkg").replace("/usr/bin/synconce", "/usr/local/bin/synconce");
    place.write("usr/bin/dpkg", &of_another_version(&wrapper));
    assert_eq!(run(&place, POSTINST, "configure").code, Some(0));
    assert!(!place.read("usr/bin/dpkg").contains("of another version"));
    assert_eq!(run(&place, PRERM, "remove").code, Some(0));
    assert_eq!(before, place.snapshot());
}

#[test]
fn a_hold_in_force_keeps_the_package_and_is_named() {
    let place = place("package-in-force");
    assert_eq!(place.setup(&["containerd", "--hold"]).code, Some(0));
    assert_eq!(place.setup(&["docker"]).code, Some(0));
    // Of the operator's own, and one that is set up.
    for name in ["own", "containerd"] {
        place.write(&format!("var/lib/synconce/holds/{name}.json"), "{}");
    }
    // A journal is no marker.
    place.write("var/lib/synconce/holds/other.aside.json", "{}");
    let before = place.snapshot();
    let ended = run(&place, PRERM, "remove");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in ["stop it by: synconce hold stop own\n", "synconce hold stop containerd\n"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    assert!(!ended.stderr.contains("other"), "{ended:?}");
    assert_eq!(before, place.snapshot());
    for name in ["own", "containerd"] {
        fs::remove_file(place.root.join(format!("var/lib/synconce/holds/{name}.json"))).unwrap();
    }
    assert_eq!(run(&place, PRERM, "remove").code, Some(0));
    // The journal of what was set aside names paths that are left.
    let purged = run(&place, POSTRM, "purge");
    assert!(purged.stderr.contains("holds/other.aside.json"), "{purged:?}");
    assert!(place.root.join("var/lib/synconce/holds/other.aside.json").exists());
}

#[test]
fn the_units_of_a_hold_in_force_are_named() {
    let place = place("package-units");
    // Markers as another version may write them: on one line, and with the unit last.
    for (name, unit) in [("own", r#""ours.service""#), ("bare", "null")] {
        let marker = format!(
            r#"{{"name":"{name}","started":"2026-01-01T00:00:00Z","boot":"-","file_systems":[],"config":{{"hold":[{{"path":"/srv/own.db","kind":"bolt"}}],"unit":{unit}}}}}"#
        );
        place.write(&format!("var/lib/synconce/holds/{name}.json"), &marker);
        place.write(&format!("etc/systemd/system/synconce-hold-{name}.service"), "[Unit]\n");
    }
    let ended = run(&place, PRERM, "remove");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in [
        "by: systemctl stop ours.service synconce-hold-own.service\n",
        "stop it by: synconce hold stop bare\n",
    ] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    assert_eq!(ended.stderr.lines().count(), 4, "{ended:?}");
}

#[test]
fn units_that_fail_without_the_package_keep_it_and_are_named() {
    let place = place("package-callers");
    assert_eq!(place.setup(&["containerd", "--hold"]).code, Some(0));
    let units = "etc/systemd/system";
    let harmless = "[Unit]\nWants=hold@b.service\nAfter=hold@b.service\n\
                    [Service]\n# ExecStart=/usr/bin/synconce hold start a\n\
                    ExecStart=/usr/bin/synconce run -- true\n\
                    ExecStartPost=-/usr/bin/synconce hold settle a\n";
    place.write(&format!("{units}/harmless.service"), harmless);
    symlink("/dev/null", place.root.join(units).join("masked.service")).unwrap();
    assert_eq!(run(&place, PRERM, "remove").code, Some(0));

    let call = "[Service]\nExecStart=/usr/bin/synconce hold start a\n";
    let linked = place.root.join("opt/linked.service");
    place.write("opt/linked.service", &call.replace("/usr/bin", "/bin"));
    symlink(&linked, place.root.join(units).join("linked.service")).unwrap();
    let callers = [r"a\x2db.service", "hold@.service", "own.service.d/override.conf"];
    for caller in callers {
        place.write(&format!("{units}/{caller}"), call);
    }
    let requirers = ["c.service.d/1.conf", "d.service.d/1.conf"];
    for (path, unit) in requirers.iter().zip([r"a\x2db.service", "hold@d.service"]) {
        place.write(&format!("{units}/{path}"), &format!("[Unit]\nRequires=x.service {unit}\n"));
    }
    let ended = run(&place, PRERM, "remove");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for path in callers.iter().chain(&requirers).chain(&["linked.service"]) {
        assert!(ended.stderr.contains(&format!("/{units}/{path}\n")), "{path}: {ended:?}");
    }
    assert_eq!(ended.stderr.lines().count(), 8, "{ended:?}");
}

#[test]
fn a_set_up_that_cannot_be_undone_keeps_the_package_and_is_named() {
    let place = place("package-edited");
    assert_eq!(place.setup(&["containerd", "--hold"]).code, Some(0));
    let description = "etc/synconce/hold.d/containerd.toml";
    place.write(description, &place.read(description).replace("wipe", "refuse"));
    let before = place.snapshot();
    let ended = run(&place, PRERM, "remove");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let root = place.root.display();
    let hint = format!("; or: synconce setup containerd --hold --root {root} --undo --force, ");
    assert!(ended.stderr.contains(&hint), "{ended:?}");
    assert_eq!(before, place.snapshot());
}

#[test]
fn an_upgrade_renews_the_wrappers_of_apt_and_an_install_makes_none() {
    let place = place("package-upgraded");
    with_dpkg(&place);
    let before = place.snapshot();
    let installed = run(&place, POSTINST, "configure");
    assert_eq!((installed.code, installed.stderr.as_str()), (Some(0), ""));
    assert_eq!(before, place.snapshot());

    assert_eq!(place.setup(&["apt"]).code, Some(0));
    let wrapper = place.read("usr/bin/dpkg");
    place.write("usr/bin/dpkg", &of_another_version(&wrapper));
    let check = place.setup(&["apt", "--check"]);
    assert_eq!(check.code, Some(1));
    assert!(check.stdout.starts_with("renew the wrapper "), "{check:?}");
    let upgraded = run(&place, POSTINST, "configure");
    assert_eq!((upgraded.code, upgraded.stderr.as_str()), (Some(0), ""));
    assert_eq!(place.read("usr/bin/dpkg"), wrapper);
    place.write("usr/bin/dpkg", &format!("{wrapper}# mine\n"));
    let upgraded = run(&place, POSTINST, "configure");
    assert_eq!((upgraded.code, upgraded.stderr.lines().count()), (Some(0), 1), "{upgraded:?}");
    assert!(upgraded.stderr.contains("usr/bin/dpkg is saved as "));
    assert_eq!(place.read("usr/bin/dpkg"), wrapper);

    // An undo that was cut short is not reversed, and a set-up that fails keeps no package.
    place.program("usr/bin/aptitude");
    place.write("usr/bin/dpkg", &of_another_version(&wrapper));
    let cut_short = place.snapshot();
    assert_eq!(run(&place, POSTINST, "configure").code, Some(0));
    assert_eq!(cut_short, place.snapshot());
    place.write("usr/bin/dpkg", "the operator's\n");
    assert_eq!(run(&place, POSTINST, "configure").code, Some(0));
    assert_eq!(place.read("usr/bin/dpkg"), "the operator's\n");
    fs::remove_file(place.root.join("usr/bin/dpkg")).unwrap();
    assert_eq!(run(&place, POSTINST, "configure").code, Some(0));
}

#[test]
fn settings_of_the_operators_own_that_name_the_runtime_keep_the_package() {
    let place = place("package-settings");
    for (path, text) in [
        ("etc/docker/daemon.json", r#"{"runtimes":{"own":{"path":"/usr/bin/synconce-oci"}}}"#),
        ("etc/containerd/own.toml", "BinaryName = '/usr/bin/synconce-oci'\n"),
        ("etc/default/docker", "DOCKER_OPTS='--add-runtime own=/usr/bin/synconce-oci'\n"),
        (
            "var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl",
            "BinaryName = \"/bin/synconce-oci\"\n",
        ),
        ("etc/containers/own.container", "GlobalArgs=--runtime /usr/bin/synconce-oci\n"),
    ] {
        place.write(path, text);
        // Its undo restores daemon.json.
        assert_eq!(place.setup(&["docker"]).code, Some(0));
        let ended = run(&place, PRERM, "remove");
        assert!(ended.code == Some(1) && ended.stderr.contains(path), "{ended:?}");
    }
}

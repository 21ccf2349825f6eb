//! `synconce doctor --support-bundle FILE`.

use crate::support::{WIDE, names, rig};
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, mount};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use synconce_testkit::harness::{Place, binary, finish, trial};
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_bundle_has_no_secret_and_what_a_maintainer_needs, &[]),
        trial(a_bundle_says_why_there_is_no_report, &[]),
        trial(a_bundle_belongs_to_its_writer_and_follows_no_link, &[]),
        trial(a_bundle_names_distribution_and_container, &[]),
        trial(a_bundle_replaces_no_other_output, &[]),
    ]
}

/// Parts of what is planted below. None may be in a bundle.
const SECRETS: [&str; 14] = [
    "hunter2",
    "s3cr3t",
    "c3BlY2lhbA",
    "ghp_",
    "alice",
    "zebra",
    "corp",
    "registry7",
    "proxyuser",
    "proxy7",
    "10.11.12.13",
    "password",
    "deploy-tool",
    "auths",
];
const HOST: &str = "zebra-build7";

/// Makes files and a host with secrets, as machines of users have them.
fn plant(place: &Place) {
    for directory in ["upper/docker", "work"] {
        fs::create_dir_all(Path::new("/dev/shm").join(directory)).unwrap();
    }
    let layers = c"lowerdir=/etc,upperdir=/dev/shm/upper,workdir=/dev/shm/work";
    mount("test", "/etc", "overlay", MountFlags::empty(), layers).unwrap();
    let proxy = "http://proxyuser:s3cr3t@proxy7.corp.example:3128";
    let daemon = format!("{{\"proxies\": {{\"https-proxy\": \"{proxy}\"}}}}");
    fs::write("/etc/docker/daemon.json", daemon).unwrap();
    fs::create_dir_all(place.path(".docker")).unwrap();
    let login = "{\"auths\": {\"registry7.corp.example\": {\"auth\": \"c3BlY2lhbA==\"}}}";
    place.write(".docker/config.json", login);
    for file in ["alice/hunter2.key", "node_modules/alice/x"] {
        let path = place.path("context").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
}

/// Writes a bundle by `words` on the host of the secrets, and returns it with its text.
fn bundle(place: &Place, here: &Path, words: &[&str]) -> (Value, String) {
    let mut command = place.command("unshare");
    let script = format!("hostname {HOST}; exec \"$@\"");
    let file = place.text("bundle.json");
    command.args(["--uts", "sh", "-ec", &script, "sh", binary(), "doctor"]);
    command.args(["--support-bundle", &file]).args(words).current_dir(here);
    command.env("HOME", place.path("")).env("COLUMNS", WIDE);
    command.env("API_TOKEN", "ghp_hunter2").env("HTTPS_PROXY", "http://alice:s3cr3t@10.11.12.13/");
    let ended = finish(&mut command);
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    fs::remove_file(&file).unwrap();
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    (serde_json::from_str(&text).unwrap(), text)
}

fn a_bundle_has_no_secret_and_what_a_maintainer_needs(place: &Place) {
    plant(place);
    let rig = rig(FsKind::Ext4, 8);
    let alice = rig.path().join("alice/hunter2");
    fs::create_dir_all(&alice).unwrap();
    // An interrupted run, whose command line only root and its user may read.
    let script = "sync -f .; kill -KILL $PPID";
    let mut held = place.held(&[], &["sh", "-c", script, "deploy-tool", "--password=hunter2"]);
    finish(held.current_dir(&alice));

    // A set-up that was made, as its journal shows.
    fs::create_dir_all(place.path("state/setup/docker")).unwrap();
    place.write("state/setup/docker/journal.json", "");

    let (found, text) = bundle(place, &alice, &["."]);
    let set_up = &found["set_ups"][0];
    assert_eq!((&set_up["engine"], &set_up["is_in_force"]), (&"docker".into(), &false.into()));
    assert!(!set_up["lines"].as_array().unwrap().is_empty(), "{text}");
    let mut findings = found["report"]["findings"].as_array().unwrap().iter();
    let slow = findings.find(|finding| finding["name"] == "slow-sync").expect(&text);
    assert!(slow["seconds"].as_f64() > Some(14.0), "{text}");
    assert!(found["report"]["measured"]["fsync"]["median"].as_f64() > Some(7_500.0), "{text}");
    let known = &found["report"]["place"];
    assert_eq!((&known["type_name"], &known["in_memory"]), (&"ext4".into(), &false.into()));
    assert!(known["mount_options"].as_str().unwrap().starts_with("rw,relatime"), "{text}");
    assert_eq!(known["devices"][0]["write_cache"], "write back", "{text}");
    // The host of the test can have force-unsafe-io.
    let cause = slow["cause"].as_str().unwrap();
    assert!(
        cause.starts_with("the install ") && cause.contains(", and most take at least "),
        "{text}"
    );
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(found["host"]["kernel"], kernel.trim());
    let made = found["made"].as_str().unwrap();
    assert!(made.starts_with(concat!("synconce ", env!("CARGO_PKG_VERSION"), ", 2")), "{made}");
    assert_eq!(
        (&found["architecture"], &found["is_root"]),
        (&std::env::consts::ARCH.into(), &true.into())
    );
    let run = &found["status"][0];
    assert_eq!((&run["state"], &run["run"]["sealed"]), (&"interrupted".into(), &false.into()));
    assert_eq!(run["run"]["command"], serde_json::json!(["sh"]), "{text}");
    assert_eq!(run["run"]["file_systems"][0]["type"], "ext4", "{text}");

    let words = ["--context", &place.text("context")];
    let (found, text) = bundle(place, Path::new("/"), &words);
    assert_eq!(found["report"]["sent"]["entries"], 5, "{text}");
    assert_eq!(found["report"]["could_be_ignored"][0]["path"], "**/node_modules", "{text}");

    let words = ["--", "sh", "-c", "sync -f .", "deploy-tool", "--password=hunter2"];
    let (found, text) = bundle(place, &alice, &words);
    assert_eq!(found["report"]["command"], serde_json::json!(["sh"]), "{text}");
    assert_eq!(found["report"]["waits"]["by_call"][0]["name"], "syncfs", "{text}");
    assert_eq!(found["report"]["waits"]["slowest"][0]["program"], "sync", "{text}");
    assert_eq!(names(&alice), [""; 0]);
}

fn a_bundle_says_why_there_is_no_report(place: &Place) {
    let file = place.text("bundle.json");
    fs::write(place.path("damaged"), "alice").unwrap();
    fs::write(place.path("empty"), "").unwrap();
    let no_record = "not a record of `synconce doctor -o`";
    let (asked, started) = ("cannot ask dockerd at /srv/name", "cannot execute ");
    let missing = "No such file or directory";
    for (words, code, start, end) in [
        (&["--docker"][..], 125, asked, missing),
        (&["--", "/srv/alice/tool", "--password=hunter2"], 127, started, missing),
        (&["--", "/srv"], 126, started, "Permission denied"),
        (&["-o", "/srv/alice/record", "--", "true"], 125, "cannot write to /srv/name", missing),
        (&["--read", "damaged"], 125, "cannot read damaged", no_record),
        (&["--read", "empty"], 125, "cannot read empty", no_record),
        (&["--read", "/srv/alice/record"], 125, "cannot read /srv/name", missing),
    ] {
        fs::write(&file, "of an older call").unwrap();
        let mut doctor = place.synconce(&["doctor", "--support-bundle", &file]);
        doctor.args(words).env("DOCKER_HOST", "unix:///srv/alice/docker.sock");
        let ended = finish(&mut doctor);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(code), ""), "{ended:?}");
        let text = fs::read_to_string(&file).unwrap();
        let found: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let error = found["report"]["error"].as_str().expect(&text);
        assert!(error.starts_with(start) && error.ends_with(&format!(": {end}")), "{text}");
        assert!(!text.contains("alice") && !text.contains("hunter2"), "{text}");
        assert!(found["host"]["cpus"].as_u64() > Some(0), "{text}");
    }
}

fn a_bundle_belongs_to_its_writer_and_follows_no_link(place: &Place) {
    let here = Path::new("/dev/shm");
    let (file, other) = (here.join("bundle.json"), here.join("other"));
    let path = file.to_str().unwrap();
    let assert_ours = || {
        let meta = fs::symlink_metadata(&file).unwrap();
        assert!(meta.is_file(), "{meta:?}");
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (0, 0, 0o600));
        assert_eq!(names(here), ["bundle.json", "other"]);
    };
    fs::write(&other, "old").unwrap();
    // Another user's file, which the user still has open.
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&file, Some(65534), Some(65534)).unwrap();
    let mut open = fs::File::open(&file).unwrap();
    let ended =
        finish(&mut place.synconce(&["doctor", "--context", "/srv", "--support-bundle", path]));
    assert!(ended.status.success(), "{ended:?}");
    assert_ours();
    let mut old = String::new();
    open.read_to_string(&mut old).unwrap();
    assert_eq!(old, "old");
    // A link that is made after the check of the file.
    let command = ["--", "ln", "--symbolic", "--force", "other", path];
    let words = [&["doctor", "--support-bundle", path][..], &command].concat();
    let ended = finish(&mut place.synconce(&words));
    assert!(ended.status.success(), "{ended:?}");
    assert_ours();
    assert_eq!(fs::read_to_string(&other).unwrap(), "old");
}

fn a_bundle_names_distribution_and_container(place: &Place) {
    let release = fs::read_to_string("/etc/os-release").unwrap();
    let id = release.lines().find_map(|line| line.strip_prefix("ID=")).unwrap();
    // The test has a PID namespace of its own, as a container has.
    let podman = "mount -t tmpfs none /run; touch /run/.containerenv; exec \"$@\"";
    let file = place.text("bundle.json");
    let words = ["--context", "/srv", "--support-bundle", &file];
    let apart = ["unshare", "--mount", "sh", "-ec", podman, "sh", binary(), "doctor"];
    let ended = place.bare(&[&apart[..], &words].concat());
    assert!(ended.status.success(), "{ended:?}");
    let found: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let host = &found["host"];
    assert_eq!(host["distribution"]["id"], id.trim_matches('"'), "{host:#}");
    assert_eq!(host["container"], "podman", "{host:#}");
}

fn a_bundle_replaces_no_other_output(place: &Place) {
    let other = "another option names this file";
    let only = "--support-bundle writes to a file only\n\
                synconce: hint: synconce doctor --support-bundle bundle.json";
    fs::write(place.path("record"), "old").unwrap();
    symlink("record", place.path("link")).unwrap();
    // As /dev/stdout, which a failure would replace on this machine.
    symlink("/proc/self/fd/1", place.path("stdout")).unwrap();
    for (options, file, why) in [
        (&[][..], "-", only),
        (&["--read", "./record"], "record", other),
        (&["--html", "new"], "new", other),
        (&["--html", "./new"], "new", other),
        (&["--json=./new"], "new", other),
        (&[], "/dev/null", "not a regular file"),
        (&[], "link", "a symbolic link"),
        (&[], "stdout", "a symbolic link"),
        (&[], ".", "is a directory"),
    ] {
        let words = [&[binary(), "doctor", "--support-bundle", file], options].concat();
        let ended = place.bare(&words);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(125), ""), "{ended:?}");
        assert!(ended.stderr.ends_with(&format!(": {why}\n")), "{ended:?}");
        assert!(!place.path("new").exists(), "{ended:?}");
    }
    assert_eq!(fs::read_to_string(place.path("record")).unwrap(), "old");
}

//! sudo, mmdebstrap, unshare and fusermount3 in the run of an ordinary user, where they cannot gain
//! privileges: the command line in the hint is run instead, and works.

use rustix::mount::{MountFlags, mount, mount_bind};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use synconce_testkit::harness::Need;
use synconce_testkit::harness::{Place, binary, finish};
use synconce_testkit::process::Finished;

pub const NEEDS_SUDO: [Need; 1] = [Need::Program("sudo", "sudo")];
pub const NEEDS_IDS: [Need; 2] =
    [Need::Program("newuidmap", "uidmap"), Need::Program("mmdebstrap", "mmdebstrap")];
pub const NEEDS_BOTH: [Need; 2] = [NEEDS_SUDO[0], NEEDS_IDS[0]];
pub const NEEDS_PODMAN: [Need; 3] =
    [NEEDS_IDS[0], Need::Program("podman", "podman"), Need::Program("buildah", "buildah")];
pub const NEEDS_FUSE: [Need; 3] =
    [NEEDS_SUDO[0], Need::Program("bindfs", "bindfs"), Need::Program("fusermount3", "fuse3")];

const NOBODY: u32 = 65534;

/// Syncs a file, and prints the name of the user.
const SYNCS: &str = "dd if=/dev/zero of=data bs=1 count=1 conv=fsync status=none; id -un";

/// Starts a program in a user namespace in which the ids of [`allow_ids`] are mapped to
/// themselves.
const OWN_IDS: &str = "unshare --map-current-user --map-users=100000,100000,65536 \
                       --map-groups=100000,100000,65536 --keep-caps";

/// Gives the user nobody the directories of `place` that a run needs.
pub fn give(place: &Place) {
    for name in ["here", "state", "runtime"] {
        let path = place.path(name);
        fs::create_dir_all(&path).expect("a directory of ours");
        chown(&path, Some(NOBODY), Some(NOBODY)).expect("a directory that is given away");
    }
}

/// Runs `words` as the user nobody.
pub fn as_nobody(place: &Place, words: &[&str]) -> Finished {
    let mut command = place.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(words);
    finish(command.current_dir(place.path("here")))
}

/// Runs `synconce run -- WORDS` with accounts as the user nobody.
fn run(place: &Place, words: &[&str]) -> Finished {
    let run = [binary(), "run", "--commit-only", ".", "--stats", "--json", "--"];
    as_nobody(place, &[&run, words].concat())
}

/// Lets the user nobody become any user by sudo, in this mount namespace.
pub fn allow_sudo(place: &Place) {
    mount("sudoers", "/etc/sudoers.d", "tmpfs", MountFlags::empty(), Some(c"mode=755"))
        .expect("a directory over the machine's");
    let rules = "Defaults env_keep += \"SYNCONCE_STATE_DIR SYNCONCE_RUNTIME_DIR \
                 SYNCONCE_REGISTRY_DIR\"\n\
                 nobody ALL=(ALL:ALL) NOPASSWD: ALL\n";
    let file = Path::new("/etc/sudoers.d/test");
    fs::write(file, rules).expect("rules");
    fs::set_permissions(file, PermissionsExt::from_mode(0o440)).expect("rules that sudo reads");
    let output = as_nobody(place, &["sudo", "-n", "id", "-un"]);
    assert_eq!(output.stdout, "root\n", "{output:?}");
}

/// Gives the user nobody subordinate ids, in this mount namespace.
fn allow_ids(place: &Place) {
    let file = place.write("subordinate", "nobody:100000:65536\n");
    for name in ["/etc/subuid", "/etc/subgid"] {
        mount_bind(&file, name).expect("a file over the machine's");
    }
}

/// Returns the command lines in the hints; each hint follows a notice.
fn hints(refused: &Finished) -> Vec<&str> {
    let lines: Vec<_> = refused.stderr.lines().collect();
    let notices = lines.iter().filter(|line| line.contains(" gains no privileges")).count();
    let hints = lines.iter().filter_map(|line| line.strip_prefix("synconce: hint: "));
    let hints: Vec<_> = hints.collect();
    assert_eq!(hints.len(), notices, "{refused:?}");
    hints
}

/// Returns the command line that begins with `begin` in a hint of a run of `words`, which fails.
/// A program that another test opens meanwhile is named, too.
fn hint(place: &Place, words: &[&str], begin: &str) -> String {
    let refused = run(place, words);
    assert!(!refused.status.success(), "{refused:?}");
    let hint = hints(&refused).into_iter().find(|hint| hint.starts_with(begin));
    hint.unwrap_or_else(|| panic!("no such hint: {refused:?}")).to_owned()
}

/// Runs `line` as the user nobody; expects success, no notice, and a held sync.
fn try_out(place: &Place, line: &str) -> Finished {
    let done = as_nobody(place, &["sh", "-c", line]);
    assert!(done.status.success(), "{line}: {done:?}");
    assert!(hints(&done).is_empty(), "{line}: {done:?}");
    assert!(done.stderr.contains(r#""fsync":{"held":"#), "{line}: {done:?}");
    done
}

pub fn a_user_who_calls_sudo_gets_a_command_that_works(place: &Place) {
    let synconce = binary();
    give(place);
    allow_sudo(place);
    fs::set_permissions(place.path("here"), PermissionsExt::from_mode(0o777)).unwrap();
    let nested = format!("sudo -n sh -c '{SYNCS}'");
    for (words, user, begin) in [
        (&["sudo", "-n", "sh", "-c", SYNCS][..], "root", "sudo -n"),
        (&["sh", "-c", &nested], "root", "sudo"),
        (&["sudo", "-n", "-u", "bin", "sh", "-c", SYNCS], "bin", "sudo"),
    ] {
        let line = hint(place, words, &format!("{begin} {synconce} run "));
        assert_eq!(try_out(place, &line).stdout, format!("{user}\n"), "{line}");
        place.remove("here/data");
    }
}

pub fn a_user_who_mounts_by_fuse_gets_a_command_that_works(place: &Place) {
    let synconce = binary();
    give(place);
    allow_sudo(place);
    // As AppImages, and flatpak-builder by rofiles-fuse: fusermount3 is setuid.
    let mounts = "mkdir -p at && bindfs --no-allow-other . at && ls at/data && fusermount3 -u at";
    let script = format!("{SYNCS} && {mounts}");
    let plain = as_nobody(place, &["sh", "-c", &script]);
    assert_eq!(plain.stdout, "nobody\nat/data\n", "{plain:?}");
    // Another test may start sudo meanwhile, whose hint has no `sudo -u`.
    let begin = format!("sudo {synconce} run --commit-only . --stats --json -- sudo -u nobody ");
    let line = hint(place, &["sh", "-c", &script], &begin);
    assert_eq!(try_out(place, &line).stdout, "nobody\nat/data\n", "{line}");
}

pub fn a_user_whose_run_maps_ids_gets_a_command_line_that_works(place: &Place) {
    let synconce = binary();
    give(place);
    allow_ids(place);
    fs::create_dir(place.path("repository")).expect("a directory of ours");
    place.write("repository/Packages", "");
    let source = format!("deb [trusted=yes] copy:{} ./", place.text("repository"));
    // mmdebstrap syncs nothing when it installs nothing.
    let script = format!(
        "mmdebstrap --variant=custom --mode=unshare '' root.tar '{source}' && {{ {SYNCS}; }}"
    );
    let line = hint(place, &["sh", "-c", &script], &format!("{OWN_IDS} {synconce} run "));
    assert!(!place.path("here/root.tar").exists());
    // Without a notice: newuidmap gains its privileges there.
    try_out(place, &line);
    let list = as_nobody(place, &["tar", "-tf", "root.tar"]);
    assert!(list.stdout.contains("./etc/apt/"), "{list:?}");
}

pub fn a_user_of_podman_or_buildah_gets_a_command_line_that_works(place: &Place) {
    let synconce = binary();
    give(place);
    allow_ids(place);
    let here = place.text("here");
    let own = [format!("HOME={here}"), format!("XDG_RUNTIME_DIR={here}")];
    let own = ["env", &own[0], &own[1]];
    fs::write(place.path("here/Dockerfile"), "FROM scratch\nADD root.tar /\n").unwrap();
    // A user without mapped ids cannot unpack the file of another owner.
    let make = ["tar", "-cf", "root.tar", "--owner=5", "Dockerfile"];
    assert!(as_nobody(place, &make).status.success());
    let run = [binary(), "run", "--commit-only", ".", "--stats", "--json", "--"];
    // First Buildah: Podman leaves a process that keeps the namespace for later commands.
    for words in ["buildah --storage-driver vfs bud -t two .", "podman import root.tar one"] {
        let words: Vec<_> = words.split(' ').collect();
        let refused = as_nobody(place, &[&own[..], &run, &words].concat());
        assert_ne!(refused.status.code(), Some(0), "{refused:?}");
        let begin = format!("{} unshare {synconce} run ", words[0]);
        let hint = hints(&refused).into_iter().find(|hint| hint.starts_with(&begin));
        let hint = hint.unwrap_or_else(|| panic!("no such hint: {refused:?}"));
        let done = as_nobody(place, &[&own[..], &["sh", "-c", hint]].concat());
        assert!(done.status.success() && hints(&done).is_empty(), "{hint}: {done:?}");
        assert!(done.stderr.contains(r#""outcome":"committed""#), "{hint}: {done:?}");
    }
    let left = as_nobody(place, &[&own[..], &["podman", "system", "migrate"]].concat());
    assert!(left.status.success(), "{left:?}");
}

pub fn each_kind_of_rights_gives_one_notice(place: &Place) {
    give(place);
    allow_sudo(place);
    allow_ids(place);
    let maps = "unshare --map-auto --map-root-user true";
    let script = format!("sudo -n true; {maps}; su -c true; {maps}; sudo -n true; exit 1");
    let noticed = run(place, &["sh", "-c", &script]);
    // Another test may start fusermount3 meanwhile.
    let own = hints(&noticed).into_iter().filter(|hint| !hint.contains(" -- sudo -u nobody "));
    assert_eq!(own.count(), 2, "{noticed:?}");
    // The command itself counts for its kind, too.
    let env = place.text("env");
    fs::copy("/usr/bin/env", &env).expect("a copy");
    fs::set_permissions(&env, PermissionsExt::from_mode(0o4755)).expect("a setuid copy");
    let noticed = run(place, &[&env, "sudo", "-n", "true"]);
    let others = |hint: &str| hint.starts_with("unshare") || hint.contains(" -- sudo -u nobody ");
    let of_sudo = hints(&noticed).into_iter().filter(|hint| !others(hint));
    assert_eq!(of_sudo.count(), 1, "{noticed:?}");
}

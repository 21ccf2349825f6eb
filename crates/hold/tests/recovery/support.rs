//! A data directory of a daemon, markers, and recoveries.

use rustix::mount::{MountFlags, mount};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_hold::aside::{self, AsideError, Journal};
use synconce_hold::config::Config;
use synconce_hold::file_system::FileSystem;
use synconce_hold::record::HoldRecord;
use synconce_hold::recover::{self, Decision, RecoverError, Recovered, SetAside};
use synconce_hold::resolved_path::ResolvedPath;
use synconce_hold::safe_directory::SCRATCH;
use synconce_hold::state_directory;
use synconce_probe::mounts;

/// The data directory of the daemon.
pub const DATA: &str = "/var/lib/daemon";

/// Runs a test's closure in a process and namespaces of its own, with an empty `/var/lib`.
pub fn isolated<T: Fn()>(test: T) {
    synconce_testkit::isolation::isolated(test, |_, test| {
        mount("state", "/var/lib", "tmpfs", MountFlags::empty(), None).expect("a tmpfs");
        test();
    });
}

/// Runs a script, and returns what it prints. Panics if it fails.
pub fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-e", "-u", "-c", script]).output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {}\n{stderr}", output.status);
    text
}

/// Returns a listing of the data directory with contents, without what is set aside.
pub fn listing() -> String {
    sh(&format!(
        "cd {DATA}; find . -name '.synconce-*' -prune -o -printf '%p %y\\n' | sort; \
         find . -name '.synconce-*' -prune -o -type f -print | sort | xargs -r cat"
    ))
}

/// Makes the daemon's files: a file in the place of the database, which is no database, and two
/// directories.
pub fn make_files(content: &str) {
    sh(&format!(
        "mkdir -p {DATA}/plugin.one/sub {DATA}/plugin.two {DATA}/other; cd {DATA}; \
         for file in meta.db plugin.one/a plugin.one/sub/b plugin.two/c other/d; do \
         echo {content} >$file; done"
    ));
}

/// Returns the hold "test" on the database, after whose crash `after_crash` happens.
pub fn config(after_crash: &str, more: &str) -> Config {
    let text = format!(
        "after_crash = \"{after_crash}\"\nunit = \"test.service\"\n{more}\n\
         [[hold]]\npath = \"{DATA}/meta.db\"\nkind = \"bolt\"\n"
    );
    fs::create_dir_all("/var/lib/holds.d").expect("a directory");
    fs::write("/var/lib/holds.d/test.toml", text).expect("a file");
    Config::read("/var/lib/holds.d/test.toml".as_ref()).expect("a hold's file")
}

/// The line of a hold's file that sets aside the whole state of the daemon.
pub fn everything() -> String {
    format!("set_aside = [\"{DATA}/plugin.*\", \"{DATA}/meta.db\", \"{DATA}/missing\"]")
}

/// Returns the paths that a restore or a settle has to remove.
pub fn leftovers() -> String {
    sh("find /var/lib -name '.synconce-*'; ls /var/lib/synconce/holds")
}

/// Returns a marker of this boot.
pub fn marker(config: &Config) -> HoldRecord {
    HoldRecord {
        started: "2026-01-02T03:04:05Z".to_owned(),
        file_systems: vec![FileSystem::of(Path::new(DATA)).expect("a file system")],
        ..HoldRecord::new(config, &synconce_durable::record::boot_id().expect("a boot id"))
    }
}

/// Writes a marker of an earlier boot.
pub fn crash(config: &Config) {
    HoldRecord { boot: "another".to_owned(), ..marker(config) }.write().expect("a marker");
}

/// Makes the state of a recovery that was cut short before its last rename, after a finished one.
pub fn cut_recovery_short(config: &Config) {
    let mut journal = Journal::read("test").expect("a journal");
    journal.sets[0].finished = false;
    let last = journal.sets[0].moves.last().expect("a rename");
    fs::rename(&last.to, &last.from).expect("a file that is set aside");
    write_journal(&journal);
    crash(config);
}

/// Writes the journal as a crash leaves it.
pub fn write_journal(journal: &Journal) {
    let text = serde_json::to_vec(journal).expect("JSON");
    fs::write(state_directory::journal("test"), text).expect("a journal");
}

pub fn has_marker() -> bool {
    state_directory::marker("test").exists()
}

/// Holds the database and ends the hold as a crash does. Returns the link to the database that
/// the hold leaves.
pub fn leave_link(config: &Config) -> PathBuf {
    let place = ResolvedPath::find(&config.hold[0]).expect("a place");
    place.hold().expect("a hold");
    release(&place);
    let name = place.path().file_name().expect("a name").to_owned();
    let link = place.parent().join(SCRATCH).join(&name).join("upper").join(name);
    assert!(link.exists());
    link
}

/// Unmounts the overlay of `place`.
pub fn release(place: &ResolvedPath) {
    let mounts = mounts::ours().expect("the mounts");
    let mount = place.mount(&mounts).expect("a hold");
    place.release(mount).expect("a hold that no process uses");
}

/// Recovers, and says nothing before a wait.
pub fn recover(config: &Config, decision: Decision) -> Result<Recovered, RecoverError> {
    recover::recover(config, decision, &|_| {})
}

/// Settles, and says nothing before a wait.
pub fn settle(name: &str) -> Result<u64, AsideError> {
    aside::settle(name, &|_| {})
}

/// Changes the database as the daemon does, an hour later: the times of files have ticks.
pub fn daemon_writes() {
    sh(&format!("touch -d '1 hour' {DATA}/meta.db"));
}

/// Recovers by the hold's file.
pub fn recovered(config: &Config) -> Recovered {
    recover(config, Decision::ByFile).expect("a recovery")
}

/// Returns what was set aside by `recovered`.
pub fn set_aside(recovered: Recovered) -> SetAside {
    match recovered {
        Recovered::SetAside(aside) => aside,
        other => panic!("{other:?}"),
    }
}

/// Returns the paths of `names` in the data directory.
pub fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| Path::new(DATA).join(name)).collect()
}

//! The daemon that implements the disk: a FUSE file system of one file, and a control socket.
//!
//! The daemon is a separate process, so that the process under test can be killed and no
//! thread of that process ever waits for itself. The daemon never accesses the file system on
//! its disk.

mod control;
mod faults;
mod flushes;
mod fuse;
mod pace;
mod replayed;
mod requests;
mod store;

use std::fmt::Display;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use fuser::{Config, MountOption, Session};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change};
use synconce_probe::mounts::Mount;
use synconce_sys::namespace::{UnshareFlags, unshare};

use self::faults::Faults;
use self::flushes::Flushes;
use self::pace::Pace;
use self::requests::PendingFlush;
use self::store::BareDisk;
use super::record::RigRecord;
use super::system;
use crate::Result;
use crate::error::Context;

/// State shared by the FUSE threads, the flush thread and the control thread.
struct DaemonState {
    store: BareDisk,
    size: u64,
    /// Set at the mount.
    passthrough: OnceLock<bool>,
    flushes: Flushes<PendingFlush>,
    faults: Faults,
    pace: Pace,
    transfers: Transfers,
}

#[derive(Default)]
struct Transfers {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    discards: AtomicU64,
    failed_reads: AtomicU64,
    failed_writes: AtomicU64,
}

/// Serves the disk of the rig recorded in `dir` until its FUSE file system is unmounted.
///
/// Writes a line to stdout once the disk can be used. This is the body of the hidden `rig serve`.
///
/// # Errors
/// The disk could not be set up.
pub fn serve(dir: &Path) -> Result<()> {
    let record = RigRecord::read(dir)?;
    // A signal typed at the owner's terminal must not reach the daemon, and the daemon must
    // not keep a directory in use.
    rustix::process::setsid().context("leave the session of", dir)?;
    std::env::set_current_dir("/").context("enter", "/")?;
    let _lock = record.write_daemon()?;
    stay_out_of_write_back();

    let shared = Arc::new(DaemonState {
        store: BareDisk::open(&record)?,
        size: record.size,
        passthrough: OnceLock::new(),
        flushes: Flushes::default(),
        faults: Faults::default(),
        pace: Pace::default(),
        transfers: Transfers::default(),
    });
    // A sleep should end on time, not 50 us later; new threads inherit the slack. An error
    // only costs precision.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let listener =
        UnixListener::bind(record.disk().socket()).context("listen on", record.disk().socket())?;
    let fuse_dir = record.fuse_dir();
    let filesystem = fuse::OneFile::new(shared.clone(), record.passthrough);
    let session =
        Session::new(filesystem, &fuse_dir, &config()).context("mount the disk at", &fuse_dir)?;
    // Threads inherit the namespace of the thread that starts them, so the call comes before
    // they start.
    leave_mounts()?;
    let answerer = shared.clone();
    thread::spawn(move || answerer.flushes.answer());
    thread::spawn(move || control::serve(&listener, &shared));
    announce();
    session.run().context("serve", &fuse_dir)
}

/// Enters a mount namespace without mounts but `/` and `/dev`, where the FUSE threads open
/// `/dev/fuse`.
///
/// The kernel unmounts a mount namespace's mounts when its last process exits. If that process were
/// the daemon, and one of the mounts were the file system on its disk, the unmount would wait for a
/// flush that only the exiting daemon could answer. It would wait for ever, and every sync(2) of
/// the machine would, too.
fn leave_mounts() -> Result<()> {
    unshare(UnshareFlags::NEWNS).context("leave the mounts of", "/")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).context("make private the mounts of", "/")?;
    let kept = ["/", "/dev"].map(Path::new);
    let left = |mount: &Mount| !kept.contains(&mount.point.as_path());
    system::unmount_all(left, UnmountFlags::DETACH, Duration::ZERO)
}

/// Keeps this process, which is part of the kernel's write-back path, from waiting for
/// write-back when it allocates memory.
///
/// No step is vital while memory is plenty, and containers often lack the capabilities, so a
/// refused step is only logged.
fn stay_out_of_write_back() {
    // Threads inherit the setting, so the call comes before they start (Linux 5.6,
    // CAP_SYS_RESOURCE).
    note("become an I/O flusher", rustix::process::configure_io_flusher_behavior(true));
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    note("lock memory", mlockall(flags));
    // The daemon should be the last process to be killed when memory is short.
    note("avoid the OOM killer", std::fs::write("/proc/self/oom_score_adj", "-1000"));
}

fn note<E: Display>(act: &str, result: std::result::Result<(), E>) {
    if let Err(error) = result {
        eprintln!("going on without: cannot {act}: {error}");
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("synconce-rig".into()), MountOption::Subtype("rig".into())];
    config.n_threads = Some(2);
    config.clone_fd = true;
    config
}

fn announce() {
    // The owner may be dead; the reaper then takes down the rig and this process.
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "ready").and_then(|()| stdout.flush());
}

//! The load that runs under the hold: every way to wait for a disk, from many threads and
//! processes.

use crate::Result;
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use synconce_testkit::patiently;

/// Threads that sync at the same time.
const BURST: usize = 500;
/// Sync calls of each of these threads.
const BURST_CALLS: usize = 10;
/// Threads that repeat every kind of call until the load ends.
const WORKERS: usize = 6;
/// A call that takes longer than this is stuck, even on a busy machine.
const STUCK: Duration = Duration::from_secs(20);

/// Counts of what the load has done.
#[derive(Default)]
struct Account {
    calls: AtomicU64,
    processes: AtomicU64,
    slowest: Mutex<Duration>,
    failures: Mutex<Vec<String>>,
}

impl Account {
    fn call(&self, what: &str, act: impl FnOnce() -> std::io::Result<()>) {
        let began = Instant::now();
        let result = act();
        let took = began.elapsed();
        self.calls.fetch_add(1, SeqCst);
        let mut slowest = self.slowest.lock().expect("no thread panics");
        *slowest = took.max(*slowest);
        drop(slowest);
        if took > patiently(STUCK) {
            self.fail(format!("{what} took {took:?}"));
        }
        if let Err(error) = result {
            self.fail(format!("{what}: {error}"));
        }
    }

    fn fail(&self, what: String) {
        self.failures.lock().expect("no thread panics").push(what);
    }
}

/// Runs the load for `millis` milliseconds below `directory`, and prints what was done.
pub(crate) fn run(directory: &Path, millis: u64) -> Result<()> {
    fs::create_dir_all(directory)?;
    let account = Account::default();
    let end = Instant::now() + Duration::from_millis(millis);
    thread::scope(|scope| {
        for number in 0..BURST {
            let account = &account;
            scope.spawn(move || burst(directory, number, account));
        }
    });
    thread::scope(|scope| {
        for number in 0..WORKERS {
            let account = &account;
            scope.spawn(move || steady(directory, number, end, account));
        }
        scope.spawn(|| processes(directory, end, &account));
    });
    let failures = account.failures.into_inner()?;
    let (calls, processes) = (account.calls.into_inner(), account.processes.into_inner());
    println!("{calls} calls, {processes} processes, slowest {:?}", account.slowest.into_inner()?);
    if let Some(first) = failures.first() {
        return Err(format!("{} failures, the first: {first}", failures.len()).into());
    }
    Ok(())
}

fn burst(directory: &Path, number: usize, account: &Account) {
    let path = directory.join(format!("burst{number}"));
    for _ in 0..BURST_CALLS {
        account.call("fsync in a burst", || {
            let mut file = File::create(&path)?;
            file.write_all(b"burst")?;
            file.sync_all()
        });
    }
}

/// Makes one call of each kind, repeatedly, until `end`.
fn steady(directory: &Path, number: usize, end: Instant, account: &Account) {
    let path = directory.join(format!("steady{number}"));
    let sync_flag = OFlags::DSYNC.bits().cast_signed();
    while Instant::now() < end {
        account.call("fdatasync", || {
            let mut file = File::create(&path)?;
            file.write_all(&[b's'; 5000])?;
            file.sync_data()
        });
        account.call("O_DSYNC", || {
            let mut options = File::options();
            let mut file = options.append(true).custom_flags(sync_flag).open(&path)?;
            file.write_all(b"line\n")
        });
        account.call("syncfs", || Ok(rustix::fs::syncfs(File::open(directory)?)?));
        thread::sleep(Duration::from_millis(2));
    }
}

/// Starts short processes that sync, one after the other.
fn processes(directory: &Path, end: Instant, account: &Account) {
    let path = directory.join("short");
    while Instant::now() < end {
        account.call("a short process", || {
            File::create(&path)?;
            let status = Command::new("sync").arg(&path).status()?;
            if status.success() { Ok(()) } else { Err(std::io::Error::other(status.to_string())) }
        });
        account.processes.fetch_add(1, SeqCst);
    }
}

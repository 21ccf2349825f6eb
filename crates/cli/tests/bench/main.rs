//! `synconce bench` as a child process.

mod tree;

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use synconce_testkit::patiently;

/// A benchmark. Its drop interrupts it.
struct Bench(Child);

impl Bench {
    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("the signal is sent");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.send(Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

/// A directory on a disk. Its drop removes it.
struct DiskDirectory(PathBuf);

impl DiskDirectory {
    fn new(name: &str) -> Self {
        let own = format!("bench-{name}-{}", std::process::id());
        let place = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(own));
        for part in ["source", "logs", "state"] {
            fs::create_dir_all(place.0.join(part)).expect("a directory can be made");
        }
        place
    }

    /// Starts a benchmark of a build that syncs, writes its pids, and then does not end.
    fn endless_build(&self, variant: &str) -> Bench {
        let pids = self.0.join("pids");
        let line = "sync .; setsid sleep 1000 & echo $! $$ > new; mv new \"$PIDS\"; sleep 1000";
        // The caller of the tests may ignore signals: a shell's `&` does.
        let child = Command::new("env")
            .args(["--default-signal=INT,TERM", env!("CARGO_BIN_EXE_synconce")])
            .args(["bench", "compile", "--rounds", "1", "--variants", variant, "--command", line])
            .arg("--source")
            .arg(self.0.join("source"))
            .arg("--dir")
            .arg(self.0.join("work"))
            .env("PIDS", pids)
            .env("TMPDIR", self.0.join("logs"))
            .env("SYNCONCE_STATE_DIR", self.0.join("state"))
            .env("SYNCONCE_REGISTRY_DIR", self.0.join("registry"))
            .stdout(Stdio::null())
            .spawn()
            .expect("env runs");
        Bench(child)
    }

    fn pids(&self) -> Vec<String> {
        let start = Instant::now();
        loop {
            if let Ok(text) = fs::read_to_string(self.0.join("pids")) {
                return text.split_whitespace().map(str::to_owned).collect();
            }
            assert!(
                start.elapsed() < patiently(Duration::from_secs(60)),
                "the build never started"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn files(&self, part: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut pending = vec![self.0.join(part)];
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(&dir).expect("the directory is there") {
                let path = entry.expect("it can be listed").path();
                if path.is_dir() { pending.push(path) } else { found.push(path) }
            }
        }
        found
    }
}

impl Drop for DiskDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn an_interrupted_benchmark_dies_by_the_signal_and_leaves_nothing_behind() {
    for (variant, signal) in
        [("bare", Signal::INT), ("supervised", Signal::INT), ("sealed-no-commit", Signal::TERM)]
    {
        let place = DiskDirectory::new(variant);
        let mut bench = place.endless_build(variant);
        let pids = place.pids();
        assert_eq!(pids.len(), 2);
        let marked = !place.files("state").is_empty();
        assert_eq!(marked, variant == "supervised", "{variant}");
        bench.send(signal);
        let status = bench.0.wait().expect("it can be waited for");
        assert_eq!(status.signal(), Some(signal.as_raw()), "{variant}: {status}");
        // A killed process takes a moment to end.
        let end = Instant::now() + patiently(Duration::from_secs(60));
        while pids.iter().any(|pid| is_alive(pid)) {
            assert!(Instant::now() < end, "{variant}: {pids:?} live on");
            std::thread::sleep(Duration::from_millis(5));
        }
        for part in ["logs", "state"] {
            assert_eq!(place.files(part), Vec::<PathBuf>::new(), "{variant}");
        }
        assert!(!place.0.join("work").exists(), "{variant}: the benchmark made it");
    }
}

#[test]
fn the_build_steps_of_a_benchmark_are_not_counted() {
    let place = DiskDirectory::new("cost");
    let synconce = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_synconce"));
        command.args(words).env("TMPDIR", place.0.join("logs"));
        for (variable, part) in [("STATE", "state"), ("REGISTRY", "registry"), ("RUNTIME", "run")] {
            command.env(format!("SYNCONCE_{variable}_DIR"), place.0.join(part));
        }
        let ended = command.output().expect("synconce runs");
        assert!(ended.status.success(), "{words:?}: {ended:?}");
        String::from_utf8(ended.stdout).expect("text")
    };
    let dir = place.0.join("work");
    let variants = "container/bare,container/build-step,container/ordinary";
    let bench = ["bench", "cost", "--rounds", "1", "--variants", variants, "--dir"];
    let measured = synconce(&[&bench[..], &[dir.to_str().expect("UTF-8")]].concat());
    assert!(measured.contains("container/build-step"), "{measured}");
    assert_eq!(synconce(&["status"]), "");
    let metrics = synconce(&["status", "--format", "prometheus"]);
    assert!(!metrics.contains("build_step"), "{metrics}");
}

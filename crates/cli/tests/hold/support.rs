//! Holds on a disk of their own.

use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use synconce_testkit::harness::{Place, StartedCommand, eventually, finish, isolated_with};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::Rig;

/// A hold of one bolt file and one directory on a rig.
pub struct HoldOnRig<'a> {
    pub place: &'a Place,
    pub rig: Rig,
}

impl<'a> HoldOnRig<'a> {
    /// Makes the disk, the files, and the file `t.toml` with `settings` at its start.
    pub fn new(place: &'a Place, settings: &str) -> Self {
        Self::on(place, Rig::builder().size(128 << 20).passthrough(false).up().unwrap(), settings)
    }

    pub fn on(place: &'a Place, rig: Rig, settings: &str) -> Self {
        let fixture = Self { place, rig };
        fs::create_dir_all(fixture.directory()).unwrap();
        fs::write(fixture.file(), "").unwrap();
        fixture.configure("t", settings);
        fixture
    }

    /// Writes the file of the hold `name`.
    pub fn configure(&self, name: &str, settings: &str) {
        let (file, directory) = (self.file(), self.directory());
        let text = format!(
            "{settings}\n[[hold]]\npath = \"{}\"\nkind = \"bolt\"\n\
             [[hold]]\npath = \"{}\"\nkind = \"other\"\n",
            file.display(),
            directory.display()
        );
        self.place.write(&format!("{name}.toml"), &text);
    }

    /// Returns the held file.
    pub fn file(&self) -> PathBuf {
        self.rig.path().join("meta.db")
    }

    /// Returns the held directory.
    pub fn directory(&self) -> PathBuf {
        self.rig.path().join("databases")
    }

    /// Runs `synconce hold VERB ./t.toml`. `verb` may have options behind it.
    pub fn hold(&self, verb: &str) -> Finished {
        let words: Vec<_> = verb.split(' ').chain(["./t.toml"]).collect();
        hold(self.place, &words)
    }

    /// Runs the verb, which succeeds. Returns what it says.
    #[track_caller]
    pub fn ok(&self, verb: &str) -> String {
        let finished = self.hold(verb);
        assert_eq!(finished.status.code(), Some(0), "hold {verb}: {}", finished.stderr);
        finished.stderr
    }

    /// Runs the verb, which fails, and says `said`. Returns all that it says.
    #[track_caller]
    pub fn fails(&self, verb: &str, said: &[&str]) -> String {
        failed(self.hold(verb), said)
    }

    /// Runs `synconce hold run ./t.toml -- COMMAND`.
    pub fn run(&self, command: &[&str]) -> Finished {
        hold(self.place, &[&["run", "./t.toml", "--"], command].concat())
    }

    /// Returns the JSON of `hold status`, and its exit code.
    pub fn status(&self) -> (serde_json::Value, Option<i32>) {
        let words = ["hold", "status", "--json", "./t.toml"];
        let finished = finish(&mut self.place.synconce(&words));
        let json: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
        (json[0].clone(), finished.status.code())
    }

    /// Returns the state that `hold status` shows.
    pub fn state(&self) -> String {
        self.status().0["state"].as_str().expect("a state").to_owned()
    }

    /// Starts a process that keeps `path` open.
    pub fn open(&self, path: &Path) -> StartedCommand {
        let script = format!("exec 3<>'{}'; echo open >opened; sleep 600", path.display());
        let process = StartedCommand::new(self.place.command("sh").args(["-c", &script]));
        self.place.wait_for("opened");
        self.place.remove("opened");
        process
    }

    /// Writes and syncs `count` times with each call that a database uses, on `path`.
    pub fn write(&self, path: &Path, count: u32) -> Finished {
        let program = format!(
            "import os\n\
             file = os.open('{}', os.O_RDWR | os.O_CREAT)\n\
             for turn in range({count}):\n\
             \x20   os.pwrite(file, b'%9d' % turn, 0)\n\
             \x20   os.fsync(file); os.fdatasync(file)\n\
             \x20   os.pwritev(file, [b'more'], 100, os.RWF_DSYNC)\n",
            path.display()
        );
        finish(self.place.command("python3").args(["-c", &program]))
    }

    /// Returns how many flushes have reached the disk.
    pub fn flushes(&self) -> u64 {
        self.rig.disk().stats().unwrap().flushes
    }

    /// Returns every path on the disk, with its attributes of overlays.
    pub fn everything(&self) -> String {
        let find = self.place.bare(&["find", &self.rig.path().display().to_string()]);
        let words = ["getfattr", "--dump", "--match=trusted.overlay", "--recursive"];
        let directory = self.rig.path().display().to_string();
        let attributes = self.place.bare(&[&words[..], &[directory.as_str()]].concat());
        find.stdout + &attributes.stdout
    }
}

/// Kills the group of `process`, and waits for its end.
pub fn end(process: StartedCommand) {
    process.signal(Signal::KILL).unwrap();
    process.end();
}

/// Runs `script`, which succeeds. Returns what it prints.
pub fn sh(place: &Place, script: &str) -> String {
    let finished = place.bare(&["sh", "-ec", script]);
    assert_eq!(finished.status.code(), Some(0), "{script}: {}", finished.stderr);
    finished.stdout
}

/// Makes the test's mounts show that systemd runs (sd_booted(3)).
pub fn show_systemd(place: &Place) {
    let mount = "mkdir --parents /run/systemd && mount -t tmpfs test /run/systemd";
    sh(
        place,
        &format!("test -d /run/systemd/system || {{ {mount} && mkdir /run/systemd/system; }}"),
    );
}

/// Makes the test's mounts show that systemd does not run.
pub fn hide_systemd(place: &Place) {
    sh(place, "test ! -d /run/systemd/system || mount -t tmpfs test /run/systemd");
}

/// Runs `synconce hold` with `words`.
pub fn hold(place: &Place, words: &[&str]) -> Finished {
    finish(&mut place.synconce(&[&["hold"], words].concat()))
}

/// Writes the file of the hold `name` with one directory.
pub fn configure(place: &Place, name: &str, settings: &str, held: &Path) {
    // A text of JSON is one of TOML.
    let path = serde_json::to_string(held).unwrap();
    let text = format!("{settings}\n[[hold]]\npath = {path}\nkind = \"other\"\n");
    place.write(&format!("{name}.toml"), &text);
}

/// Runs `test` in a process of its own, with a hold whose file begins with `settings`.
pub fn with_hold<T: Fn(&Place, &HoldOnRig<'_>)>(settings: &str, test: T) {
    isolated_with(test, |place, test| {
        let fixture = HoldOnRig::new(place, settings);
        test(place, &fixture);
        fixture.rig.down().unwrap();
    });
}

/// Checks that a command of synconce has failed, and has said `said`. Returns all that it has said.
#[track_caller]
pub fn failed(finished: Finished, said: &[&str]) -> String {
    assert_eq!(finished.status.code(), Some(125), "{}", finished.stderr);
    for said in said {
        assert!(finished.stderr.contains(said), "{said}: {}", finished.stderr);
    }
    finished.stderr
}

/// Checks that the stop fails with `said`, and that the hold is not over.
#[track_caller]
pub fn refused(fixture: &HoldOnRig<'_>, said: &[&str]) {
    fixture.fails("stop", said);
    assert_ne!(fixture.state(), "off");
}

/// Starts a shell that runs `script`, prints a word when it is done, and stays.
pub fn stays(place: &Place, words: &[&str], script: &str) -> StartedCommand {
    let script = format!("{script}; echo ready; exec sleep 600");
    let process =
        StartedCommand::new(place.command(words[0]).args(&words[1..]).args(["-ec", &script]));
    eventually("the shell is ready", || process.text().contains("ready\n"));
    process
}

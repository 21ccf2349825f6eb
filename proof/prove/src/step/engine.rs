//! The engine of a build: mounts a root, calls the runtime, and records the layer.

use crate::Result;
use crate::config::DiskKind;
use crate::recording::finish;
use crate::tool::Tool;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::json;
use std::ffi::CString;
use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use synconce_testkit::manifest::{Manifest, ManifestOptions};
use synconce_testkit::patiently;
use synconce_testkit::rig::Rig;
use tempfile::TempDir;

/// Files of the layer below.
const FILES: usize = 60;
/// Far longer than a step takes.
const LIMIT: Duration = Duration::from_secs(60);
/// The content of the database, without and with the layer.
const WITHOUT: [u8; 4096] = [b'-'; 4096];
const WITH: [u8; 4096] = [b'+'; 4096];
const STEP: &str = "chown -R 1:1 /data; i=0; mkdir /new; \
    while [ $i -lt 40 ]; do echo content $i >/new/$i; i=$((i+1)); done; \
    cp -r /data /copy; mv /new/1 /moved; rm /data/2; dd if=/data/3 of=/data/4 2>/dev/null; sync";

/// How the engine calls the runtime.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// BuildKit: `run`.
    Run,
    /// A shim of containerd: `create`, `start`, and `delete` after the step. If `is_used`, a
    /// process of the host has a file of the root open until the layer is recorded.
    CreateAndDelete { is_used: bool },
}

pub(super) struct StepEngine {
    rig: Rig,
    calls: Calls,
    control: TempDir,
    program: PathBuf,
    mutant: Option<&'static str>,
}

impl StepEngine {
    /// Makes the disk with the layers and, elsewhere, the bundle.
    pub(super) fn new(disk: DiskKind, tool: &Tool, calls: Calls) -> Result<Self> {
        let (program, mutant) = match tool {
            Tool::Synconce(program) => (program.clone(), None),
            Tool::Mutant { program, mutant, .. } => (program.clone(), Some(*mutant)),
            _ => return Err("only the tool itself is a runtime".into()),
        };
        let control = tempfile::Builder::new().prefix("synconce-prove-").tempdir_in("/dev/shm")?;
        let rig = disk.rig(384 << 20).record(true).up()?;
        let engine = Self { rig, calls, control, program, mutant };
        engine.make_layers()?;
        engine.make_bundle()?;
        Ok(engine)
    }

    pub(super) fn rig(&self) -> &Rig {
        &self.rig
    }

    /// Returns the directory of the background load.
    pub(super) fn own(&self) -> PathBuf {
        self.rig.path().join("background_load")
    }

    pub(super) fn upper(&self) -> PathBuf {
        self.rig.path().join("upper")
    }

    pub(super) fn layer(&self) -> Result<Manifest> {
        layer(self.rig.path())
    }

    fn bundle(&self) -> PathBuf {
        self.control.path().join("executor").join(self.id())
    }

    fn root(&self) -> PathBuf {
        self.bundle().join("rootfs")
    }

    /// Returns an id of 25 letters and digits, as BuildKit makes them. No other container has it:
    /// the directory's name is random.
    fn id(&self) -> String {
        let name = self.control.path().file_name().unwrap_or_default().to_string_lossy();
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        format!("{:0>25}", name.to_lowercase())
    }

    fn make_layers(&self) -> Result<()> {
        let disk = self.rig.path();
        for name in ["lower/data", "lower/etc", "lower/proc", "upper", "work", "background_load"] {
            fs::create_dir_all(disk.join(name))?;
        }
        for at in 0..FILES {
            fs::write(disk.join(format!("lower/data/{at}")), vec![at as u8; at * 300])?;
        }
        fs::copy("/bin/busybox", disk.join("lower/busybox"))?;
        fs::write(disk.join("database"), WITHOUT)?;
        finish("sync", patiently(LIMIT), Command::new("sync").arg("-f").arg(disk))
    }

    fn make_bundle(&self) -> Result<()> {
        fs::create_dir_all(self.root())?;
        let rights = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER"];
        let namespaces = ["pid", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
        // A file of /etc is mounted, so the runtime makes a stub for it.
        let hosts = self.control.path().join("hosts");
        fs::write(&hosts, "127.0.0.1 localhost\n")?;
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": ["/busybox", "sh", "-ec", STEP],
                "env": ["PATH=/bin"],
                "cwd": "/",
                "capabilities": {"bounding": rights, "effective": rights, "permitted": rights},
            },
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/etc/hosts", "type": "bind", "source": hosts,
                 "options": ["bind", "ro"]},
            ],
            "linux": {"namespaces": namespaces},
        });
        fs::write(self.bundle().join("config.json"), config.to_string())?;
        std::os::unix::fs::symlink(&self.program, self.control.path().join("runc"))?;
        Ok(fs::write(self.control.path().join("oci.toml"), "step-root = \"volatile\"\n")?)
    }

    /// Executes the step, and records the layer.
    pub(super) fn build(&self) -> Result<()> {
        let disk = self.rig.path().display();
        let data =
            format!("lowerdir={disk}/lower,upperdir={disk}/upper,workdir={disk}/work,index=off");
        let data = CString::new(data)?;
        mount("overlay", self.root(), "overlay", MountFlags::empty(), data.as_c_str())?;
        let ran = self.run();
        let cleaned = ran.and_then(|used| self.remove_stub().map(|()| used));
        unmount(self.root(), UnmountFlags::empty())?;
        let _used = cleaned?;
        self.record()
    }

    /// Runs the step. Returns the file of the root that is open.
    fn run(&self) -> Result<Option<File>> {
        let bundle = self.bundle();
        let log = match self.calls {
            Calls::Run => self.control.path().join("executor/runc-log.json"),
            Calls::CreateAndDelete { .. } => bundle.join("log.json"),
        };
        let make = |verb| {
            let mut command = self.runtime(&log);
            command.arg(verb).arg("--bundle").arg(&bundle).arg(self.id());
            command
        };
        let mut used = None;
        match self.calls {
            Calls::Run => finish("the step", patiently(LIMIT), &mut make("run"))?,
            Calls::CreateAndDelete { is_used } => {
                // The container inherits standard output.
                let mut create = make("create");
                create.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                finish("create", patiently(LIMIT), &mut create)?;
                let file = self.root().join("data/5");
                used = is_used.then(|| File::open(file)).transpose()?;
                finish("start", patiently(LIMIT), self.runtime(&log).arg("start").arg(self.id()))?;
                self.wait(&log)?;
                let mut delete = self.runtime(&log);
                finish("delete", patiently(LIMIT), delete.arg("delete").arg(self.id()))?;
            }
        }
        let log = fs::read_to_string(log)?;
        if log.contains("the root of this step is volatile") {
            Ok(used)
        } else {
            Err(format!("the root was not volatile: {log}").into())
        }
    }

    /// Returns a call of the runtime, up to its verb.
    fn runtime(&self, log: &Path) -> Command {
        let control = self.control.path();
        let mut command = Command::new(control.join("runc"));
        // The directory is named after a namespace of containerd.
        command.arg("--root").arg(control.join("buildkit")).arg("--log").arg(log);
        command.args(["--log-format", "json"]).env("SYNCONCE_OCI_FILE", control.join("oci.toml"));
        command.env("SYNCONCE_RUNTIME_DIR", control.join("runtime"));
        if let Some(mutant) = self.mutant {
            command.env("SYNCONCE_MUTANT", mutant);
        }
        command
    }

    /// Waits until the container has no process.
    fn wait(&self, log: &Path) -> Result<()> {
        let end = Instant::now() + patiently(LIMIT);
        while Instant::now() < end {
            let state = self.runtime(log).arg("state").arg(self.id()).output()?;
            if String::from_utf8_lossy(&state.stdout).contains("\"stopped\"") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("the step does not end".into())
    }

    /// Removes the stub of a mount, as BuildKit's `MountStubsCleaner` does.
    fn remove_stub(&self) -> Result<()> {
        let above = self.root().join("etc");
        let found = above.metadata()?;
        fs::remove_file(above.join("hosts"))?;
        let times =
            FileTimes::new().set_accessed(found.accessed()?).set_modified(found.modified()?);
        Ok(File::open(&above)?.set_times(times)?)
    }

    fn record(&self) -> Result<()> {
        let mut database = File::options().write(true).open(self.rig.path().join("database"))?;
        database.write_all(&WITH)?;
        Ok(database.sync_data()?)
    }
}

/// Whether the database on `disk` has the layer.
pub(super) fn is_recorded(disk: &Path) -> Result<bool> {
    Ok(fs::read(disk.join("database"))? == WITH)
}

/// Returns the content of the layer on `disk`.
pub(super) fn layer(disk: &Path) -> Result<Manifest> {
    Ok(Manifest::with(disk.join("upper"), &ManifestOptions::default().mtimes())?)
}

//! Bundles as the engines make them, and containers of real runtimes.

use rustix::mount::{UnmountFlags, unmount};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_sys::search;
use synconce_testkit::harness::Cgroups;
use synconce_testkit::harness::{Place, finish};
use synconce_testkit::process::Finished;

/// What the probe prints bare, under a profile that allows every call.
pub const BARE: &str = "fsync EBADF\nfdatasync EBADF\nsyncfs EBADF\nsync_file_range EBADF\n\
                        msync EINVAL\nmsync-async EINVAL\nio_uring EFAULT\nopenat2 EINVAL\n";
/// What the probe prints under a sealed hold.
pub const HELD: &str = "fsync 0\nfdatasync 0\nsyncfs 0\nsync_file_range 0\n\
                        msync 0\nmsync-async EINVAL\nio_uring ENOSYS\nopenat2 EINVAL\n";

/// A runtime, bare and wrapped by synconce.
pub struct Runtime<'a> {
    place: &'a Place,
    /// `runc` or `crun`.
    name: &'static str,
    /// synconce, linked under the name of the runtime.
    wrapper: PathBuf,
    cgroups: Cgroups,
}

impl<'a> Runtime<'a> {
    pub fn new(place: &'a Place, name: &'static str) -> Self {
        // crun does not accept a hybrid hierarchy as either version of control groups.
        let _ = unmount("/sys/fs/cgroup/unified", UnmountFlags::DETACH);
        std::fs::create_dir_all(place.path("before")).unwrap();
        let wrapper = place.path("before").join(name);
        let _ = std::fs::remove_file(&wrapper);
        std::os::unix::fs::symlink(synconce_testkit::harness::binary(), &wrapper).unwrap();
        Self { place, name, wrapper, cgroups: Cgroups::unique() }
    }

    /// Returns the id of container `name`.
    pub fn id(&self, name: &str) -> String {
        self.cgroups.id(name)
    }

    /// Returns an id in BuildKit's format.
    pub fn short(&self) -> &str {
        self.cgroups.short()
    }

    /// Returns the command of the runtime itself, with a state directory for this test.
    pub fn bare(&self) -> Command {
        // By its path, as synconce executes it: the runtime's errors begin with the path.
        let found = search::find(self.name).expect("a need of the test");
        self.with_state(self.place.command(found.to_str().expect("UTF-8")))
    }

    /// Returns the command of the runtime wrapped by synconce.
    pub fn wrapped(&self) -> Command {
        let mut command = self.place.command("env");
        command.env("SYNCONCE_OCI_FILE", self.place.path("oci.toml"));
        self.with_state({
            command.arg(&self.wrapper);
            command
        })
    }

    fn with_state(&self, mut command: Command) -> Command {
        command.arg("--root").arg(self.place.path("containers"));
        command
    }

    /// Runs the probe as a step of a build by BuildKit.
    pub fn step(&self, config: &Value) -> Finished {
        finish(&mut self.step_command(config))
    }

    /// Returns the command of [`Self::step`].
    pub fn step_command(&self, config: &Value) -> Command {
        let id = self.cgroups.short();
        let bundle = self.bundle(&format!("executor/{id}"), config);
        let mut command = self.wrapped();
        command.arg("--log").arg(self.place.path("executor/runc-log.json"));
        command.args(["--log-format", "json", "run", "--bundle"]).arg(bundle).arg(id);
        command
    }

    /// Runs the probe as an ordinary container, by `command`.
    pub fn ordinary(&self, mut command: Command, config: &Value) -> Finished {
        let bundle = self.bundle("ordinary", config);
        finish(command.args(["run", "--bundle"]).arg(bundle).arg(self.id("ordinary")))
    }

    /// Makes the bundle `name` with the probe in its root.
    pub fn bundle(&self, name: &str, config: &Value) -> PathBuf {
        let bundle = self.place.path(name);
        let root = bundle.join("rootfs");
        std::fs::create_dir_all(&root).unwrap();
        std::fs::copy(probe(self.place), root.join("probe")).unwrap();
        std::fs::write(bundle.join("config.json"), config.to_string()).unwrap();
        bundle
    }
}

/// Returns the compiled probe, for any root: the probe is static.
pub fn probe(place: &Place) -> PathBuf {
    compiled(place, "probe", include_str!("probe.c"))
}

/// Returns the static program `name` that is compiled from `source`, for any root, in `place`.
pub fn compiled(place: &Place, name: &str, source: &str) -> PathBuf {
    let program = place.path(name);
    if !program.exists() {
        std::fs::copy(cached(place, name, source), &program).unwrap();
    }
    program
}

/// Compiles `source`, once for all tests of a build directory.
fn cached(place: &Place, name: &str, source: &str) -> PathBuf {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    let program = cache.join(format!("{name}-{:x}", hasher.finish()));
    if !program.exists() {
        let source = place.write(&format!("{name}.c"), source);
        let part = place.path(&format!("{name}.part"));
        let mut compiler = place.command("cc");
        let built = finish(compiler.args(["-O1", "-static", "-o"]).arg(&part).arg(source));
        assert!(built.status.success(), "{}", built.stderr);
        std::fs::create_dir_all(&cache).unwrap();
        std::fs::rename(part, &program).unwrap();
    }
    program
}

/// Returns the configuration of a container that runs the probe, without a profile, network
/// and limits.
pub fn config() -> Value {
    let namespaces = ["pid", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": ["/probe"],
            "env": ["PATH=/"],
            "cwd": "/",
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": false},
        "hostname": "probe",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
        ],
        "linux": {"namespaces": namespaces},
    })
}

/// Returns [`config`] with a profile that refuses calls which it does not name, like Docker's.
pub fn with_profile(extra: &[Value]) -> Value {
    let mut config = config();
    let allowed: Vec<_> = ALLOWED.split_whitespace().collect();
    let mut rules = vec![json!({"names": allowed, "action": "SCMP_ACT_ALLOW"})];
    rules.extend_from_slice(extra);
    config["linux"]["seccomp"] = json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": rules,
    });
    config
}

/// The calls that the probe needs, and those of a runtime before it executes the probe.
const ALLOWED: &str = "\
    arch_prctl brk capget capset chdir clone clone3 close dup dup3 epoll_create1 \
    epoll_ctl epoll_pwait eventfd2 execve exit exit_group faccessat2 fchdir fcntl \
    fdatasync fstat fstatfs fsync futex getcwd getdents64 getgid getpid getppid \
    getrandom gettid getuid io_uring_setup ioctl lseek madvise mmap mprotect msync \
    munmap nanosleep newfstatat openat openat2 pause pipe2 prctl pread64 prlimit64 read \
    readlink readlinkat rseq rt_sigaction rt_sigprocmask rt_sigreturn sched_getaffinity \
    sched_yield set_robust_list set_tid_address setgid setgroups setresgid setresuid \
    setuid sigaltstack statfs statx sync_file_range syncfs tgkill umask uname write \
    writev";

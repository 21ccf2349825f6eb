//! A small Debian root, made once, and copied to each disk.

use crate::Result;
use crate::recording::finish;
use crate::tool::Tool;
use crate::work::is_installed;
use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use synconce_testkit::manifest::{Manifest, ManifestOptions};
use synconce_testkit::patiently;
use tempfile::TempDir;

/// A script that executes the command which `synconce status` prints.
pub(super) const MEND: &str = include_str!("mend.sh");
/// The scripts of the udeb.
const HOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/installer");
/// How long a script may take: far longer than it needs.
const LIMIT: Duration = Duration::from_secs(60);
/// Paths that may differ after a cut: files that dpkg writes before its first sync and removes at
/// its next call, configuration files that a mend saves, and the daily copies of dpkg's database.
const IGNORED: [&str; 6] = [
    "etc/*.dpkg-old",
    "var/backups",
    "var/lib/dpkg/diversions-new",
    "var/lib/dpkg/updates/tmp.i",
    "var/lib/dpkg/tmp.ci",
    "var/lib/dpkg/lock*",
];

/// Returns why no root can be made here.
pub(super) fn missing() -> Option<String> {
    if !Path::new(&format!("/usr/lib/{ARCH}-linux-gnu")).is_dir() {
        return Some("the machine is no Debian of this architecture".to_owned());
    }
    let programs = ["dpkg", "dpkg-deb", "apt-get", "unshare", "dash"];
    let missing = programs.into_iter().find(|program| !is_installed(program))?;
    Some(format!("{missing} is not installed"))
}

/// The directory from which roots are copied.
#[derive(Default)]
pub(super) struct RootTemplate(Mutex<Option<TempDir>>);

impl RootTemplate {
    /// Copies the base to `root`. Makes the base first if there is none.
    pub(super) fn copy_to(&self, root: &Root) -> Result<()> {
        let mut base = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if base.is_none() {
            let made = tempfile::Builder::new().prefix("synconce-prove-").tempdir_in("/dev/shm")?;
            let mut script = Command::new("sh");
            script.args(["-euc", include_str!("base.sh"), "base"]).arg(made.path());
            finish("a small root", patiently(LIMIT), &mut script)?;
            let inside = Root { path: made.path().to_owned(), ..root.clone() };
            // As Debian's dpkg-db-backup(8) does each day.
            let copy =
                "mkdir -p /var/backups && cp /var/lib/dpkg/status /var/backups/dpkg.status.0";
            inside.run(&format!("apt-get update && apt-get install --yes alpha && {copy}"))?;
            *base = Some(made);
        }
        let Some(base) = base.as_ref() else { return Err("the base has gone".into()) };
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--no-target-directory"]).arg(base.path()).arg(&root.path);
        finish("a copy of the root", patiently(LIMIT), &mut copy)
    }
}

/// A root on a disk.
#[derive(Clone)]
pub(super) struct Root {
    path: PathBuf,
    program: PathBuf,
    mutant: Option<&'static str>,
}

impl Root {
    /// Returns the root on the disk at `disk`, in which `tool` is the synconce.
    pub(super) fn new(disk: &Path, tool: &Tool) -> Result<Self> {
        let (program, mutant) = match tool {
            Tool::Synconce(program) => (program.clone(), None),
            Tool::Mutant { program, mutant, .. } => (program.clone(), Some(*mutant)),
            _ => return Err("only the tool itself sets apt up".into()),
        };
        Ok(Self { path: disk.join("root"), program, mutant })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `script` in the root. A script that fails is an error.
    pub(super) fn run(&self, script: &str) -> Result<()> {
        self.run_as(script, self.mutant, None)
    }

    /// Does the same as [`Self::run`] with the whole tool, also if the row is of a mutant.
    pub(super) fn prepare(&self, script: &str) -> Result<()> {
        self.run_as(script, None, None)
    }

    /// Runs `script` in an installer whose `/target` is the root. A script that fails is an error.
    pub(super) fn install(&self, script: &str) -> Result<()> {
        self.run_as(script, self.mutant, Some(HOOKS))
    }

    fn run_as(&self, script: &str, mutant: Option<&str>, hooks: Option<&str>) -> Result<()> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-euc", include_str!("enter.sh"), "enter"]);
        command.arg(&self.path).arg(&self.program).arg(script).args(hooks).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin:/tools").env("LC_ALL", "C");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command.envs(mutant.map(|mutant| ("SYNCONCE_MUTANT", mutant)));
        finish(script, patiently(LIMIT), &mut command)
    }

    pub(super) fn sync(&self) -> Result<()> {
        finish("sync", patiently(LIMIT), Command::new("sync").arg("-f").arg(&self.path))
    }

    /// Returns the content of the root.
    pub(super) fn manifest(&self) -> Result<Manifest> {
        let mut options = ManifestOptions::default().ignore_calls_of_apt()?;
        for path in IGNORED {
            options = options.ignore(path)?;
        }
        Ok(Manifest::with(&self.path, &options)?)
    }
}

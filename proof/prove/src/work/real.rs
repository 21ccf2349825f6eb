//! Real workloads: programs of everyday use, with all their processes and users.

use crate::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_sys::search;
use synconce_testkit::{patiently, process};

/// A program of everyday use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Real {
    /// apt installs two small packages into a Debian root.
    Apt,
    /// apt installs a compiler with its dependencies: 55 packages.
    AptMany,
    /// git clones, commits and packs.
    Git,
    /// A PostgreSQL cluster is created, loaded and stopped.
    Postgres,
    /// Two SQLite databases are loaded.
    Sqlite,
    /// tar unpacks as many files as a kernel source has.
    Untar,
}

/// Where `synconce bench install` keeps its base roots.
const BASES: &str = "/var/cache/synconce";
/// Far longer than any of them takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(1200);
const POSTGRES: &str = "/usr/lib/postgresql";

impl Real {
    pub(crate) const ALL: [Self; 6] =
        [Self::Apt, Self::AptMany, Self::Git, Self::Postgres, Self::Sqlite, Self::Untar];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Apt => "real: apt, 2 packages",
            Self::AptMany => "real: apt, 55 packages",
            Self::Git => "real: git clone, gc",
            Self::Postgres => "real: initdb, pgbench",
            Self::Sqlite => "real: sqlite3",
            Self::Untar => "real: tar x, 60000 files",
        }
    }

    /// Returns why the workload cannot run here.
    pub(crate) fn missing(self) -> Option<String> {
        let programs: &[&str] = match self {
            Self::Apt | Self::AptMany => &["tar", "unshare", "chroot"],
            Self::Git => &["git", "perl"],
            Self::Postgres => &["unshare", "runuser"],
            Self::Sqlite => &["sqlite3", "perl"],
            Self::Untar => &["tar", "perl"],
        };
        if let Some(program) = programs.iter().find(|program| !is_installed(program)) {
            return Some(format!("{program} is not installed"));
        }
        match self {
            Self::Apt | Self::AptMany if base().is_none() => Some(format!(
                "no {BASES}/install-*.tar; `synconce bench install --rounds 1` makes it"
            )),
            Self::Postgres if !Path::new(POSTGRES).exists() => {
                Some("the package postgresql is not installed".to_owned())
            }
            _ => None,
        }
    }

    /// Returns the size of the disk in bytes.
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::Git | Self::Sqlite => 512 << 20,
            Self::Postgres => 1 << 30,
            Self::Apt | Self::Untar => 2 << 30,
            Self::AptMany => 3 << 30,
        }
    }

    /// Prepares the tree before the run.
    pub(crate) fn prepare(self, tree: &Path) -> Result<()> {
        let mut command = match self {
            Self::Postgres | Self::Sqlite | Self::Untar => return Ok(()),
            Self::Apt | Self::AptMany => {
                // Not the tree itself: the manifest leaves out `var` of the tree.
                let root = tree.join("root");
                fs::create_dir(&root)?;
                let mut command = Command::new("tar");
                command.args(["-xp", "--numeric-owner", "--xattrs", "--xattrs-include=*", "-f"]);
                command.arg(base().ok_or("the base has gone")?).arg("-C").arg(root);
                command
            }
            Self::Git => {
                let mut command = Command::new("sh");
                command.args(["-euc", include_str!("real/git-prepare.sh"), "prepare"]).arg(tree);
                command
            }
        };
        let finished = process::run(&mut command, patiently(LIMIT))?;
        if finished.status.success() {
            Ok(())
        } else {
            Err(format!("{command:?}: {finished:?}").into())
        }
    }

    /// Returns the command line that works in `tree`, in its own mount namespace, with which
    /// its mounts disappear. `control` is not on the disk under test.
    pub(crate) fn words(self, tree: &Path, control: &Path) -> Result<Vec<String>> {
        let (script, extra) = match self {
            Self::Apt => (include_str!("real/apt.sh"), "patch make".to_owned()),
            Self::AptMany => (
                include_str!("real/apt.sh"),
                "build-essential ca-certificates libssl-dev".to_owned(),
            ),
            Self::Git => (include_str!("real/git.sh"), String::new()),
            Self::Postgres => (include_str!("real/postgres.sh"), String::new()),
            Self::Sqlite => (include_str!("real/sqlite.sh"), String::new()),
            Self::Untar => return unpack(tree, control, 4000),
        };
        let script = format!("{}{script}", include_str!("real/first.sh"));
        let tree = tree.display().to_string();
        let words = [
            "unshare",
            "--mount",
            "--propagation",
            "slave",
            "sh",
            "-c",
            &script,
            "work",
            &tree,
            &extra,
        ];
        Ok(words.map(str::to_owned).to_vec())
    }
}

/// Returns the command line that unpacks a tar of `directories` directories of 15 files each
/// in `tree`.
pub(super) fn unpack(tree: &Path, control: &Path, directories: usize) -> Result<Vec<String>> {
    let path = control.join("tree.pl");
    fs::write(&path, include_str!("real/tree.pl"))?;
    let script = r#"cd "$1" && perl "$2" "$3" | tar -x -f -"#;
    let places = [tree, &path].map(|path| path.display().to_string());
    let words = ["sh", "-c", script, "work"].map(str::to_owned).into_iter().chain(places);
    Ok(words.chain([directories.to_string()]).collect())
}

/// Returns the base with the most packages downloaded.
fn base() -> Option<PathBuf> {
    let bases = fs::read_dir(BASES).ok()?.flatten().map(|entry| entry.path());
    let ours = bases.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("install-") && name.ends_with(".tar")
    });
    ours.max_by_key(|path| fs::metadata(path).map_or(0, |data| data.len()))
}

/// Whether a program of this name is in PATH.
pub(crate) fn is_installed(program: &str) -> bool {
    search::find(program).is_some()
}

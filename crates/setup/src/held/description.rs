//! The file that describes a hold: `/etc/synconce/hold.d/NAME.toml`. After a crash of the machine
//! the held files are set aside, and the daemon makes them again. Written without the type of the
//! crate `hold`, which `setup` does not use.

use crate::engine::{Engine, HeldDaemon, header};
use crate::host::Host;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use toml_edit::Value;

/// A hold, as its file describes it. Every path is absolute and free of links.
pub(super) struct Description {
    /// The daemon.
    pub daemon: HeldDaemon,
    /// The set-up that writes the description.
    pub engine: Engine,
    /// The daemon's directories: their file systems have to be mounted first.
    pub directories: Vec<PathBuf>,
    /// The bolt databases that are held.
    pub held: Vec<PathBuf>,
    /// Files that have to agree with the databases, and are set aside with them.
    pub set_aside: Vec<PathBuf>,
    /// What a crash of the machine costs.
    pub cost: &'static str,
    /// The data directory of dockerd, whose unreferenced layers are removed after a wipe.
    pub docker_root: Option<PathBuf>,
}

impl Description {
    /// Returns the text of the file; `unit` is the daemon's systemd unit.
    pub fn text(&self, host: &Host, unit: Option<&str>) -> String {
        let mut text = header(self.engine);
        let mut line = |key: &str, value: Value| {
            // A String takes every write.
            let _ = writeln!(text, "{key} = {value}");
        };
        if let Some(unit) = unit {
            line("unit", unit.into());
        }
        line("after_crash", "wipe".into());
        line("cost", self.cost.into());
        if let Some(root) = &self.docker_root {
            line("docker_root", quoted(root));
        }
        text.push_str("set_aside = [\n");
        for path in &self.set_aside {
            let _ = writeln!(text, "  {},", quoted(&whole(host, path)));
        }
        text.push_str("]\n");
        for path in &self.held {
            let _ = write!(text, "\n[[hold]]\npath = {}\nkind = \"bolt\"\n", quoted(path));
        }
        text
    }
}

/// Returns how many databases `after` holds that `before` does not, if nothing else differs.
pub(super) fn added(before: &str, after: &str) -> Option<usize> {
    // Each part describes one database.
    let parts = |text: &str| text.split("\n[[hold]]\n").map(str::to_owned).collect::<Vec<_>>();
    let (before, after) = (parts(before), parts(after));
    let is_kept = before.iter().all(|part| after.contains(part));
    (is_kept && after.len() > before.len()).then(|| after.len() - before.len())
}

/// Returns `path`, or `path/*` if `path` is a mount point, which cannot be renamed.
fn whole(host: &Host, path: &Path) -> PathBuf {
    if host.is_mount_point(path) { path.join("*") } else { path.to_owned() }
}

fn quoted(path: &Path) -> Value {
    path.to_str().unwrap_or_default().into()
}

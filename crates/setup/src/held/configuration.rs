//! The configuration of containerd, as far as its databases are concerned.

use crate::containerd::{lines, main};
use crate::error::{Error, NotEdited};
use crate::held::place::{Configured, place};
use crate::host::Host;
use crate::imports::{self, ImportedFile};
use crate::systemd::Service;
use crate::toml::Toml;
use std::path::{Path, PathBuf};

/// containerd, by its configuration.
pub(super) struct Configuration {
    /// The parsed files in the order in which they count.
    pub parts: Vec<ImportedFile>,
    /// The directory of persistent data.
    pub root: PathBuf,
    /// The directory of data that does not outlive the machine's boot.
    pub state: PathBuf,
}

impl Configuration {
    /// Reads the configuration of the containerd of `host`.
    ///
    /// # Errors
    /// A file that cannot be read or parsed; a directory whose place is not known.
    pub fn read(host: &Host) -> Result<Self, Error> {
        let service = Service::read(host, "containerd", Path::new(""))?;
        service.check_program(host, "containerd")?;
        let main = main(host, &service)?;
        let (resolved, text) = host.text(&main)?;
        let in_main = |fault: NotEdited| Error::from(fault.in_file(&host.real(&resolved)));
        let toml = Toml::parse(&lines(text.as_deref())).map_err(in_main)?;
        let imports = toml.texts(&["imports"]).map_err(in_main)?.unwrap_or_default();
        let mut parts = vec![ImportedFile { path: main.clone(), toml }];
        parts.extend(imports::read(host, &main, &imports, None)?);
        let root = last(host, &parts, &["root"])?;
        let root = place(host, &service, &["--root"], root, "/var/lib/containerd")?;
        let state = last(host, &parts, &["state"])?;
        let state = place(host, &service, &["--state"], state, "/run/containerd")?;
        Ok(Self { parts, root, state })
    }
}

/// Returns the last text at `keys` that is not empty, as containerd merges its files.
pub(super) fn last(
    host: &Host,
    parts: &[ImportedFile],
    keys: &[&str],
) -> Result<Option<Configured>, Error> {
    let mut found = None;
    for ImportedFile { path, toml } in parts {
        let in_file = |fault: NotEdited| Error::from(fault.in_file(&host.real(path)));
        let text = toml.text(keys).map_err(in_file)?.filter(|(text, _)| !text.is_empty());
        if let Some((text, line)) = text {
            found = Some(Configured { directory: text.to_owned(), file: path.clone(), line });
        }
    }
    Ok(found)
}

//! The configuration of containerd, as far as its databases are concerned.

use crate::containerd::main;
use crate::error::Error;
use crate::held::place::{Configured, place};
use crate::host::Host;
use crate::imports;
use crate::systemd::Service;
use crate::toml::TomlFile;
use std::path::{Path, PathBuf};

/// containerd, by its configuration.
pub(super) struct Configuration {
    /// The parsed files in the order in which they count.
    pub parts: Vec<TomlFile>,
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
        let main = TomlFile::read(host, &main(host, &service)?)?;
        let parts = imports::read(host, main, None)?;
        let root = last(&parts, &["root"])?;
        let root = place(host, &service, &["--root"], root, "/var/lib/containerd")?;
        let state = last(&parts, &["state"])?;
        let state = place(host, &service, &["--state"], state, "/run/containerd")?;
        Ok(Self { parts, root, state })
    }
}

/// Returns the last text at `keys` that is not empty, as containerd merges its files.
pub(super) fn last(parts: &[TomlFile], keys: &[&str]) -> Result<Option<Configured>, Error> {
    let mut found = None;
    for part in parts {
        if let Some((text, line)) = part.text(keys)?
            && !text.is_empty()
        {
            let (directory, file) = (text.to_owned(), part.real.clone());
            found = Some(Configured { directory, file, line });
        }
    }
    Ok(found)
}

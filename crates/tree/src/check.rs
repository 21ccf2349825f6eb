//! Checks a store against its records, and removes what nothing refers to.

use crate::record::{Layer, Name, Record};
use crate::session::Recovered;
use crate::store::{CONTENT, OPEN, Opened, Store, TREES, open_directory};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use synconce_durable::error::{Context, Error};
use synconce_fs::Progress;

/// A tree with its size and its use.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The tree's record.
    pub record: Record,
    /// Bytes on the disk in layers that no other tree uses. None if a layer has no fingerprint
    /// yet: a whole copy that is not committed.
    pub own: Option<u64>,
    /// Bytes on the disk in layers that other trees use as well.
    pub shared: Option<u64>,
    /// Whether the tree has uncommitted changes.
    pub is_open: bool,
    /// What uses the tree, as text.
    pub used: Option<String>,
}

/// A layer that differs from its fingerprint.
#[derive(Clone, Debug)]
pub struct Altered {
    /// The layer's content.
    pub layer: PathBuf,
    /// The directories below the content in which something differs.
    pub directories: Vec<PathBuf>,
}

impl Store {
    /// Returns every tree with its sizes, and the errors of records that cannot be read.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn list(&self) -> Result<(Vec<Listed>, Vec<Error>), Error> {
        let lock = self.lock_to_read()?;
        let (records, broken) = self.records()?;
        let mut stacks = Vec::new();
        for record in &records {
            let opened = self.opened(record)?;
            let is_open = matches!(opened, Opened::Yes(_));
            let layers = match opened {
                Opened::Yes(layers) => layers,
                Opened::No | Opened::Lost | Opened::Stale => record.layers.clone(),
            };
            let used = self.is_idle(&record.name).err().map(|error| error.io().to_string());
            stacks.push((layers, is_open, used));
        }
        drop(lock);
        let mut users: HashMap<&str, u32> = HashMap::new();
        for layer in stacks.iter().flat_map(|(layers, ..)| layers) {
            *users.entry(&layer.id).or_default() += 1;
        }
        let mut sizes = HashMap::new();
        for id in users.keys() {
            sizes.insert(*id, self.fingerprint(id).ok().map(|fingerprint| fingerprint.bytes));
        }
        let sum = |layers: &[Layer], shared: bool| -> Option<u64> {
            let wanted = layers.iter().filter(|layer| (users[layer.id.as_str()] > 1) == shared);
            wanted.map(|layer| sizes[layer.id.as_str()]).sum()
        };
        let listed = records.into_iter().zip(&stacks);
        let listed = listed.map(|(record, (layers, is_open, used))| Listed {
            own: sum(layers, false),
            shared: sum(layers, true),
            is_open: *is_open,
            used: used.clone(),
            record,
        });
        Ok((listed.collect(), broken))
    }

    /// Compares each entry of the tree's layers with the layer's fingerprint, and returns the
    /// layers that differ. Owner, mode, size, times and inode number are compared; content is
    /// not.
    ///
    /// # Errors
    /// The error names the act and the path.
    pub fn verify(&self, name: &Name, progress: &dyn Progress) -> Result<Vec<Altered>, Error> {
        let mut altered = Vec::new();
        let reading = self.reading(name)?;
        let committed = reading.committed();
        let is_due = |layer: &&Layer| committed.contains(layer) || self.has_fingerprint(&layer.id);
        for layer in reading.source().layers.iter().filter(is_due) {
            let directories = self.altered(&layer.id, progress)?;
            if !directories.is_empty() {
                altered.push(Altered { layer: self.content(&layer.id), directories });
            }
        }
        Ok(altered)
    }

    /// Removes interrupted sessions and layers that nothing refers to, and returns what was
    /// recovered and the number of layers. The trash is not emptied.
    ///
    /// # Errors
    /// The error names the act and the path. If a record cannot be read, no layer is removed.
    pub fn collect(&self) -> Result<(Recovered, u64), Error> {
        let recovered = self.recover()?;
        let _lock = self.lock()?;
        self.sweep_unfinished()?;
        let dropped = self.drop_unreferenced(&self.layers()?)?;
        Ok((recovered, dropped))
    }

    /// Removes temporary files of records whose write was interrupted by a crash.
    fn sweep_unfinished(&self) -> Result<(), Error> {
        for directory in [TREES, OPEN].map(|name| self.path().join(name)) {
            for entry in fs::read_dir(&directory).on("cannot read", &directory)? {
                let entry = entry.on("cannot read", &directory)?;
                if entry.file_name().as_encoded_bytes().starts_with(b".") {
                    fs::remove_file(entry.path()).on("cannot remove", &entry.path())?;
                }
            }
        }
        Ok(())
    }

    /// Returns what is wrong with the store, in the order in which it was found. Each tree is
    /// checked as of one moment; other commands may change the tree meanwhile.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn check(&self, progress: &dyn Progress) -> Result<Vec<Error>, Error> {
        let (records, mut faults) = self.records()?;
        let mut looked_at = std::collections::HashSet::new();
        for Record { name, .. } in &records {
            let reading = match self.reading(name) {
                // The tree was removed meanwhile.
                Err(error) if error.io().kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            let committed = reading.committed();
            let open = reading.source().layers.iter();
            let open = open.filter(|layer| self.has_fingerprint(&layer.id));
            for layer in committed.iter().chain(open) {
                if looked_at.insert(layer.id.clone()) {
                    faults.extend(self.fault_of(layer, progress));
                }
            }
            if committed.is_empty() {
                let path = self.path().join(TREES).join(name.as_str());
                faults.push(Error::new("no layer in", &path, Errno::NOENT));
            }
        }
        Ok(faults)
    }

    fn fault_of(&self, layer: &Layer, progress: &dyn Progress) -> Option<Error> {
        if let Err(error) = self.is_there(layer) {
            return Some(error);
        }
        match self.altered(&layer.id, progress) {
            Err(error) => Some(error),
            Ok(altered) if altered.is_empty() => None,
            Ok(altered) => {
                let path = self.content(&layer.id).join(&altered[0]);
                let why = format!("{} directories are not as they were frozen", altered.len());
                Some(Error::new("altered below", &path, io::Error::other(why)))
            }
        }
    }

    fn is_there(&self, layer: &Layer) -> Result<(), Error> {
        let directory = open_directory(&self.layer(&layer.id))?;
        let path = self.content(&layer.id);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let content = rustix::fs::openat(&directory, CONTENT, flags, Mode::empty());
        let content = content.on("cannot open", &path)?;
        let mode = rustix::fs::fstat(&content).on("cannot look at", &path)?.st_mode;
        match FileType::from_raw_mode(mode) {
            FileType::Directory => Ok(()),
            _ => Err(Error::new("cannot use", &path, Errno::NOTDIR)),
        }
    }
}

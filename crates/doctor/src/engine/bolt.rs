//! The databases of an engine: files of bbolt. Only meta pages and the header of the list of free
//! pages are read.

use super::ContainerEngine;
use crate::regular_file;
use serde::Serialize;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_durable::text;
use synconce_probe::bolt::{self, FreeList};
use synconce_sys::reason;

/// What cannot be looked at.
const DATABASES: &str = "databases of the engine";
/// The database of BuildKit that BuildKit itself never syncs (`bboltcachestorage`).
const UNSYNCED: &str = "cache.db";
/// The transactions of each database in 10 builds of one COPY and one RUN, rounded down (dockerd
/// 20.10 without a cache).
const OF_BUILDS: [(&str, f64); 3] =
    [("metadata_v2.db", 450.0), ("containerdmeta.db", 120.0), ("snapshots.db", 90.0)];
/// Those in imports of 20 images of 8 layers (docs/benchmarks.md).
const OF_IMPORTS: [(&str, f64); 1] = [("meta.db", 1_200.0)];

/// A database of bbolt, as its pages say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BoltDatabase {
    /// The file.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// The transactions since the database was made.
    pub transactions: u64,
    /// The bytes of a page.
    pub page_bytes: u64,
    /// The pages that are free.
    pub free_pages: Option<u64>,
    /// The bytes of the list of free pages, which each transaction writes; none with the option
    /// NoFreelistSync of bbolt, as of containerd since 1.7.
    pub free_list_bytes: Option<u64>,
    /// Whether each transaction is synced.
    pub is_synced: bool,
}

impl BoltDatabase {
    /// Returns the name of the file.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn read(path: PathBuf) -> io::Result<Self> {
        let file = regular_file::open(&path)?;
        let (meta, list) = bolt::look(&file)?;
        Ok(Self {
            bytes: file.metadata()?.len(),
            transactions: meta.transaction,
            page_bytes: meta.page_size,
            free_pages: list.map(|FreeList { pages, .. }| pages),
            free_list_bytes: list.map(|FreeList { bytes, .. }| bytes),
            is_synced: path.file_name().is_none_or(|name| name != UNSYNCED),
            path,
        })
    }
}

/// The directories with the databases of a daemon.
#[derive(Clone, Copy)]
pub(super) enum DatabasesOf<'a> {
    /// BuildKit in dockerd, by the data root of dockerd.
    Docker(&'a Path),
    Buildkit(&'a Path),
    Containerd(&'a Path),
}

impl DatabasesOf<'_> {
    fn root(&self) -> &Path {
        match self {
            Self::Docker(root) | Self::Buildkit(root) | Self::Containerd(root) => root,
        }
    }

    fn directories(&self) -> Vec<PathBuf> {
        let below = |root: &Path, prefix: &str| {
            let entries = fs::read_dir(root).into_iter().flatten().flatten();
            let is_named =
                |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(prefix);
            entries.filter(is_named).map(|entry| entry.path()).collect::<Vec<_>>()
        };
        match self {
            Self::Docker(root) => {
                let root = root.join("buildkit");
                [vec![root.clone()], below(&root, "containerd-")].concat()
            }
            Self::Buildkit(root) => {
                let workers = [below(root, "runc-"), below(root, "containerd-")].concat();
                let snapshots = workers.iter().map(|worker| worker.join("snapshots")).collect();
                [vec![root.to_path_buf()], workers, snapshots].concat()
            }
            Self::Containerd(root) => [
                below(root, "io.containerd.metadata.v1."),
                below(root, "io.containerd.snapshotter.v1."),
            ]
            .concat(),
        }
    }
}

impl ContainerEngine {
    /// Looks at the databases of the daemon. Those on another file system than the data that are
    /// measured are left out, because their syncs take another time.
    pub(super) fn add_databases(&mut self, of: DatabasesOf<'_>) {
        let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
        if device(of.root()) != device(&self.data_root) {
            let why = format!("they are on another file system, in {}", of.root().display());
            self.add_not_measured(DATABASES, why);
            return;
        }
        let directories = of.directories();
        let mut paths: Vec<_> = directories.iter().flat_map(|path| files(path)).collect();
        paths.sort();
        for path in paths {
            let shown = path.display().to_string();
            match BoltDatabase::read(path) {
                Ok(database) => self.bolt.push(database),
                // Removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    self.add_not_measured(DATABASES, format!("{shown}: {}", reason(&error)));
                }
            }
        }
    }

    /// Returns the databases whose transactions are synced.
    pub(crate) fn synced_databases(&self) -> impl Iterator<Item = &BoltDatabase> {
        self.bolt.iter().filter(|database| database.is_synced)
    }

    /// Returns the synced database that writes the most bytes of free pages in builds, or of
    /// containerd in imports, and the number of its transactions.
    pub(crate) fn costliest_free_list(&self) -> Option<(&BoltDatabase, f64)> {
        let counts = if self.name == "containerd" { &OF_IMPORTS[..] } else { &OF_BUILDS };
        let counted = self.synced_databases().filter_map(|database| {
            let name = database.name();
            let (_, count) = counts.iter().find(|(known, _)| *known == name)?;
            Some((database, *count))
        });
        let cost = |(database, count): &(&BoltDatabase, f64)| {
            count * database.free_list_bytes.unwrap_or(0) as f64
        };
        counted.max_by(|a, b| cost(a).total_cmp(&cost(b)))
    }
}

/// Returns the files in `directory` whose names are those of databases.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    // An empty file is a database that is being made.
    let is_file =
        |entry: &fs::DirEntry| entry.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0);
    let is_named = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "db");
    entries.filter(is_file).map(|entry| entry.path()).filter(is_named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::engine;

    #[test]
    fn what_is_no_database_is_said_and_so_is_another_file_system() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let path = root.join("buildkit/broken.db");
        fs::create_dir(root.join("buildkit")).unwrap();
        fs::write(&path, "no database").unwrap();
        for skipped in ["new.db", "text"] {
            fs::write(root.join("buildkit").join(skipped), "").unwrap();
        }
        let of = |engine: &ContainerEngine| {
            let whys = engine.unknown.iter().map(|it| it.why.clone());
            (engine.bolt.len(), whys.collect::<Vec<_>>())
        };
        let mut docker = ContainerEngine { data_root: root.into(), ..engine("overlay2") };
        docker.add_databases(DatabasesOf::Docker(root));
        let why = format!("{}: the page at byte 0 is damaged", path.display());
        assert_eq!(of(&docker), (0, vec![why]));
        let mut elsewhere = ContainerEngine { data_root: root.into(), ..engine("overlay2") };
        elsewhere.add_databases(DatabasesOf::Buildkit(Path::new("/proc")));
        let why = "they are on another file system, in /proc".to_owned();
        assert_eq!(of(&elsewhere), (0, vec![why]));
    }
}
